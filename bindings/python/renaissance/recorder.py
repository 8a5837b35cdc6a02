# SPDX-License-Identifier: Apache-2.0
"""Records what PyTorch computes when it trains a model: the golden file of `renaissance verify`.

Three steps of SGD are computed in float64 and rounded once at the end. PyTorch's
own float32 is measured against that, and so is the float64 result with weights
disturbed by 1.5e-7: where either moves by more than half of what an engine is
allowed, rounding decides (a ReLU's input that is almost zero, a tie in a maximum)
and other batches are tried.
"""
from __future__ import annotations

import copy
import json
import os
import tempfile
from dataclasses import dataclass, field

import onnx
import torch
import torch.nn.functional as F

from . import bounds
from .exporter import BATCH_NORMS, final_place, flat_tensors, load_model, set_training_modes, stored_names, value_shape

STEPS = 3
HOPELESS = 100  # times what an engine is allowed: three such batches, and the recipe amplifies rounding
DISTURBANCE = 1.5e-7
INFERENCE_KINDS = (BATCH_NORMS, torch.nn.modules.dropout._DropoutNd)


@dataclass
class GoldenReport:
    """What record_golden() wrote, and how safe it is."""
    path: str
    parameters: int
    fp32_error: dict
    fp32_share: float  # PyTorch's own float32 error, as a share of the bounds
    disturbed_share: float  # effect of weights disturbed by 1.5e-7, as a share of the bounds
    notes: list[str] = field(default_factory=list)

    def __str__(self):
        lines = [f'  note: {note}' for note in self.notes]
        lines.append(f'{self.path}: {self.parameters} parameters, {STEPS} steps; torch float32 within '
                     f'{self.fp32_share:.0%} of the bounds, disturbed weights within {self.disturbed_share:.0%}')
        return '\n'.join(lines)


class ModuleRun:
    """A copy of a torch module, by the names of its ONNX file."""

    def __init__(self, module, model, dtype):
        self.module = copy.deepcopy(module).to(device='cpu', dtype=dtype)
        set_training_modes(self.module)
        self.dtype, self.device = dtype, 'cpu'
        initializers = stored_names(model)
        self.inputs = [i.name for i in model.graph.input if i.name not in initializers]
        self.outputs = [o.name for o in model.graph.output]
        self.parameters, self.unmapped = {}, []
        by_parameter = {}
        for name, p in self.module.named_parameters(remove_duplicate=False):
            by_parameter.setdefault(id(p), (p, []))[1].append(name)
        for p, names in by_parameter.values():
            present = [n for n in names if n in initializers]
            if not p.requires_grad:
                continue
            if present:
                self.parameters[present[0]] = p
            else:
                self.unmapped.append(names[0])
        self.statistics = {name: b for name, b in self.module.named_buffers()
                           if name in initializers and name.endswith(('running_mean', 'running_var'))}

    def forward(self, feeds, training):
        modes = [(m, m.training) for m in self.module.modules() if isinstance(m, INFERENCE_KINDS)]
        if not training:  # these only: an auxiliary head stays, as it does in the file
            for m, _ in modes:
                m.training = False
        try:
            tensors = flat_tensors(self.module(*[feeds[name] for name in self.inputs]))
        finally:
            for m, mode in modes:
                m.training = mode
        if len(tensors) != len(self.outputs):
            raise ValueError(f'forward() returns {len(tensors)} tensors, the file has {len(self.outputs)} outputs')
        return dict(zip(self.outputs, tensors))

    def running_statistics(self):
        return self.statistics


class GraphRun:
    """The ONNX file itself, interpreted with torch operators."""

    def __init__(self, model, trainable, dtype, device='cpu'):
        from .interpreter import Interpreter
        self.graph = Interpreter(model, dtype, device)
        self.dtype, self.device = dtype, device
        self.inputs, self.outputs = self.graph.inputs, self.graph.outputs
        unknown = [name for name in trainable if name not in self.graph.values]  # initializers and Constant nodes
        if unknown:
            raise ValueError(f'to be trained, but not in the file: {", ".join(unknown)}')
        self.parameters = {name: self.graph.values[name].clone().requires_grad_() for name in trainable}
        self.unmapped = []
        self.statistics = {}

    def forward(self, feeds, training):
        statistics = self.statistics if training else dict(self.statistics)
        return self.graph.run(feeds, training, self.parameters, statistics)

    def running_statistics(self):
        # an optimiser may have merged a statistic with a parameter of equal value
        return {name: value for (_, name), value in self.statistics.items() if name not in self.parameters}


