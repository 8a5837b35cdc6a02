# SPDX-License-Identifier: Apache-2.0
"""renaissance/abi.py against include/renaissance_c.h, by the C compiler."""
import ctypes
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from renaissance import abi

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..'))
HEADER = os.path.join(ROOT, 'include', 'renaissance_c.h')
COMPILER = shutil.which('cc') or shutil.which('gcc')


def source():
    with open(HEADER, encoding='utf-8') as f:
        return re.sub(r'/\*.*?\*/', ' ', f.read(), flags=re.DOTALL)


@unittest.skipUnless(os.path.exists(HEADER) and COMPILER, 'no header or no C compiler')
class AbiTest(unittest.TestCase):
    structs = {name: s for name, s in vars(abi).items()
               if isinstance(s, type) and issubclass(s, abi.Struct) and s is not abi.Struct}

    def c_values(self, expressions):
        lines = ''.join(f'  printf("%lld\\n", (long long)({e}));\n' for e in expressions)
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, 'program')
            subprocess.run([COMPILER, '-x', 'c', '-std=c99', '-I', os.path.dirname(HEADER), '-o', program, '-'],
                           input=f'#include <renaissance_c.h>\n#include <stdio.h>\nint main(void) {{\n{lines}'
                                 '  return 0;\n}\n', text=True, check=True)
            return [int(v) for v in subprocess.run([program], capture_output=True, text=True,
                                                   check=True).stdout.split()]

    def test_struct_layout(self):
        expressions, expected = [], []
        for name, struct in self.structs.items():
            expressions.append(f'sizeof({name})')
            expected.append(ctypes.sizeof(struct))
            for field, _ in struct._fields_:
                expressions += [f'offsetof({name}, {field})', f'sizeof((({name} *)0)->{field})']
                expected += [getattr(struct, field).offset, getattr(struct, field).size]
        got = self.c_values(expressions)
        self.assertEqual(dict(zip(expressions, got)), dict(zip(expressions, expected)))

    def test_every_field_is_there(self):
        found = {}
        for body, name in re.findall(r'typedef struct \w+ \{(.*?)\} (\w+);', source(), re.DOTALL):
            fields = []
            for declaration in body.split(';'):
                names = re.findall(r'(\w+)(?:\[\w+\])?\s*(?:,|$)', declaration.strip())
                fields += names
            found[name] = fields
        for name, struct in self.structs.items():
            self.assertEqual([f for f, _ in struct._fields_], found[name], name)

    def test_constants(self):
        names = [n for n, v in vars(abi).items() if n.isupper() and isinstance(v, int)]
        self.assertGreater(len(names), 30)
        self.assertEqual(dict(zip(names, self.c_values([f'REN_{n}' for n in names]))),
                         {n: getattr(abi, n) for n in names})

    def test_functions(self):
        declared = {}
        for result, name, arguments in re.findall(r'REN_API ([\w \*]+?)(ren_\w+)\((.*?)\);', source(), re.DOTALL):
            kinds = [] if arguments.strip() == 'void' else [' '.join(a.split()) for a in arguments.split(',')]
            declared[name] = (result.replace(' *', '*').strip(), kinds)
        scalars = {abi.i32: 'int32_t', abi.i64: 'int64_t', abi.u64: 'uint64_t', abi.size: 'size_t', abi.f64: 'double'}
        for name, arguments in abi.FUNCTIONS.items():
            self.assertIn(name, declared)
            result, kinds = declared[name]
            self.assertEqual(len(arguments), len(kinds), name)
            for argument, kind in zip(arguments, kinds):
                if argument in scalars:
                    self.assertRegex(kind, rf'^{scalars[argument]} \w+$', name)
                else:
                    self.assertTrue('*' in kind or '_fn ' in kind, f'{name}: {kind}')
                    if hasattr(argument, '_type_') and isinstance(argument._type_, type) and \
                            issubclass(argument._type_, abi.Struct):
                        self.assertIn(argument._type_.__name__, kind, name)
            expected = {abi.u32: 'uint32_t', abi.text: 'const char*', None: 'void'}
            self.assertEqual(result, expected.get(abi.RESULTS.get(name, abi.i32), 'int32_t'), name)


if __name__ == '__main__':
    unittest.main()
