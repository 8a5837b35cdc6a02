#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint refuses and what it takes.

usage: resume_test.py PROGRAM [unittest arguments]
"""
import json
import os
import re
import shutil
import struct
import zipfile

import program
from program import MODEL, ROOT, Case, png, run


class Resuming(Case):
    """What a checkpoint refuses; docs/checkpoints.md has the list."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.base = ('train', MODEL, '--data', cls.data, '--epochs', '2', '--batch', '8', '--lr', '0.01', '--augment', 'flip,pad-crop:2',
                    '--mean', '0.5', '--std', '0.5', '--loss', 'logits:1', '--ema', '0.9', '--warmup-epochs', '1')
        cls.checkpoint = os.path.join(cls.work, 'r.ckpt')
        code, _, err = run(*cls.base, '--out', os.path.join(cls.work, 'r.onnx'), '--checkpoint', cls.checkpoint)
        assert code == 0, err

    def resume(self, *more, base=None):
        return (*(base or self.base), '--out', self.path('x.onnx'), '--resume', self.checkpoint, *more)

    def changed(self, option, *values):
        base = list(self.base)
        at = base.index(option)
        base[at:at + 1 + len(values)] = [option, *values]
        return tuple(base)

    def test_each_option_that_matters(self):
        changed = self.changed
        for base, more, says in (
                (changed('--epochs', '3'), (), 'epochs: is 3 now, the checkpoint has 2'),
                (changed('--batch', '4'), (), 'batch: is 4 now, the checkpoint has 8'),
                (changed('--lr', '0.02'), (), 'learning_rate: is 0.02 now, the checkpoint has 0.01'),
                (changed('--mean', '0.4'), (), 'mean: is 0.4,0.4,0.4 now, the checkpoint has 0.5,0.5,0.5'),
                (changed('--std', '0.25'), (), 'std: is 0.25,0.25,0.25 now'),
                (changed('--loss', 'logits:0.5'), (), 'losses: is logits:0.5 now, the checkpoint has logits:1'),
                (changed('--ema', '0.5'), (), 'ema_decay: is 0.5 now'),
                (changed('--warmup-epochs', '0'), (), 'warmup_epochs: is 0 now'),
                (changed('--augment', 'flip'), (), 'augmentation: is'),
                (self.base, ('--momentum', '0.5'), 'momentum: is 0.5 now'),
                (self.base, ('--nesterov',), 'nesterov: is yes now'),
                (self.base, ('--weight-decay', '0.1'), 'weight_decay: is 0.1 now'),
                (self.base, ('--decay-weights-only',), 'weight decay times 0'),
                (self.base, ('--optimizer', 'lars'), 'optimizer: is lars now'),
                (self.base, ('--schedule', 'cosine'), 'schedule: is cosine now'),
                (self.base, ('--final-lr', '0.001'), 'final_learning_rate: is 0.001 now'),
                (self.base, ('--step-epochs', '2'), 'step_epochs: is 2 now'),
                (self.base, ('--gamma', '0.5'), 'gamma: is 0.5 now'),
                (self.base, ('--label-smoothing', '0.1'), 'label_smoothing: is 0.1 now'),
                (self.base, ('--seed', '3'), 'seed: is 3 now'),
                (self.base, ('--precision', 'bf16'), 'precision: is bf16 now'),
                (self.base, ('--drop-last',), 'last batch: is drop now, the checkpoint has keep'),
                (self.base, ('--bad-files', 'skip'), 'bad files: is skip now'),
                (self.base, ('--decode', 'fast'), 'decoding: is fast now, the checkpoint has exact'),
                (self.base, ('--freeze', '*bias'), 'frozen now, trained')):
            with self.subTest(says):
                self.refused(*self.resume(*more, base=base), says=says)
        # everything at once, in one error
        err = self.refused(*self.resume('--nesterov', '--drop-last', '--freeze', '*bias', base=changed('--lr', '0.02')))
        for text in ('nesterov', 'last batch', 'frozen', 'learning_rate'):
            self.assertIn(text, err)

    def test_every_option_is_decided_about(self):
        with open(os.path.join(ROOT, 'docs', 'checkpoints.md'), encoding='utf-8') as f:
            page = f.read()
        tables = page[page.index('## What has to be the same'):page.index('## Writing')]
        for option in sorted(set(re.findall(r'--[a-z][a-z-]+', self.passes('train', '--help')[0]))):
            self.assertIn(f'`{option}`', tables, option)
        with open(os.path.join(ROOT, 'include', 'renaissance_c.h'), encoding='utf-8') as f:
            header = re.sub(r'/\*.*?\*/', ' ', f.read(), flags=re.DOTALL)
        for struct in ('model', 'dataset', 'loader', 'trainer', 'fit'):
            body = re.search(r'typedef struct ren_%s_options \{(.*?)\}' % struct, header, re.DOTALL).group(1)
            for field in re.findall(r'(\w+)\s*[,;]', body):
                if field not in ('struct_size', 'reserved0') and not field.endswith('_count'):
                    self.assertIn(f'`{field}`', tables, f'ren_{struct}_options.{field}')

    def test_what_may_change(self):
        self.passes(*self.resume('--threads', '1', '--loader-threads', '1', '--cache', '0', '--checkpoint', self.path('other.ckpt'),
                                 '--checkpoint-every', '3', '--inference', '--out-ema', self.path('e.onnx'), '--json', '--quiet',
                                 '--val', os.path.join(self.data, 'train')))
        moved = self.path('moved')
        shutil.copytree(self.data, moved)
        self.passes(*self.resume(base=self.changed('--data', moved)))

    def test_other_data(self):
        data = self.path('changed')
        shutil.copytree(self.data, data)
        base = self.changed('--data', data)
        picture = os.path.join(data, 'train', 'class1', '0.png')
        png(picture, (9, 9, 9), size=20)
        self.refused(*self.resume(base=base), says='picture sizes in bytes')
        os.rename(picture, picture.replace('0.png', 'other.png'))
        self.refused(*self.resume(base=base), says='picture names and labels')

    def test_pictures_of_an_archive(self):
        archive, checkpoint = self.path('a.zip'), self.path('zip.ckpt')
        # stored, so that one byte can be changed without any size
        with zipfile.ZipFile(archive, 'w') as z:
            for folder, _, files in os.walk(self.data):
                for f in sorted(files):
                    z.write(os.path.join(folder, f), os.path.relpath(os.path.join(folder, f), self.data))
        base = self.changed('--data', archive)
        self.passes(*base, '--out', self.path('z.onnx'), '--checkpoint', checkpoint)
        resume = (*base, '--out', self.path('z.onnx'), '--resume', checkpoint)
        self.passes(*resume)
        self.passes(*self.base, '--out', self.path('z.onnx'), '--resume', checkpoint)   # unpacked
        changed = self.path('a2.zip')
        with zipfile.ZipFile(archive) as old, zipfile.ZipFile(changed, 'w') as new:
            for entry in old.infolist():
                content = bytearray(old.read(entry))
                if entry.filename == 'train/class1/0.png':
                    content += b''
                    content[-1] ^= 1   # of IEND's checksum
                new.writestr(entry.filename, bytes(content))
        self.refused(*self.changed('--data', changed), '--out', self.path('z.onnx'), '--resume', checkpoint, says='picture checksums')

    def test_damaged_and_foreign_files(self):
        self.refused(*self.resume()[:-1], self.work, says=[self.work, 'folder'])
        self.refused(*self.resume()[:-1], self.path('missing'), says='missing')
        self.refused(*self.resume()[:-1], MODEL, says=MODEL)
        with open(self.checkpoint, 'rb') as f:
            good = f.read()
        for at in (len(good) // 2, len(good) - 1, 300):
            bad = bytearray(good)
            bad[at] ^= 4
            with open(self.path('bad.ckpt'), 'wb') as f:
                f.write(bad)
            self.refused(*self.resume()[:-1], self.path('bad.ckpt'), says='bad.ckpt')
        header = json.dumps({'__metadata__': {'format': 'renaissance-checkpoint-1'}}).encode()
        with open(self.path('old.ckpt'), 'wb') as f:
            f.write(struct.pack('<Q', len(header)) + header)
        self.refused(*self.resume()[:-1], self.path('old.ckpt'), says='format 1')


if __name__ == '__main__':
    program.main(__doc__)