def loss_of(outputs, target, recipe):
    return sum(weight * F.cross_entropy(outputs[name], target, label_smoothing=recipe['label_smoothing'])
               for name, weight in recipe['outputs'].items())


def disturb_weights(run, generator, amount):
    """Each weight by at most that share of its size."""
    with torch.no_grad():
        for p in run.parameters.values():
            p.mul_(1 + amount * (2 * torch.rand(p.shape, generator=generator, dtype=run.dtype).to(p.device) - 1))


def infer(run, feeds):
    with torch.no_grad():
        return {f'eval/output/{name}': t.clone() for name, t in run.forward(feeds, False).items()}


def scaled_backward(loss, scale, run):
    """False when a gradient overflows."""
    (loss * scale).backward()
    finite = True
    for p in run.parameters.values():
        if p.grad is not None:
            p.grad.div_(scale)
            finite = finite and bool(p.grad.isfinite().all())
    return finite


def train(run, batches, recipe, disturb=None, loss_scale=None):
    """The golden's results for these batches, in run's precision on run's device.

    With a loss_scale the loss is multiplied by it and the gradients are divided
    again; None is returned when one of them is not finite then.
    """
    if disturb is not None:
        disturb_weights(run, disturb, DISTURBANCE)
    cast = [({name: t.to(run.device, run.dtype) for name, t in feeds.items()}, target.to(run.device))
            for feeds, target in batches]
    results = infer(run, cast[0][0])
    optimizer = torch.optim.SGD(list(run.parameters.values()), lr=recipe['lr'], momentum=recipe['momentum'],
                                weight_decay=recipe['weight_decay'], nesterov=recipe['nesterov'])
    for k, (feeds, target) in enumerate(cast):
        outputs = run.forward(feeds, True)
        loss = loss_of(outputs, target, recipe)
        optimizer.zero_grad()
        if loss_scale is None:
            loss.backward()
        elif not scaled_backward(loss, loss_scale, run):
            return None
        results[f'step{k}/loss'] = loss.detach().clone()
        if k == 0:
            for name, t in outputs.items():
                results[f'step0/output/{name}'] = t.detach().clone()
            for name, p in run.parameters.items():
                if p.grad is None:
                    raise ValueError(f'{name} gets no gradient: the loss does not depend on it; give the output that '
                                     'it leads to a weight (outputs=, --outputs), or freeze it before exporting')
                results[f'{bounds.GRADIENT}{name}'] = p.grad.clone()
        optimizer.step()
    for name, p in run.parameters.items():
        results[f'{bounds.PARAMETER}{name}'] = p.detach().clone()
    for name, t in run.running_statistics().items():
        results[f'{bounds.BUFFER}{name}'] = t.detach().clone()
    return results


def check_deterministic(make_run, feeds):
    """Refuses a model with live Dropout or stochastic depth: nobody can reproduce its numbers."""
    seen = []
    for seed in (1, 2):
        run = make_run(torch.float64)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            seen.append(run.forward({n: t.double() for n, t in feeds.items()}, True))
    if any(not torch.equal(seen[0][name], seen[1][name]) for name in seen[0]):
        raise ValueError('the model draws random numbers in training mode (Dropout, stochastic depth): '
                         'set their probability to 0 before export and recording')


def check_file_deterministic(model, trainable, feeds):
    """The same for the file, whose Dropout may be live where the module's isn't."""
    try:
        check_deterministic(lambda dtype: GraphRun(model, trainable, dtype), feeds)
    except NotImplementedError:
        pass  # an operator that only the engine interprets


