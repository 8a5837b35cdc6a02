# SPDX-License-Identifier: Apache-2.0
"""Finds and opens the engine's shared library."""
from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys

NAME = 'librenaissance.so'


class LibraryNotFound(OSError):
    """The engine's library is nowhere to be found, or can't be opened."""


def candidates():
    """Where the library may be, best first."""
    if os.environ.get('RENAISSANCE_LIBRARY'):
        return [os.environ['RENAISSANCE_LIBRARY']]
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.normpath(os.path.join(here, '..', '..', '..'))
    found = [os.path.join(here, NAME)]
    if os.path.isdir(os.path.join(root, 'src', 'capi')):  # the source tree; the build for GPUs serves the CPU as well
        found += [os.path.join(root, 'build', preset, 'lib', NAME) for preset in ('cuda', 'release')]
    found += [os.path.join(prefix, 'lib', NAME) for prefix in (sys.prefix, os.path.expanduser('~/.local'))]
    system = ctypes.util.find_library('renaissance')
    return found + ([system] if system else [])


def load_library():
    """The engine's C API as a ctypes library: the file that RENAISSANCE_LIBRARY names, else the first of candidates().

    Raises LibraryNotFound, which lists where it was looked for and what to do.
    """
    tried = []
    for path in candidates():
        if os.path.isabs(path) and not os.path.exists(path):
            tried.append(f'{path}: not there')
            continue
        try:
            return ctypes.CDLL(path)
        except OSError as problem:
            tried.append(f'{path}: {problem}')
    raise LibraryNotFound(f'{NAME} not found: training from Python needs the built engine. Build it with '
                          'scripts/build.sh (for GPUs scripts/build.sh cuda), and set RENAISSANCE_LIBRARY to '
                          f'build/release/lib/{NAME} (build/cuda/lib/{NAME}) of the source tree. '
                          'Tried: ' + '; '.join(tried or ['nothing']))
