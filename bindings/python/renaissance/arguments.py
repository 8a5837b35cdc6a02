# SPDX-License-Identifier: Apache-2.0
"""What callers give, made into what C takes. C would cut off a text at a null byte and take a number
without its upper bits: whatever doesn't fit is refused here, by the name of the option.

All raise TypeError for what is of another kind, and ValueError for what is out of range.
"""
from __future__ import annotations

import ctypes as c
import operator
import os
import reprlib

import numpy as np


class flag(c.c_int32):
    """The type of fields that take False or True."""


INTEGERS = (c.c_int32, c.c_uint32, c.c_int64, c.c_uint64, c.c_size_t)
FLOATS = (c.c_float, c.c_double)


def limits(kind):
    """(least, most) of an integer type of C."""
    bits = 8 * c.sizeof(kind)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind(-1).value < 0 else (0, (1 << bits) - 1)


def whole(name, value, kind=c.c_int64):
    """An int that fits into kind."""
    least, most = limits(kind)
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f'{name} takes a whole number, not {reprlib.repr(value)}') from None
    if not least <= number <= most:
        shown = f', not {number}' if number.bit_length() <= 128 else ''
        raise ValueError(f'{name} takes whole numbers from {least} to {most}{shown}')
    return number


def real(name, value, kind=c.c_double):
    """A float. Which ones make sense the library knows; here they have to fit into kind."""
    try:
        if isinstance(value, (bool, np.bool_, str, bytes, bytearray)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f'{name} takes a number, not {reprlib.repr(value)}') from None
    except OverflowError:
        raise ValueError(f'{name} is beyond what {8 * c.sizeof(kind)} bits hold') from None
    if np.isfinite(number) and not np.isfinite(kind(number).value):
        raise ValueError(f'{name} is {number}, beyond what {8 * c.sizeof(kind)} bits hold')
    return number


def switch(name, value):
    """0 or 1, of a bool or one of these."""
    if isinstance(value, (bool, np.bool_, int, np.integer)) and value in (0, 1):
        return int(value)
    raise TypeError(f'{name} takes False or True, not {reprlib.repr(value)}')


def text(name, value, optional=False):
    """The bytes of a str, bytes or path, as open() takes them; optional: None stays None."""
    if value is None and optional:
        return None
    try:
        encoded = os.fsencode(value)
    except TypeError:
        raise TypeError(f'{name} takes a text or a path, not {reprlib.repr(value)}') from None
    except UnicodeEncodeError as problem:
        raise ValueError(f'{name}: {problem}') from None
    if b'\0' in encoded:
        raise ValueError(f'{name}: embedded null byte in {reprlib.repr(value)}')
    return encoded


def word(name, value, choices):
    """What a dict of choices has for a word."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f'{name} is {reprlib.repr(value)}; there are ' + ', '.join(map(repr, choices)))
    return choices[value]


def function(name, value):
    """A callable, or None."""
    if value is not None and not callable(value):
        raise TypeError(f'{name} takes a function, not {reprlib.repr(value)}')
    return value


def listed(name, values, what):
    """A list of whatever can be gone through, but for texts: of these the letters would be meant."""
    try:
        if isinstance(values, (str, bytes)):
            raise TypeError
        return list(values)
    except TypeError:
        raise TypeError(f'{name} takes a list of {what}, not {reprlib.repr(values)}') from None


def texts(name, values):
    """(char *[] or NULL, count) of a list of texts, or of None."""
    encoded = [text(name, value) for value in listed(name, values or (), 'texts')]
    return ((c.c_char_p * len(encoded))(*encoded) if encoded else None), len(encoded)


def array(name, values, kind):
    """An array of C of a list of numbers."""
    convert = whole if kind in INTEGERS else real
    converted = [convert(name, value, kind) for value in listed(name, values, 'numbers')]
    return (kind * len(converted))(*converted)


def labels(values):
    """An int32 array of labels, which have to be integers within its range."""
    least, most = limits(c.c_int32)
    given = np.asarray(values)
    if given.size == 0:
        return np.zeros(given.shape, np.int32)
    fits = np.issubdtype(given.dtype, np.integer) and least <= given.min() and given.max() <= most
    if not fits:
        raise ValueError(f'labels are integers from {least} to {most}, not {given.dtype} {reprlib.repr(values)}')
    return np.ascontiguousarray(given, np.int32)


def converted(name, value, kind):
    """A value for a field or an argument of that type of C; pointers and structs are the caller's affair."""
    if kind is c.c_char_p:
        return text(name, value, optional=True)
    if kind is flag:
        return switch(name, value)
    if kind in INTEGERS:
        return whole(name, value, kind)
    return real(name, value, kind) if kind in FLOATS else value
