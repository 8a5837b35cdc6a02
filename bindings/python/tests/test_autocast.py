# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import os
import shutil
import tempfile
import unittest
from unittest import mock

import onnx
import torch
from torch import nn

import renaissance
from renaissance import __main__ as program
from renaissance import autocast, bounds, recorder

from .test_golden import read

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..', 'tests', 'fixtures', 'parity')
CASE = 'two_heads.ts'


def small_net():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(128, 5))


class AutocastTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model, self.golden = (os.path.join(FIXTURES, CASE + end) for end in ('.onnx', '.golden.safetensors'))
        torch.manual_seed(0)

    def path(self, name):
        return os.path.join(self.folder, name)

    def recorded(self, **options):
        """A small net and its golden."""
        net = small_net()
        renaissance.export(net, torch.zeros(2, 3, 8, 8), self.path('m.onnx'))
        renaissance.record_golden(self.path('m.onnx'), self.path('m.golden'), net, say=None, **options)
        return net, *read(self.path('m.golden'))

    def errors(self, model=None, golden=None, **options):
        renaissance.record_peer(model or self.path('m.onnx'), golden or self.path('m.golden'), self.path('peer'), **options)
        with open(self.path('peer'), encoding='utf-8') as file:
            return json.load(file)['errors']

    def test_the_file_has_every_result(self):
        for precision in ('fp16', 'bf16'):
            report = renaissance.record_peer(self.model, self.golden, self.path('peer'), precision=precision, replays=2)
            with open(self.path('peer'), encoding='utf-8') as file:
                peer = json.load(file)
            golden, metadata = read(self.golden)
            self.assertEqual(set(peer), {'format', 'case', 'precision', 'device', 'torch', 'replays', 'errors'})
            self.assertEqual((peer['format'], peer['case'], peer['precision'], peer['replays'], peer['torch']),
                             ('renaissance-peer-1', metadata['case'], precision, 2, torch.__version__))
            self.assertTrue(peer['device'])
            self.assertEqual(set(peer['errors']), {k for k in golden if '/input/' not in k and '/target' not in k})
            self.assertEqual(peer['errors'], report.errors)
            self.assertEqual(os.listdir(self.folder), ['peer'])

    def test_errors_are_those_of_the_module_under_autocast(self):
        """Against a loop over the module itself, as people train with autocast."""
        for precision, type_ in (('fp16', torch.float16), ('bf16', torch.bfloat16)):
            net, golden, metadata = self.recorded(lr=0.01)
            errors = self.errors(precision=precision)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
            with torch.no_grad(), torch.autocast('cpu', type_):
                found = {'eval/output/' + metadata['outputs'].split(':')[0]: net.eval()(golden['step0/input/input'])}
            net.train()
            for k in range(3):
                with torch.autocast('cpu', type_):
                    out = net(golden[f'step{k}/input/input'])
                loss = nn.functional.cross_entropy(out.float(), golden[f'step{k}/target'])
                optimizer.zero_grad()
                (loss * 1024).backward()
                for p in net.parameters():
                    p.grad /= 1024
                found[f'step{k}/loss'] = loss
                if k == 0:
                    found.update({bounds.GRADIENT + n: p.grad.clone() for n, p in net.named_parameters()})
                optimizer.step()
            found.update({bounds.PARAMETER + n: p for n, p in net.named_parameters()})
            found.update({bounds.BUFFER + n: b for n, b in net.named_buffers() if 'running' in n})
            self.assertEqual(len(found), len(errors) - 1)  # all but the training output
            for key, value in found.items():
                error = float((value.detach().double() - golden[key].double()).abs().max())
                # the same operations: FP32's last place is all that may differ
                self.assertAlmostEqual(errors[key], error, delta=1e-3 * error + 1e-7, msg=f'{precision} {key}')
            self.assertGreater(errors['step0/grad/0.weight'], 1e-5)  # it is 16 bits

    def test_further_replays_only_add(self):
        once, again, more = (self.errors(self.model, self.golden, precision='bf16', replays=n) for n in (1, 1, 4))
        self.assertEqual(once, again)
        self.assertTrue(all(more[key] >= once[key] for key in once))
        self.assertTrue(any(more[key] > once[key] for key in once))

    def test_the_disturbance_itself_is_no_error_of_a_parameter(self):
        _, golden, _ = self.recorded(lr=1e-12)  # so that nothing moves
        errors = self.errors(precision='bf16', replays=3)
        for key, error in errors.items():
            if key.startswith(bounds.PARAMETER):
                self.assertLess(error, 1e-6 * (float(golden[key].abs().max()) + 1e-3), key)

    def test_a_loss_scale_that_overflows_is_lowered(self):
        self.recorded()
        golden, metadata = read(self.path('m.golden'))
        seen = []
        train = recorder.train

        def watched(*args, **options):
            results = train(*args, **options)
            seen.append((options['loss_scale'], results is not None))
            return results
        for weight, expected in (('1', [(1024.0, True)]), ('600', [(1024.0, False), (32.0, True)]),
                                 ('1e9', [(1024.0, False), (32.0, False), (1.0, False)])):
            metadata['outputs'] = metadata['outputs'].split(':')[0] + ':' + weight
            metadata['lr'] = '1e-9'
            recorder.write({k: t.contiguous() for k, t in golden.items()}, metadata, self.path('m.golden'))
            seen.clear()
            with mock.patch.object(autocast, 'train', watched):
                if weight == '1e9':
                    os.remove(self.path('peer'))
                    with self.assertRaisesRegex(ValueError, 'overflow in fp16 at every loss scale'):
                        self.errors(precision='fp16')
                    self.assertFalse(os.path.exists(self.path('peer')))
                else:
                    self.errors(precision='fp16')
            self.assertEqual(seen, expected)

    def test_inference_alone(self):
        golden, metadata = read(self.golden)
        kept = {k: t for k, t in golden.items() if k.startswith(('step0/input', 'eval/'))}
        recorder.write(kept, {**metadata, 'content': 'eval'}, self.path('g'))
        errors = self.errors(self.model, self.path('g'), precision='fp16', replays=2)
        self.assertEqual(set(errors), {k for k in golden if k.startswith('eval/')})

    def test_refusals(self):
        golden, metadata = read(self.golden)

        def refused(message, tensors=golden, metadata=metadata, model=self.model):
            recorder.write(dict(tensors), metadata, self.path('g'))
            with self.assertRaisesRegex(ValueError, message):
                renaissance.record_peer(model, self.path('g'), self.path('peer'), precision='fp16')
            self.assertFalse(os.path.exists(self.path('peer')))
        refused('no golden file', metadata={**metadata, 'format': 'other'})
        refused("incomplete or damaged: 'lr'", metadata={k: v for k, v in metadata.items() if k != 'lr'})
        refused('incomplete or damaged', metadata={**metadata, 'lr': 'fast'})
        refused('step1/target', {k: t for k, t in golden.items() if k != 'step1/target'})
        refused('step1/input', {k: t for k, t in golden.items() if not k.startswith('step1/input')})
        refused('not in the file: gone', {**golden, 'step0/grad/gone': torch.zeros(1)})
        refused('does not compute', {**golden, 'step2/buffer/gone': torch.zeros(1)})
        refused('has shape', {**golden, 'step0/loss': torch.zeros(2)})
        shutil.copy(self.model, self.path('g'))
        with self.assertRaisesRegex(ValueError, 'no safetensors file'):
            renaissance.record_peer(self.model, self.path('g'), self.path('peer'), precision='fp16')
        for options in (dict(precision='fp32'), dict(precision='tf32'), dict(precision='fp16', replays=0)):
            with self.assertRaises(ValueError):
                renaissance.record_peer(self.model, self.golden, self.path('peer'), **options)

    def test_tf32_is_allowed_just_for_its_replays(self):
        settings = (torch.backends.cudnn, torch.backends.cuda.matmul)
        before = [s.allow_tf32 for s in settings]
        for allowed in (True, False):
            with self.assertRaises(ZeroDivisionError), autocast.tf32_allowed(allowed):
                self.assertEqual([s.allow_tf32 for s in settings], [allowed, allowed])
                1 / 0
            self.assertEqual([s.allow_tf32 for s in settings], before)


class ProgramTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model, self.golden = (os.path.join(FIXTURES, CASE + end) for end in ('.onnx', '.golden.safetensors'))

    def run_program(self, *arguments):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            program.main(['autocast', *arguments])
        return out.getvalue()

    def refused(self, message, *arguments):
        with self.assertRaises(SystemExit) as caught, contextlib.redirect_stdout(io.StringIO()) as out:
            program.main(['autocast', '--precision', 'fp16', *arguments])
        self.assertRegex(str(caught.exception.code), rf'\Aerror: .*{message}')
        self.assertNotIn('\n', str(caught.exception.code))
        return out.getvalue()

    def test_one(self):
        out = os.path.join(self.folder, 'peer.json')
        self.assertRegex(self.run_program(self.model, self.golden, '--precision', 'bf16', '--out', out),
                         r'peer.json: \d+ tensors on .*farthest off')
        self.assertTrue(os.path.exists(out))

    def test_cases_go_on_after_one_that_fails(self):
        cases, out = os.path.join(self.folder, 'cases'), os.path.join(self.folder, 'peers')
        os.mkdir(cases)
        for case in ('fresh_bn.ts', CASE):
            for end in ('.onnx', '.golden.safetensors'):
                shutil.copy(os.path.join(FIXTURES, case + end), cases)
        self.assertIn(f'{CASE}.peer.json', self.run_program('--cases', cases, '--precision', 'fp16', '--out', out))
        self.assertEqual(sorted(os.listdir(out)), [f'{case}.peer.json' for case in ('fresh_bn.ts', CASE)])
        model = onnx.load(os.path.join(cases, 'fresh_bn.ts.onnx'))
        model.graph.node[0].op_type = 'Unheard'
        onnx.save(model, os.path.join(cases, 'fresh_bn.ts.onnx'))
        shutil.rmtree(out)
        said = self.refused('1 of 2 cases failed: fresh_bn.ts', '--cases', cases, '--out', out)
        self.assertIn('fresh_bn.ts: operators Unheard', said)
        self.assertEqual(os.listdir(out), [f'{CASE}.peer.json'])

    def test_errors_are_one_line(self):
        out = os.path.join(self.folder, 'peer')
        self.refused('or --cases FOLDER', '--out', out)
        self.refused('not both', self.model, self.golden, '--cases', self.folder, '--out', out)
        self.refused('is no folder', '--cases', self.model, '--out', out)
        self.refused('has no CASE.onnx', '--cases', self.folder, '--out', out)
        self.refused('nowhere.* does not exist', self.model, '/nowhere', '--out', out + 'x')
        self.refused('would replace', self.model, self.golden, '--out', self.golden)
        with mock.patch('torch.cuda.device_count', return_value=1):
            self.refused('cuda:1: torch .* sees 1 CUDA device', self.model, self.golden, '--device', 'cuda:1',
                         '--out', out + 'x')
        self.assertFalse(os.path.exists(out + 'x'))
        for option in (['--precision', 'fp32'], ['--replays', '0'], ['--device', 'tpu']):
            with self.assertRaises(SystemExit) as caught, contextlib.redirect_stderr(io.StringIO()) as errors:
                program.main(['autocast', self.model, self.golden, '--precision', 'fp16', '--out', out, *option])
            self.assertEqual(caught.exception.code, 2)
            self.assertIn(option[0], errors.getvalue())


if __name__ == '__main__':
    unittest.main()
