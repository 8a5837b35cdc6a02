#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program from outside: exit codes, messages, output for people and machines, interruption.

usage: cli_test.py PROGRAM [unittest arguments]
"""
import json
import os
import random
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
import zlib

import onnx_wire

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, '..', '..')
MODEL = os.path.join(ROOT, 'examples', 'quickstart', 'shapes_cnn.onnx')
PARITY = os.path.join(ROOT, 'tests', 'fixtures', 'parity')
GOLDEN_MODEL = os.path.join(PARITY, 'fresh_bn.ts.onnx')
GOLDEN = os.path.join(PARITY, 'fresh_bn.ts.golden.safetensors')
PROGRAM = None
CLASSES = [f'class{i}' for i in range(10)]


def png(path, color, size=40, seed=0, noisy=True):
    """A picture of one color, noisy or quickly made, as RGB."""
    noise = random.Random(seed)
    rows = (b'\0' + bytes(color) * size) * size if not noisy else b''.join(b'\0' + bytes(min(255, c + noise.randrange(40)) for _ in range(size) for c in color) for _ in range(size))

    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))

    with open(path, 'wb') as f:
        f.write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', size, size, 8, 2, 0, 0, 0)) +
                chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))


def pictures(folder, classes=10, each=3, splits=('train', 'val')):
    for split in splits:
        for i in range(classes):
            place = os.path.join(folder, split, f'class{i}')
            os.makedirs(place)
            for k in range(each):
                png(os.path.join(place, f'{k}.png'), (20 * i, 200 - 20 * i, 60 + 10 * (i % 5)), seed=i * 100 + k)
    return folder


def run(*arguments, stdout=subprocess.PIPE, timeout=120):
    done = subprocess.run([PROGRAM, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=timeout, check=False)
    return done.returncode, done.stdout or '', done.stderr


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.mkdtemp(prefix='ren-cli-')
        cls.data = pictures(os.path.join(cls.work, 'data'))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work)

    def path(self, name):
        return os.path.join(self.work, name)

    def refused(self, *arguments, code=2, says=()):
        got, out, err = run(*arguments)
        self.assertEqual(got, code, f'{arguments}\n{out}{err}')
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, err + out)
        return err

    def passes(self, *arguments):
        got, out, err = run(*arguments)
        self.assertEqual(got, 0, f'{arguments}\n{out}{err}')
        return out, err

    def train(self, out, *more, epochs='1', data=None):
        return ('train', MODEL, '--data', data or self.data, '--epochs', epochs, '--batch', '8', '--lr', '0.01', '--normalize', 'half',
                '--augment', 'flip,pad-crop:2', '--out', self.path(out), *more)


class Usage(Case):
    def test_help(self):
        out, _ = self.passes('--help')
        for command in ('inspect', 'plan', 'train', 'eval', 'predict', 'export', 'verify', 'doctor'):
            self.assertIn(command, out)
            text, _ = self.passes(command, '--help')
            self.assertIn('Examples:', text)
        out, _ = self.passes('--version')
        self.assertRegex(out, r'^renaissance \d+\.\d+\.\d+\n$')

    def test_bad_usage(self):
        def usage(*arguments, says):
            err = self.refused(*arguments, says=says)
            self.assertRegex(err, r'\Aerror: ', arguments)
            self.assertNotRegex(err, r'e[+]30|[0-9]{25}|FLOAT|UINT', arguments)
            return err
        usage(says='inspect, plan, train')
        usage('nonsense', says="'nonsense'")
        usage('trian', MODEL, says=["'trian'", 'did you mean train?'])
        usage('--nonsense', says='a command is missing')
        usage('inspect', says='MODEL is required')
        usage('inspect', MODEL, 'more', says="'more'")
        usage('inspect', MODEL, '--jsn', says=['--jsn', 'did you mean --json?'])
        usage('plan', MODEL, '--nonsense', 'x', says='--nonsense')
        usage('train', MODEL, '--data', self.data, says='--out is required')
        usage('train', MODEL, '--data', self.data, '--out', says='--out needs a value')
        usage(*self.train('x.onnx', '--schedule', 'magic'), says=['--schedule', "'magic'", 'constant, step, cosine'])
        usage(*self.train('x.onnx', '--mean', '0.5', '--std', '0.5'), says='--mean')   # besides --normalize
        usage(*self.train('x.onnx', '--schedule', 'step'), says='--step-epochs')
        usage(*self.train('x.onnx', '--checkpoint-every', '2'), says='--checkpoint')
        usage(*self.train('x.onnx', '--augment', 'flip'), says='--augment is given more than once')
        usage(*self.train('x.onnx', '--device', 'abacus'), says='abacus')
        usage('train', MODEL, '--data', self.data, '--out', self.path('x.onnx'), '--augment', 'flip,spin', says='spin')

    def test_augmentations(self):
        def train(augment, *more):
            return ('train', MODEL, '--data', self.data, '--batch', '8', '--normalize', 'half', '--out', self.path('a.onnx'), '--augment', augment, *more)
        for augment, says in (('color-jitter:0.4,0.4,0.4,0.6', 'hue from 0 to 0.5'), ('rand-augment:2,31', '0 to 30'), ('gaussian-blur', 'kernel_size'),
                              ('random-erasing:2', 'p from 0 to 1'), ('trivial-augment-wide:bilinea', 'trivial-augment-wide[:NUM_MAGNITUDE_BINS]'),
                              ('spin', 'random-grayscale[:P]'), (self.path('none.json'), 'none.json')):
            self.refused(*train(augment), says=says)
        path = self.path('augment.json')
        with open(path, 'w') as file:
            json.dump([{'name': 'RandomCrop', 'padding': 2}, {'name': 'RandAugment', 'num_ops': 1}, {'name': 'RandomErasing'}], file)
        out, _ = self.passes(*train(path))
        self.assertIn('augment.json (pad-crop:2,rand-augment:1,9,31:nearest,random-erasing:0.5,', out)
        self.refused(*train(path, '--checkpoint', path), says=['--checkpoint', 'the augmentation file'])
        start = json.loads(self.passes(*train('auto,color-jitter:0.4,0.4', '--json'))[0].splitlines()[0])
        self.assertRegex(start['augmentation'], r'^pad-crop:\d+,flip:0.5,color-jitter:0.4,0.4,0,0$')
        with open(path, 'w') as file:
            json.dump([{'name': 'RandomCrop'}, {'name': 'ColorJitter', 'strength': 1}], file)
        self.refused(*train(path), says=['augment.json', 'transform 2 (ColorJitter)', "'strength'"])

    # An empty value is neither "not given" nor the next word.
    def test_empty_values_are_refused(self):
        for command in ('train', 'plan', 'eval', 'export', 'predict', 'inspect', 'verify'):
            for option in re.findall(r'^  (--[\w-]+) [A-Z]', self.passes(command, '--help')[0], re.MULTILINE):
                for empty in ([f'{option}='], [option, ''], [f'{option}=', self.path('e.ckpt')]):
                    err = self.refused(command, MODEL, *empty, says=f'{option} is given an empty value')
                    self.assertRegex(err, r'\Aerror: ')
        self.refused('bench', 'step', MODEL, '--batch=', says=['--batch is given an empty', 'renaissance bench step --help'])
        for place in (('inspect', ''), ('predict', MODEL, ''), ('verify', GOLDEN_MODEL, '')):
            self.refused(*place)
        self.passes('export', MODEL, '--out', self.path('m.onnx'), '--metadata', 'author=')

    def test_ranges_of_numbers(self):
        finite, whole = ('nan', 'inf', '-inf', '1e400', '', 'fast', '1x', '-1'), ('', '1.5', 'x', '-1', '99999999999999999999', 'nan')
        arguments = ['train', MODEL, '--data', self.data, '--out', self.path('x.onnx')]
        for option, values in {
                '--lr': finite + ('0',), '--gamma': finite + ('0',), '--weight-decay': finite, '--warmup-epochs': finite,
                '--final-lr': finite, '--step-epochs': finite + ('0',), '--momentum': finite + ('1', '1.5'),
                '--label-smoothing': finite + ('1',), '--ema': finite + ('1',), '--epochs': whole + ('0', '1000001'),
                '--batch': whole + ('0',), '--loss-scale': finite + ('0',), '--max-skipped-steps': whole + ('0', '1000001'), '--threads': whole, '--loader-threads': whole, '--checkpoint-every': whole,
                '--seed': whole + ('18446744073709551616',)}.items():
            for value in values:
                err = self.refused(*arguments, f'{option}={value}', says=option)
                self.assertRegex(err, r'\Aerror: ')
                if value:
                    self.assertIn(f"'{value}'", err)
                self.assertNotRegex(err, 'e[+]30')
        self.refused('eval', MODEL, '--data', self.data, '--mean', '0.5,nan', '--std', '1,1', says="'nan'")
        self.refused('eval', MODEL, '--data', self.data, '--mean', '0.5', '--std', '0', says='--std')
        self.refused('predict', MODEL, self.data, '--top', '0', says='--top')
        self.refused('verify', GOLDEN_MODEL, GOLDEN, '--tolerance', '0', says='--tolerance')
        # decimal, whatever comes first, and the whole range
        self.assertIn('step@10', self.passes('plan', MODEL, '--batch', '010')[0])
        self.passes(*self.train('x.onnx', '--seed', '18446744073709551615'))

    def test_loss_scale(self):
        arguments = self.train('scaled.onnx', '--precision', 'fp16', '--json', epochs='10')  # 40 steps
        # FP16 holds no gradient times such a scale: steps are skipped, the scale halves, training goes on.
        out = self.passes(*arguments, '--loss-scale', '16777216')[0]
        skipped = [json.loads(line)['training']['skipped'] for line in out.splitlines() if '"epoch"' in line and '"training"' in line]
        self.assertGreater(skipped[0], 0)
        self.assertEqual(skipped[-1], 0)
        status, _, err = run(*arguments, '--loss-scale', '1e30', '--max-skipped-steps', '3')
        self.assertEqual(status, 1)
        self.assertRegex(err, 'gradients overflowed in 4 steps in a row')

    def test_normalizations_are_kept(self):
        """What a model was trained with is in its file, whatever it is called, and eval takes it from there."""
        for name, mean in (('imagenet', 0.485), ('cifar10', 0.4914), ('cifar100', 0.5071), ('mnist', 0.1307), ('clip', 0.481454),
                           ('half', 0.5), ('none', 0)):
            arguments = list(self.train('kept.onnx', '--json'))
            arguments[arguments.index('half')] = name
            out = self.passes(*arguments)[0]
            trained = [json.loads(line) for line in out.splitlines() if '"event":"done"' in line][0]['validation']['loss']
            lines = self.passes('eval', self.path('kept.onnx'), '--data', self.data, '--json')[0].splitlines()
            seen = [json.loads(line) for line in lines if '"event":"eval"' in line][0]['loss']
            self.assertAlmostEqual(seen, trained, places=6, msg=name)  # the same numbers in batches of other sizes
            self.assertIn(f'{mean}', self.passes('inspect', self.path('kept.onnx'))[0])

    def test_every_option_tells_its_values(self):
        for command in ('inspect', 'plan', 'train', 'eval', 'predict', 'export', 'verify', 'doctor'):
            text = self.passes(command, '--help')[0]
            self.assertNotRegex(text, r'e[+]30|FLOAT|UINT|INT:|REQUIRED|\[0 - ')
            flat = ' '.join(text.split())
            for option, kind in re.findall(r'^  (--[\w-]+) (N|X|NAME)\s', text, re.MULTILINE):
                described = re.split(r' --[\w-]+ [A-Z]', flat.split(f'{option} {kind} ', 1)[1])[0]
                self.assertRegex(described, r'\d|default', f'{command} {option}')
        for choice in ('exact', 'bilinear', 'bicubic', 'pad-crop', 'center-crop', 'random-resized-crop', 'flip'):
            self.assertIn(choice, self.passes('train', '--help')[0])
        for command in ('eval', 'predict'):
            self.assertIn('8/7', self.passes(command, '--help')[0])

    # Every example of the help and of docs/cli.md, as written, but for one epoch each; those for a GPU are only parsed.
    def test_examples_work_as_written(self):
        texts = [self.passes('--help')[0]] + [self.passes(c, '--help')[0] for c in (
            'inspect', 'plan', 'train', 'eval', 'predict', 'export', 'verify', 'doctor')]
        with open(os.path.join(ROOT, 'docs', 'cli.md'), encoding='utf-8') as f:
            texts.append(f.read())
        place = self.path('examples')
        os.makedirs(os.path.join(place, 'more-pictures'))
        shutil.copytree(self.data, os.path.join(place, 'pictures'))
        shutil.make_archive(os.path.join(place, 'pictures'), 'zip', os.path.join(place, 'pictures'))
        shutil.copy(os.path.join(self.data, 'val', 'class1', '0.png'), os.path.join(place, 'cat.jpg'))   # by content
        shutil.copy(os.path.join(self.data, 'val', 'class2', '0.png'), os.path.join(place, 'more-pictures'))
        shutil.copy(MODEL, os.path.join(place, 'net.onnx'))
        self.passes(*self.train('examples/trained.onnx'))
        ran = 0
        for text in texts:
            for line in re.findall(r'^ +(renaissance (?:[a-z]+ .*|doctor.*))$', text.replace('\\\n', ' '), re.MULTILINE):
                if 'COMMAND' in line or '|' in line or '[' in line:
                    continue
                words = shlex.split(line, comments=True)[1:]
                golden = 'verify' in words
                words = [{'net.onnx': GOLDEN_MODEL, 'net.golden.safetensors': GOLDEN}.get(w, w) if golden else w for w in words]
                if '--epochs' in words:
                    words[words.index('--epochs') + 1] = '1'
                if '--device' in words:
                    continue
                done = subprocess.run([PROGRAM, *words], cwd=place, capture_output=True, text=True, timeout=120, check=False)
                self.assertEqual(done.returncode, 0, f'{line}\n{done.stdout}{done.stderr}')
                ran += 1
        self.assertGreaterEqual(ran, 18)

    def test_what_is_no_regular_file(self):
        pipe, out = self.path('pipe'), self.path('never.onnx')
        os.mkfifo(pipe)
        for place in (pipe, '/dev/zero', self.work):
            for arguments in (('inspect', place), ('plan', place), ('export', place, '--out', out),
                              ('train', place, '--data', self.data, '--out', out), ('verify', MODEL, place),
                              ('verify', place, GOLDEN), ('eval', place, '--data', self.data), ('predict', place, self.data),
                              ('predict', MODEL, self.data, '--classes', place), self.train('never.onnx', '--resume', place)):
                err = self.refused(*arguments, says=place)
                self.assertNotRegex(err, '[0-9]{15}')
        for place in (pipe, '/dev/zero'):
            self.refused('predict', MODEL, place, says=place)
            self.refused('eval', MODEL, '--data', place, says=place)
            self.refused('export', MODEL, '--out', place, says=place)
        self.refused('predict', MODEL, self.data, '--classes', self.work, says='a folder, not a text file')

    def test_doctor(self):
        out, _ = self.passes('doctor')
        self.assertIn('cpu', out)
        out, _ = self.passes('doctor', '--json')
        self.assertTrue(json.loads(out)['devices'][0]['usable'])


class Models(Case):
    def test_bench_step(self):
        few = ('bench', 'step', MODEL, '--batch', '4', '--json')
        result = json.loads(self.passes(*few, '--steps', '2', '--windows', '3')[0])
        self.assertEqual((result['batch'], result['steps'], result['windows']), (4, 2, 3))
        self.assertLessEqual(result['ms_min'], result['ms'])
        self.assertLessEqual(result['ms'], result['ms_max'])
        self.assertAlmostEqual(result['images_per_second'], 4 / result['ms'] * 1e3, delta=1)
        self.assertGreater(result['arena_bytes'], 0)
        kinds = {(o['phase'], o['op']) for o in result['operations']}
        self.assertIn(('backward', 'conv_backward_weights'), kinds)
        self.assertIn(('update', 'range_sgd'), kinds)
        brief = json.loads(self.passes(*few, '--steps', '1', '--windows', '1', '--no-profile')[0])
        self.assertEqual(brief['operations'], [])
        self.refused('bench', says='renaissance bench --help')
        self.refused('bench', 'step', MODEL, '--windows', '0', says='--windows')

    def test_inspect(self):
        out, _ = self.passes('inspect', MODEL)
        self.assertIn('input', out)
        j = json.loads(self.passes('inspect', MODEL, '--json')[0])
        self.assertEqual(j['outputs'][0]['shape'], [None, 10])
        self.assertGreater(j['trained_elements'], 0)
        frozen = json.loads(self.passes('inspect', MODEL, '--json', '--freeze', '*')[0])
        self.assertEqual(frozen['trained_elements'], 0)

    def test_broken_models(self):
        self.refused('inspect', self.path('gone.onnx'), says='gone.onnx')
        self.refused('inspect', self.work, says=self.work)
        with open(MODEL, 'rb') as f:
            content = f.read()
        for name, broken in (('empty', b''), ('half', content[:len(content) // 2]), ('text', b'this is no model\n' * 50)):
            with open(self.path(name), 'wb') as f:
                f.write(broken)
            self.refused('inspect', self.path(name), says=name)
        self.refused('inspect', MODEL, '--freeze', 'no-such-name', says='no-such-name')

    def test_plan(self):
        out, _ = self.passes('plan', MODEL, '--batch', '16')
        self.assertIn('weights', out)
        self.assertIn('How to read it', out)
        page = self.path('plan.html')
        json.loads(self.passes('plan', MODEL, '--json', '--html', page)[0])
        self.assertGreater(os.path.getsize(page), 1000)
        self.refused('plan', MODEL, '--html', '/no/such/folder/plan.html', says='/no/such/folder')

    def test_export(self):
        out = self.path('again.onnx')
        self.passes('export', MODEL, '--out', out, '--metadata', 'author=me = myself')
        self.assertEqual(json.loads(self.passes('inspect', out, '--json')[0])['metadata']['author'], 'me = myself')
        self.refused('export', MODEL, '--out', out, '--metadata', 'author')
        self.passes('export', MODEL, '--inference', '--out', out)

    def test_verify(self):
        out, _ = self.passes('verify', GOLDEN_MODEL, GOLDEN)
        self.assertIn('passed', out)
        self.assertTrue(json.loads(self.passes('verify', GOLDEN_MODEL, GOLDEN, '--json')[0])['passed'])
        self.refused('verify', GOLDEN_MODEL, GOLDEN, '--tolerance', '1e-9', code=1, says='FAILED')
        self.refused('verify', GOLDEN_MODEL, GOLDEN, '--precision', 'fp16', '--peer', GOLDEN, says='no peer file')
        self.refused('verify', GOLDEN_MODEL, GOLDEN, '--precision', 'fp16', '--peer', self.path('gone'), says='gone')
        result = json.loads(self.passes('verify', GOLDEN_MODEL, GOLDEN, '--precision', 'fp16', '--json')[0])
        peer = {'format': 'renaissance-peer-1', 'case': result['case'], 'precision': 'fp16', 'device': 'a GPU',
                'torch': '2.11', 'replays': 4, 'errors': {c['tensor']: c['error'] for c in result['comparisons']}}
        with open(self.path('peer'), 'w', encoding='utf-8') as f:
            json.dump(peer, f)
        judged = ('verify', GOLDEN_MODEL, GOLDEN, '--peer', self.path('peer'))
        out, _ = self.passes(*judged, '--precision', 'fp16')
        self.assertIn('2 times the error of torch 2.11 on a GPU (4 replays)', out)
        self.assertRegex(out, r'\d+ of \d+ comparisons passed only because PyTorch is as far off')
        self.refused(*judged, says='fp32')
        self.refused(*judged, '--precision', 'bf16', says='fp16')
        self.refused('verify', GOLDEN_MODEL, self.path('gone'), says='gone')
        self.refused('verify', GOLDEN_MODEL, MODEL)
        self.refused('verify', MODEL, GOLDEN)
        with open(GOLDEN, 'rb') as f:
            content = f.read()
        length = struct.unpack('<Q', content[:8])[0]
        header = json.loads(content[8:8 + length])
        metadata = header['__metadata__']
        metadata['outputs'] = ','.join([metadata['outputs'].split(',')[0]] * 2)
        changed = json.dumps(header).encode()
        with open(self.path('twice'), 'wb') as f:
            f.write(struct.pack('<Q', len(changed)) + changed + content[8 + length:])
        self.refused('verify', GOLDEN_MODEL, self.path('twice'), says='twice')
        begin, end = header['step1/target']['data_offsets']
        self.assertEqual(header['step1/target']['dtype'], 'I64')
        cut = bytearray(content)
        cut[8 + length + begin + 4] = 1   # 2^32 more
        with open(self.path('cut'), 'wb') as f:
            f.write(cut)
        self.refused('verify', GOLDEN_MODEL, self.path('cut'), says=['step1/target', 'has the class 4294967'])

    def test_verify_names_what_differs(self):
        # one byte in the middle of a gradient
        with open(GOLDEN, 'rb') as f:
            content = bytearray(f.read())
        length = struct.unpack('<Q', content[:8])[0]
        begin, end = json.loads(content[8:8 + length])['step0/grad/fc.weight']['data_offsets']
        at = 8 + length + (begin + end) // 2 // 4 * 4
        content[at:at + 4] = struct.pack('<f', 3.0)
        with open(self.path('moved'), 'wb') as f:
            f.write(content)
        err = self.refused('verify', GOLDEN_MODEL, self.path('moved'), code=1, says="FAILED gradient 'step0/grad/fc.weight'")
        self.assertNotIn('--lr', err)
        # what only later steps show may be a learning rate that amplifies rounding
        with open(GOLDEN, 'rb') as f:
            content = bytearray(f.read())
        begin, end = json.loads(content[8:8 + length])['step2/param/fc.weight']['data_offsets']
        at = 8 + length + (begin + end) // 2 // 4 * 4
        content[at:at + 4] = struct.pack('<f', 3.0)
        with open(self.path('later'), 'wb') as f:
            f.write(content)
        err = self.refused('verify', GOLDEN_MODEL, self.path('later'), code=1, says="FAILED parameter 'step2/param/fc.weight'")
        self.assertIn('--lr 1e-4', err)


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
        process = subprocess.Popen([PROGRAM, *self.train('x.onnx', '--json', epochs='1000', data=data)],
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

        def program(*arguments):
            try:
                return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=120, check=False, **other)
            except PermissionError:
                return self.skipTest('another user may not run the program')
        if program('inspect', MODEL).returncode != 0:
            self.skipTest('another user may not read the model')
        for arguments in (('eval', MODEL, '--data', data, '--normalize', 'half'), ('predict', MODEL, data, '--normalize', 'half'),
                          ('predict', MODEL, os.path.join(data, 'val', 'class2', '1.png'), '--normalize', 'half'),
                          self.train('free/x.onnx', data=data)):
            done = program(*arguments)
            self.assertEqual(done.returncode, 2, f'{arguments}\n{done.stderr}')
            self.assertIn(os.path.join('class2', '1.png'), done.stderr)


class Interruption(Case):
    def start(self, *arguments):
        # pylint: disable=consider-using-with
        return subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

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
            self.assertIn(checkpoint, err)
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
        self.refused(*self.train('r.onnx', '--resume', MODEL, epochs='2'), says=MODEL)

    # Two half runs give the bytes of a whole one.
    def test_resumed_runs_are_exact(self):
        whole, halves, checkpoint = self.path('whole.onnx'), self.path('halves.onnx'), self.path('e.ckpt')
        self.passes(*self.train('whole.onnx', epochs='30'))
        process = self.start(*self.train('halves.onnx', '--checkpoint', checkpoint, '--json', epochs='30'))
        self.wait_for(process, 'epoch')
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.passes(*self.train('halves.onnx', '--resume', checkpoint, epochs='30'))
        with open(whole, 'rb') as a, open(halves, 'rb') as b:
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


class Places(Case):
    """Files that are written: what they must not replace, what happens when they can't be written."""

    def external(self, folder):
        """The model with its weights in weights.bin beside it."""
        os.makedirs(folder, exist_ok=True)
        place = os.path.join(folder, 'net.onnx')
        with open(place, 'wb') as model, open(os.path.join(folder, 'weights.bin'), 'wb') as data:
            for file, content in zip((model, data), onnx_wire.with_external_data(self.content(MODEL), 'weights.bin')):
                file.write(content)
        return place

    def content(self, path):
        with open(path, 'rb') as f:
            return f.read()

    def train_on(self, model, out, *more, data=None):
        return ('train', model, '--data', data or self.data, '--batch', '8', '--lr', '0.01', '--normalize', 'half', '--augment', 'flip',
                '--out', out, *more)

    def test_places_that_collide_are_refused(self):
        folder = self.path('collide')
        model = self.external(folder)
        weights, archive = os.path.join(folder, 'weights.bin'), os.path.join(folder, 'data.zip')
        shutil.make_archive(archive[:-4], 'zip', self.data)
        at = lambda name: os.path.join(folder, name)
        for name, target in (('soft.onnx', 'net.onnx'), ('soft.bin', 'weights.bin'), ('soft.zip', 'data.zip'), ('here', '.')):
            os.symlink(target, at(name))
        for name, target in (('hard.onnx', model), ('hard.bin', weights), ('hard.zip', archive)):
            os.link(target, at(name))
        self.passes(*self.train_on(model, at('t.onnx'), '--checkpoint', at('c.ckpt'), data=archive))
        inputs = (model, weights, archive, at('c.ckpt'), at('t.onnx'))
        before = [self.content(p) for p in inputs]
        models = [model, at('soft.onnx'), at('hard.onnx'), at('here/net.onnx'), folder + '/./net.onnx', at('../collide/net.onnx')]
        data = [weights, at('soft.bin'), at('hard.bin'), archive, at('soft.zip'), at('hard.zip'), at('here/here/data.zip')]
        ema = ('--ema', '0.9', '--out-ema')
        for place in models + data:
            self.refused(*self.train_on(model, at('new.onnx'), '--checkpoint', place, data=archive), says=['--checkpoint', place])
        for place in data:
            self.refused(*self.train_on(model, place, data=archive), says=['--out', place])
            self.refused(*self.train_on(model, at('new.onnx'), *ema, place, data=archive), says=['--out-ema', place])
        for place in data[:3]:
            self.refused('export', model, '--out', place, says=['--out', place])
        for place in models + data[:3]:
            self.refused('plan', model, '--html', place, says=['--html', place])
        self.refused(*self.train_on(model, at('new.onnx'), *ema, at('here/new.onnx'), data=archive), says=['--out', '--out-ema'])
        self.refused(*self.train_on(model, at('new.onnx'), '--checkpoint', at('here/new.onnx'), data=archive), says=['--out', '--checkpoint'])
        self.refused(*self.train_on(model, at('new.onnx'), *ema, at('e.onnx'), '--checkpoint', at('here/e.onnx'), data=archive),
                     says=['--out-ema', '--checkpoint'])
        self.refused(*self.train_on(model, at('c.ckpt'), '--resume', at('c.ckpt'), data=archive), says=['--out', 'resume'])
        picture = os.path.join(self.data, 'train', 'class1', '0.png')
        self.refused(*self.train_on(model, picture), says=['--out', 'picture'])
        self.assertEqual(before, [self.content(p) for p in inputs])
        self.assertFalse(os.path.exists(at('new.onnx')))
        self.assertFalse([n for n in os.listdir(folder) if n.startswith('.')])

    def test_in_place_is_allowed(self):
        for folder in ('place1', 'place2'):
            model = self.external(self.path(folder)) if folder == 'place2' else shutil.copy(MODEL, self.path('place1.onnx'))
            before = self.content(model)
            for _ in range(2):
                self.passes(*self.train_on(model, model))
                self.passes('inspect', model)
            self.assertNotEqual(before, self.content(model))
            self.passes(*self.train_on(model, model, '--checkpoint', self.path('p.ckpt')))
            # going on from one's own checkpoint, written to again
            self.passes(*self.train_on(model, self.path('again.onnx'), '--checkpoint', self.path('p.ckpt'), '--resume', self.path('p.ckpt')))

    def test_the_longest_names(self):
        external = self.external(self.path('long'))
        for length in (245, 250, 255):
            names = [os.path.join(self.work, c * (length - 5) + '.onnx') for c in 'oe']
            for model in (MODEL, external):
                self.passes(*self.train_on(model, names[0], '--ema', '0.9', '--out-ema', names[1], '--checkpoint', self.path('c' * length)))
                self.passes('inspect', names[0])
                self.passes('inspect', names[1])
        start = time.time()
        self.refused(*self.train_on(MODEL, self.path('n' * 256), data='/no/data'), says='--out')
        self.assertLess(time.time() - start, 20)

    def test_the_model_may_go_while_it_trains(self):
        folder = self.path('goes')
        model = self.external(folder)
        process = subprocess.Popen([PROGRAM, *self.train_on(model, self.path('kept.onnx'), '--epochs', '30', '--json')],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(json.loads(process.stdout.readline())['event'], 'start')
        shutil.rmtree(folder)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        self.passes('inspect', self.path('kept.onnx'))

    def go_on_without(self, folder, *more, out, expected):
        """Trains while the folder is removed after the first epoch; standard output's events and standard error."""
        os.makedirs(folder)
        process = subprocess.Popen([PROGRAM, *self.train_on(MODEL, out, '--epochs', '20', '--json', *more)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, 'TMPDIR': self.work})
        events = []
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1]['event'] == 'epoch':
                shutil.rmtree(folder, ignore_errors=True)
                break
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, expected, err)
        return events + [json.loads(line) for line in out.splitlines()], err

    def test_a_checkpoint_that_cannot_be_written_costs_no_result(self):
        folder = self.path('gone1')
        events, err = self.go_on_without(folder, '--checkpoint', os.path.join(folder, 'c.ckpt'), out=self.path('g.onnx'), expected=3)
        failed = [e for e in events if e['event'] == 'checkpoint_failed']
        self.assertGreater(len(failed), 10)
        self.assertIn('c.ckpt', failed[0]['message'])
        self.assertEqual(len([line for line in err.splitlines() if line.startswith('warning: a checkpoint')]), len(failed))
        self.assertEqual(events[-1]['event'], 'done')
        self.assertEqual(events[-1]['failed_checkpoints'], len(failed))
        self.assertIn('could not be written', err.splitlines()[-1])
        self.passes('inspect', self.path('g.onnx'))

    def test_a_result_whose_place_is_gone_is_written_elsewhere(self):
        folder = self.path('gone2')
        _, err = self.go_on_without(folder, out=os.path.join(folder, 'g.onnx'), expected=1)
        rescued = re.search(r"written to '([^']+)' instead", err).group(1)
        self.passes('inspect', rescued)
        self.assertEqual(os.path.dirname(rescued), self.work)

    def test_rescue_goes_on_to_other_places(self):
        def train(folder, temporary, *more, limit=None, cwd=None, keep=False, model=MODEL):
            os.makedirs(folder)
            command = [PROGRAM, *self.train_on(model, os.path.join(folder, 'g.onnx'), '--epochs', '20', '--json', *more)]
            if limit:
                command = ['bash', '-c', f'ulimit -f {limit} && exec "$@"', 'bash', *command]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
                                       env={**os.environ, 'TMPDIR': temporary, 'OMP_WAIT_POLICY': 'passive'})
            for line in process.stdout:
                if not keep and json.loads(line)['event'] == 'epoch':
                    shutil.rmtree(folder, ignore_errors=True)
                    break
            _, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 1, err)
            return err

        # no $TMPDIR that could take it
        err = train(self.path('gone3'), self.path('no-such-folder'))
        rescued = re.search(r"written to '([^']+)' instead", err).group(1)
        self.assertEqual(os.path.dirname(rescued), '/tmp')
        self.passes('inspect', rescued)
        os.remove(rescued)
        # nowhere is room: all places are named, and the checkpoint, which has no room either, is not offered
        err = train(self.path('full1'), self.work, '--checkpoint', self.path('full.ckpt'), limit=1, cwd=self.work, keep=True)
        self.assertIn('File too large', err)
        for place in (self.work, '/tmp', '.', os.path.dirname(MODEL)):
            self.assertIn(f"could not be written to '{place}/renaissance-", err)
        self.assertNotIn('--resume', err)
        self.assertNotIn('earlier file', err)   # there was none
        # room for the checkpoint, but not for the model, which has much in its metadata
        large, checkpoint = self.path('large.onnx'), self.path('small.ckpt')
        self.passes('export', MODEL, '--out', large, '--metadata', 'note=' + 'n' * 100_000)
        err = train(self.path('full2'), self.work, '--momentum', '0', '--checkpoint', checkpoint, limit=380, cwd=self.work, keep=True,
                    model=large)
        self.assertIn(f"'--resume {checkpoint}' with another --out writes it", err)
        arguments = list(self.train_on(large, self.path('after.onnx'), '--epochs', '20', '--momentum', '0', '--resume', checkpoint))
        self.passes(*arguments)

    def test_earlier_files_are_spoken_of_where_there_are_any(self):
        def limited(out):
            done = subprocess.run(['bash', '-c', 'ulimit -f 1 && exec "$@"', 'bash', PROGRAM, 'export', MODEL, '--out', out],
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)   # not the signal
            self.assertIn('File too large', done.stderr)
            return done.stderr
        self.assertNotIn('earlier file', limited(self.path('limit.onnx')))
        self.assertFalse(os.path.exists(self.path('limit.onnx')))
        shutil.copy(MODEL, self.path('limit.onnx'))
        self.assertIn('earlier file of that name is unchanged', limited(self.path('limit.onnx')))
        self.assertEqual(self.content(MODEL), self.content(self.path('limit.onnx')))

    def test_two_writers_of_one_target(self):
        model, target = self.external(self.path('two')), self.path('two/out.onnx')
        sources = []
        for seed in ('1', '2'):
            sources.append(self.path(f'two/seed{seed}.onnx'))
            self.passes(*self.train_on(model, sources[-1], '--seed', seed))
        wanted = {self.loss_of(source) for source in sources}
        self.assertEqual(len(wanted), 2)
        for _ in range(20):
            writers = [subprocess.Popen([PROGRAM, 'export', source, '--out', target], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True) for source in sources]
            for writer in writers:
                _, err = writer.communicate(timeout=60)
                self.assertEqual(writer.returncode, 0, err)
            self.passes('inspect', target)
        self.assertIn(self.loss_of(target), wanted)
        # the one that lost has its data still, and whoever exports over it is told
        data = [name for name in os.listdir(self.path('two')) if name.startswith('out.onnx.')]
        self.assertEqual(len(data), 2, data)
        self.passes('export', sources[0], '--out', target)
        out, _ = self.passes('export', sources[1], '--out', target)
        self.assertRegex(out, r"'[^']*/out\.onnx\.[0-9a-f]{16}\.data' is no longer referred to by '[^']*/out\.onnx'")

    def loss_of(self, model):
        out, _ = self.passes('eval', model, '--data', self.data, '--json')
        return json.loads(out.splitlines()[-1])['loss']

    def test_links_are_followed(self):
        os.makedirs(self.path('elsewhere'))
        for name in ('l.onnx', 'l.ckpt', 'l.html'):
            os.symlink(os.path.join('elsewhere', name), self.path(name))
        for _ in range(2):
            self.passes(*self.train_on(MODEL, self.path('l.onnx'), '--checkpoint', self.path('l.ckpt')))
            self.passes('plan', MODEL, '--html', self.path('l.html'))
            for name in ('l.onnx', 'l.ckpt', 'l.html'):
                self.assertTrue(os.path.islink(self.path(name)))
                self.assertTrue(os.path.isfile(self.path('elsewhere/' + name)))
        self.assertEqual(sorted(os.listdir(self.path('elsewhere'))), ['l.ckpt', 'l.html', 'l.onnx'])
        self.refused('plan', MODEL, '--html', '/dev/null', says='--html')
        self.assertTrue(os.path.exists('/dev/null'))

    @unittest.skipUnless(os.path.ismount('/dev/shm'), 'no small disk')
    def test_a_disk_without_room_is_refused_first(self):
        free = shutil.disk_usage('/dev/shm').free
        if free > 200 << 20:
            self.skipTest('the small disk is not small')
        model = self.external(self.path('room'))
        with open(self.path('room/weights.bin'), 'r+b') as f:
            f.truncate(free + (1 << 20))   # sparse
        target = '/dev/shm/renaissance-room.onnx'
        self.refused(*self.train_on(model, target), says=['--out', 'free'])


