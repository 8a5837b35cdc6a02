# SPDX-License-Identifier: Apache-2.0
"""Runs the snippets of docs/deploy.md on a trained file, and compares what they give with the engine."""
import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import torch

import renaissance
from renaissance import abi

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..'))
NEEDED = [name for name in ('torchvision', 'onnxruntime', 'PIL') if importlib.util.find_spec(name) is None]
try:
    abi.library()
except renaissance.LibraryNotFound as problem:
    NEEDED.append(str(problem))


@unittest.skipIf(NEEDED, f'missing: {NEEDED}')
class DeployTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import torchvision
        from PIL import Image
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        with open(os.path.join(ROOT, 'docs', 'deploy.md'), encoding='utf-8') as file:
            cls.into_torch, cls.onnx_runtime = re.findall(r'^```python\n(.*?)^```', file.read(), re.M | re.S)
        torch.manual_seed(1)
        model, shapes, alone = (os.path.join(cls.folder, name) for name in ('model.onnx', 'shapes', 'alone'))
        renaissance.export(torchvision.models.resnet18(num_classes=10), torch.randn(2, 3, 64, 48), model)
        subprocess.run([sys.executable, os.path.join(ROOT, 'scripts', 'make_shapes.py'), shapes, '--train', '40', '--val', '10'],
                       check=True, capture_output=True)
        os.makedirs(os.path.join(alone, 'a'))
        noise = np.random.default_rng(0).integers(0, 256, (9, 13, 3), np.uint8)
        Image.fromarray(noise).resize((131, 90)).save(os.path.join(alone, 'a', 'picture.jpg'))
        os.link(os.path.join(alone, 'a', 'picture.jpg'), os.path.join(cls.folder, 'picture.jpg'))
        model = renaissance.Model(model)
        trainer = renaissance.Trainer(model, batch=20, momentum=0.9, learning_rate=0.02, normalize='imagenet', device='cpu')
        data = renaissance.Dataset(shapes)
        trainer.fit(renaissance.Loader(data, 'train', model, batch=20, shuffle=True))
        trainer.export(os.path.join(cls.folder, 'trained.onnx'))
        trainer.export(os.path.join(cls.folder, 'deploy.onnx'), inference_form=True)
        alone = renaissance.Loader(renaissance.Dataset(alone, allow_one_class=True), 'train', model, batch=1)
        (cls.image, _), = alone.epoch()   # as the engine brings it to the model's size: [1, 64, 48, 3]
        cls.scores = trainer.predict(cls.image, layout='NHWC')['logits'][0]
        cls.classes = data.classes

    def run_snippet(self, code):
        names, out, before = {}, io.StringIO(), os.getcwd()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(out):
                exec(compile(code, 'docs/deploy.md', 'exec'), names)  # its own text, of this repository
        finally:
            os.chdir(before)
        return names, out.getvalue()

    def test_back_into_torch(self):
        network = self.run_snippet(self.into_torch)[0]['network']
        mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
        pixels = torch.from_numpy(((np.float32(self.image) / 255 - mean) / std).transpose(0, 3, 1, 2))
        with torch.no_grad():
            got = network(pixels)[0].numpy()
        # FP32 in another order of sums: 1e-4 of the largest score, as in test_engine.py
        np.testing.assert_allclose(got, self.scores, rtol=0, atol=1e-4 * np.abs(self.scores).max())

    def test_onnx_runtime(self):
        names, out = self.run_snippet(self.onnx_runtime)
        np.testing.assert_array_equal(np.asarray(names['picture']), self.image[0])   # the same bytes
        np.testing.assert_allclose(names['scores'], self.scores, rtol=0, atol=1e-4 * np.abs(self.scores).max())
        shares = np.exp(self.scores - self.scores.max())
        shares /= shares.sum()
        told = [line.split()[:2] for line in out.splitlines()]
        self.assertEqual([name for name, _ in told], [self.classes[k] for k in shares.argsort()[::-1][:5]])
        for name, share in told:  # percent, printed with two places
            self.assertAlmostEqual(float(share), 100 * shares[self.classes.index(name)], delta=0.02)


if __name__ == '__main__':
    unittest.main()
