# SPDX-License-Identifier: Apache-2.0
"""Signals during calls that call back into Python: none is lost, and handlers are as they were afterwards."""
import ctypes
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import unittest

import renaissance
from renaissance import abi
from renaissance.engine import Callback

from .test_arguments import MISSING, MODEL, write_pictures


class Refused(Exception):
    pass


class NothingDropped(unittest.TestCase):
    """Each test fails, too, when ctypes drops an exception, and when a handler isn't put back."""

    def setUp(self):
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)
        dropped, hook = [], sys.unraisablehook
        sys.unraisablehook = lambda what: dropped.append((what.exc_value, what.object))

        def check():
            sys.unraisablehook = hook
            self.assertEqual(dropped, [])
            handler = signal.signal(signal.SIGINT, signal.default_int_handler)
            self.assertIs(handler, self.expected)
        self.expected = signal.default_int_handler
        self.addCleanup(check)


@unittest.skipIf(MISSING, f'no engine: {MISSING}')
class SignalsTest(NothingDropped):
    """What happens when, with a call of C in small."""

    def use(self, handler, number=signal.SIGINT):
        if number == signal.SIGINT:
            self.expected = handler
        else:
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        signal.signal(number, handler)

    def job(self, before=None, after=None, progress=None, steps=3):
        """`steps` callbacks; something happens before each and after the last one. Gives the status; what the
        callbacks gave is in self.calls."""
        calls = []

        def function(callback, user):
            for _ in range(steps):
                if before:
                    before()
                calls.append(callback(user, ctypes.pointer(abi.ren_progress())))
                if calls[-1]:
                    break
            if after:
                after()
            return abi.ERROR_CANCELLED if calls[-1] else abi.OK

        status = None
        try:
            status = Callback(progress).call(function)
        finally:
            self.calls = calls
        return status

    @staticmethod
    def interrupt(number=signal.SIGINT):
        signal.raise_signal(number)

    def test_a_pending_signal_comes_out(self):
        for progress in (None, lambda p: None):
            with self.assertRaises(KeyboardInterrupt):
                self.job(before=self.interrupt, progress=progress)
            self.assertEqual(self.calls, [1])

    def test_one_after_the_last_callback_comes_out(self):
        with self.assertRaises(KeyboardInterrupt):
            self.job(after=self.interrupt)
        self.assertEqual(self.calls, [0, 0, 0])

    def test_several_are_one(self):
        def twice():
            self.interrupt()
            self.interrupt()
        with self.assertRaises(KeyboardInterrupt):
            self.job(before=twice, after=twice)
        self.assertEqual(self.calls, [1])

    def test_the_users_code_is_interrupted_at_once(self):
        passed = []

        def progress(p):
            self.interrupt()
            passed.append(p)
        with self.assertRaises(KeyboardInterrupt):
            self.job(progress=progress)
        self.assertEqual((self.calls, passed), ([1], []))

        def late(p):   # the second one may not get lost while the first is on its way
            try:
                self.interrupt()
            finally:
                self.interrupt()
        with self.assertRaises(KeyboardInterrupt):
            self.job(progress=late)

    def test_what_progress_raises_stays_when_a_signal_follows(self):
        def progress(p):
            raise Refused
        with self.assertRaises(KeyboardInterrupt) as caught:
            self.job(progress=progress, after=self.interrupt)
        self.assertIsInstance(caught.exception.__context__, Refused)

    def test_a_handler_of_the_users_own_is_called_in_time(self):
        seen = []
        self.use(lambda number, frame: seen.append(number))
        with self.assertRaises(renaissance.Error):   # the usual way to end: a mark that progress looks at
            self.job(before=self.interrupt, progress=lambda p: len(seen) == 2)
        self.assertEqual((self.calls, seen), ([0, 1], [signal.SIGINT] * 2))

    def test_a_handler_that_does_not_raise_ends_nothing(self):
        seen = []
        handler = lambda number, frame: seen.append(frame is not None)   # noqa: E731
        self.use(handler)
        self.assertEqual(self.job(before=self.interrupt, after=self.interrupt), abi.OK)
        self.assertEqual((self.calls, seen), ([0, 0, 0], [True] * 4))

    def test_what_handlers_of_other_signals_raise_comes_out(self):
        def handler(number, frame):
            raise Refused
        self.use(handler, signal.SIGALRM)
        with self.assertRaises(Refused):
            self.job(before=lambda: self.interrupt(signal.SIGALRM))
        self.assertIs(signal.getsignal(signal.SIGALRM), handler)

        def both():
            self.interrupt(signal.SIGALRM)
            self.interrupt()
        with self.assertRaises(KeyboardInterrupt) as caught:
            self.job(before=both)
        self.assertIsInstance(caught.exception.__context__, Refused)

    def test_ignored_ones_stay_ignored(self):
        self.use(signal.SIG_IGN)
        seen = []
        self.assertEqual(self.job(before=self.interrupt,
                                  progress=lambda p: seen.append(signal.getsignal(signal.SIGINT))), abi.OK)
        self.assertEqual(seen, [signal.SIG_IGN] * 3)

    def test_a_handler_set_by_progress_stays(self):
        def handler(number, frame):
            pass
        self.expected = handler
        self.job(progress=lambda p: signal.signal(signal.SIGINT, handler) and None)
        self.assertIs(signal.getsignal(signal.SIGINT), handler)

    def test_a_job_in_a_job(self):
        def progress(p):
            self.job(before=self.interrupt)
        with self.assertRaises(KeyboardInterrupt):
            self.job(progress=progress)
        self.assertEqual(self.job(progress=lambda p: self.job() and None), abi.OK)

    def test_other_threads_touch_nothing(self):
        seen, main = [], threading.main_thread()

        def work():
            self.job(progress=lambda p: seen.append(signal.getsignal(signal.SIGINT)))
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual(seen, [signal.default_int_handler] * 3)
        self.assertIs(threading.current_thread(), main)


