# SPDX-License-Identifier: Apache-2.0
"""Exports a torch module to ONNX so that it can be trained from the file.

What torch.onnx.export() gets wrong for that purpose, and what is done here:

- The dynamo exporter folds BatchNormalization away, merges equal initializers
  and never marks a layer as training: the TorchScript exporter is used.
- training=TRAINING marks every BatchNormalization and Dropout as training,
  those set to eval() too: training=PRESERVE is used, and every node checked.
- The exporter runs the module once in training mode, which moves the running
  statistics of the module and of the file: both get the old values back.
- Which parameters are to be trained (requires_grad) is not in the file: it is
  written as metadata, `renaissance.trainable`, a JSON list of initializers. That BatchNorm
  layers in eval() are meant to be frozen is metadata, too: `renaissance.batch_norm`.
"""
from __future__ import annotations

import contextlib
import inspect
import json
import os
import tempfile
import warnings
from dataclasses import dataclass, field

import onnx
import torch
from onnx import numpy_helper

TRAINABLE_KEY = 'renaissance.trainable'
BATCH_NORM_KEY = 'renaissance.batch_norm'  # as_marked: layers in eval() are frozen even where all of them are
BATCH_NORMS = torch.nn.modules.batchnorm._BatchNorm


@dataclass
class ExportReport:
    """What export() wrote."""
    path: str
    inputs: dict[str, list]
    outputs: dict[str, list]
    trainable: list[str]
    frozen: list[str]  # parameters without requires_grad
    frozen_layers: list[str]  # normalisations and dropouts that stay in inference mode
    notes: list[str] = field(default_factory=list)

    def __str__(self):
        lines = [f'{self.path}: {len(self.trainable)} trainable tensors, {len(self.frozen)} frozen']
        lines += [f'  input {name} {shape}' for name, shape in self.inputs.items()]
        lines += [f'  output {name} {shape}' for name, shape in self.outputs.items()]
        if self.frozen_layers:
            lines.append('  in inference mode: ' + ', '.join(self.frozen_layers))
        return '\n'.join(lines + [f'  note: {note}' for note in self.notes])


