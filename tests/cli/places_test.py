#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where files are written, and that nothing is lost there.

usage: places_test.py PROGRAM [unittest arguments]
"""
import json
import os
import re
import shutil
import subprocess
import time
import unittest

import onnx_wire
import program
from program import MODEL, Case


class Places(Case):
    """Files that are written: what they must not replace, what happens when they can't be written."""

    def external(self, folder):
        """The model with its weights in weights.bin beside it."""
        os.makedirs(folder, exist_ok=True)
        place = os.path.join(folder, 'net.onnx')
        with open(place, 'wb') as model, open(os.path.join(folder, 'weights.bin'), 'wb') as data:
            for file, content in zip((model, data), onnx_wire.with_external_data(self.content(MODEL), 'weights.bin')):
                file.write(content)
        return place

    def content(self, path):
        with open(path, 'rb') as f:
            return f.read()

    def train_on(self, model, out, *more, data=None):
        return ('train', model, '--data', data or self.data, '--batch', '8', '--lr', '0.01', '--normalize', 'half', '--augment', 'flip',
                '--out', out, *more)

    def test_places_that_collide_are_refused(self):
        folder = self.path('collide')
        model = self.external(folder)
        weights, archive = os.path.join(folder, 'weights.bin'), os.path.join(folder, 'data.zip')
        shutil.make_archive(archive[:-4], 'zip', self.data)
        at = lambda name: os.path.join(folder, name)
        for name, target in (('soft.onnx', 'net.onnx'), ('soft.bin', 'weights.bin'), ('soft.zip', 'data.zip'), ('here', '.')):
            os.symlink(target, at(name))
        for name, target in (('hard.onnx', model), ('hard.bin', weights), ('hard.zip', archive)):
            os.link(target, at(name))
        self.passes(*self.train_on(model, at('t.onnx'), '--checkpoint', at('c.ckpt'), data=archive))
        inputs = (model, weights, archive, at('c.ckpt'), at('t.onnx'))
        before = [self.content(p) for p in inputs]
        models = [model, at('soft.onnx'), at('hard.onnx'), at('here/net.onnx'), folder + '/./net.onnx', at('../collide/net.onnx')]
        data = [weights, at('soft.bin'), at('hard.bin'), archive, at('soft.zip'), at('hard.zip'), at('here/here/data.zip')]
        ema = ('--ema', '0.9', '--out-ema')
        for place in models + data:
            self.refused(*self.train_on(model, at('new.onnx'), '--checkpoint', place, data=archive), says=['--checkpoint', place])
        for place in data:
            self.refused(*self.train_on(model, place, data=archive), says=['--out', place])
            self.refused(*self.train_on(model, at('new.onnx'), *ema, place, data=archive), says=['--out-ema', place])
        for place in data[:3]:
            self.refused('export', model, '--out', place, says=['--out', place])
        for place in models + data[:3]:
            self.refused('plan', model, '--html', place, says=['--html', place])
        self.refused(*self.train_on(model, at('new.onnx'), *ema, at('here/new.onnx'), data=archive), says=['--out', '--out-ema'])
        self.refused(*self.train_on(model, at('new.onnx'), '--checkpoint', at('here/new.onnx'), data=archive), says=['--out', '--checkpoint'])
        self.refused(*self.train_on(model, at('new.onnx'), *ema, at('e.onnx'), '--checkpoint', at('here/e.onnx'), data=archive),
                     says=['--out-ema', '--checkpoint'])
        self.refused(*self.train_on(model, at('c.ckpt'), '--resume', at('c.ckpt'), data=archive), says=['--out', 'resume'])
        picture = os.path.join(self.data, 'train', 'class1', '0.png')
        self.refused(*self.train_on(model, picture), says=['--out', 'picture'])
        self.assertEqual(before, [self.content(p) for p in inputs])
        self.assertFalse(os.path.exists(at('new.onnx')))
        self.assertFalse([n for n in os.listdir(folder) if n.startswith('.')])

    def test_in_place_is_allowed(self):
        for folder in ('place1', 'place2'):
            model = self.external(self.path(folder)) if folder == 'place2' else shutil.copy(MODEL, self.path('place1.onnx'))
            before = self.content(model)
            for _ in range(2):
                self.passes(*self.train_on(model, model))
                self.passes('inspect', model)
            self.assertNotEqual(before, self.content(model))
            checkpoint = self.path(f'{folder}.ckpt')
            self.passes(*self.train_on(model, model, '--checkpoint', checkpoint))
            # going on from one's own checkpoint, written to again
            self.passes(*self.train_on(model, self.path('again.onnx'), '--checkpoint', checkpoint, '--resume', checkpoint))

    def test_the_longest_names(self):
        external = self.external(self.path('long'))
        for length in (245, 250, 255):
            names = [os.path.join(self.work, c * (length - 5) + '.onnx') for c in 'oe']
            for model in (MODEL, external):
                self.passes(*self.train_on(model, names[0], '--ema', '0.9', '--out-ema', names[1], '--checkpoint', self.path('c' * length)))
                os.remove(self.path('c' * length))
                self.passes('inspect', names[0])
                self.passes('inspect', names[1])
        start = time.time()
        self.refused(*self.train_on(MODEL, self.path('n' * 256), data='/no/data'), says='--out')
        self.assertLess(time.time() - start, 20)

    def test_the_model_may_go_while_it_trains(self):
        folder = self.path('goes')
        model = self.external(folder)
        process = subprocess.Popen([program.PROGRAM, *self.train_on(model, self.path('kept.onnx'), '--epochs', '30', '--json')],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(json.loads(process.stdout.readline())['event'], 'start')
        shutil.rmtree(folder)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        self.passes('inspect', self.path('kept.onnx'))

    def go_on_without(self, folder, *more, out, expected):
        """Trains while the folder is removed after the first epoch; standard output's events and standard error."""
        os.makedirs(folder)
        process = subprocess.Popen([program.PROGRAM, *self.train_on(MODEL, out, '--epochs', '20', '--json', *more)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, 'TMPDIR': self.work})
        events = []
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1]['event'] == 'epoch':
                shutil.rmtree(folder, ignore_errors=True)
                break
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, expected, err)
        return events + [json.loads(line) for line in out.splitlines()], err

    def test_a_checkpoint_that_cannot_be_written_costs_no_result(self):
        folder = self.path('gone1')
        events, err = self.go_on_without(folder, '--checkpoint', os.path.join(folder, 'c.ckpt'), out=self.path('g.onnx'), expected=3)
        failed = [e for e in events if e['event'] == 'checkpoint_failed']
        self.assertGreater(len(failed), 10)
        self.assertIn('c.ckpt', failed[0]['message'])
        self.assertEqual(len([line for line in err.splitlines() if line.startswith('warning: a checkpoint')]), len(failed))
        self.assertEqual(events[-1]['event'], 'done')
        self.assertEqual(events[-1]['failed_checkpoints'], len(failed))
        self.assertIn('could not be written', err.splitlines()[-1])
        self.passes('inspect', self.path('g.onnx'))

    def test_a_result_whose_place_is_gone_is_written_elsewhere(self):
        folder = self.path('gone2')
        _, err = self.go_on_without(folder, out=os.path.join(folder, 'g.onnx'), expected=1)
        rescued = re.search(r"written to '([^']+)' instead", err).group(1)
        self.passes('inspect', rescued)
        self.assertEqual(os.path.dirname(rescued), self.work)

    def test_rescue_goes_on_to_other_places(self):
        def train(folder, temporary, *more, limit=None, cwd=None, keep=False, model=MODEL):
            os.makedirs(folder)
            command = [program.PROGRAM, *self.train_on(model, os.path.join(folder, 'g.onnx'), '--epochs', '20', '--json', *more)]
            if limit:
                command = ['bash', '-c', f'ulimit -f {limit} && exec "$@"', 'bash', *command]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
                                       env={**os.environ, 'TMPDIR': temporary, 'OMP_WAIT_POLICY': 'passive'})
            for line in process.stdout:
                if not keep and json.loads(line)['event'] == 'epoch':
                    shutil.rmtree(folder, ignore_errors=True)
                    break
            _, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 1, err)
            return err

        # no $TMPDIR that could take it
        err = train(self.path('gone3'), self.path('no-such-folder'))
        rescued = re.search(r"written to '([^']+)' instead", err).group(1)
        self.assertEqual(os.path.dirname(rescued), '/tmp')
        self.passes('inspect', rescued)
        os.remove(rescued)
        # nowhere is room: all places are named, and the checkpoint, which has no room either, is not offered
        err = train(self.path('full1'), self.work, '--checkpoint', self.path('full.ckpt'), limit=1, cwd=self.work, keep=True)
        self.assertIn('File too large', err)
        for place in (self.work, '/tmp', '.', os.path.dirname(MODEL)):
            self.assertIn(f"could not be written to '{place}/renaissance-", err)
        self.assertNotIn('--resume', err)
        self.assertNotIn('earlier file', err)   # there was none
        # room for the checkpoint, but not for the model, which has much in its metadata
        large, checkpoint = self.path('large.onnx'), self.path('small.ckpt')
        self.passes('export', MODEL, '--out', large, '--metadata', 'note=' + 'n' * 100_000)
        err = train(self.path('full2'), self.work, '--momentum', '0', '--checkpoint', checkpoint, limit=380, cwd=self.work, keep=True,
                    model=large)
        self.assertIn(f"'--resume {checkpoint}' with another --out writes it", err)
        arguments = list(self.train_on(large, self.path('after.onnx'), '--epochs', '20', '--momentum', '0', '--resume', checkpoint))
        self.passes(*arguments)

    def test_earlier_files_are_spoken_of_where_there_are_any(self):
        def limited(out):
            done = subprocess.run(['bash', '-c', 'ulimit -f 1 && exec "$@"', 'bash', program.PROGRAM, 'export', MODEL, '--out', out],
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)   # not the signal
            self.assertIn('File too large', done.stderr)
            return done.stderr
        self.assertNotIn('earlier file', limited(self.path('limit.onnx')))
        self.assertFalse(os.path.exists(self.path('limit.onnx')))
        shutil.copy(MODEL, self.path('limit.onnx'))
        self.assertIn('earlier file of that name is unchanged', limited(self.path('limit.onnx')))
        self.assertEqual(self.content(MODEL), self.content(self.path('limit.onnx')))

    def test_two_writers_of_one_target(self):
        model, target = self.external(self.path('two')), self.path('two/out.onnx')
        sources = []
        for seed in ('1', '2'):
            sources.append(self.path(f'two/seed{seed}.onnx'))
            self.passes(*self.train_on(model, sources[-1], '--seed', seed))
        wanted = {self.loss_of(source) for source in sources}
        self.assertEqual(len(wanted), 2)
        for _ in range(20):
            writers = [subprocess.Popen([program.PROGRAM, 'export', source, '--out', target], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True) for source in sources]
            for writer in writers:
                _, err = writer.communicate(timeout=60)
                self.assertEqual(writer.returncode, 0, err)
            self.passes('inspect', target)
        self.assertIn(self.loss_of(target), wanted)
        # the one that lost has its data still, and whoever exports over it is told
        data = [name for name in os.listdir(self.path('two')) if name.startswith('out.onnx.')]
        self.assertEqual(len(data), 2, data)
        self.passes('export', sources[0], '--out', target)
        out, _ = self.passes('export', sources[1], '--out', target)
        self.assertRegex(out, r"'[^']*/out\.onnx\.[0-9a-f]{16}\.data' is no longer referred to by '[^']*/out\.onnx'")

    def loss_of(self, model):
        out, _ = self.passes('eval', model, '--data', self.data, '--json')
        return json.loads(out.splitlines()[-1])['loss']

    def test_links_are_followed(self):
        os.makedirs(self.path('elsewhere'))
        for name in ('l.onnx', 'l.ckpt', 'l.html'):
            os.symlink(os.path.join('elsewhere', name), self.path(name))
        for more in ((), ('--resume', self.path('l.ckpt'))):
            self.passes(*self.train_on(MODEL, self.path('l.onnx'), '--checkpoint', self.path('l.ckpt'), *more))
            self.passes('plan', MODEL, '--html', self.path('l.html'))
            for name in ('l.onnx', 'l.ckpt', 'l.html'):
                self.assertTrue(os.path.islink(self.path(name)))
                self.assertTrue(os.path.isfile(self.path('elsewhere/' + name)))
        self.assertEqual(sorted(os.listdir(self.path('elsewhere'))), ['l.ckpt', 'l.html', 'l.onnx'])
        self.refused('plan', MODEL, '--html', '/dev/null', says='--html')
        self.assertTrue(os.path.exists('/dev/null'))

    @unittest.skipUnless(os.path.ismount('/dev/shm'), 'no small disk')
    def test_a_disk_without_room_is_refused_first(self):
        free = shutil.disk_usage('/dev/shm').free
        if free > 200 << 20:
            self.skipTest('the small disk is not small')
        model = self.external(self.path('room'))
        with open(self.path('room/weights.bin'), 'r+b') as f:
            f.truncate(free + (1 << 20))   # sparse
        target = '/dev/shm/renaissance-room.onnx'
        self.refused(*self.train_on(model, target), says=['--out', 'free'])


if __name__ == '__main__':
    program.main(__doc__)
