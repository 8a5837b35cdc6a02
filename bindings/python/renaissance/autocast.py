# SPDX-License-Identifier: Apache-2.0
"""Measures PyTorch's own error in 16 bits or TF32: the peer file of `renaissance verify --peer`.

The batches of a golden file are replayed with its recipe from the ONNX file: FP32
master weights, forward and loss under torch.autocast, a static loss scale in FP16;
in TF32 everything in FP32, convolutions and products by TF32 (on GPUs alone).
What is recorded is, for each tensor of the golden file, max|autocast - golden|.

Rounding to 16 bits moves values across the kinks of ReLU and to other maxima of a
pooling window, which switches whole gradients on and off. Which values those are is
chance, so that one replay is one draw. Further replays begin with weights disturbed
by at most half a unit in their last place in that precision; the largest error of each
tensor over all replays is recorded, and how many there were.
"""
from __future__ import annotations

import contextlib
import glob
import json
import math
import os
import platform
from dataclasses import dataclass

import torch

from . import bounds
from .exporter import load_model
from .recorder import STEPS, GraphRun, disturb_weights, infer, replace_file, train

FORMAT = 'renaissance-peer-1'
# autocast's type, and half a unit in the last place of it as a share of the largest value with that unit
TYPES = {'fp16': (torch.float16, 2.0**-12), 'bf16': (torch.bfloat16, 2.0**-9), 'tf32': (None, 2.0**-12)}
LOSS_SCALES = (1024.0, 32.0, 1.0)  # those of `renaissance verify`: the next one when a gradient overflows
GOLDEN = '.golden.safetensors'


@dataclass
class PeerReport:
    """What record_peer() wrote: max|autocast - golden| by tensor, and each as a share of the tensor's size."""
    path: str
    device: str
    errors: dict
    shares: dict

    def __str__(self):
        name = max(self.shares, key=self.shares.get)
        return (f'{self.path}: {len(self.errors)} tensors on {self.device}; farthest off is {name}, by '
                f'{self.shares[name]:.2g} of its size')


class AutocastRun(GraphRun):
    """The ONNX file with FP32 masters, computed as autocast chooses; its outputs in FP32, as for the loss.
    Without a type: all in FP32."""

    def __init__(self, model, trainable, type_, device):
        super().__init__(model, trainable, torch.float32, device)
        self.type = type_

    def forward(self, feeds, training):
        with torch.autocast(torch.device(self.device).type, dtype=self.type, enabled=self.type is not None):
            outputs = super().forward(feeds, training)
        return {name: t.float() for name, t in outputs.items()}


@dataclass
class Golden:
    """A golden file: its results by name, batches, recipe (as train() takes it) and metadata."""
    results: dict
    batches: list
    recipe: dict
    metadata: dict

    @property
    def trainable(self):
        return [key[len(bounds.GRADIENT):] for key in self.results if key.startswith(bounds.GRADIENT)]


def read_golden(path):
    from safetensors import SafetensorError, safe_open
    if not os.path.isfile(path):
        raise ValueError(f"'{path}' is no file" if os.path.exists(path) else f"'{path}' does not exist")
    try:
        with safe_open(path, 'pt') as file:
            tensors, metadata = {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}
    except SafetensorError as problem:
        raise ValueError(f"'{path}' is no safetensors file, or it is damaged: {problem}") from problem
    if metadata.get('format') != 'renaissance-golden-1':
        raise ValueError(f"'{path}' is no golden file: its format is '{metadata.get('format', '')}'")
    try:
        return Golden({key: t for key, t in tensors.items() if bounds.group_of(key)}, *replayed(tensors, metadata),
                      metadata)
    except (KeyError, ValueError) as problem:
        raise ValueError(f"'{path}' is incomplete or damaged: {problem}") from problem


def replayed(tensors, metadata):
    """Batches and recipe; of a golden of inference alone, the input and no recipe."""
    trains = metadata['content'] == 'train+eval'
    batches = []
    for k in range(STEPS if trains else 1):
        prefix = f'step{k}/input/'
        feeds = {key[len(prefix):]: t for key, t in tensors.items() if key.startswith(prefix)}
        if not feeds:
            raise ValueError(f'{prefix}* is missing')
        batches.append((feeds, tensors[f'step{k}/target'] if trains else None))
    if not trains:
        return batches, None
    recipe = {key: float(metadata[key]) for key in ('lr', 'momentum', 'weight_decay', 'label_smoothing')}
    recipe['nesterov'] = metadata['nesterov'] == 'true'
    heads = (item.rpartition(':') for item in metadata['outputs'].split(','))
    recipe['outputs'] = {name: float(weight) for name, _, weight in heads}
    return batches, recipe


def device_name(device):
    if torch.device(device).type == 'cuda':
        return torch.cuda.get_device_name(device)
    try:
        with open('/proc/cpuinfo', encoding='utf-8') as file:
            return next(line.split(':', 1)[1].strip() for line in file if line.startswith('model name'))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine() or 'cpu'


@contextlib.contextmanager
def tf32_allowed(allowed):
    """Whether CUDA's convolutions and products of FP32 tensors are computed in TF32."""
    settings = (torch.backends.cudnn, torch.backends.cuda.matmul)
    before = [s.allow_tf32 for s in settings]
    try:
        for s in settings:
            s.allow_tf32 = allowed
        yield
    finally:
        for s, value in zip(settings, before):
            s.allow_tf32 = value


