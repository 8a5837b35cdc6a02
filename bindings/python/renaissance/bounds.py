# SPDX-License-Identifier: Apache-2.0
"""How far a result may be from a golden one: the bounds that `renaissance verify` applies."""
from __future__ import annotations

GRADIENT, PARAMETER, BUFFER = 'step0/grad/', 'step2/param/', 'step2/buffer/'


def _size(tensor):
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def group_of(key):
    """'loss', 'out', 'eval', 'grad', 'param' or 'buffer'; None for inputs and targets."""
    if key.startswith('eval/output/'):
        return 'eval'
    step, kind, *_ = key.split('/')
    return {'loss': 'loss', 'output': 'out', 'grad': 'grad', 'param': 'param', 'buffer': 'buffer'}.get(kind)


def compare(golden, other, initial):
    """For each result in golden: (key, group, error, bound).

    The error is max|other - golden|, the bound that of the golden format at tolerance
    1e-4. initial: the parameters before training, for the bound on their change.
    """
    top = max((_size(t) for k, t in golden.items() if k.startswith(GRADIENT)), default=0.0)
    rows = []
    for key, ref in golden.items():
        group = group_of(key)
        if group is None:
            continue
        ref = ref.double()
        size, error = _size(ref), _size(other[key].double() - ref)
        if group in ('loss', 'out', 'eval'):
            bound = 1e-4 * size
        elif group == 'grad':
            # zero in exact arithmetic: a convolution bias before a BatchNorm
            bound = 1e-5 * top if size < 1e-6 * top else 1e-4 * (size + 0.01 * top)
        else:
            bound = 1e-4 * (size + 1e-3)
        rows.append((key, group, error, bound))
        if group == 'param':
            change = _size(ref - initial[key[len(PARAMETER):]].double())
            rows.append((key, 'change', error, 1e-3 * (change + 3e-3 * size + 1e-6)))
    return rows


def worst(rows):
    """(share of its bound, key) of the row nearest to or farthest beyond its bound."""
    return max(((error / bound if bound else (float('inf') if error else 0.0), key) for key, _, error, bound in rows),
               default=(0.0, ''))


def error_by_group(rows):
    """Largest error of each group, in the unit in which its bound is 1e-4."""
    errors = {}
    for _, group, error, bound in rows:
        if group != 'change' and bound:
            errors[group] = max(errors.get(group, 0.0), 1e-4 * error / bound)
    return errors
