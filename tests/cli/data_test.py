#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands about data alone, from outside: pack, data inspect.

usage: data_test.py PROGRAM [unittest arguments]
"""
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
import unittest

import program
from program import MODEL, Case, pictures, png


def last_json(out):
    return json.loads(out.strip().splitlines()[-1])


def read(path):
    with open(path, 'rb') as f:
        return f.read()


class Pack(Case):
    def test_help(self):
        text = ' '.join(self.passes('pack', '--help')[0].split())
        for words in ('Examples:', 'FILE.part', '(0 to 65500; default: 0)', '(1 to 100; default: 90)', '(fail, skip; default: fail)'):
            self.assertIn(words, text)
        self.assertIn('pack', self.passes('--help')[0])

    def test_training_with_it_is_training_with_the_source(self):
        out, _ = self.passes('pack', self.data, '--out', self.path('a.dts'))
        self.assertIn('60 pictures of 10 classes in 2 splits', out)
        for name, data in (('folder', self.data), ('packed', self.path('a.dts'))):
            self.passes(*self.train(f'{name}.onnx', data=data))
        self.assertEqual(read(self.path('folder.onnx')), read(self.path('packed.onnx')))
        # a checkpoint of the one goes on with the other
        self.passes(*self.train('x.onnx', '--checkpoint', self.path('x.ckpt')))
        self.passes(*self.train('x.onnx', '--resume', self.path('x.ckpt'), data=self.path('a.dts')))

    def test_json_and_threads(self):
        for threads in ('1', '2', '7'):
            out, err = self.passes('pack', self.data, '--out', self.path(f't{threads}.dts'), '--threads', threads, '--json')
            done = last_json(out)
            self.assertEqual(err, '')
            self.assertEqual({k: done[k] for k in ('event', 'pictures', 'splits', 'classes', 'resized', 'continued', 'bad_files')},
                             {'event': 'pack', 'pictures': 60, 'splits': 2, 'classes': 10, 'resized': 0, 'continued': 0, 'bad_files': 0})
            self.assertEqual(done['bytes'], os.path.getsize(self.path(f't{threads}.dts')))
        self.assertEqual(read(self.path('t1.dts')), read(self.path('t2.dts')))
        self.assertEqual(read(self.path('t1.dts')), read(self.path('t7.dts')))

    def test_short_side(self):
        out, _ = self.passes('pack', self.data, '--out', self.path('s.dts'), '--short-side', '32', '--quality', '80', '--json')
        self.assertEqual(last_json(out)['resized'], 60)
        self.assertLess(os.path.getsize(self.path('s.dts')), 200_000)
        self.passes(*self.train('s.onnx', data=self.path('s.dts')))

    def test_refused(self):
        self.refused('pack', self.data, says='--out is required')
        self.refused('pack', '--out', self.path('r.dts'), says='SOURCE is required')
        self.refused('pack', '', '--out', self.path('r.dts'), says='SOURCE is empty')
        self.refused('pack', '--out', self.path('r.dts'), '', says='SOURCE is empty')
        self.refused('pack', self.data, '--out', self.path('r.dts'), '--quality', '80', says='--quality needs --short-side')
        self.refused('pack', self.data, '--out', self.path('r.dts'), '--quality', '0', says="'0'")
        self.refused('pack', self.path('nothing'), '--out', self.path('r.dts'), says='nothing')
        self.refused('pack', self.data, '--out', self.path('no/such/r.dts'), says=['--out', "can't be written"])
        model = self.path('keep.onnx')
        shutil.copy(MODEL, model)
        self.refused('pack', self.data, '--out', model, says='no .dts file')
        self.assertEqual(read(model), read(MODEL))
        self.assertFalse(os.path.exists(model + '.part'))

    def test_bad_pictures(self):
        data = pictures(self.path('bad'), classes=3)
        with open(os.path.join(data, 'train', 'class1', '1.png'), 'r+b') as f:
            f.truncate(300)
        err = self.refused('pack', data, '--out', self.path('b.dts'), says=["class1/1.png'", 'truncated'])
        self.assertIn('packing again goes on', err)
        out, err = self.passes('pack', data, '--out', self.path('b.dts'), '--bad-files', 'skip')
        self.assertIn('left out', out)
        self.assertIn("class1/1.png'", out)
        self.assertIn('going on with it', err)
        # a record that was damaged later is a bad picture for whoever reads it
        packed = bytearray(read(self.path('b.dts')))
        packed[300] ^= 1
        with open(self.path('b.dts'), 'wb') as f:
            f.write(packed)
        command = ('train', MODEL, '--epochs', '1', '--data', self.path('b.dts'), '--out', self.path('b.onnx'), '--normalize', 'half')
        self.assertIn('3 classes', self.refused(*command))

    def test_damaged_record_follows_the_policy(self):
        self.passes('pack', self.data, '--out', self.path('d.dts'))
        packed = bytearray(read(self.path('d.dts')))
        packed[300] ^= 1
        with open(self.path('d.dts'), 'wb') as f:
            f.write(packed)
        self.refused(*self.train('d.onnx', data=self.path('d.dts')), says=['d.dts/train/class0/0.png', 'checksum is wrong'])
        self.passes(*self.train('d.onnx', '--bad-files', 'skip', data=self.path('d.dts')))

    def test_damaged_files_are_refused_by_name(self):
        self.passes('pack', self.data, '--out', self.path('w.dts'))
        whole = read(self.path('w.dts'))
        for content, says in ((whole[:1000], 'is cut off'), (b'nonsense', 'no packed data set'), (whole[:-1] + b'\xff', "index's checksum"),
                              (whole[:8] + b'\x02' + whole[9:], 'version 2'), (whole + b'more', 'is damaged')):
            with open(self.path('x.dts'), 'wb') as f:
                f.write(content)
            self.refused(*self.train('x.onnx', data=self.path('x.dts')), says=['x.dts', says])

    # Killed after some bytes and after others, the same command ends with the same file.
    def test_kills(self):
        data = self.path('many')
        for i in range(2):
            os.makedirs(os.path.join(data, f'class{i}'))
        png(self.path('one.png'), (10, 20, 30), size=500)
        for k in range(150):
            shutil.copy(self.path('one.png'), os.path.join(data, f'class{k % 2}', f'{k}.png'))
        command = ('pack', data, '--short-side', '300', '--threads', '2', '--json', '--out')
        self.passes(*command, self.path('whole.dts'))
        target, part = self.path('k.dts'), self.path('k.dts.part')
        for share in (0.01, 0.3, 0.6, 0.9):
            running = subprocess.Popen([program.PROGRAM, *command, target], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wanted = share * os.path.getsize(self.path('whole.dts'))
            while not os.path.exists(part) or os.path.getsize(part) < wanted:
                self.assertIsNone(running.poll(), 'it ended before it was killed')
                time.sleep(0.001)
            running.kill()
            running.wait()
            self.assertFalse(os.path.exists(target))
        out, err = self.passes(*command, target)
        self.assertIn('going on with it', err)
        self.assertGreater(last_json(out)['continued'], 100)
        self.assertEqual(read(target), read(self.path('whole.dts')))
        self.assertFalse(os.path.exists(part))

    def test_interruption(self):
        data = self.path('interrupted')
        shutil.copytree(os.path.join(self.data), data)
        png(self.path('large.png'), (10, 20, 30), size=900)
        for k in range(60):
            shutil.copy(self.path('large.png'), os.path.join(data, 'train', 'class3', f'large{k}.png'))
        running = subprocess.Popen([program.PROGRAM, 'pack', data, '--out', self.path('i.dts'), '--threads', '1', '--short-side', '300'],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not os.path.exists(self.path('i.dts.part')) or os.path.getsize(self.path('i.dts.part')) < 1000:
            self.assertIsNone(running.poll())
            time.sleep(0.005)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 130, err)
        self.assertIn('packing was stopped', err)
        self.assertFalse(os.path.exists(self.path('i.dts')))
        _, err = self.passes('pack', data, '--out', self.path('i.dts'), '--short-side', '300')
        self.assertIn('going on with it', err)
        _, err = self.passes('pack', data, '--out', self.path('j.dts'), '--short-side', '300')
        self.assertEqual(err, '')
        self.assertEqual(read(self.path('i.dts')), read(self.path('j.dts')))


class Inspect(Case):
    def test_help(self):
        self.assertIn('inspect', self.passes('data', '--help')[0])
        text = ' '.join(self.passes('data', 'inspect', '--help')[0].split())
        for words in ('Examples:', '--sheet FILE', '(1 to 10000; default: 64)', 'Exit code 1'):
            self.assertIn(words, text)
        self.refused('data', says='a command is missing; there are inspect')
        self.refused('data', 'foo', says="there is no command 'data foo'; there are inspect")
        self.refused('data', 'inspect', self.data, '--sheet-pictures', '0', says='`renaissance data inspect --help`')
        self.refused('data', 'inspect', '', says=['URI is empty', '`renaissance data inspect --help`'])
        self.refused('data', 'inspect', says='URI is required')
        self.refused('data', 'inspect', self.data, '--size', '32', says='need --sheet')
        self.refused('data', 'inspect', self.data, '--sheet', self.path('s.png'), '--size', '32', '--model', MODEL, says='name one')
        self.refused('data', 'inspect', self.path('nothing'), says='nothing')

    def test_findings(self):
        out, _ = self.passes('data', 'inspect', self.data)
        for words in ('60 pictures of 10 classes', 'train: 30 pictures', 'PNG: 60', 'width     40 to 40, median 40', 'nothing is broken',
                      '7  class7          3          3'):
            self.assertIn(words, out)
        found = last_json(self.passes('data', 'inspect', self.data, '--json')[0])
        self.assertEqual(found['formats'], {'PNG': 60})
        self.assertEqual(found['classes'][9], {'label': 9, 'name': 'class9', 'pictures': {'train': 3, 'val': 3}})
        self.assertEqual(found['height'], {'min': 40, 'median': 40, 'max': 40})

    def test_broken_files(self):
        data = pictures(self.path('broken'), classes=2)
        with open(os.path.join(data, 'val', 'class1', '2.png'), 'r+b') as f:
            f.truncate(400)
        shutil.rmtree(os.path.join(data, 'train', 'class0'))
        os.makedirs(os.path.join(data, 'train', 'class0'))   # an empty class is a finding here, no refusal
        self.refused('data', 'inspect', data, code=1, says=['broken: 1', "val/class1/2.png: the PNG file is truncated", '1 of them broken'])
        self.passes('data', 'inspect', data, '--quick')
        code, out, _ = program.run('data', 'inspect', data, '--json')
        self.assertEqual(code, 1)
        found = last_json(out)
        self.assertEqual(found['broken_files'], 1)
        self.assertEqual(found['classes'][0]['pictures'], {'train': 0, 'val': 3})

    # Names may hold anything; what is shown must neither steer the terminal nor look like another line.
    def test_control_characters(self):
        data = pictures(self.path('control'), classes=2)
        name = 'x\x1b]0;owned\x07\nbroken: none'
        os.rename(os.path.join(data, 'train', 'class1'), os.path.join(data, 'train', name))
        os.rename(os.path.join(data, 'val', 'class1'), os.path.join(data, 'val', name))
        with open(os.path.join(data, 'val', name, '2.png'), 'r+b') as f:
            f.truncate(400)
        code, out, err = program.run('data', 'inspect', data)
        self.assertEqual(code, 1, err)
        self.assertEqual(out.count('x\\x1b]0;owned\\x07\\x0abroken: none'), 2)   # the class, and the broken file's path
        self.assertFalse(set(out) & {'\x1b', '\x07'})
        self.assertEqual(last_json(program.run('data', 'inspect', data, '--json')[1])['classes'][1]['name'], name)
        code, out, err = program.run('pack', data, '--out', self.path('control.dts'))
        self.assertEqual(code, 2)
        self.assertIn('x\\x1b]0;owned\\x07', err)
        self.assertFalse(set(out + err) & {'\x1b', '\x07'})

    def test_sheet(self):
        def size(path):
            head = read(path)[:24]
            self.assertEqual(head[:8], b'\x89PNG\r\n\x1a\n')
            return int.from_bytes(head[16:20], 'big'), int.from_bytes(head[20:24], 'big')
        sheet = self.path('sheet.png')
        self.passes('data', 'inspect', self.data, '--sheet', sheet, '--sheet-pictures', '9')
        self.assertEqual(size(sheet), (3 * 42 + 2, 3 * 42 + 2))   # the pictures' own size
        first = read(sheet)
        self.passes('data', 'inspect', self.data, '--sheet', sheet, '--sheet-pictures', '9', '--threads', '1')
        self.assertEqual(read(sheet), first)
        self.passes('data', 'inspect', self.data, '--sheet', sheet, '--sheet-pictures', '9', '--seed', '1')
        self.assertNotEqual(read(sheet), first)
        self.passes('data', 'inspect', self.data, '--sheet', sheet, '--model', MODEL, '--augment', 'random-resized-crop,flip')
        self.assertEqual(size(sheet), (6 * 42 + 2, 5 * 42 + 2))   # all 30, at 40 x 40
        self.passes('data', 'inspect', self.data, '--sheet', sheet, '--size', '10', '--augment', 'none', '--sheet-pictures', '1')
        self.assertEqual(size(sheet), (14, 14))
        self.refused('data', 'inspect', self.data, '--sheet', sheet, '--augment', 'spin', says='spin')
        picture = os.path.join(self.data, 'train', 'class0', '0.png')
        before = read(picture)
        self.refused('data', 'inspect', self.data, '--sheet', picture, says='a picture of the data set')
        self.assertEqual(read(picture), before)
        self.refused('data', 'inspect', self.data, '--sheet', self.path('no/such.png'), says='--sheet')
        self.refused('data', 'inspect', self.data, '--sheet', self.path('s.jpg'), says=['s.jpg', 'PNG'])

    def test_sheet_replaces_no_input(self):
        augment, model, archive = self.path('augment.json'), self.path('model.onnx'), self.path('shards-0.tar')
        with open(augment, 'w') as f:
            f.write('[{"name": "RandomHorizontalFlip"}]')
        shutil.copy(MODEL, model)
        with tarfile.open(archive, 'w') as tar:
            for split in os.listdir(self.data):
                tar.add(os.path.join(self.data, split), split)
        os.link(model, self.path('link.onnx'))
        for sheet, says in ((augment, 'is the augmentation file'), (model, 'is the model'), (self.path('link.onnx'), 'is the model'),
                            (archive, 'is the validation data')):
            before = read(sheet)
            self.refused('data', 'inspect', self.data, '--val', archive, '--augment', augment, '--model', model, '--sheet', sheet, says=says)
            self.assertEqual(read(sheet), before)
        # whatever it is, it is no sheet
        for sheet in (augment, model, archive):
            before = read(sheet)
            self.refused('data', 'inspect', self.data, '--sheet', sheet, says='is no PNG file')
            self.assertEqual(read(sheet), before)

    # What is wrong with the sheet's options is told before the pictures are looked at, what is wrong with pictures after.
    def test_sheet_comes_first(self):
        sheet = self.path('first.png')
        with open(self.path('bad.json'), 'w') as f:
            f.write('[{"name": "Spin"}]')
        for options, says in ((('--augment', 'spin'), 'spin'), (('--augment', self.path('bad.json')), 'Spin'),
                              (('--augment', self.path('none.json')), 'none.json'), (('--size', '65535'), 'too large')):
            code, out, err = program.run('data', 'inspect', self.data, '--sheet', sheet, *options)
            self.assertEqual((code, out), (2, ''), err)
            self.assertIn(says, err)
        for options, says in ((('--augment', 'exact', '--size', '32'), "class0/0.png': the picture is 40 x 40 pixels, the model takes 32 x 32"),
                              (('--augment', 'resize:65535,center-crop'), 'the short side that is asked for, 65535, is too large')):
            code, out, err = program.run('data', 'inspect', self.data, '--sheet', sheet, *options)
            self.assertEqual(code, 2, err)
            self.assertIn('60 pictures of 10 classes', out)
            self.assertIn(says, err)
        self.assertFalse(os.path.exists(sheet))

    def test_interrupted_sheet(self):
        data = self.path('large')
        png(self.path('large.png'), (10, 20, 30), size=1500)
        for k in range(60):
            os.makedirs(os.path.join(data, f'class{k % 2}'), exist_ok=True)
            shutil.copy(self.path('large.png'), os.path.join(data, f'class{k % 2}', f'{k}.png'))
        command = [program.PROGRAM, 'data', 'inspect', data, '--model', MODEL, '--threads', '1', '--sheet', self.path('i.png'), '--sheet-pictures', '60']
        said = []
        for delay in (0.05, 0.1, 0.2, 0.4, 0.8):   # one of them meets the sheet, which takes most of a second
            running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(delay)
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=60)
            said.append(err)
            if 'interrupted while the sheet was drawn' in err:
                self.assertEqual(running.returncode, 130)
                return
        self.fail(said)


if __name__ == '__main__':
    program.main(__doc__)