def replay(model, golden, precision, device, seed=None):
    """The golden's results under autocast, on the CPU in float64; with a seed, of disturbed weights."""
    type_, half_unit = TYPES[precision]
    for scale in LOSS_SCALES if type_ is not None else (1.0,):
        run = AutocastRun(model, golden.trainable, type_, device)
        before = {name: p.detach().clone() for name, p in run.parameters.items()}
        if seed is not None:
            disturb_weights(run, torch.Generator().manual_seed(seed), half_unit)
        disturbance = {name: p.detach().double().cpu() - before[name].double().cpu()
                       for name, p in run.parameters.items()}
        with tf32_allowed(precision == 'tf32'):
            if golden.recipe is None:
                results = infer(run, {name: t.to(device, run.dtype) for name, t in golden.batches[0][0].items()})
            else:
                results = train(run, golden.batches, golden.recipe, loss_scale=scale)
        if results is None:
            continue
        results = {key: t.double().cpu() for key, t in results.items()}
        for name, moved in disturbance.items():  # what the steps did to a weight is compared, not where it began
            if golden.recipe is not None:
                results[bounds.PARAMETER + name] -= moved
        return results
    raise ValueError(f'gradients overflow in {precision} at every loss scale ({", ".join(f"{s:g}" for s in LOSS_SCALES)})')


def errors_of(golden, results):
    errors = {}
    for key, expected in golden.results.items():
        if key not in results:
            raise ValueError(f'the golden file has {key}, which the model does not compute')
        if results[key].shape != expected.shape:
            raise ValueError(f'{key} has shape {list(expected.shape)} in the golden file, here '
                             f'{list(results[key].shape)}')
        errors[key] = float((results[key] - expected.double()).abs().max()) if expected.numel() else 0.0
        if not math.isfinite(errors[key]):
            raise ValueError(f'{key} is not finite under autocast')
    return errors


def shares_of(golden, errors):
    """Each error as a share of max|golden|, to which gradients and parameters add what the bounds do."""
    sizes = {key: float(t.abs().max()) if t.numel() else 0.0 for key, t in golden.results.items()}
    top = max((size for key, size in sizes.items() if key.startswith(bounds.GRADIENT)), default=0.0)
    extra = {'grad': 0.01 * top, 'param': 1e-3, 'buffer': 1e-3}
    units = {key: size + extra.get(bounds.group_of(key), 0.0) for key, size in sizes.items()}
    return {key: error / units[key] if units[key] else error for key, error in errors.items()}


def record_peer(model_path, golden_path, path, *, precision, device='cpu', replays=1):
    """Writes PyTorch's error under autocast against the golden file to `path` (JSON). Returns a PeerReport.

    precision  'fp16', 'bf16' or, on a CUDA device, 'tf32'.
    device     'cpu' or 'cuda' (or 'cuda:1'): where PyTorch computes. Its kernels differ, so take the
               device that the engine is verified on.
    replays    at least 1: the first with the weights as they are, further ones with weights disturbed by
               half a unit in the last place of the precision (relative 2^-12 in fp16 and tf32, 2^-9 in
               bf16). The largest error of each tensor counts. One replay is one draw of what rounding does.

    Nothing is written when the model has an operator that the interpreter doesn't know
    (NotImplementedError), the files don't fit, or all loss scales overflow (ValueError).
    """
    if precision not in TYPES:
        raise ValueError(f"precision is 'fp16', 'bf16' or 'tf32', not {precision!r}")
    if precision == 'tf32' and torch.device(device).type != 'cuda':
        raise ValueError(f'only CUDA devices compute in tf32, not {device}; take --device cuda')
    if replays < 1:
        raise ValueError(f'replays is {replays}, not at least 1')
    model, golden = load_model(model_path), read_golden(golden_path)
    inputs = AutocastRun(model, golden.trainable, TYPES[precision][0], 'cpu').inputs
    if set(inputs) != set(golden.batches[0][0]):
        raise ValueError(f'the golden file does not belong to this model: it has the inputs '
                         f'{sorted(golden.batches[0][0])}, the model {sorted(inputs)}')
    errors = {}
    for number in range(replays):
        for key, error in errors_of(golden, replay(model, golden, precision, device, number or None)).items():
            errors[key] = max(errors.get(key, 0.0), error)
    name = device_name(device)
    peer = {'format': FORMAT, 'case': golden.metadata.get('case', ''), 'precision': precision, 'device': name,
            'torch': torch.__version__, 'replays': replays, 'errors': errors}

    def save(file):
        with open(file, 'w', encoding='utf-8') as out:
            json.dump(peer, out, indent=1)
            out.write('\n')
    replace_file(os.fspath(path), save)
    return PeerReport(os.fspath(path), name, errors, shares_of(golden, errors))


def record_peers(folder, target, *, precision, device='cpu', replays=1, say=print, told=str):
    """record_peer() of every CASE.onnx with CASE.golden.safetensors in `folder`, to CASE.peer.json in `target`.

    Goldens of inference alone are passed over. Goes on after a case that fails; returns
    {case: reason} of those, and how many were written.
    """
    failed, written = {}, 0
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), '*' + GOLDEN))):
        case = os.path.basename(path)[:-len(GOLDEN)]
        model = os.path.join(folder, f'{case}.onnx')
        if not os.path.exists(model):
            continue
        try:
            if read_golden(path).recipe is None:
                continue
            report = record_peer(model, path, os.path.join(target, f'{case}.peer.json'), precision=precision,
                                 device=device, replays=replays)
        except Exception as problem:  # the interpreter's, torch's and the files': the others are still wanted
            failed[case] = told(problem)
            say(f'{case}: {failed[case]}')
            continue
        written += 1
        say(str(report))
    return failed, written
