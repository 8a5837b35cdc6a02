#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commands about models: inspect, plan, export, verify; warnings, numbers that are not finite, small stacks.

usage: models_test.py PROGRAM [unittest arguments]
"""
import json
import os
import struct
import subprocess
import unittest

import onnx_wire
import program
from program import GOLDEN, GOLDEN_MODEL, MODEL, Case, pictures, run


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
            done = subprocess.run(['bash', '-c', 'ulimit -s 64 && exec "$@"', 'bash', program.PROGRAM, *arguments], capture_output=True,
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
    program.main(__doc__)
