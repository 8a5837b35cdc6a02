# SPDX-License-Identifier: Apache-2.0
import glob
import os
import tempfile
import unittest

import onnx
import torch
from safetensors import safe_open
from torch import nn

import renaissance
from renaissance import bounds, recorder

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..'))
PARITY = os.environ.get('RENAISSANCE_PARITY') or os.path.join(ROOT, '..', 'shared', 'parity')


def read(path):
    with safe_open(path, 'pt') as f:
        return {k: f.get_tensor(k) for k in f.keys()}, f.metadata()


def difference(a, b):
    """Largest |a - b| as a share of max|b| + 1e-3."""
    a, b = a.double(), b.double()
    return float((a - b).abs().max() / (b.abs().max() + 1e-3))


class Case:
    """A parity model with its golden."""

    def __init__(self, name):
        self.model = os.path.join(PARITY, f'{name}.onnx')
        self.golden, self.meta = read(os.path.join(PARITY, f'{name}.golden.safetensors'))
        self.trainable = [k[len(bounds.GRADIENT):] for k in self.golden if k.startswith(bounds.GRADIENT)]
        self.options = dict(
            inputs=[{k[len(f'step{i}/input/'):]: t for k, t in self.golden.items()
                     if k.startswith(f'step{i}/input/')} for i in range(3)],
            targets=[self.golden[f'step{i}/target'] for i in range(3)] if self.trains() else None,
            loss=self.meta['loss'], nesterov=self.meta['nesterov'] == 'true',
            outputs={n: float(w) for n, w in (o.split(':') for o in self.meta['outputs'].split(','))},
            **{k: float(self.meta[k]) for k in ('lr', 'momentum', 'weight_decay', 'label_smoothing')})

    def trains(self):
        return self.meta['content'] == 'train+eval'


def lenet():
    return nn.ModuleDict({
        'features': nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                                  nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        'classifier': nn.Sequential(nn.Flatten(), nn.Linear(400, 40), nn.ReLU(), nn.Linear(40, 28), nn.ReLU(),
                                    nn.Linear(28, 10))})


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        for name, part in lenet().items():
            self.add_module(name, part)

    def forward(self, x):
        return self.classifier(self.features(x))


def resized(module, path):
    """The module with every tensor in the shape that it has in the file: a narrower model of the same kind."""
    shapes = {i.name: list(i.dims) for i in onnx.load(path).graph.initializer}
    for prefix, m in module.named_modules():
        for name in list(m._parameters):
            if m._parameters[name] is not None:
                m._parameters[name] = nn.Parameter(torch.empty(shapes[f'{prefix}.{name}' if prefix else name]))
        for name in list(m._buffers):
            if name.startswith('running'):
                m._buffers[name] = torch.empty(shapes[f'{prefix}.{name}'])
    renaissance.load_initializers(module, path)
    return module


class GoldenTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.model = os.path.join(folder.name, 'm.onnx')
        self.out = os.path.join(folder.name, 'm.golden.safetensors')
        torch.manual_seed(0)

    def test_kept_conventions(self):
        """Running variance unbiased, weight decay in the gradient's place, losses before each update: by hand."""
        net = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(4, 2))
        renaissance.export(net, torch.zeros(2, 1, 2, 2), self.model)
        x = [torch.randn(3, 1, 2, 2) + 2 for _ in range(3)]
        y = [torch.tensor([0, 1, 1])] * 3
        renaissance.record_golden(self.model, self.out, net, inputs=x, targets=y, lr=0.1, momentum=0.0,
                                  weight_decay=0.5, say=None)
        golden, meta = read(self.out)
        running = torch.ones(1, dtype=torch.float64)
        for batch in x:
            running = 0.9 * running + 0.1 * batch.double().var(unbiased=True)
        self.assertLess(difference(golden['step2/buffer/0.running_var'], running), 1e-7)
        double = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(4, 2)).double()
        renaissance.load_initializers(double, self.model)
        for k in range(3):
            loss = nn.functional.cross_entropy(double(x[k].double()), y[k])
            self.assertLess(difference(golden[f'step{k}/loss'], loss.detach()), 1e-7)
            double.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in double.parameters():
                    p -= 0.1 * (p.grad + 0.5 * p)
        for name, p in double.named_parameters():
            self.assertLess(difference(golden[f'step2/param/{name}'], p.detach()), 1e-7)
        self.assertEqual((meta['format'], meta['lr'], meta['batch_dim']), ('renaissance-golden-1', '0.1', 'dynamic'))
        self.assertEqual(golden['step0/target'].dtype, torch.int64)
        self.assertEqual(golden['step0/input/input'].dtype, torch.float32)

    def test_module_and_file_agree(self):
        import torchvision
        net = torchvision.models.resnet18(num_classes=4)
        renaissance.export(net, torch.randn(2, 3, 32, 32), self.model)
        renaissance.record_golden(self.model, self.out, net, lr=1e-4, say=None)
        by_module, meta = read(self.out)
        renaissance.record_golden(self.model, self.out, lr=1e-4, say=None)
        by_file, other = read(self.out)
        self.assertEqual(set(by_module), set(by_file))
        for key, value in by_file.items():
            self.assertLess(difference(by_module[key], value), 1e-6, key)
        self.assertEqual({**meta, 'torch_fp32_error': ''}, {**other, 'torch_fp32_error': ''})

    def test_statistics_of_a_layer_used_twice_move_twice(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Conv2d(3, 8, 3, bias=False), nn.Conv2d(8, 8, 3, bias=False)
                self.bn, self.fc = nn.BatchNorm2d(8), nn.Linear(8, 4)

            def forward(self, x):
                return self.fc(self.bn(self.b(self.bn(self.a(x)).relu())).relu().mean((2, 3)))
        net = Twice()
        renaissance.export(net, torch.randn(2, 3, 9, 9), self.model)
        goldens = []
        for module in (net, None):
            renaissance.record_golden(self.model, self.out, module, lr=1e-3, say=None)
            goldens.append(read(self.out)[0])
        for name in ('running_mean', 'running_var'):
            key = f'step2/buffer/bn.{name}'
            self.assertLess(difference(goldens[0][key], goldens[1][key]), 1e-6, key)

    def test_frozen_layer(self):
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3),
                            nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
        net[1].eval()
        net[0].weight.requires_grad_(False)
        renaissance.export(net, torch.randn(2, 3, 8, 8), self.model)
        renaissance.record_golden(self.model, self.out, net, say=None)
        golden, _ = read(self.out)
        self.assertTrue(torch.equal(golden['step2/buffer/1.running_mean'], torch.zeros(4)))
        self.assertFalse(torch.equal(golden['step2/buffer/4.running_mean'], torch.zeros(4)))
        self.assertNotIn('step0/grad/0.weight', golden)
        self.assertIn('step0/grad/1.weight', golden)
        self.assertFalse(net[1].training)

    def at_a_kink(self):
        """A net one of whose ReLU inputs is zero but for rounding, for the batch of seed 0."""
        net = nn.Sequential(nn.Flatten(), nn.Linear(8, 6, bias=False), nn.ReLU(), nn.Linear(6, 3))
        renaissance.export(net, torch.randn(2, 2, 2, 2), self.model)
        model = onnx.load(self.model)
        batches = recorder.random_batches(recorder.input_shapes(model, 4),
                                          lambda dtype: recorder.ModuleRun(net, model, dtype), {'logits': 1.0},
                                          'cross_entropy')(0)
        x = batches[0][0]['input'].flatten(1)[0].double()
        with torch.no_grad():
            w = net[1].weight[2].double()
            net[1].weight[2] = (w - x * (w @ x) / (x @ x)).float()
        renaissance.export(net, torch.randn(2, 2, 2, 2), self.model)
        return net, batches

    def test_takes_another_batch_where_rounding_decides(self):
        net, _ = self.at_a_kink()
        said = []
        report = renaissance.record_golden(self.model, self.out, net, say=said.append)
        self.assertEqual(report.notes, said)
        self.assertRegex(said[0], 'batch with seed 0 left out, rounding decides: step')
        self.assertLess(max(report.fp32_share, report.disturbed_share), 0.5)

    def test_refuses_given_batches_where_rounding_decides(self):
        net, batches = self.at_a_kink()
        with self.assertRaisesRegex(ValueError, 'rounding decides.*give other batches'):
            renaissance.record_golden(self.model, self.out, net, inputs=[b[0] for b in batches],
                                      targets=[b[1] for b in batches], say=None)
        self.assertFalse(os.path.exists(self.out))
        with self.assertRaisesRegex(ValueError, 'in none of 1 batches'):
            renaissance.record_golden(self.model, self.out, net, attempts=1, say=None)

    def test_refusals(self):
        net = nn.Sequential(nn.Flatten(), nn.Linear(8, 6), nn.Dropout(0.5), nn.Linear(6, 3))
        renaissance.export(net, torch.randn(2, 2, 2, 2), self.model)
        for module in (net, None):
            with self.assertRaisesRegex(ValueError, 'draws random numbers'):
                renaissance.record_golden(self.model, self.out, module, say=None)
        net[2].p = 0.0  # in the module alone: the file draws them still
        with self.assertRaisesRegex(ValueError, 'draws random numbers'):
            renaissance.record_golden(self.model, self.out, net, say=None)
        renaissance.export(net, torch.randn(2, 2, 2, 2), self.model)
        with self.assertRaisesRegex(ValueError, 'has the outputs'):
            renaissance.record_golden(self.model, self.out, net, outputs={'other': 1.0}, say=None)
        with self.assertRaisesRegex(ValueError, 'loss is'):
            renaissance.record_golden(self.model, self.out, net, loss='mse', say=None)
        with self.assertRaisesRegex(ValueError, '3 batches are needed'):
            renaissance.record_golden(self.model, self.out, net, inputs=[torch.zeros(2, 2, 2, 2)],
                                      targets=[torch.zeros(2)], say=None)