def flat_tensors(value):
    """The tensors in what a module returns, in the exporter's order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for v in value.values() for t in flat_tensors(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in flat_tensors(v)]
    return []


@contextlib.contextmanager
def unchanged(module):
    """Whatever happens inside, the module's modes, parameters, buffers and torch's random state come back."""
    modes = [(m, m.training) for m in module.modules()]
    owned = [(m, name, b, None if b is None else b.detach().clone())
             for m in module.modules() for name, b in m._buffers.items()]
    weights = [(p, p.detach().clone()) for p in module.parameters()]
    grads = [(p, p.grad) for p in module.parameters()]
    devices = sorted({p.device.index for p in module.parameters() if p.device.type == 'cuda'})
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            for m, mode in modes:
                m.training = mode
            with torch.no_grad():
                for m, name, buffer, value in owned:
                    m._buffers[name] = buffer
                    if buffer is not None:
                        buffer.copy_(value)
                for p, value in weights:
                    p.copy_(value)
            for p, grad in grads:
                p.grad = grad


def set_training_modes(module):
    """Puts the module into the form to be trained; returns notes.

    A module that is in eval() altogether was not frozen on purpose (a pretrained
    model usually comes like that): all of it trains. Otherwise layers in eval()
    stay in inference mode.
    """
    if not any(m.training for m in module.modules()):
        module.train()
        return ['the module was in eval() altogether: exported as if in train()']
    if not module.training:
        # the flag of the root alone, or else the exporter merges equal initializers
        module.training = True
    return []


def frozen_layers(module):
    kinds = (BATCH_NORMS, torch.nn.modules.dropout._DropoutNd)
    return [name for name, m in module.named_modules() if isinstance(m, kinds) and not m.training]


def check_module(module):
    for name, m in module.named_modules():
        if isinstance(m, BATCH_NORMS) and m.training and m.track_running_stats and m.momentum is None:
            raise ValueError(f'{name}: BatchNorm with momentum=None (cumulative average) has no ONNX form; '
                             'set a number, e.g. 0.1')
        if isinstance(m, torch.nn.parameter.UninitializedTensorMixin):
            raise ValueError(f'{name} is not initialised: run the module once first')
    for name, p in module.named_parameters():
        if isinstance(p, torch.nn.parameter.UninitializedParameter):
            raise ValueError(f'{name} is not initialised: run the module once first')
        if p.dtype != torch.float32:
            raise ValueError(f'{name} is {p.dtype}: export a float32 module (module.float())')


@contextlib.contextmanager
def quiet_log():
    """The exporter turns its own log on and prints its whole graph when it fails; the error says enough."""
    switch = '_jit_set_onnx_log_enabled'
    saved = getattr(torch._C, switch, None)
    if saved is not None:
        setattr(torch._C, switch, lambda enabled: None)
    try:
        yield
    finally:
        if saved is not None:
            setattr(torch._C, switch, saved)


def run_exporter(module, inputs, path, opset, input_names, output_names, dynamic_batch):
    dynamic = {name: {0: 'batch'} for name in input_names + output_names} if dynamic_batch else None
    options = dict(input_names=input_names, output_names=output_names, dynamic_axes=dynamic, opset_version=opset,
                   training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)
    known = inspect.signature(torch.onnx.export).parameters
    if 'dynamo' in known:
        options['dynamo'] = False
    with warnings.catch_warnings():
        # the choice of exporter and mode is ours; tracer warnings pass, they are about the module
        warnings.filterwarnings('ignore', category=DeprecationWarning)
        warnings.filterwarnings('ignore', message='.*legacy TorchScript-based ONNX export.*')
        warnings.filterwarnings('ignore', message='.*ONNX export mode is set to.*')
        warnings.filterwarnings('ignore', message='.*training=TrainingMode.*')
        warnings.filterwarnings('ignore', message='.*Removing mutation.*num_batches_tracked.*')
        warnings.filterwarnings('ignore', category=torch.jit.TracerWarning, module=r'torch\.')
        try:
            with quiet_log():
                torch.onnx.export(module, tuple(inputs), path, **options)
        except torch.onnx.errors.OnnxExporterError as problem:
            raise ValueError(f"torch can't export this module: {str(problem).strip().splitlines()[0]}") from problem


def is_training_bn(node, opset):
    if opset < 14:
        return len(node.output) == 5
    return any(a.name == 'training_mode' and a.i for a in node.attribute)


def check_modes(model, module):
    """Each BatchNormalization of the file is in the mode of its module."""
    opset = next(o.version for o in model.opset_import if o.domain in ('', 'ai.onnx'))
    modes = {}
    for name, m in module.named_modules(remove_duplicate=False):
        if isinstance(m, BATCH_NORMS):
            prefix = f'{name}.' if name else ''
            modes[f'{prefix}running_mean'] = m.training
    seen = set()
    for node in model.graph.node:
        if node.op_type == 'BatchNormalization' and len(node.input) == 5 and node.input[3] in modes:
            seen.add(node.input[3])
            if is_training_bn(node, opset) != modes[node.input[3]]:
                raise RuntimeError(f'the exporter gave {node.name or node.output[0]} the wrong mode: '
                                   f'this version of torch ({torch.__version__}) is not supported')
    return seen


def final_place(path):
    """Where a file that is to be written at `path` goes: through links, and only to a regular file or a new one."""
    place = os.path.realpath(os.fspath(path))
    if os.path.exists(place) and not os.path.isfile(place):
        raise ValueError(f"'{path}' can't be written: it is " + ('a folder' if os.path.isdir(place) else
                                                                'a pipe, a device or a socket'))
    return place


def external_files(path):
    """The files beside an ONNX file that hold its external data."""
    model = onnx.load(os.fspath(path), load_external_data=False)
    folder = os.path.dirname(os.path.abspath(os.fspath(path)))
    return sorted({os.path.join(folder, entry.value) for tensor in model.graph.initializer
                   for entry in tensor.external_data if entry.key == 'location'})


def load_model(path):
    """The onnx.ModelProto of a file, or ValueError when it isn't one."""
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise ValueError(f"'{path}' is no file" if os.path.exists(path) else f"'{path}' does not exist")
    try:
        model = onnx.load(path)
    except OSError:
        raise
    except Exception as problem:  # protobuf's and onnx's own, by version
        reason = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise ValueError(f"'{path}' is no ONNX file, or it is damaged: {reason}") from problem
    if not model.graph.node or not model.graph.output:
        raise ValueError(f"'{path}' is no ONNX model: it has no graph")
    return model


def stored_names(model):
    return {i.name for i in model.graph.initializer}


def restore_values(model, module):
    """Gives initializers the module's values (the export's run moved the statistics). Returns their names."""
    values = dict(module.named_parameters(remove_duplicate=False))
    values.update(module.named_buffers(remove_duplicate=False))
    restored = []
    for initializer in model.graph.initializer:
        value = values.get(initializer.name)
        if value is None:
            continue
        array = value.detach().cpu().numpy()
        if list(array.shape) != list(initializer.dims):
            raise RuntimeError(f'{initializer.name}: shape {list(initializer.dims)} in the file, '
                               f'{list(array.shape)} in the module')
        initializer.CopyFrom(numpy_helper.from_array(array, initializer.name))
        restored.append(initializer.name)
    return restored


