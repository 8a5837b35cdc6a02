#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training, evaluation and prediction; bad data; interruption.

usage: train_test.py PROGRAM [unittest arguments]
"""
import json
import os
import signal
import subprocess
import time
import unittest
import zipfile

import program
from program import CLASSES, MODEL, Case, pictures, png, run


class Training(Case):
    def test_train_eval_predict(self):
        out, _ = self.passes(*self.train('t.onnx', '--json', epochs='3'))
        events = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([e['event'] for e in events if e['event'] in ('start', 'epoch', 'done')], ['start'] + ['epoch'] * 3 + ['done'])
        epochs = [e['loader'] for e in events if e['event'] == 'epoch']
        self.assertEqual([e['batches'] for e in epochs], [4] * 3)   # of the epoch, not in sum
        self.assertEqual(sum(e['pictures_read'] for e in epochs), 30)   # all are cached then
        self.assertGreater(epochs[0]['decode_seconds'], 0)
        self.assertEqual(epochs[2]['decode_seconds'], 0)
        self.assertTrue(all(e['wait_seconds'] >= 0 and e['cpu_seconds'] > 0 for e in epochs[:1]))
        done = events[-1]['validation']
        measured = json.loads(self.passes('eval', self.path('t.onnx'), '--data', self.data, '--json')[0].splitlines()[-1])
        self.assertEqual(measured['top1'], done['top1'])
        self.assertAlmostEqual(measured['loss'], done['loss'], places=5)   # the loss is printed as a double of FP32 sums
        out, err = self.passes('predict', self.path('t.onnx'), os.path.join(self.data, 'val', 'class3'), '--top', '3', '--json')
        self.assertEqual(err, '')   # normalisation and class names come with the file
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([os.path.basename(p['path']) for p in lines], ['0.png', '1.png', '2.png'])
        for p in lines:
            self.assertEqual(len(p['predictions']), 3)
            self.assertIn(p['predictions'][0]['class'], CLASSES)
            probabilities = [c['probability'] for c in p['predictions']]
            self.assertEqual(probabilities, sorted(probabilities, reverse=True))
            self.assertLessEqual(sum(probabilities), 1 + 1e-9)

    def test_output_for_people(self):
        out, err = self.passes(*self.train('p.onnx'))
        self.assertIn('epoch 1/1', out)
        self.assertIn('top-1', out)
        self.assertNotIn('\x1b', out + err)   # no terminal, no control codes
        out, err = self.passes(*self.train('p.onnx', '--quiet'))
        self.assertEqual(len(out.splitlines()), 1, out)

    def test_waiting_for_pictures_is_told(self):
        data = self.path('large')
        for i in range(10):   # 27 MB each, decoded: training such a small model takes no time beside that
            os.makedirs(os.path.join(data, f'class{i}'))
            png(os.path.join(data, f'class{i}', '0.png'), (20 * i, 100, 60), size=3000, noisy=False)
        arguments = self.train('w.onnx', '--loader-threads', '1', data=data, epochs='3')
        out, _ = self.passes(*arguments)
        self.assertRegex(out, r'waited for pictures \d+ % of the time: 1 loader threads? spent \d+ % on reading, \d+ % on decoding')
        self.assertLess(out.count('waited'), 3)   # the pictures are cached then
        events = [json.loads(line) for line in self.passes(*arguments, '--json')[0].splitlines()]
        loader = next(e for e in events if e['event'] == 'epoch')['loader']
        self.assertGreater(loader['decode_seconds'], loader['transform_seconds'] / 10)
        self.assertEqual((loader['threads'], loader['batches'], loader['pictures_read']), (1, 2, 10))
        self.assertNotIn('waited', self.passes(*arguments, '--quiet')[0])

    def test_same_seed_same_weights(self):
        for name in ('a.onnx', 'b.onnx'):
            self.passes(*self.train(name, '--seed', '5', '--loader-threads', '1' if name == 'a.onnx' else '2'))
        with open(self.path('a.onnx'), 'rb') as a, open(self.path('b.onnx'), 'rb') as b:
            self.assertEqual(a.read(), b.read())

    def test_cache_changes_reads_and_nothing_else(self):
        read = {}
        for cache in ('0', '1'):   # MiB; 30 pictures of 40 x 40 take a seventh of one
            out, _ = self.passes(*self.train(f'cache{cache}.onnx', '--cache', cache, '--json', epochs='2'))
            epochs = [json.loads(line) for line in out.splitlines()]
            read[cache] = sum(e['loader']['pictures_read'] for e in epochs if e['event'] == 'epoch')
        self.assertGreaterEqual(read['0'], 60)   # what was made ahead besides
        self.assertEqual(read['1'], 30)
        with open(self.path('cache0.onnx'), 'rb') as a, open(self.path('cache1.onnx'), 'rb') as b:
            self.assertEqual(a.read(), b.read())

    def test_mixed_batches(self):
        choice = self.path('mix.json')
        with open(choice, 'w') as f:
            json.dump([{'name': 'RandomCrop', 'padding': 2}, {'name': 'RandomHorizontalFlip'},
                       {'name': 'RandomChoice', 'transforms': [{'name': 'MixUp', 'alpha': 0.2}, {'name': 'CutMix'}]}], f)
        listed = 'flip,pad-crop:2,mixup:0.2,cutmix:1'
        models = []
        for name, augment, threads in (('1.onnx', listed, '1'), ('2.onnx', listed, '3'), ('3.onnx', choice, '2')):
            out, _ = self.passes(*self.train(name, '--json', '--loader-threads', threads, '--label-smoothing', '0.1', epochs='12', augment=augment))
            events = [json.loads(line) for line in out.splitlines()]
            self.assertEqual(events[0]['augmentation'], 'pad-crop:2,flip:0.5,mixup:0.2,cutmix:1')
            losses = [e['training']['loss'] for e in events if e['event'] == 'epoch']
            # Three pictures of each color are learned soon; a batch's mixture moves the loss of an epoch by much.
            self.assertLess(sum(losses[-3:]), 0.9 * sum(losses[:3]), losses)
            with open(self.path(name), 'rb') as f:
                models.append(f.read())
        self.assertEqual(models[0], models[1])   # for any number of threads
        self.assertEqual(models[0], models[2])   # the same recipe, as a file
        self.passes(*self.train('4.onnx', '--label-smoothing', '0.1', epochs='12'))
        with open(self.path('4.onnx'), 'rb') as f:
            self.assertNotEqual(models[0], f.read())

    def test_mixtures_that_are_refused(self):
        for augment, says in (('mixup:0', 'alpha from 0.001 to 1000'), ('mixup:-1', 'alpha from 0.001 to 1000'),
                              ('mixup,mixup', 'more than once'), ('cutmix,flip', 'before MixUp and CutMix'), ('cutmix:x', 'not a number')):
            self.refused(*self.train('r.onnx', augment=augment), says=says)
            self.assertFalse(os.path.exists(self.path('r.onnx')))

    def test_averaged_weights(self):
        self.refused(*self.train('w.onnx', '--out-ema', self.path('e.onnx')), says='--ema')
        self.passes(*self.train('w.onnx', '--ema', '0.9', '--out-ema', self.path('e.onnx')))
        with open(self.path('w.onnx'), 'rb') as a, open(self.path('e.onnx'), 'rb') as b:
            self.assertNotEqual(a.read(), b.read())

    def test_zip_and_separate_validation(self):
        archive = self.path('train.zip')
        with zipfile.ZipFile(archive, 'w') as z:
            for folder, _, files in os.walk(os.path.join(self.data, 'train')):
                for f in files:
                    z.write(os.path.join(folder, f), os.path.relpath(os.path.join(folder, f), os.path.join(self.data, 'train')))
        out, _ = self.passes(*self.train('z.onnx', '--val', os.path.join(self.data, 'val'), '--json', data=archive))
        self.assertEqual(json.loads(out.splitlines()[0])['validation_images'], 30)
        out, _ = self.passes(*self.train('z.onnx', '--json', '--drop-last', data=archive))
        self.assertNotIn('validation', json.loads(out.splitlines()[-1]))
        self.assertEqual(json.loads(out.splitlines()[-1])['training']['samples'], 24)

    def test_places_that_cannot_be_written_are_refused_first(self):
        start = time.time()
        nowhere = self.path('no/such/folder/x.onnx')
        # the data doesn't exist either: the answer comes before anything is read
        arguments = ('train', MODEL, '--data', '/no/data', '--epochs', '1')
        self.refused(*arguments, '--out', nowhere, says='--out')
        self.refused(*arguments, '--out', self.work, says='--out')
        self.refused(*arguments, '--out', self.path('x.onnx'), '--checkpoint', nowhere, says='--checkpoint')
        self.assertLess(time.time() - start, 20)
        self.assertFalse(any(name.startswith('.renaissance') for name in os.listdir(self.work)))

    @unittest.skipUnless(os.path.exists('/dev/full'), 'no /dev/full')
    def test_lost_output_is_a_failure(self):
        with open('/dev/full', 'w', encoding='utf-8') as full:
            for arguments in (('inspect', MODEL), ('doctor', '--json'), self.train('f.onnx')):
                code, _, err = run(*arguments, stdout=full)
                self.assertEqual(code, 1, err)
                self.assertIn('could not be written', err)


class BadData(Case):
    def test_data_sets_that_are_refused(self):
        empty = self.path('empty')
        os.makedirs(empty)
        self.refused(*self.train('x.onnx', data=empty), says=empty)
        self.refused(*self.train('x.onnx', data=self.path('gone')), says='gone')
        self.refused(*self.train('x.onnx', data=MODEL))
        few = pictures(self.path('few'), classes=4)
        self.refused(*self.train('x.onnx', data=few), says=['4 classes', '10'])
        err = self.refused('eval', MODEL, '--data', few, '--normalize', 'half', says=['4 classes', '10'])
        self.assertNotIn('export', err)   # the model is trained: other data is what helps
        trained = self.path('named.onnx')
        self.passes('export', MODEL, '--out', trained, '--metadata', 'renaissance.classes=' + json.dumps(CLASSES))
        self.refused('eval', trained, '--data', few, '--normalize', 'half', says=['4 classes', '10', 'class0, class1'])
        other = self.path('other.onnx')
        self.passes('export', MODEL, '--out', other, '--metadata', 'renaissance.classes=' + json.dumps(CLASSES[:9] + ['zebra']))
        self.assertIn('zebra', self.passes('eval', other, '--data', self.data, '--normalize', 'half')[1])
        self.assertNotIn('warning', self.passes('eval', trained, '--data', self.data, '--normalize', 'half')[1])
        self.refused('eval', MODEL, '--data', self.data, '--split', 'nonsense', says='nonsense')
        self.refused('predict', MODEL, self.path('gone.jpg'), says='gone.jpg')

    def test_bad_pictures(self):
        data = pictures(self.path('bad'))
        bad = os.path.join(data, 'train', 'class2', '1.png')
        with open(bad, 'r+b') as f:
            f.truncate(60)
        self.refused(*self.train('x.onnx', data=data), says=bad)
        self.assertFalse(os.path.exists(self.path('x.onnx')))
        for policy in ('skip', 'replace'):
            _, err = self.passes(*self.train('x.onnx', '--bad-files', policy, data=data))
            self.assertIn(bad, err)
        self.refused('predict', MODEL, bad, says=bad)

    # A picture that went away or changed its kind after the data set was listed, or that may not be read.
    def test_pictures_that_cannot_be_opened(self):
        data = pictures(self.path('changes'))
        bad = os.path.join(data, 'val', 'class2', '1.png')
        process = subprocess.Popen([program.PROGRAM, *self.train('x.onnx', '--json', epochs='1000', data=data)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(json.loads(process.stdout.readline())['event'], 'start')
        os.remove(bad)   # validation reads it first after an epoch
        os.mkfifo(bad)
        _, err = process.communicate(timeout=120)
        if process.returncode == 0:
            self.skipTest('an epoch was over at once, and every picture in memory')
        self.assertEqual(process.returncode, 2, err)
        self.assertIn(bad, err)

    def test_pictures_that_may_not_be_read(self):
        data = pictures(self.path('locked'))
        for split in ('train', 'val'):
            os.chmod(os.path.join(data, split, 'class2', '1.png'), 0)
        os.makedirs(self.path('free'))
        os.chmod(self.path('free'), 0o777)
        os.chmod(self.work, 0o755)
        other = {'user': 65534, 'group': 65534, 'extra_groups': []} if os.geteuid() == 0 else {}   # root may read all

        def as_another_user(*arguments):
            try:
                return subprocess.run([program.PROGRAM, *arguments], capture_output=True, text=True, timeout=120, check=False, **other)
            except PermissionError:
                return self.skipTest('another user may not run the program')
        if as_another_user('inspect', MODEL).returncode != 0:
            self.skipTest('another user may not read the model')
        for arguments in (('eval', MODEL, '--data', data, '--normalize', 'half'), ('predict', MODEL, data, '--normalize', 'half'),
                          ('predict', MODEL, os.path.join(data, 'val', 'class2', '1.png'), '--normalize', 'half'),
                          self.train('free/x.onnx', data=data)):
            done = as_another_user(*arguments)
            self.assertEqual(done.returncode, 2, f'{arguments}\n{done.stderr}')
            self.assertIn(os.path.join('class2', '1.png'), done.stderr)


class Interruption(Case):
    def start(self, *arguments):
        # pylint: disable=consider-using-with
        return subprocess.Popen([program.PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for(self, process, event):
        for line in process.stdout:
            if json.loads(line)['event'] == event:
                return
        self.fail(f'{event} never came: {process.stderr.read()}')

    def test_interrupt_writes_a_checkpoint_to_resume_from(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            checkpoint = self.path('c.ckpt')
            arguments = self.train('i.onnx', '--checkpoint', checkpoint, '--json', epochs='4000')
            process = self.start(*arguments)
            self.wait_for(process, 'epoch')
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, err)
            self.assertEqual(json.loads(out.splitlines()[-1])['event'], 'stopped')
            self.assertIn(f'--resume {checkpoint} goes on from it', err)
            self.assertTrue(os.path.exists(checkpoint))
            self.assertFalse(os.path.exists(self.path('i.onnx')))
            # goes on from there, with the same options only
            process = self.start(*arguments, '--resume', checkpoint)
            first = json.loads(process.stdout.readline())
            self.assertGreater(first['steps_done'], 0)
            process.kill()
            process.communicate()
            os.remove(checkpoint)

    def test_resume_needs_the_same_options(self):
        checkpoint = self.path('r.ckpt')
        self.passes(*self.train('r.onnx', '--checkpoint', checkpoint, epochs='2'))
        self.refused(*self.train('r.onnx', '--resume', checkpoint, '--weight-decay', '0.1', epochs='2'), says='weight_decay')
        self.refused(*self.train('r.onnx', '--resume', checkpoint, epochs='2', augment='flip,pad-crop:2,mixup:0.2'), says='mixup: is 0.2 now, the checkpoint has none')
        self.refused(*self.train('r.onnx', '--resume', MODEL, epochs='2'), says=MODEL)

    # Two half runs give the bytes of a whole one.
    def test_resumed_runs_are_exact(self):
        whole, halves, checkpoint = self.path('whole.onnx'), self.path('halves.onnx'), self.path('e.ckpt')
        for augment in ('flip,pad-crop:2', 'flip,pad-crop:2,mixup:0.2,cutmix:1'):
            self.passes(*self.train('whole.onnx', epochs='30', augment=augment))
            process = self.start(*self.train('halves.onnx', '--checkpoint', checkpoint, '--json', epochs='30', augment=augment))
            self.wait_for(process, 'epoch')
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130)
            self.passes(*self.train('halves.onnx', '--resume', checkpoint, epochs='30', augment=augment))
            with open(whole, 'rb') as a, open(halves, 'rb') as b:
                self.assertEqual(a.read(), b.read())
            os.remove(checkpoint)

    def test_a_checkpoint_that_is_there_is_not_replaced(self):
        checkpoint, resume = self.path('there.ckpt'), ('--resume', self.path('./there.ckpt'))
        self.passes(*self.train('first.onnx', '--checkpoint', checkpoint, epochs='2'))
        with open(checkpoint, 'rb') as f:
            before = f.read()
        self.refused(*self.train('second.onnx', '--checkpoint', checkpoint, epochs='2'), says=[checkpoint, '--resume'])
        with open(checkpoint, 'rb') as f:
            self.assertEqual(before, f.read())
        # A run that was over is only measured, and written, again.
        out, _ = self.passes(*self.train('second.onnx', '--checkpoint', checkpoint, *resume, epochs='2'))
        self.assertIn('nothing is left to train', out)
        self.assertIn('validation pictures', out)
        with open(self.path('first.onnx'), 'rb') as a, open(self.path('second.onnx'), 'rb') as b:
            self.assertEqual(a.read(), b.read())

    # kill -9 some steps after a checkpoint in the middle of an epoch; every count of loader threads.
    def test_killed_runs_are_exact(self):
        data = pictures(self.path('kill-data'), each=20)   # 25 steps an epoch
        whole = self.path('whole-k.onnx')
        self.passes(*self.train('whole-k.onnx', '--loader-threads', '1', epochs='40', data=data))
        with open(whole, 'rb') as file:
            wanted = file.read()
        for threads in ('1', '2'):
            checkpoint, out = self.path(f'k{threads}.ckpt'), f'killed{threads}.onnx'
            process = self.start(*self.train(out, '--checkpoint', checkpoint, '--checkpoint-every', '7', '--json',
                                             '--loader-threads', threads, epochs='40', data=data))
            self.wait_for(process, 'checkpoint')   # after step 7
            self.wait_for(process, 'checkpoint')   # after step 14 of the epoch's 25
            process.kill()
            process.communicate()
            self.assertFalse(os.path.exists(self.path(out)), 'the run was over before the kill')
            resumed = self.start(*self.train(out, '--resume', checkpoint, '--json', '--loader-threads', threads,
                                             epochs='40', data=data))
            first = json.loads(resumed.stdout.readline())
            self.assertGreater(first['steps_done'], 0)
            resumed.communicate(timeout=60)
            self.assertEqual(resumed.returncode, 0)
            with open(self.path(out), 'rb') as file:
                self.assertEqual(file.read(), wanted, f'{threads} loader threads')


if __name__ == '__main__':
    program.main(__doc__)