@unittest.skipIf(MISSING, f'no engine: {MISSING}')
class RealJobsTest(NothingDropped):
    """The engine's own jobs, interrupted from another thread at any moment."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        write_pictures(self.at('pictures'), 8)
        self.data = renaissance.Dataset(self.at('pictures'))
        self.model = renaissance.Model(MODEL)

    def at(self, name):
        return os.path.join(self.folder, name)

    def loader(self):
        return renaissance.Loader(self.data, 'all', self.model, batch=8)

    def trainer(self, epochs=3):
        return renaissance.Trainer(self.model, device='cpu', batch=8, epochs=epochs)

    def ends_by_ctrl_c(self, run, seconds=60):
        """One SIGINT, which has to end run() done again and again. What it gives is kept: in a finalizer,
        __del__(), Python itself drops exceptions."""
        kept = []
        for delay in (0.003, 0.02, 0.05, 0.07):
            timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
            end = time.monotonic() + seconds
            with self.assertRaises(KeyboardInterrupt):
                try:
                    timer.start()
                    while time.monotonic() < end:
                        kept.append(run())
                finally:
                    timer.cancel()
                    timer.join()

    def test_inspect(self):
        self.ends_by_ctrl_c(self.data.inspect)
        self.ends_by_ctrl_c(lambda: self.data.inspect(progress=lambda p: None))
        self.assertTrue(self.data.inspect().passed)

    def test_pack(self):
        self.ends_by_ctrl_c(lambda: self.data.pack(self.at('x.dts')))
        self.data.pack(self.at('x.dts'))   # goes on with what there is
        self.assertEqual(renaissance.Dataset(self.at('x.dts')).size('all'), 80)
        self.assertEqual(sorted(os.listdir(self.folder)), ['pictures', 'x.dts'])

    def test_evaluate(self):
        trainer, loader = self.trainer(), self.loader()
        self.ends_by_ctrl_c(lambda: trainer.evaluate(loader))

    def test_fit_goes_on_and_has_written_its_checkpoint(self):
        whole = self.trainer()
        whole.fit(self.loader())
        stopped, steps, name = self.trainer(), [], self.at('c')

        def progress(p):
            steps.append(p.step)
            if len(steps) == 14:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(60)   # is interrupted
        with self.assertRaises(KeyboardInterrupt):
            stopped.fit(self.loader(), checkpoint=name, progress=progress)
        resumed = self.trainer()
        resumed.load(name)
        self.assertEqual(resumed.position, stopped.position)
        weight = next(t.name for t in self.model.tensors if t.trained)
        for trainer in (stopped, resumed):
            trainer.fit(self.loader())
            self.assertEqual(trainer.position, whole.position)
            self.assertEqual(trainer.get(weight).tobytes(), whole.get(weight).tobytes())

    def test_fit_without_progress(self):
        def run():
            trainer = self.trainer(epochs=10 ** 6)
            timer = threading.Timer(60, trainer.request_stop)   # Error instead of a test that never ends
            timer.daemon = True   # wherever the signal comes, it keeps nobody waiting
            try:
                timer.start()
                trainer.fit(self.loader())
            finally:
                timer.cancel()
        self.ends_by_ctrl_c(run)

    def test_a_checkpoint_that_failed_is_the_context(self):
        os.mkdir(self.at('out'))

        def progress(p):
            shutil.rmtree(self.at('out'))
            signal.raise_signal(signal.SIGINT)
        with self.assertRaises(KeyboardInterrupt) as caught:
            self.trainer().fit(self.loader(), checkpoint=self.at('out/c'), progress=progress)
        self.assertIsInstance(caught.exception.__context__, renaissance.Error)
        self.assertIn('out/c', str(caught.exception.__context__))


if __name__ == '__main__':
    unittest.main()
