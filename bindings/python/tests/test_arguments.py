# SPDX-License-Identifier: Apache-2.0
"""What C would cut off, wrap around or not understand is refused by name, wherever it can be given."""
import ctypes
import inspect
import os
import struct
import tempfile
import unittest
import zlib

import numpy as np

import renaissance
from renaissance import abi, arguments, engine

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..'))
MODEL = os.path.join(ROOT, 'examples', 'quickstart', 'shapes_cnn.onnx')   # 3x40x40, 10 classes

try:
    abi.library()
    MISSING = None
except renaissance.LibraryNotFound as problem:
    MISSING = str(problem)


def png(side):
    """A black picture."""
    def chunk(kind, body):
        return struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
    header = struct.pack('>IIBBBBB', side, side, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(side * (1 + 3 * side)))
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', rows) + chunk(b'IEND', b'')


def write_pictures(folder, count=4):
    """Ten classes of `count` pictures each."""
    for name in 'abcdefghij':
        os.makedirs(os.path.join(folder, name))
        for i in range(count):
            with open(os.path.join(folder, name, f'{i}.png'), 'wb') as f:
                f.write(png(40))


class FieldsTest(unittest.TestCase):
    """Every field of every struct that is filled in Python; it needs no library."""
    fields = [(s, name, kind) for s in vars(abi).values()
              if isinstance(s, type) and issubclass(s, abi.Struct) and s is not abi.Struct
              for name, kind in s._fields_]

    def refused(self, error, made, name, value):
        with self.assertRaisesRegex(error, rf'^{name}\b', msg=f'{made.__name__}.{name}'):
            made(**{name: value})

    def test_numbers_that_do_not_fit(self):
        tried = 0
        for made, name, kind in self.fields:
            if kind not in arguments.INTEGERS:
                continue
            tried += 1
            least, most = arguments.limits(kind)
            self.assertEqual(ctypes.sizeof(kind) * 8, (most - least).bit_length())
            for value in (least, most, np.int64(5)):
                self.assertEqual(getattr(made(**{name: value}), name), value)
            for value in (least - 1, most + 1, 10 ** 5000):
                self.refused(ValueError, made, name, value)
            for value in (1.0, '1', None, True, [1], np.float32(1)):
                self.refused(TypeError, made, name, value)
        self.assertGreater(tried, 60)

    def test_floats(self):
        for made, name, kind in self.fields:
            if kind in arguments.FLOATS:
                for value in ('0.2', b'1', None, True, [1.0], 1j):
                    self.refused(TypeError, made, name, value)
                self.refused(ValueError, made, name, 10 ** 400)
                self.assertEqual(getattr(made(**{name: np.float32(0.5)}), name), 0.5)
        self.refused(ValueError, abi.ren_trainer_options, 'loss_scale', 1e39)   # it has 32 bits

    def test_flags(self):
        flags = [(made, name) for made, name, kind in self.fields if kind is arguments.flag]
        self.assertEqual(len(flags), 10)
        for made, name in flags:
            for value in (False, True, 0, 1, np.True_):
                self.assertEqual(getattr(made(**{name: value}), name).value, int(value))
            for value in ('no', 2, None, 1.0):
                self.refused(TypeError, made, name, value)

    def test_texts(self):
        for made, name, kind in self.fields:
            if kind is ctypes.c_char_p:
                for value in ('a\0b', b'a\0', '\0'):
                    with self.assertRaisesRegex(ValueError, f'^{name}: embedded null byte'):
                        made(**{name: value})
                self.refused(ValueError, made, name, '\ud800')
                for value in (5, ['a']):
                    self.refused(TypeError, made, name, value)
                self.assertEqual(getattr(made(**{name: 'ä'}), name), 'ä'.encode())

    def test_unknown_fields(self):
        with self.assertRaisesRegex(TypeError, "no field 'treads'"):
            abi.ren_loader_options(treads=1)