class BoundsTest(unittest.TestCase):
    def test_bounds_are_those_of_the_format(self):
        golden = {'step0/output/y': torch.tensor([2.0, -4.0]), 'step0/grad/w': torch.tensor([1.0, 10.0]),
                  'step0/grad/b': torch.tensor([1e-6]), 'step2/param/w': torch.tensor([1.0, 1.0]),
                  'step0/input/x': torch.zeros(1), 'step0/target': torch.zeros(1)}
        other = {k: t + 1e-6 for k, t in golden.items()}
        rows = {(key, group): (error, bound) for key, group, error, bound in
                bounds.compare(golden, other, {'w': torch.tensor([0.9, 1.0])})}
        self.assertEqual(len(rows), 5)
        self.assertAlmostEqual(rows['step0/output/y', 'out'][1], 4e-4)
        self.assertAlmostEqual(rows['step0/grad/w', 'grad'][1], 1e-4 * 10.1)
        self.assertAlmostEqual(rows['step0/grad/b', 'grad'][1], 1e-4)  # 1e-5 of the largest gradient
        self.assertAlmostEqual(rows['step2/param/w', 'param'][1], 1e-4 * 1.001)
        self.assertAlmostEqual(rows['step2/param/w', 'change'][1], 1e-3 * (0.1 + 3e-3 + 1e-6), places=8)


@unittest.skipUnless(glob.glob(os.path.join(PARITY, '*.golden.safetensors')), f'no parity models in {PARITY}')
class ParityTest(unittest.TestCase):
    """What is recorded here for the parity models is what their goldens hold."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, 'golden')

    def same(self, case):
        recorded, meta = read(self.out)
        self.assertEqual(set(recorded), set(case.golden))
        for key, value in case.golden.items():
            self.assertLess(difference(recorded[key], value), 1e-6, key)
        for key in set(meta) - {'exporter', 'torch', 'onnx', 'torch_fp32_error', 'unmapped_buffers'}:
            self.assertEqual(meta[key], case.meta[key], key)

    def test_from_modules(self):
        import torchvision
        mlp = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.Tanh(), nn.Linear(128, 64), nn.Tanh(),
                            nn.Linear(64, 10))
        for name, module in (('mlp_tanh.ts', mlp), ('lenet_relu_maxpool.ts', LeNet()),
                             ('resnet18.ts', torchvision.models.resnet18(num_classes=10))):
            with self.subTest(name):
                case = Case(name)
                renaissance.record_golden(case.model, self.out, resized(module, case.model), say=None,
                                          exporter='', **case.options)
                self.same(case)

    def test_from_files(self):
        for name in ('lenet_tanh_avgpool.ts', 'resnet50.ts', 'frozen_bn.ts', 'tied_conv.ts', 'two_heads.dyn',
                     'unet.ts', 'mixed_activations.ts', 'padding_zoo.opset9', 'resnet18_gn.dynopt',
                     'fresh_bn.dynopt', 'se_net.constants'):
            with self.subTest(name):
                case = Case(name)
                renaissance.record_golden(case.model, self.out, say=None, trainable=case.trainable, **case.options)
                self.same(case)

    def test_every_file_is_interpreted_as_its_golden_says(self):
        names = [os.path.basename(p)[:-len('.golden.safetensors')]
                 for p in sorted(glob.glob(os.path.join(PARITY, '*.golden.safetensors')))]
        for name in names:
            with self.subTest(name):
                case = Case(name)
                run = recorder.GraphRun(onnx.load(case.model), case.trainable, torch.float64)
                if case.trains():
                    batches = list(zip(case.options['inputs'], case.options['targets']))
                    got = recorder.train(run, batches, case.options)
                else:
                    feeds = {n: t.double() for n, t in case.options['inputs'][0].items()}
                    got = {f'eval/output/{n}': t for n, t in run.forward(feeds, False).items()}
                for key, value in case.golden.items():
                    if bounds.group_of(key):
                        self.assertLess(difference(got[key], value), 2e-6, key)


if __name__ == '__main__':
    unittest.main()
