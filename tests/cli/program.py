# SPDX-License-Identifier: Apache-2.0
"""What the tests of the program from outside share: how it is run, models and pictures for it."""
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, '..', '..')
MODEL = os.path.join(ROOT, 'examples', 'quickstart', 'shapes_cnn.onnx')
PARITY = os.path.join(ROOT, 'tests', 'fixtures', 'parity')
GOLDEN_MODEL = os.path.join(PARITY, 'fresh_bn.ts.onnx')
GOLDEN = os.path.join(PARITY, 'fresh_bn.ts.golden.safetensors')
PROGRAM = None  # main() sets it
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

    def train(self, out, *more, epochs='1', data=None, augment='flip,pad-crop:2'):
        return ('train', MODEL, '--data', data or self.data, '--epochs', epochs, '--batch', '8', '--lr', '0.01', '--normalize', 'half',
                '--augment', augment, '--out', self.path(out), *more)


def main(usage):
    """The tests of the file that is run; its first argument is the program."""
    global PROGRAM
    if len(sys.argv) < 2:
        sys.exit(usage)
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