class Resuming(Case):
    """What a checkpoint refuses; docs/checkpoints.md has the list."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.base = ('train', MODEL, '--data', cls.data, '--epochs', '2', '--batch', '8', '--lr', '0.01', '--augment', 'flip,pad-crop:2',
                    '--mean', '0.5', '--std', '0.5', '--loss', 'logits:1', '--ema', '0.9', '--warmup-epochs', '1')
        cls.checkpoint = os.path.join(cls.work, 'r.ckpt')
        code, _, err = run(*cls.base, '--out', os.path.join(cls.work, 'r.onnx'), '--checkpoint', cls.checkpoint)
        assert code == 0, err

    def resume(self, *more, base=None):
        return (*(base or self.base), '--out', self.path('x.onnx'), '--resume', self.checkpoint, *more)

    def changed(self, option, *values):
        base = list(self.base)
        at = base.index(option)
        base[at:at + 1 + len(values)] = [option, *values]
        return tuple(base)

    def test_each_option_that_matters(self):
        changed = self.changed
        for base, more, says in (
                (changed('--epochs', '3'), (), 'epochs: is 3 now, the checkpoint has 2'),
                (changed('--batch', '4'), (), 'batch: is 4 now, the checkpoint has 8'),
                (changed('--lr', '0.02'), (), 'learning_rate: is 0.02 now, the checkpoint has 0.01'),
                (changed('--mean', '0.4'), (), 'mean: is 0.4,0.4,0.4 now, the checkpoint has 0.5,0.5,0.5'),
                (changed('--std', '0.25'), (), 'std: is 0.25,0.25,0.25 now'),
                (changed('--loss', 'logits:0.5'), (), 'losses: is logits:0.5 now, the checkpoint has logits:1'),
                (changed('--ema', '0.5'), (), 'ema_decay: is 0.5 now'),
                (changed('--warmup-epochs', '0'), (), 'warmup_epochs: is 0 now'),
                (changed('--augment', 'flip'), (), 'augmentation: is'),
                (self.base, ('--momentum', '0.5'), 'momentum: is 0.5 now'),
                (self.base, ('--nesterov',), 'nesterov: is yes now'),
                (self.base, ('--weight-decay', '0.1'), 'weight_decay: is 0.1 now'),
                (self.base, ('--decay-weights-only',), 'weight decay times 0'),
                (self.base, ('--optimizer', 'lars'), 'optimizer: is lars now'),
                (self.base, ('--schedule', 'cosine'), 'schedule: is cosine now'),
                (self.base, ('--final-lr', '0.001'), 'final_learning_rate: is 0.001 now'),
                (self.base, ('--step-epochs', '2'), 'step_epochs: is 2 now'),
                (self.base, ('--gamma', '0.5'), 'gamma: is 0.5 now'),
                (self.base, ('--label-smoothing', '0.1'), 'label_smoothing: is 0.1 now'),
                (self.base, ('--seed', '3'), 'seed: is 3 now'),
                (self.base, ('--precision', 'bf16'), 'precision: is bf16 now'),
                (self.base, ('--drop-last',), 'last batch: is drop now, the checkpoint has keep'),
                (self.base, ('--bad-files', 'skip'), 'bad files: is skip now'),
                (self.base, ('--decode', 'fast'), 'decoding: is fast now, the checkpoint has exact'),
                (self.base, ('--freeze', '*bias'), 'frozen now, trained')):
            with self.subTest(says):
                self.refused(*self.resume(*more, base=base), says=says)
        # everything at once, in one error
        err = self.refused(*self.resume('--nesterov', '--drop-last', '--freeze', '*bias', base=changed('--lr', '0.02')))
        for text in ('nesterov', 'last batch', 'frozen', 'learning_rate'):
            self.assertIn(text, err)

    def test_every_option_is_decided_about(self):
        with open(os.path.join(ROOT, 'docs', 'checkpoints.md'), encoding='utf-8') as f:
            page = f.read()
        tables = page[page.index('## What has to be the same'):page.index('## Writing')]
        for option in sorted(set(re.findall(r'--[a-z][a-z-]+', self.passes('train', '--help')[0]))):
            self.assertIn(f'`{option}`', tables, option)
        with open(os.path.join(ROOT, 'include', 'renaissance_c.h'), encoding='utf-8') as f:
            header = re.sub(r'/\*.*?\*/', ' ', f.read(), flags=re.DOTALL)
        for struct in ('model', 'dataset', 'loader', 'trainer', 'fit'):
            body = re.search(r'typedef struct ren_%s_options \{(.*?)\}' % struct, header, re.DOTALL).group(1)
            for field in re.findall(r'(\w+)\s*[,;]', body):
                if field not in ('struct_size', 'reserved0') and not field.endswith('_count'):
                    self.assertIn(f'`{field}`', tables, f'ren_{struct}_options.{field}')

    def test_what_may_change(self):
        self.passes(*self.resume('--threads', '1', '--loader-threads', '1', '--checkpoint', self.path('other.ckpt'),
                                 '--checkpoint-every', '3', '--inference', '--out-ema', self.path('e.onnx'), '--json', '--quiet',
                                 '--val', os.path.join(self.data, 'train')))
        moved = self.path('moved')
        shutil.copytree(self.data, moved)
        self.passes(*self.resume(base=self.changed('--data', moved)))

    def test_other_data(self):
        data = self.path('changed')
        shutil.copytree(self.data, data)
        base = self.changed('--data', data)
        picture = os.path.join(data, 'train', 'class1', '0.png')
        png(picture, (9, 9, 9), size=20)
        self.refused(*self.resume(base=base), says='picture sizes in bytes')
        os.rename(picture, picture.replace('0.png', 'other.png'))
        self.refused(*self.resume(base=base), says='picture names and labels')

    def test_pictures_of_an_archive(self):
        archive, checkpoint = self.path('a.zip'), self.path('zip.ckpt')
        # stored, so that one byte can be changed without any size
        with zipfile.ZipFile(archive, 'w') as z:
            for folder, _, files in os.walk(self.data):
                for f in sorted(files):
                    z.write(os.path.join(folder, f), os.path.relpath(os.path.join(folder, f), self.data))
        base = self.changed('--data', archive)
        self.passes(*base, '--out', self.path('z.onnx'), '--checkpoint', checkpoint)
        resume = (*base, '--out', self.path('z.onnx'), '--resume', checkpoint)
        self.passes(*resume)
        self.passes(*self.base, '--out', self.path('z.onnx'), '--resume', checkpoint)   # unpacked
        changed = self.path('a2.zip')
        with zipfile.ZipFile(archive) as old, zipfile.ZipFile(changed, 'w') as new:
            for entry in old.infolist():
                content = bytearray(old.read(entry))
                if entry.filename == 'train/class1/0.png':
                    content += b''
                    content[-1] ^= 1   # of IEND's checksum
                new.writestr(entry.filename, bytes(content))
        self.refused(*self.changed('--data', changed), '--out', self.path('z.onnx'), '--resume', checkpoint, says='picture checksums')

    def test_damaged_and_foreign_files(self):
        self.refused(*self.resume()[:-1], self.work, says=[self.work, 'folder'])
        self.refused(*self.resume()[:-1], self.path('missing'), says='missing')
        self.refused(*self.resume()[:-1], MODEL, says=MODEL)
        with open(self.checkpoint, 'rb') as f:
            good = f.read()
        for at in (len(good) // 2, len(good) - 1, 300):
            bad = bytearray(good)
            bad[at] ^= 4
            with open(self.path('bad.ckpt'), 'wb') as f:
                f.write(bad)
            self.refused(*self.resume()[:-1], self.path('bad.ckpt'), says='bad.ckpt')
        header = json.dumps({'__metadata__': {'format': 'renaissance-checkpoint-1'}}).encode()
        with open(self.path('old.ckpt'), 'wb') as f:
            f.write(struct.pack('<Q', len(header)) + header)
        self.refused(*self.resume()[:-1], self.path('old.ckpt'), says='format 1')


class Warnings(Case):
    def test_training_says_what_inspect_says(self):
        model = self.path('newer.onnx')
        with open(MODEL, 'rb') as old, open(model, 'wb') as new:
            new.write(onnx_wire.with_newer_opset(old.read()))
        warnings = json.loads(self.passes('inspect', model, '--json')[0])['warnings']
        self.assertTrue(warnings)
        base = ('train', model, '--data', self.data, '--batch', '8', '--lr', '0.001', '--normalize', 'half', '--out', self.path('w.onnx'))
        _, err = self.passes(*base)
        for text in warnings:
            self.assertIn('warning: ' + text, err)
        out, _ = self.passes(*base, '--json')
        events = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([e['message'] for e in events if e['event'] == 'warning'], warnings)
        self.assertEqual(events[0]['event'], 'start')

    def test_a_batch_larger_than_the_data(self):
        out, err = self.passes('train', MODEL, '--data', self.data, '--batch', '64', '--normalize', 'half', '--out', self.path('b.onnx'))
        self.assertIn('--batch 64 is more than the 30 pictures', err)
        self.assertIn('augmentation auto (pad-crop:', out)

    def test_losses(self):
        for losses, says in (('logits,logits', "'logits' is named twice"), ('logits:0', 'above 0'), ('logits:-1', 'above 0'),
                             ('logits:inf', 'above 0'), ('logits:nan', 'above 0'), ('logits:', 'OUTPUT'), (',', 'name is missing'),
                             ('nothing', "no output 'nothing'")):
            self.refused(*self.train('x.onnx', '--loss', losses), says=says)


class Numbers(Case):
    def setUp(self):
        self.model = self.path('inf.onnx')
        with open(MODEL, 'rb') as old, open(self.model, 'wb') as new:
            new.write(onnx_wire.with_infinite_weights(old.read()))

    def test_outputs_that_are_not_finite(self):
        err = self.refused('eval', self.model, '--data', self.data, '--normalize', 'half', code=1, says='not finite')
        self.assertIn(os.path.join('val', 'class0', '0.png'), err)
        code, out, err = run('predict', self.model, os.path.join(self.data, 'val', 'class3'), '--normalize', 'half', '--json')
        self.assertEqual(code, 1, err)
        events = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(len(events), 3)
        for e in events:
            self.assertIn('not finite', e['error'])
            self.assertNotIn('predictions', e)
        self.assertIn('0.png', err)


@unittest.skipUnless(hasattr(os, 'fork'), 'no stack limits')
class SmallStack(Case):
    def test_every_command_lives_in_a_small_stack(self):
        def limited(*arguments):
            done = subprocess.run(['bash', '-c', 'ulimit -s 64 && exec "$@"', 'bash', PROGRAM, *arguments], capture_output=True,
                                  text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, f'{arguments}\n{done.stdout}{done.stderr}')
        limited('--version')
        limited('doctor')
        limited('inspect', MODEL)
        limited('plan', MODEL)
        limited('verify', GOLDEN_MODEL, GOLDEN)
        limited(*self.train('s.onnx', '--checkpoint', self.path('s.ckpt')))
        limited('eval', self.path('s.onnx'), '--data', self.data)
        limited('predict', self.path('s.onnx'), os.path.join(self.data, 'val', 'class3'))
        limited('export', self.path('s.onnx'), '--inference', '--out', self.path('si.onnx'))


if __name__ == '__main__':
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
