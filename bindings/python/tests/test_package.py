# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import renaissance
from renaissance import __main__ as program
from renaissance import native

PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(renaissance.__file__)))


class PackageTest(unittest.TestCase):
    def test_imports_without_torch(self):
        code = ("import sys; sys.modules['torch'] = sys.modules['onnx'] = None; import renaissance; "
                "renaissance.load_library; print(renaissance.__version__)")
        done = subprocess.run([sys.executable, '-c', code], env={**os.environ, 'PYTHONPATH': PACKAGES},
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), renaissance.__version__)

    def test_names(self):
        for name in renaissance.__all__:
            self.assertTrue(callable(getattr(renaissance, name)), name)
        with self.assertRaises(AttributeError):
            renaissance.nothing

    def test_missing_library(self):
        with mock.patch.dict(os.environ, {'RENAISSANCE_LIBRARY': '/nowhere/librenaissance.so'}):
            with self.assertRaisesRegex(native.LibraryNotFound, r'scripts/build.sh.*/nowhere/librenaissance.so'):
                renaissance.load_library()
        with tempfile.NamedTemporaryFile(suffix='.so') as empty:
            with mock.patch.dict(os.environ, {'RENAISSANCE_LIBRARY': empty.name}):
                with self.assertRaisesRegex(native.LibraryNotFound, empty.name):
                    renaissance.load_library()


class ProgramTest(unittest.TestCase):
    def run_program(self, *arguments):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            program.main(arguments)
        return out.getvalue()

    def test_export_and_golden(self):
        with tempfile.TemporaryDirectory() as folder:
            model, golden = os.path.join(folder, 'm.onnx'), os.path.join(folder, 'g')
            source = ['--torchvision', 'squeezenet1_1', '--classes', '5', '--no-dropout']
            out = self.run_program('export', *source, '--size', '32', '--out', model)
            self.assertRegex(out, r"52 trainable tensors, 0 frozen\n  input image \['batch', 3, 32, 32\]")
            out = self.run_program('golden', model, *source, '--out', golden, '--lr', '1e-4')
            self.assertRegex(out, r'52 parameters, 3 steps')
            out = self.run_program('golden', model, '--out', golden, '--lr', '1e-4', '--outputs', 'logits:0.5')
            self.assertRegex(out, r'52 parameters, 3 steps')

    def test_errors_are_one_line(self):
        for arguments, message in (
                (['export', '--torchvision', 'resnet99', '--out', 'x.onnx'], 'error: .*resnet99'),
                (['golden', '/nowhere.onnx', '--out', 'x'], 'error: .*nowhere.onnx'),
                (['export', '--module', 'nothing', '--out', 'x'], 'error: --module takes')):
            with self.assertRaisesRegex(SystemExit, message):
                self.run_program(*arguments)


if __name__ == '__main__':
    unittest.main()