def input_shapes(model, batch):
    initializers = stored_names(model)
    shapes = {}
    for i in model.graph.input:
        if i.name in initializers:
            continue
        shape = value_shape(i)
        if not isinstance(shape[0], int) or shape[0] == 0:
            shape[0] = batch
        if not all(isinstance(d, int) and d > 0 for d in shape):
            raise ValueError(f'input {i.name} has shape {shape}: give the batches yourself (inputs=, targets=)')
        shapes[i.name] = shape
    return shapes


def random_batches(shapes, make_run, heads, loss):
    """A function of a seed that makes the batches."""
    def one(generator):
        feeds = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
        with torch.no_grad():
            out = make_run(torch.float32).forward(feeds, True)[next(iter(heads))]
        size = [out.shape[0]] + (list(out.shape[2:]) if loss == 'pixel_cross_entropy' else [])
        return feeds, torch.randint(0, out.shape[1], size, generator=generator)

    def make(seed):
        generator = torch.Generator().manual_seed(seed)
        return [one(generator) for _ in range(STEPS)]
    return make


def given_batches(inputs, targets, names):
    if len(inputs) != STEPS or len(targets) != STEPS:
        raise ValueError(f'{STEPS} batches are needed, not {len(inputs)} inputs and {len(targets)} targets')
    batches = []
    for feeds, target in zip(inputs, targets):
        if isinstance(feeds, torch.Tensor):
            feeds = {names[0]: feeds}
        if set(feeds) != set(names):
            raise ValueError(f'the model has the inputs {names}, not {sorted(feeds)}')
        batches.append(({n: t.detach().float().cpu() for n, t in feeds.items()}, target.long().cpu()))
    return batches


def declared_trainable(model):
    from .exporter import TRAINABLE_KEY
    for entry in model.metadata_props:
        if entry.key == TRAINABLE_KEY:
            return json.loads(entry.value)
    return None


def write(tensors, metadata, path):
    from safetensors.torch import save_file
    replace_file(path, lambda file: save_file(tensors, file, metadata))


def replace_file(path, save):
    """save(FILE) writes the file elsewhere; it takes its place when it is complete."""
    place = final_place(path)
    with tempfile.TemporaryDirectory(prefix='.golden-', dir=os.path.dirname(place)) as work:
        file = os.path.join(work, 'golden')
        save(file)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(file, 0o666 & ~mask)  # as any other file; the library makes it private
        os.replace(file, place)


