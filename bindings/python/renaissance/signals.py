# SPDX-License-Identifier: Apache-2.0
"""Signals, Ctrl-C first of all, while C calls back into Python."""
from __future__ import annotations

import signal
import threading


class Deferred:
    """Keeps what handlers of signals raise from getting lost during a call of C that calls back.

    Python runs a signal's handler on the main thread as soon as that runs Python again: at the entry of a
    callback, where an exception has nowhere to go (ctypes prints and drops it). With this context around
    the call, signals are noted there instead, and their handlers are called

     - by deliver(), which the callback does where it can catch what they raise,
     - at once while `open` is set, around the user's own code,
     - and when the call is over: what they raise comes out of the context then.

    Only signals that have a handler in Python are touched, and only on the main thread: handlers run on no
    other. A handler that is set meanwhile stays.
    """

    def __init__(self):
        self.open = False  # set only where exceptions are caught; falls before a handler is called
        self._handlers, self._replaced, self._noted = {}, [], []

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            try:
                for number in signal.valid_signals():
                    self._replace(number, signal.getsignal(number))
            except BaseException:  # a handler that was not replaced yet has raised
                self._put_back()
                raise
        return self

    def __exit__(self, *problem):
        try:
            self._put_back()
        finally:
            self.deliver()

    def deliver(self):
        """Calls the handlers of the signals noted so far, all of them even if one raises."""
        if self._noted:
            number, frame = self._noted.pop(0)
            try:
                self._handlers[number](number, frame)
            finally:
                self.deliver()

    def _note(self, number, frame):
        self._noted.append((number, frame))
        if self.open:
            self.open = False
            self.deliver()
            self.open = True

    def _replace(self, number, handler):
        if callable(handler):  # not None (C's own), SIG_IGN or SIG_DFL
            self._handlers[number] = handler
            self._replaced.append(number)
            signal.signal(number, self._note)

    def _put_back(self):
        try:
            while self._replaced:
                number = self._replaced[-1]
                if signal.getsignal(number) == self._note:
                    signal.signal(number, self._handlers[number])
                self._replaced.pop()
        except BaseException:  # one that is back already has raised
            self._put_back()
            raise
