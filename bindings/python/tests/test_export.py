# SPDX-License-Identifier: Apache-2.0
import json
import os
import tempfile
import unittest

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn

import renaissance
from renaissance.exporter import TRAINABLE_KEY
from renaissance.interpreter import Interpreter


class Block(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class Net(nn.Module):
    """Two equal blocks (fresh BatchNorms have equal values), view(), Dropout."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Block(3, 8), Block(8, 8)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(32, 5)

    def forward(self, x):
        x = self.pool(self.second(self.first(x)))
        return self.fc(self.drop(x.view(x.size(0), -1)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 3, 3, padding=1)
        self.b = nn.Conv2d(3, 3, 3, padding=1)
        self.b.weight = self.a.weight
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.b(torch.relu(self.a(x))).mean((2, 3))


class Normalisation(nn.Module):
    """Asks for inference mode in the call, not by a flag of a module."""

    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm2d(3)
        self.fc = nn.Linear(3, 2)
        self.register_buffer('running_mean', torch.full((3,), 0.5))
        self.register_buffer('running_var', torch.full((3,), 2.0))

    def forward(self, x):
        x = nn.functional.batch_norm(x, self.running_mean, self.running_var, self.bn.weight, self.bn.bias, False)
        return self.fc(self.bn(x).mean((2, 3)))


class ExportTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        torch.manual_seed(3)

    def export(self, module, example=None, **options):
        self.path = os.path.join(self.folder.name, 'm.onnx')
        report = renaissance.export(module, torch.randn(2, 3, 8, 8) if example is None else example, self.path,
                                    **options)
        self.assertEqual(os.listdir(self.folder.name), ['m.onnx'])
        model = onnx.load(self.path)
        onnx.checker.check_model(model, full_check=True)
        return report, model

    @staticmethod
    def training_modes(model):
        return {n.input[3]: [a.i for a in n.attribute if a.name == 'training_mode']
                for n in model.graph.node if n.op_type == 'BatchNormalization'}

    @staticmethod
    def declared(model):
        return json.loads(next(p.value for p in model.metadata_props if p.key == TRAINABLE_KEY))

    def test_everything_is_there_and_nothing_moved(self):
        net, example = Net(), torch.randn(2, 3, 8, 8)
        before = {k: v.clone() for k, v in net.state_dict().items()}
        random_state = torch.random.get_rng_state()
        report, model = self.export(net, example)
        self.assertTrue(torch.equal(random_state, torch.random.get_rng_state()))
        self.assertTrue(all(m.training for m in net.modules()))
        for name, value in net.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)
        self.assertTrue(all(p.grad is None for p in net.parameters()))
        stored = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
        for name, value in before.items():
            if not name.endswith('num_batches_tracked'):
                np.testing.assert_array_equal(stored[name], value.numpy(), err_msg=name)
        self.assertEqual(self.declared(model), [n for n, _ in net.named_parameters()])
        self.assertEqual(report.trainable, self.declared(model))
        self.assertEqual(set(map(tuple, self.training_modes(model).values())), {(1,)})
        self.assertEqual(report.inputs, {'input': ['batch', 3, 8, 8]})
        self.assertEqual(report.outputs, {'logits': ['batch', 5]})
        momentum = [a.f for n in model.graph.node if n.op_type == 'BatchNormalization' for a in n.attribute
                    if a.name == 'momentum']
        np.testing.assert_allclose(momentum, 0.9, rtol=1e-6)

    def test_any_batch_size_gives_the_modules_numbers(self):
        net = Net()
        _, model = self.export(net, torch.randn(1, 3, 8, 8))
        net.eval()
        for batch in (1, 3, 5):
            x = torch.randn(batch, 3, 8, 8, dtype=torch.float64)
            with torch.no_grad():
                got = Interpreter(model, torch.float64).run({'input': x}, False)['logits']
                self.assertLess(float((got - net.double()(x)).abs().max()), 1e-12)

    def test_static_batch(self):
        report, _ = self.export(Net(), torch.randn(4, 3, 8, 8), dynamic_batch=False, input_names=['x'],
                                output_names=['y'])
        self.assertEqual((report.inputs, report.outputs), ({'x': [4, 3, 8, 8]}, {'y': [4, 5]}))

    def test_frozen_layers_stay_frozen(self):
        net = Net()
        net.first.eval()
        net.first[0].weight.requires_grad_(False)
        report, model = self.export(net)
        self.assertEqual(self.training_modes(model), {'first.1.running_mean': [0], 'second.1.running_mean': [1]})
        self.assertEqual(report.frozen_layers, ['first.1'])
        self.assertEqual(report.frozen, ['first.0.weight'])
        self.assertNotIn('first.0.weight', self.declared(model))
        self.assertIn('first.1.weight', self.declared(model))
        self.assertFalse(net.first.training)
        self.assertTrue(net.training)

    def test_all_normalisations_frozen_on_purpose(self):
        net = Net()
        net.first[1].eval()
        net.second[1].eval()
        _, model = self.export(net)
        self.assertEqual(set(map(tuple, self.training_modes(model).values())), {(0,)})
        self.assertIn(('renaissance.batch_norm', 'as_marked'), [(p.key, p.value) for p in model.metadata_props])

    def test_inference_mode_asked_for_in_the_call(self):
        _, model = self.export(Normalisation())
        self.assertEqual(self.training_modes(model), {'running_mean': [0], 'bn.running_mean': [1]})

    def test_module_in_eval_altogether_is_trained(self):
        net = Net().eval()
        report, model = self.export(net)
        self.assertEqual(set(map(tuple, self.training_modes(model).values())), {(1,)})
        self.assertFalse(any(m.training for m in net.modules()))
        self.assertTrue(any('eval()' in note for note in report.notes))

    def test_root_in_eval_with_training_children(self):
        net = Net()
        net.training = False
        _, model = self.export(net)
        self.assertEqual(len([i for i in model.graph.initializer if 'running' in i.name]), 4)
        self.assertFalse(net.training)

    def test_older_opset(self):
        net = Net()
        net.second.eval()
        _, model = self.export(net, opset=13)
        outputs = {n.input[3]: len(n.output) for n in model.graph.node if n.op_type == 'BatchNormalization'}
        self.assertEqual(outputs, {'first.1.running_mean': 5, 'second.1.running_mean': 1})

    def test_tied_and_unused_parameters(self):
        report, model = self.export(Tied())
        self.assertEqual(sorted(self.declared(model)), ['a.bias', 'a.weight', 'b.bias'])
        self.assertEqual(sum('unused' in note for note in report.notes), 2)

    def test_several_outputs(self):
        class Two(Net):
            def forward(self, x):
                y = super().forward(x)
                return y, (y * 2, y + 1)
        report, _ = self.export(Two())
        self.assertEqual(list(report.outputs), ['output0', 'output1', 'output2'])

    def test_refusals(self):
        net = Net()
        net.first[1].momentum = None
        cases = [(net, 'first.1: BatchNorm with momentum=None'),
                 (Net().half(), 'float16'),
                 (Net().requires_grad_(False), 'nothing to train')]
        pooled = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64, 2))
        cases.append((pooled, "torch can't export"))
        for module, message in cases:
            before = {k: v.clone() for k, v in module.state_dict().items()}
            with self.assertRaisesRegex(ValueError, message):
                self.export(module)
            self.assertEqual(os.listdir(self.folder.name), [])
            for name, value in module.state_dict().items():
                self.assertTrue(torch.equal(value, before[name]), name)
        with self.assertRaisesRegex(ValueError, 'names for'):
            self.export(Net(), input_names=['a', 'b'])

    def test_load_initializers(self):
        torch.manual_seed(1)
        net = Net()
        _, model = self.export(net)
        torch.manual_seed(2)
        other = Net()
        renaissance.load_initializers(other, self.path)
        for name, value in other.state_dict().items():
            self.assertTrue(torch.equal(value, net.state_dict()[name]), name)
        other.fc = nn.Linear(32, 6)
        with self.assertRaisesRegex(ValueError, r'fc.weight: \[5, 32\] in the file, \[6, 32\] in the module'):
            renaissance.load_initializers(other, self.path)

    def test_onnx_runtime_reads_it(self):
        try:
            import onnxruntime
        except ImportError:
            self.skipTest('no onnxruntime')
        net = Net()
        self.export(net)
        session = onnxruntime.InferenceSession(self.path, providers=['CPUExecutionProvider'])
        self.assertEqual(session.run(None, {'input': np.zeros((3, 3, 8, 8), np.float32)})[0].shape, (3, 5))


if __name__ == '__main__':
    unittest.main()