def record_golden(model_path, path, module=None, *, inputs=None, targets=None, batch=4, loss='cross_entropy',
                  outputs=None, label_smoothing=0.0, lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=False,
                  trainable=None, seed=0, attempts=20, case=None, exporter='renaissance.export', say=print):
    """Writes the golden file of the ONNX model at `model_path` to `path`. Returns a GoldenReport.

    module           the torch module that was exported to model_path; None: the file
                     itself is interpreted with torch operators.
    inputs, targets  three batches of your own: tensors (or {input name: tensor}) and
                     class indices. Default: random ones, of `batch` samples where the
                     file leaves the batch size open.
    loss             'cross_entropy' over classes or 'pixel_cross_entropy'.
    outputs          {output name: weight in the loss}; default: the first output alone.
    trainable        names of the parameters to train, when there is no module; default:
                     what export() declared in the file.
    attempts         how many random batches are tried before giving up.
    say              called with each line of progress; None keeps quiet.
    """
    if loss not in ('cross_entropy', 'pixel_cross_entropy'):
        raise ValueError(f"loss is 'cross_entropy' or 'pixel_cross_entropy', not {loss!r}")
    if nesterov and not momentum:
        raise ValueError('nesterov needs a momentum')
    say = say or (lambda line: None)
    model = load_model(model_path)
    names = [o.name for o in model.graph.output]
    heads = dict(outputs) if outputs else {names[0]: 1.0}
    if set(heads) - set(names):
        raise ValueError(f'the model has the outputs {names}, not {sorted(set(heads) - set(names))}')
    recipe = dict(lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov,
                  label_smoothing=label_smoothing, outputs=heads)
    if module is None:
        trainable = list(trainable or declared_trainable(model) or [])
        if not trainable:
            raise ValueError('which parameters are trained? give the module (--module, --torchvision), or their names '
                             '(trainable=, --trainable), or a file written by renaissance.export()')

        def make_run(dtype):
            return GraphRun(model, trainable, dtype)
    else:
        def make_run(dtype):
            return ModuleRun(module, model, dtype)

    reference = make_run(torch.float64)
    if not reference.parameters:
        raise ValueError('no trainable parameter of the module is in the file')
    initial = {name: p.detach().clone() for name, p in reference.parameters.items()}
    if (inputs is None) != (targets is None):
        raise ValueError('inputs and targets come together')
    if inputs is not None:
        fixed = given_batches(inputs, targets, reference.inputs)
        candidates = iter([(None, fixed)])
    else:
        make = random_batches(input_shapes(model, batch), make_run, heads, loss)
        candidates = ((s, make(s)) for s in range(seed, seed + attempts))

    notes, checked, hopeless = [], False, 0
    for tried, batches in candidates:
        if not checked:
            check_deterministic(make_run, batches[0][0])
            if module is not None:
                check_file_deterministic(model, list(reference.parameters), batches[0][0])
            checked = True
        golden = train(make_run(torch.float64), batches, recipe)
        own = bounds.compare(golden, train(make_run(torch.float32), batches, recipe), initial)
        own_share, own_key = bounds.worst(own)
        moved_share, moved_key = own_share, own_key
        if own_share < 0.5:
            moved_share, moved_key = bounds.worst([row for s in (1, 2) for row in bounds.compare(
                golden, train(make_run(torch.float64), batches, recipe, torch.Generator().manual_seed(s)), initial)])
            if moved_share < 0.5:
                break
            what = f'weights disturbed by {DISTURBANCE:g} move it by'
        else:
            what = "PyTorch's own float32 is off by"
        note = f'rounding decides: {moved_key}: {what} {moved_share:.2g} times what an engine is allowed'
        if tried is None:
            raise ValueError(f'{note}; give other batches')
        notes.append(f'batch with seed {tried} left out, {note}')
        say(notes[-1])
        hopeless += moved_share > HOPELESS
        if hopeless == 3:
            break
    if hopeless == 3 or len(notes) == attempts:
        rate = f'a learning rate of 1e-4 (now {lr:g})' if lr > 1e-4 else 'a lower learning rate'
        raise ValueError(f'in none of {len(notes)} batches was the answer independent of rounding; try {rate}, since '
                         'three steps amplify it, and smaller images, since fewer activations are then at a kink')

    tensors = {key: t.float() for key, t in golden.items()}
    for k, (feeds, target) in enumerate(batches):
        tensors.update({f'step{k}/input/{name}': t for name, t in feeds.items()})
        tensors[f'step{k}/target'] = target
    dynamic = any(isinstance(value_shape(i)[0], str) for i in model.graph.input if i.name in reference.inputs)
    name = os.path.basename(os.fspath(model_path))
    name = name[:-5] if name.endswith('.onnx') else name
    error = bounds.error_by_group(own)
    metadata = {
        'format': 'renaissance-golden-1', 'case': case or name, 'model': (case or name).split('.')[0],
        'exporter': exporter, 'torch': torch.__version__, 'onnx': onnx.__version__,
        'loss': loss, 'outputs': ','.join(f'{n}:{float(w)}' for n, w in heads.items()),
        'label_smoothing': str(float(label_smoothing)), 'optimizer': 'sgd', 'lr': str(float(lr)),
        'momentum': str(float(momentum)), 'weight_decay': str(float(weight_decay)),
        'nesterov': str(bool(nesterov)).lower(), 'steps': str(STEPS), 'var_convention': 'pytorch-unbiased',
        'batch_dim': 'dynamic' if dynamic else 'static', 'content': 'train+eval',
        'unmapped': ','.join(reference.unmapped), 'unmapped_buffers': '',
        'torch_fp32_error': json.dumps({g: float(f'{e:.2e}') for g, e in error.items()}),
    }
    write({key: t.clone().contiguous() for key, t in tensors.items()}, metadata, os.fspath(path))
    return GoldenReport(path=os.fspath(path), parameters=len(initial), fp32_error=error, fp32_share=own_share,
                        disturbed_share=moved_share, notes=notes)