def trainable_names(model, module):
    """(trainable initializers, frozen ones, notes), in the module's order; a tied parameter once."""
    stored, by_parameter = stored_names(model), {}
    for name, p in module.named_parameters(remove_duplicate=False):
        by_parameter.setdefault(id(p), (p, []))[1].append(name)
    trainable, frozen, notes = [], [], []
    for p, names in by_parameter.values():
        present = [n for n in names if n in stored]
        if not present:
            notes.append(f'{names[0]} is not in the file: forward() does not use it')
            continue
        (trainable if p.requires_grad else frozen).extend(present)
    if not trainable:
        raise ValueError('nothing to train: no parameter that forward() uses has requires_grad')
    return trainable, frozen, notes


def value_shape(info):
    return [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim]


def export(module, example_input, path, *, dynamic_batch=True, opset=17, input_names=None, output_names=None):
    """Writes `module` to `path` as an ONNX file to be trained. Returns an ExportReport.

    module         a float32 torch.nn.Module. Layers in eval() stay frozen, unless the
                   whole module is in eval(). It is left as it was.
    example_input  a tensor or a tuple of tensors, batch first; only shapes matter.
    dynamic_batch  whether the file takes any batch size; else that of the example.
    input_names    default: `input`, or `input0`, `input1`, ...
    output_names   default: `logits` for one output, else `output0`, `output1`, ...
    """
    inputs = [example_input] if isinstance(example_input, torch.Tensor) else list(example_input)
    check_module(module)
    if dynamic_batch:  # BatchNorm can't train on one value a channel
        inputs = [torch.cat([t, t]) if t.shape[0] == 1 else t for t in inputs]
    path = os.fspath(path)
    with unchanged(module):
        notes = set_training_modes(module)
        frozen_now = frozen_layers(module)
        with unchanged(module), torch.no_grad():
            outputs = len(flat_tensors(module(*inputs)))
        if outputs == 0:
            raise ValueError('forward() returns no tensor')
        if input_names is None:
            input_names = ['input'] if len(inputs) == 1 else [f'input{i}' for i in range(len(inputs))]
        if output_names is None:
            output_names = ['logits'] if outputs == 1 else [f'output{i}' for i in range(outputs)]
        if len(input_names) != len(inputs) or len(output_names) != outputs:
            raise ValueError(f'{len(inputs)} inputs and {outputs} outputs, but names for '
                             f'{len(input_names)} and {len(output_names)}')
        place = final_place(path)
        folder = os.path.dirname(place)
        with tempfile.TemporaryDirectory(prefix='.export-', dir=folder) as work:
            raw = os.path.join(work, 'model.onnx')
            with unchanged(module):
                run_exporter(module, inputs, raw, opset, list(input_names), list(output_names), dynamic_batch)
            model = onnx.load(raw)
            check_modes(model, module)
            restore_values(model, module)
            trainable, frozen, more = trainable_names(model, module)
            entry = model.metadata_props.add()
            entry.key, entry.value = TRAINABLE_KEY, json.dumps(trainable)
            entry = model.metadata_props.add()
            entry.key, entry.value = BATCH_NORM_KEY, 'as_marked'
            checked = os.path.join(work, 'checked.onnx')
            onnx.save(model, checked)
            onnx.checker.check_model(checked, full_check=True)
            os.replace(checked, place)
    initializers = stored_names(model)
    return ExportReport(path=path,
                        inputs={i.name: value_shape(i) for i in model.graph.input if i.name not in initializers},
                        outputs={o.name: value_shape(o) for o in model.graph.output},
                        trainable=trainable, frozen=frozen, frozen_layers=frozen_now, notes=notes + more)


def load_initializers(module, model):
    """Copies an ONNX file's weights and statistics into a module of the same parameter names.

    model is a path or an onnx.ModelProto. Every parameter and floating-point buffer of the
    module has to be in the file, in its shape, or ValueError lists those that are not.
    """
    if not isinstance(model, onnx.ModelProto):
        model = load_model(model)
    arrays = {i.name: i for i in model.graph.initializer}
    tied = {}
    for name, p in list(module.named_parameters(remove_duplicate=False)) + \
            list(module.named_buffers(remove_duplicate=False)):
        if p.is_floating_point():
            tied.setdefault(id(p), (p, []))[1].append(name)
    wrong, found = [], []
    for tensor, names in tied.values():
        name = next((n for n in names if n in arrays), None)
        if name is None:
            wrong.append(f'{names[0]} is not in the file')
        elif list(arrays[name].dims) != list(tensor.shape):
            wrong.append(f'{name}: {list(arrays[name].dims)} in the file, {list(tensor.shape)} in the module')
        else:
            found.append((tensor, arrays[name]))
    if wrong:
        more = f'; and {len(wrong) - 5} more' if len(wrong) > 5 else ''
        raise ValueError('the file does not fit the module: ' + '; '.join(wrong[:5]) + more)
    with torch.no_grad():
        for tensor, initializer in found:
            tensor.copy_(torch.from_numpy(numpy_helper.to_array(initializer).copy()))
