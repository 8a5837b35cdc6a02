#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Command lines: help, what is refused before anything happens, ranges, exit codes.

usage: usage_test.py PROGRAM [unittest arguments]
"""
import json
import os
import re
import shlex
import shutil
import subprocess

import program
from program import GOLDEN, GOLDEN_MODEL, MODEL, ROOT, Case, pictures, run


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
        for option in ('--mixup', '--mixup-alpha=0.2'):
            usage(*self.train('x.onnx', option), says='--augment auto,mixup:0.2')
        usage(*self.train('x.onnx', '--cutmix', '1'), says='--augment auto,cutmix:0.2')
        self.assertNotIn('augment', usage('inspect', MODEL, '--mixup', says='there is no option --mixup'))
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
                '--batch': whole + ('0',), '--loss-scale': finite + ('0',), '--max-skipped-steps': whole + ('0', '1000001'), '--threads': whole, '--loader-threads': whole, '--cache': whole, '--checkpoint-every': whole,
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
                done = subprocess.run([program.PROGRAM, *words], cwd=place, capture_output=True, text=True, timeout=120, check=False)
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


if __name__ == '__main__':
    program.main(__doc__)
