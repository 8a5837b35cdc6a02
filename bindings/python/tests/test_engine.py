# SPDX-License-Identifier: Apache-2.0
"""The engine from Python, against PyTorch. Skipped where librenaissance.so has not been built."""
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import torch
from torch import nn

import renaissance
from renaissance import abi

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..'))

try:
    abi.library()
    MISSING = None
except renaissance.LibraryNotFound as problem:
    MISSING = str(problem)


def small_net():
    torch.manual_seed(5)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(8, 12, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(12, 4))


@unittest.skipIf(MISSING, f'no engine: {MISSING}')
class EngineTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.net = small_net()
        self.path = os.path.join(self.folder, 'm.onnx')
        renaissance.export(self.net, torch.randn(2, 3, 12, 12), self.path)
        rng = np.random.default_rng(0)
        self.x = rng.standard_normal((6, 3, 12, 12)).astype(np.float32)
        self.y = np.array([0, 1, 2, 3, 0, 1], np.int32)

    def trainer(self, model=None, **options):
        return renaissance.Trainer(model or renaissance.Model(self.path),
                                   **{'batch': 6, 'image_type': 'float32', 'momentum': 0.9, **options})

    def close(self, got, expected, share=1e-4):
        expected = expected.detach().numpy() if isinstance(expected, torch.Tensor) else expected
        self.assertEqual(got.shape, expected.shape)
        self.assertLessEqual(np.abs(got - expected).max(), share * (np.abs(expected).max() + 1e-3))

    def test_model(self):
        model = renaissance.Model(self.path)
        self.assertEqual((model.input_name, model.outputs), ('input', {'logits': (4, 1, 1)}))
        self.assertEqual((model.info.channels, model.info.height, model.info.width), (3, 12, 12))
        self.assertEqual(model.info.dynamic_batch, 1)
        trained = [t.name for t in model.tensors if t.trained]
        self.assertEqual(trained, [n for n, _ in self.net.named_parameters()])
        self.assertTrue(all(t.reason for t in model.tensors if t.role == 'parameter'))
        np.testing.assert_array_equal(model['4.weight'], self.net[4].weight.detach().numpy())
        model['8.bias'] = 2.0
        model.export(os.path.join(self.folder, 'n.onnx'), metadata={'note': 'hello'})
        again = renaissance.Model(os.path.join(self.folder, 'n.onnx'), freeze=['0.*'])
        np.testing.assert_array_equal(again['8.bias'], np.full(4, 2.0, np.float32))
        self.assertEqual(again.metadata('note'), 'hello')
        self.assertNotIn('0.weight', [t.name for t in again.tensors if t.trained])
        self.assertIn('8.bias', str(model.report()))
        self.assertIsInstance(model.report().json(), dict)

    def test_steps_are_pytorchs(self):
        model = renaissance.Model(self.path)
        trainer = self.trainer(model, nesterov=True, weight_decay=1e-3)
        optimizer = torch.optim.SGD(self.net.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=1e-3)
        for k in range(3):
            result = trainer.step(self.x, self.y, 0.1)
            loss = nn.functional.cross_entropy(self.net(torch.from_numpy(self.x)), torch.from_numpy(self.y).long())
            optimizer.zero_grad()
            loss.backward()
            self.assertAlmostEqual(result.loss, loss.item(), delta=1e-4)
            self.assertEqual(result.samples, 6)
            if k == 0:
                for name, p in self.net.named_parameters():
                    self.close(trainer.get(name, 'gradient'), p.grad, 1e-3)
            optimizer.step()
        for name, p in self.net.named_parameters():
            self.close(trainer.get(name), p)
        self.close(trainer.get('1.running_var', 'statistic'), self.net[1].running_var)
        self.assertEqual(trainer.position[1], 3)
        self.net.eval()
        with torch.no_grad():
            expected = self.net(torch.from_numpy(self.x))
        self.close(trainer.predict(self.x)['logits'], expected)
        self.close(trainer.predict(np.ascontiguousarray(self.x.transpose(0, 2, 3, 1)), layout='NHWC')['logits'],
                   expected)
        out = os.path.join(self.folder, 'trained.onnx')
        trainer.export(out)
        self.close(renaissance.Model(out)['8.weight'], self.net[8].weight)

    def test_checkpoint(self):
        a, b, path = self.trainer(), self.trainer(), os.path.join(self.folder, 'checkpoint')
        a.step(self.x, self.y, 0.1)
        a.save(path)
        b.load(path)
        for t in (a, b):
            t.step(self.x, self.y, 0.1)
        np.testing.assert_array_equal(a.get('0.weight'), b.get('0.weight'))

    def test_errors(self):
        with self.assertRaises(renaissance.Error) as caught:
            renaissance.Model(os.path.join(self.folder, 'nowhere.onnx'))
        self.assertEqual(caught.exception.code, abi.ERROR_NOT_FOUND)
        self.assertIn('nowhere.onnx', str(caught.exception))
        model = renaissance.Model(self.path)
        with self.assertRaisesRegex(renaissance.Error, 'nothing'):
            model['nothing']
        with self.assertRaisesRegex(TypeError, 'no option'):
            renaissance.Trainer(model, speed=3)
        trainer = self.trainer()
        with self.assertRaises(renaissance.Error):
            trainer.step(self.x[:, :, :5], self.y, 0.1)
        with self.assertRaises(ValueError):
            trainer.step(self.x.astype(np.float64), self.y, 0.1)
        trainer.step(self.x, self.y, 0.1)  # still usable
        trainer.close()
        trainer.close()
        with self.assertRaisesRegex(ValueError, 'closed'):
            trainer.step(self.x, self.y, 0.1)

    def test_any_order_of_closing(self):
        model = renaissance.Model(self.path)
        trainer = self.trainer(model)
        model.close()
        self.assertTrue(np.isfinite(trainer.step(self.x, self.y, 0.1).loss))

    def test_doctor(self):
        self.assertIsInstance(renaissance.doctor().json(), dict)

    def test_verify(self):
        golden = os.path.join(self.folder, 'golden')
        renaissance.record_golden(self.path, golden, self.net, say=None)
        self.assertTrue(renaissance.verify(self.path, golden).passed)
        peer = os.path.join(self.folder, 'peer')
        renaissance.record_peer(self.path, golden, peer, precision='bf16', replays=4)
        report = renaissance.verify(self.path, golden, precision='bf16', peer=peer)
        self.assertTrue(report.passed, report)
        self.assertEqual(report.json()['peer']['replays'], 4)
        with self.assertRaisesRegex(renaissance.Error, 'peer file is of bf16'):
            renaissance.verify(self.path, golden, precision='fp16', peer=peer)

    def shapes(self):
        target = os.path.join(self.folder, 'shapes')
        done = subprocess.run([sys.executable, os.path.join(ROOT, 'scripts', 'make_shapes.py'), target, '--train', '100',
                               '--val', '50'], capture_output=True, text=True)
        if done.returncode:
            self.skipTest(f'no pictures: {done.stderr.strip().splitlines()[-1]}')
        return renaissance.Dataset(target)

    def test_pictures(self):
        data = self.shapes()
        self.assertEqual((len(data.classes), data.size('train'), data.size('val')), (10, 100, 50))
        path, label = data['train', 0]
        self.assertTrue(path.endswith('arrow/0000.jpg'))
        self.assertEqual(label, 0)
        model = renaissance.Model(os.path.join(ROOT, 'examples', 'quickstart', 'shapes_cnn.onnx'))
        training = renaissance.Loader(data, 'train', model, batch=25, shuffle=True, augmentation='flip,pad-crop:4')
        validation = renaissance.Loader(data, 'val', model, batch=20, last_batch='exact')
        batches = list(validation.epoch())
        self.assertEqual([b[0].shape for b in batches], [(20, 40, 40, 3), (20, 40, 40, 3), (10, 40, 40, 3)])
        self.assertEqual(sorted(np.concatenate([b[1] for b in batches])), sorted([i for i in range(10)] * 5))
        seen = []
        trainer = renaissance.Trainer(model, batch=25, evaluation_batch=20, epochs=2, normalize='half', momentum=0.9,
                                      learning_rate=0.05)
        result = trainer.fit(training, validation, progress=lambda p: seen.append(p.phase))
        self.assertEqual(seen.count(abi.PHASE_EPOCH_DONE), 2)
        self.assertEqual(result.validation.samples, 50)
        self.assertAlmostEqual(trainer.evaluate(validation).top1, result.validation.top1)
        # The trained file says how its pictures are normalised, and is measured so without being told.
        self.assertEqual(model.normalization, {})
        trained = os.path.join(self.folder, 'normalised.onnx')
        trainer.export(trained)
        again = renaissance.Model(trained)
        self.assertEqual(again.normalization, {'mean': [0.5] * 3, 'std': [0.5] * 3})
        measured = renaissance.Trainer(again, batch=20, evaluation_only=True).evaluate(validation)
        self.assertAlmostEqual(measured.loss, result.validation.loss, places=5)   # the same arithmetic in another batch size
        other = renaissance.Trainer(again, batch=20, evaluation_only=True, normalize='imagenet').evaluate(validation)
        self.assertNotAlmostEqual(other.loss, result.validation.loss, places=3)

    def test_pack(self):
        data, packed, seen = self.shapes(), os.path.join(self.folder, 'shapes.dts'), []
        report = data.pack(packed, progress=lambda p: seen.append((p.phase, p.done, p.total)))
        self.assertEqual(report.json()['pictures'], 150)
        self.assertEqual({phase for phase, _, _ in seen}, {abi.JOB_PACKING, abi.JOB_VERIFYING})
        self.assertIn((abi.JOB_PACKING, 150, 150), seen)
        again = renaissance.Dataset(packed)
        self.assertEqual(again.classes, data.classes)
        for split in ('train', 'val'):
            self.assertEqual([again[split, i] for i in range(again.size(split))],
                             [(path.replace('/shapes/', '/shapes.dts/'), label)
                              for path, label in (data[split, i] for i in range(data.size(split)))])
        with open(packed, 'rb') as f:
            whole = f.read()
        report = data.pack(packed, short_side=20, quality=80, threads=1)   # replaces it
        self.assertEqual(report.json()['resized'], 150)
        self.assertLess(os.path.getsize(packed), len(whole))
        self.assertEqual(renaissance.Dataset(packed).inspect().json()['width'], {'min': 20, 'median': 20, 'max': 20})

        def interrupt(progress):
            if progress.done == 100:
                raise KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            data.pack(packed, progress=interrupt)
        self.assertTrue(os.path.exists(packed + '.part'))
        with self.assertRaises(renaissance.Error) as caught:
            data.pack(packed, progress=lambda p: p.phase == abi.JOB_PACKING)
        self.assertEqual(caught.exception.code, abi.ERROR_CANCELLED)
        said = []
        report = data.pack(packed, progress=lambda p: said.append(p.message) if p.message else None)
        self.assertGreater(report.json()['continued'], 0)
        self.assertEqual(len(said), 1)
        with open(packed, 'rb') as f:
            self.assertEqual(f.read(), whole)
        self.assertFalse(os.path.exists(packed + '.part'))
        with self.assertRaisesRegex(renaissance.Error, 'm.onnx'):
            data.pack(self.path)   # what is no pack is not replaced
        with self.assertRaisesRegex(renaissance.Error, 'quality'):
            data.pack(packed, quality=101)

    def test_bad_pictures_in_packing_and_inspecting(self):
        data = self.shapes()
        self.assertTrue(data.inspect().passed)
        with open(os.path.join(self.folder, 'shapes', data['train', 3][0]), 'r+b') as f:
            f.truncate(200)
        report = data.inspect(threads=2)
        self.assertFalse(report.passed)
        self.assertEqual([b['path'].rsplit('/', 1)[1] for b in report.json()['broken']], ['0003.jpg'])
        self.assertTrue(data.inspect(quick=True).json()['quick'])
        packed = os.path.join(self.folder, 'shapes.dts')
        with self.assertRaisesRegex(renaissance.Error, '0003.jpg'):
            data.pack(packed)
        self.assertFalse(os.path.exists(packed))
        report = data.pack(packed, bad_files='skip')
        self.assertEqual((report.json()['pictures'], report.json()['bad_files']), (149, 1))
        with self.assertRaises(renaissance.Error) as caught:
            data.inspect(progress=lambda p: True)
        self.assertEqual(caught.exception.code, abi.ERROR_CANCELLED)

    def test_exceptions_come_out_of_callbacks(self):
        data = self.shapes()
        model = renaissance.Model(os.path.join(ROOT, 'examples', 'quickstart', 'shapes_cnn.onnx'))
        training = renaissance.Loader(data, 'train', model, batch=25, shuffle=True)
        trainer = renaissance.Trainer(model, batch=25, epochs=2, normalize='half')

        def interrupt(progress):
            raise KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            trainer.fit(training, progress=interrupt)
        with self.assertRaises(renaissance.Error) as caught:
            trainer.fit(training, progress=lambda p: True)
        self.assertEqual(caught.exception.code, abi.ERROR_CANCELLED)


if __name__ == '__main__':
    unittest.main()