@unittest.skipIf(MISSING, f'no engine: {MISSING}')
class CallsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        write_pictures(self.at('pictures'))
        self.model = renaissance.Model(MODEL)
        self.data = renaissance.Dataset(self.at('pictures'))
        self.trainer = renaissance.Trainer(self.model, device='cpu', batch=2)
        self.x, self.y = np.zeros((2, 3, 40, 40), np.uint8), [0, 1]

    def at(self, name):
        return os.path.join(self.folder, name)

    def loader(self, **options):
        return renaissance.Loader(self.data, 'all', self.model, **options)

    def refused(self, error, text, call):
        with self.assertRaisesRegex(error, text):
            call()

    def test_null_bytes_in_every_text(self):
        kept = self.at('kept')
        with open(kept, 'w') as f:
            f.write('precious')
        bad = kept + '\0.dts'
        m, d, t = self.model, self.data, self.trainer
        calls = {   # every function of C that takes a text: {argument: what hands it on}
            'ren_model_load': {'path': lambda: renaissance.Model(bad),
                               'train': lambda: renaissance.Model(MODEL, train=['a', bad]),
                               'freeze': lambda: renaissance.Model(MODEL, freeze=[bad]),
                               'train_norms': lambda: renaissance.Model(MODEL, train_norms=[bad]),
                               'freeze_norms': lambda: renaissance.Model(MODEL, freeze_norms=[bad])},
            'ren_model_tensor_find': {'name': lambda: m.shape(bad)},
            'ren_model_metadata': {'key': lambda: m.metadata(bad)},
            'ren_model_tensor_get': {'name': lambda: m[bad]},
            'ren_model_tensor_set': {'name': lambda: m.__setitem__(bad, 0)},
            'ren_model_export': {'path': lambda: m.export(bad),
                                 'metadata': lambda: m.export(kept, metadata={'a': bad})},
            'ren_dataset_open': {'uri': lambda: renaissance.Dataset(bad),
                                 'validation': lambda: renaissance.Dataset(self.at('pictures'), validation=bad)},
            'ren_dataset_size': {'split': lambda: d.size(bad)},
            'ren_dataset_path': {'split': lambda: d[bad, 0]},
            'ren_dataset_label': {'split': lambda: d[bad, 0]},
            'ren_dataset_pack': {'path': lambda: d.pack(bad)},
            'ren_loader_create': {'split': lambda: renaissance.Loader(d, bad, m),
                                  'augmentation': lambda: self.loader(augmentation=bad)},
            'ren_trainer_create': {name: lambda name=name: renaissance.Trainer(m, **{name: bad})
                                   for name in ('device', 'normalize', 'losses')},
            'ren_trainer_fit': {'checkpoint': lambda: t.fit(self.loader(), checkpoint=bad)},
            'ren_trainer_tensor_get': {'name': lambda: t.get(bad)},
            'ren_trainer_tensor_set': {'name': lambda: t.set(bad, 0)},
            'ren_trainer_checkpoint_save': {'path': lambda: t.save(bad)},
            'ren_trainer_checkpoint_load': {'path': lambda: t.load(bad)},
            'ren_trainer_export': {'path': lambda: t.export(bad),
                                   'metadata': lambda: t.export(kept, metadata={bad: 'a'})},
            'ren_verify': {'model_path': lambda: renaissance.verify(bad, kept),
                           'golden_path': lambda: renaissance.verify(MODEL, bad),
                           'device': lambda: renaissance.verify(MODEL, kept, device=bad),
                           'peer': lambda: renaissance.verify(MODEL, kept, peer=bad)},
        }
        taking = {name for name, kinds in abi.FUNCTIONS.items()
                  if abi.text in (kinds[:-3] if kinds[-3:] == abi.buffer else kinds)}
        self.assertGreater(len(taking), 15)
        self.assertEqual(taking - set(calls), set(), 'functions that take a text and are not tried here')
        for function, tries in calls.items():
            for name, call in tries.items():
                with self.subTest(function=function, argument=name):
                    self.refused(ValueError, f'^{name}: embedded null byte', call)
        with open(kept) as f:
            self.assertEqual(f.read(), 'precious')

    def test_texts_are_taken_nowhere_but_there(self):
        """A conversion beside the one place would not be checked."""
        self.assertNotRegex(inspect.getsource(engine), r'\.encode\(|fsencode')

    def test_unknown_words(self):
        m, d = self.model, self.data
        for name in ('precision', 'schedule', 'optimizer', 'image_type'):
            choices = ', '.join(map(repr, renaissance.Trainer._words[name]))
            for value in ('x', None, 0, ['fp32']):
                self.refused(ValueError, f'^{name} is .*; there are {choices}$',
                             lambda: renaissance.Trainer(m, **{name: value}))
        self.refused(ValueError, "^precision is 'x'; there are 'fp32'",
                     lambda: renaissance.verify(MODEL, 'golden', precision='x'))
        self.refused(ValueError, "^last_batch is 'all'; there are 'keep', 'drop', 'exact'$",
                     lambda: self.loader(last_batch='all'))
        self.refused(ValueError, "^bad_files is 'x'; there are 'fail', 'skip', 'replace'$",
                     lambda: self.loader(bad_files='x'))
        self.refused(ValueError, "^bad_files is 'replace'; there are 'fail', 'skip'$",
                     lambda: d.pack(self.at('x.dts'), bad_files='replace'))
        self.refused(ValueError, "^layout is 'HWC'; there are 'NCHW', 'NHWC'$",
                     lambda: self.trainer.predict(self.x, layout='HWC'))
        for call in (lambda: self.trainer.get('name', 'weight'), lambda: self.trainer.set('name', 0, 'weight')):
            self.refused((ValueError, renaissance.Error), "kind is 'weight'; there are 'parameter'|name", call)
        name = next(t.name for t in m.tensors if t.trained)
        for call in (lambda: self.trainer.get(name, 'weight'), lambda: self.trainer.set(name, 0, 'weight')):
            self.refused(ValueError, "^kind is 'weight'; there are 'parameter', 'gradient'", call)
        self.refused(TypeError, "no option 'treads'; there are seed, threads", lambda: self.loader(treads=1))
        self.refused(TypeError, "no option 'speed'", lambda: renaissance.Trainer(m, speed=1))
        self.assertEqual(os.listdir(self.folder), ['pictures'])

    def test_wrong_kinds_are_refused_before_anything_starts(self):
        m, d, t = self.model, self.data, self.trainer
        out = self.at('x.dts')
        for text, call in {
                '^progress takes a function': lambda: d.pack(out, progress=5),
                '^progress takes a function, not 1': lambda: d.inspect(progress=1),
                "^progress takes a function, not 'f'": lambda: t.fit(self.loader(), progress='f'),
                r'^progress takes a function, not \[\]': lambda: t.evaluate(self.loader(), progress=[]),
                "^mixup_alpha takes a number, not '0.2'": lambda: renaissance.Trainer(m, mixup_alpha='0.2'),
                '^epochs takes a whole number, not 1.5': lambda: renaissance.Trainer(m, epochs=1.5),
                '^path takes a text or a path, not None': lambda: d.pack(None),
                '^uri takes a text or a path, not 5': lambda: renaissance.Dataset(5),
                "^train takes a list of texts, not '0": lambda: renaissance.Model(MODEL, train='0.*'),
                '^metadata takes a dict of texts': lambda: m.export(self.at('x.onnx'), metadata=['a']),
                '^metadata takes a text': lambda: m.export(self.at('x.onnx'), metadata={'a': 1}),
                '^other_batches takes a list of numbers, not 5': lambda: renaissance.Trainer(m, other_batches=5),
                '^other_batches takes a whole number, not 1.5':
                    lambda: renaissance.Trainer(m, other_batches=[1.5]),
                '^mean takes a list of numbers, not 0.5': lambda: renaissance.Trainer(m, mean=0.5, std=0.5),
                "^std takes a number, not '1'": lambda: renaissance.Trainer(m, mean=[0.5], std=['1']),
                "^learning_rate takes a number, not 'x'": lambda: t.step(self.x, self.y, 'x'),
                '^index takes a whole number': lambda: d['all', 0.0],
                '^epoch takes a whole number': lambda: next(self.loader().epoch('0')),
                '^count takes a whole number': lambda: renaissance.set_compute_threads('1'),
                '^training takes a Loader, not 5': lambda: t.fit(5),
                '^validation takes a Loader, not 5': lambda: t.fit(self.loader(), 5),
                '^loader takes a Loader': lambda: t.evaluate(d),
                '^model takes a Model': lambda: renaissance.Trainer(MODEL),
                '^dataset takes a Dataset': lambda: renaissance.Loader(m, 'all', m)}.items():
            with self.subTest(text):
                self.refused(TypeError, text, call)
        self.assertEqual(os.listdir(self.folder), ['pictures'])

    def test_numbers_that_do_not_fit(self):
        m, d = self.model, self.data
        for name, value in dict(seed=-1, epochs=2 ** 64 + 1, batch=2 ** 64 + 2, max_skipped_steps=2 ** 32,
                                evaluation_batch=2 ** 63, memory_limit=2 ** 64, other_batches=[2 ** 64]).items():
            self.refused(ValueError, f'^{name} takes whole numbers from ',
                         lambda: renaissance.Trainer(m, **{name: value}))
        for name, value in dict(short_side=2 ** 32, quality=2 ** 32 + 90, threads=-2 ** 31 - 1).items():
            self.refused(ValueError, f'^{name} takes whole numbers from -2147483648 to 2147483647, not {value}$',
                         lambda: d.pack(self.at('x.dts'), **{name: value}))
        self.refused(ValueError, '^cache_bytes takes', lambda: self.loader(cache_bytes=2 ** 64))
        self.refused(ValueError, '^index takes', lambda: d['all', 2 ** 64])
        self.refused(ValueError, '^count takes', lambda: renaissance.set_compute_threads(2 ** 32 + 1))
        self.refused(ValueError, 'different lengths',
                     lambda: renaissance.Trainer(m, mean=[0.5, 0.5, 0.5], std=[0.5]))
        self.assertEqual(os.listdir(self.folder), ['pictures'])

    def test_labels(self):
        t = self.trainer
        for labels in ([2 ** 31, 0], [-2 ** 31 - 1, 0], [2 ** 32, 1], [2 ** 70, 0], [0.0, 1.0],
                       np.array([0, 2 ** 63], np.uint64), np.array([0, np.nan]), [True, False], ['0', '1'],
                       [None, 0]):
            for call in (lambda: t.step(self.x, labels, 0.1), lambda: t.evaluate_batch(self.x, labels)):
                self.refused(ValueError, '^labels are integers from -2147483648 to 2147483647, not ', call)
        before = t.position
        losses = {t.evaluate_batch(self.x, np.array([0, 1], kind)).loss
                  for kind in (np.int8, np.uint8, np.int32, np.int64, np.uint64)}
        self.assertEqual(len(losses), 1)
        self.assertEqual(t.position, before)


if __name__ == '__main__':
    unittest.main()
