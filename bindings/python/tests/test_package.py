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

FIXTURE = os.path.join(PACKAGES, '..', '..', 'tests', 'fixtures', 'parity', 'fresh_bn.ts.onnx')


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
            with self.assertRaisesRegex(native.LibraryNotFound,
                                        r'scripts/build.sh.*RENAISSANCE_LIBRARY.*/nowhere/librenaissance.so: not there'):
                renaissance.load_library()
        with tempfile.NamedTemporaryFile(suffix='.so') as empty:
            with mock.patch.dict(os.environ, {'RENAISSANCE_LIBRARY': empty.name}):
                with self.assertRaisesRegex(native.LibraryNotFound, empty.name):
                    renaissance.load_library()


    def test_the_build_for_gpus_comes_first(self):
        with mock.patch.dict(os.environ), tempfile.TemporaryDirectory() as root:
            os.environ.pop('RENAISSANCE_LIBRARY', None)
            here = os.path.join(root, 'bindings', 'python', 'renaissance')
            found = [os.path.join(root, 'build', preset, 'lib', native.NAME) for preset in ('cuda', 'release')]
            with mock.patch.object(native, '__file__', os.path.join(here, 'native.py')):
                self.assertFalse(set(found) & set(native.candidates()))  # not the source tree
                os.makedirs(os.path.join(root, 'src', 'capi'))
                self.assertEqual([path for path in native.candidates() if path in found], found)


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
        readme = os.path.join(PACKAGES, 'README.md')
        out = os.path.join(tempfile.gettempdir(), 'renaissance-never-written')
        net = ['--torchvision', 'resnet18', '--classes', '4']
        for arguments, message in (
                (['export', '--torchvision', 'resnet99'], "no model 'resnet99'; did you mean resnet"),
                (['export', '--torchvision', 'resnet18', '--weights', 'NOPE'], "no weights 'NOPE'; there are .*DEFAULT"),
                (['export', *net, '--weights', 'DEFAULT'], 'num_classes'),
                (['export', *net, '--channels', '1', '--size', '32'], 'with images of 1x32x32: .*channels'),
                (['export', '--torchvision', 'alexnet', '--size', '8'], 'with images of 3x8x8: .*too small'),
                (['export', *net, '--size', '32', '--opset', '99'], 'opset'),
                (['export', '--module', 'nothing'], '--module takes'),
                (['export', '--module', 'no_such_package:Net'], "no Python module 'no_such_package'"),
                (['export', '--module', 'math:Net'], "'math' has no 'Net'"),
                (['export', '--module', 'math:sqrt'], 'fails: TypeError'),
                (['export', '--module', 'os:getcwd'], 'not a torch.nn.Module'),
                (['export', '--module', 'os:getcwd', '--classes', '3'], '--classes is for --torchvision'),
                (['golden', '/nowhere.onnx'], 'nowhere.onnx.* does not exist'),
                (['golden', FIXTURE, '--trainable', 'fc.weight,a,b'], 'not in the file: a, b'),
                (['golden', FIXTURE, '--outputs', 'aux'], 'aux'),
                (['golden', readme], 'README.md.* is no ONNX file'),
                (['golden', PACKAGES], 'is no file'),
                (['golden', os.devnull], 'is no file')):
            with self.subTest(arguments):
                with self.assertRaises(SystemExit) as caught, contextlib.redirect_stderr(io.StringIO()):
                    self.run_program(*arguments, '--out', out)
                self.assertRegex(str(caught.exception.code), rf'\Aerror: .*{message}')
                self.assertNotIn('\n', str(caught.exception.code))
                self.assertFalse(os.path.exists(out))

    def test_a_place_that_cannot_be_written_is_refused_first(self):
        for place, message in (('/no/such/folder/x', 'no folder /no/such/folder'), (tempfile.gettempdir(), 'a folder')):
            with self.assertRaisesRegex(SystemExit, message):
                self.run_program('export', '--torchvision', 'resnet18', '--out', place)

    def test_pipes_are_refused_and_links_stay(self):
        from renaissance.recorder import replace_file

        def save(file):
            with open(file, 'w', encoding='utf-8') as out:
                out.write('new')
        with tempfile.TemporaryDirectory() as folder:
            pipe, link, target = (os.path.join(folder, name) for name in ('pipe', 'link', 'target'))
            os.mkfifo(pipe)
            with self.assertRaisesRegex(SystemExit, 'a pipe, a device or a socket'):
                self.run_program('export', '--torchvision', 'resnet18', '--out', pipe)
            with self.assertRaisesRegex(ValueError, 'a pipe, a device or a socket'):
                replace_file(pipe, save)
            os.symlink(target, link)
            replace_file(link, save)
            self.assertTrue(os.path.islink(link))
            with open(target, encoding='utf-8') as file:
                self.assertEqual(file.read(), 'new')
        with self.assertRaisesRegex(SystemExit, '--out is empty'):
            self.run_program('golden', FIXTURE, '--out', '')

    def test_external_data_is_no_place_to_write(self):
        import onnx
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, 'model.onnx')
            onnx.save(onnx.load(FIXTURE), model, save_as_external_data=True, location='weights', size_threshold=0)
            with self.assertRaisesRegex(SystemExit, 'would replace .*weights'):
                self.run_program('golden', model, '--out', os.path.join(folder, 'weights'))

    def test_values_out_of_range_are_usage_errors(self):
        for option, value in (('--lr', 'nan'), ('--lr', '0'), ('--lr', 'inf'), ('--momentum', '1'), ('--batch', '0'),
                              ('--label-smoothing', '-1'), ('--outputs', 'a:x'), ('--outputs', ':1'), ('--outputs', 'a,a'),
                              ('--seed', '-1'), ('--seed', 'x')):
            errors = io.StringIO()
            with self.assertRaises(SystemExit) as caught, contextlib.redirect_stderr(errors):
                self.run_program('golden', 'm.onnx', '--out', 'g', f'{option}={value}')
            self.assertEqual(caught.exception.code, 2)
            self.assertIn(option, errors.getvalue())

    def test_missing_packages_are_named(self):
        code = ("import sys; sys.modules['torch'] = sys.modules['torchvision'] = None\n"
                "from renaissance.__main__ import main; main(sys.argv[1:])")
        for arguments in (['export', '--torchvision', 'resnet18', '--out', 'x'], ['golden', 'm.onnx', '--out', 'x']):
            done = subprocess.run([sys.executable, '-c', code, *arguments], env={**os.environ, 'PYTHONPATH': PACKAGES},
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r'\Aerror: torch.* missing in .*: pip install torch')

    def test_help_tells_every_default(self):
        for command in ('export', 'golden', 'autocast'):
            out = io.StringIO()
            with self.assertRaises(SystemExit), contextlib.redirect_stdout(out):
                program.main([command, '--help'])
            text = ' '.join(out.getvalue().split())
            for option in ('--channels N', '--size PIXELS', '--opset N', '--lr X', '--momentum X', '--weight-decay X',
                           '--label-smoothing X', '--batch N', '--seed N', '--device DEVICE', '--replays N'):
                if f' {option} ' in text.split('options:')[-1]:
                    described = text.split('options:')[-1].split(f' {option} ')[1].split(' --')[0]
                    self.assertIn('default', described, f'{command} {option}')
            self.assertIn('examples:', text)


if __name__ == '__main__':
    unittest.main()
