# SPDX-License-Identifier: Apache-2.0
"""Runs an ONNX graph with torch operators, so that its file can be differentiated.

Used to record goldens for a file whose module is not at hand. One function per
operator, in the table OPS; it gets the attributes and the inputs (None where one
is left out) and returns a tensor, or a list where the operator has several outputs.
"""
from __future__ import annotations

import functools
import math

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import helper, numpy_helper

OPS = {}
TYPES = {onnx.TensorProto.INT64: torch.int64, onnx.TensorProto.INT32: torch.int32, onnx.TensorProto.BOOL: torch.bool}


def op(*names):
    def register(function):
        for name in names:
            OPS[name] = function
        return function
    return register


def integers(tensor):
    return [int(v) for v in tensor.reshape(-1)]


def axes_of(attributes, tensor, default=None):
    """axes as input (newer opsets) or attribute (older ones)."""
    if tensor is not None:
        return integers(tensor)
    return list(attributes.get('axes', default or [])) or default


def optional(inputs, index):
    return inputs[index] if len(inputs) > index else None


# --- convolution and pooling ---------------------------------------------------

def window(a, x, kernel):
    """strides, dilations, pads at the low and at the high side, for 2-D windows."""
    n = len(kernel)
    strides, dilations = list(a.get('strides', [1] * n)), list(a.get('dilations', [1] * n))
    auto = a.get('auto_pad', b'NOTSET').decode()
    if auto in ('NOTSET', ''):
        pads = list(a.get('pads', [0] * 2 * n))
        return strides, dilations, pads[:n], pads[n:]
    low, high = [0] * n, [0] * n
    if auto != 'VALID':
        for i in range(n):
            size = x.shape[2 + i]
            needed = (math.ceil(size / strides[i]) - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - size
            total = max(needed, 0)
            low[i] = total // 2 if auto == 'SAME_UPPER' else total - total // 2
            high[i] = total - low[i]
    return strides, dilations, low, high


def padded(x, low, high, value=0.0):
    pairs = [p for pair in zip(reversed(low), reversed(high)) for p in pair]
    return F.pad(x, pairs, value=value) if any(pairs) else x


@op('Conv')
def conv(a, x, w, b=None):
    strides, dilations, low, high = window(a, x, list(w.shape[2:]))
    run = F.conv2d if w.dim() == 4 else F.conv1d
    return run(padded(x, low, high), w, b, strides, 0, dilations, a.get('group', 1))


@op('ConvTranspose')
def conv_transpose(a, x, w, b=None):
    n = w.dim() - 2
    pads = list(a.get('pads', [0] * 2 * n))
    y = F.conv_transpose2d(x, w, b, a.get('strides', [1] * n), 0, a.get('output_padding', [0] * n),
                           a.get('group', 1), a.get('dilations', [1] * n))
    for i in range(n):
        y = y.narrow(2 + i, pads[i], y.shape[2 + i] - pads[i] - pads[n + i])
    return y


def pool_window(a, x):
    """strides, dilations, pads, and what ceil_mode adds at the high side."""
    kernel = list(a['kernel_shape'])
    strides, dilations, low, high = window(a, x, kernel)
    extra = []
    for i, k in enumerate(kernel):
        span, size = dilations[i] * (k - 1) + 1, x.shape[2 + i]
        room = size + low[i] + high[i] - span
        count = (math.ceil if a.get('ceil_mode', 0) else math.floor)(room / strides[i]) + 1
        if (count - 1) * strides[i] >= size + low[i]:  # the last window has to start inside
            count -= 1
        extra.append(max(0, (count - 1) * strides[i] + span - size - low[i] - high[i]))
    return kernel, strides, dilations, low, high, extra


@op('MaxPool')
def max_pool(a, x):
    kernel, strides, dilations, low, high, extra = pool_window(a, x)
    return F.max_pool2d(padded(x, low, [h + e for h, e in zip(high, extra)], float('-inf')), kernel, strides, 0,
                        dilations)


@op('AveragePool')
def average_pool(a, x):
    kernel, strides, _, low, high, extra = pool_window(a, x)
    counted = padded(torch.ones_like(x[:1, :1]), low, high, 1.0 if a.get('count_include_pad', 0) else 0.0)
    counted = F.avg_pool2d(padded(counted, [0, 0], extra), kernel, strides)
    return F.avg_pool2d(padded(x, low, [h + e for h, e in zip(high, extra)]), kernel, strides) / counted


@op('Resize', 'Upsample')
def resize(a, x, *inputs):
    if len(inputs) == 1:  # Upsample
        scales, sizes, coordinates, rounding = inputs[0], None, 'asymmetric', 'floor'
    else:
        scales, sizes = optional(inputs, 1), optional(inputs, 2)
        coordinates = a.get('coordinate_transformation_mode', b'half_pixel').decode()
        rounding = a.get('nearest_mode', b'round_prefer_floor').decode()
    if sizes is not None and sizes.numel():
        size = integers(sizes)[2:]
    else:
        size = [math.floor(n * float(s)) for n, s in zip(x.shape[2:], scales[2:])]
    mode = a.get('mode', b'nearest').decode()
    if mode == 'nearest' and coordinates == 'asymmetric' and rounding == 'floor':
        return F.interpolate(x, size=size, mode='nearest')
    if mode == 'linear' and coordinates in ('half_pixel', 'pytorch_half_pixel', 'align_corners'):
        return F.interpolate(x, size=size, mode='bilinear', align_corners=coordinates == 'align_corners')
    raise NotImplementedError(f'Resize with mode {mode}, {coordinates}, {rounding}')


# --- normalisation and matrices ------------------------------------------------

OPS['InstanceNormalization'] = lambda a, x, w, b: F.instance_norm(x, weight=w, bias=b, eps=a.get('epsilon', 1e-5))
OPS['GroupNormalization'] = lambda a, x, w, b: F.group_norm(x, a['num_groups'], w, b, a.get('epsilon', 1e-5))


@op('LayerNormalization')
def layer_norm(a, x, w, b=None):
    return F.layer_norm(x, x.shape[a.get('axis', -1):], w, b, a.get('epsilon', 1e-5))


@op('Gemm')
def gemm(a, x, w, b=None):
    x, w, alpha = x.T if a.get('transA', 0) else x, w.T if a.get('transB', 0) else w, a.get('alpha', 1.0)
    # with the bias as one operation, since that is what autocast does in 16 bits
    return alpha * (x @ w) if b is None else torch.addmm(b, x, w, beta=a.get('beta', 1.0), alpha=alpha)


# --- pointwise -------------------------------------------------------------------

for _name, _function in {
        'Relu': torch.relu, 'Sigmoid': torch.sigmoid, 'Tanh': torch.tanh, 'Erf': torch.erf, 'Softplus': F.softplus,
        'HardSwish': F.hardswish, 'Mish': F.mish, 'Sqrt': torch.sqrt, 'Exp': torch.exp, 'Log': torch.log,
        'Neg': torch.neg, 'Abs': torch.abs, 'Not': torch.logical_not, 'Reciprocal': torch.reciprocal,
        'Floor': torch.floor, 'Ceil': torch.ceil, 'Identity': lambda x: x, 'Add': torch.add, 'Sub': torch.sub,
        'Mul': torch.mul, 'Pow': lambda x, y: torch.pow(x, y.to(x.device)), 'MatMul': torch.matmul, 'Equal': torch.eq,
        'Greater': torch.gt,
        'Less': torch.lt, 'And': torch.logical_and, 'Where': lambda c, x, y: torch.where(c.to(x.device), x, y),
        'CastLike': lambda x, like: x.to(like.device, like.dtype),
        'GlobalAveragePool': lambda x: x.mean((2, 3), keepdim=True),
        'GlobalMaxPool': lambda x: x.amax((2, 3), keepdim=True),
        'Range': lambda start, limit, step: torch.arange(int(start), int(limit), int(step))}.items():
    OPS[_name] = lambda a, *inputs, function=_function: function(*inputs)

OPS['LeakyRelu'] = lambda a, x: F.leaky_relu(x, a.get('alpha', 0.01))
OPS['Elu'] = lambda a, x: F.elu(x, a.get('alpha', 1.0))
OPS['PRelu'] = lambda a, x, slope: torch.where(x >= 0, x, slope * x)
OPS['Gelu'] = lambda a, x: F.gelu(x, approximate=a.get('approximate', b'none').decode())
OPS['HardSigmoid'] = lambda a, x: torch.clamp(a.get('alpha', 0.2) * x + a.get('beta', 0.5), 0, 1)
OPS['Swish'] = lambda a, x: x * torch.sigmoid(a.get('alpha', 1.0) * x)
OPS['Softmax'] = lambda a, x: torch.softmax(x, a.get('axis', -1))
OPS['LogSoftmax'] = lambda a, x: torch.log_softmax(x, a.get('axis', -1))
OPS['Mod'] = lambda a, x, y: torch.fmod(x, y) if a.get('fmod', 0) else torch.remainder(x, y)


@op('Div')
def div(a, x, y):
    floating = x.is_floating_point() or y.is_floating_point()
    return x / y if floating else torch.div(x, y, rounding_mode='trunc')


@op('Clip')
def clip(a, x, low=None, high=None):
    low = a.get('min') if low is None else float(low)
    high = a.get('max') if high is None else float(high)
    return torch.clamp(x, low, high)


OPS['Min'] = lambda a, *inputs: functools.reduce(torch.minimum, inputs)
OPS['Max'] = lambda a, *inputs: functools.reduce(torch.maximum, inputs)


def reduction(function):
    def run(a, x, axes=None):
        axes = axes_of(a, axes)
        if not axes:
            if a.get('noop_with_empty_axes', 0):
                return x
            axes = list(range(x.dim()))
        return function(x, axes, bool(a.get('keepdims', 1)))
    return run


OPS['ReduceMean'] = reduction(lambda x, axes, keep: x.mean(axes, keepdim=keep))
OPS['ReduceSum'] = reduction(lambda x, axes, keep: x.sum(axes, keepdim=keep))
OPS['ReduceMax'] = reduction(lambda x, axes, keep: x.amax(axes, keepdim=keep))
OPS['ReduceL2'] = reduction(lambda x, axes, keep: x.square().sum(axes, keepdim=keep).sqrt())
OPS['ReduceProd'] = reduction(lambda x, axes, keep: x.prod(axes[0], keepdim=keep))


# --- shapes ----------------------------------------------------------------------

@op('Flatten')
def flatten(a, x):
    axis = a.get('axis', 1) % (x.dim() + 1)
    return x.reshape(math.prod(x.shape[:axis]), -1)


@op('Reshape')
def reshape(a, x, shape):
    return x.reshape([x.shape[i] if n == 0 and not a.get('allowzero', 0) else n for i, n in enumerate(integers(shape))])


@op('Unsqueeze')
def unsqueeze(a, x, axes=None):
    axes = axes_of(a, axes)
    for axis in sorted(i % (x.dim() + len(axes)) for i in axes):
        x = x.unsqueeze(axis)
    return x


@op('Squeeze')
def squeeze(a, x, axes=None):
    axes = axes_of(a, axes, [i for i, n in enumerate(x.shape) if n == 1])
    for axis in sorted((i % x.dim() for i in axes), reverse=True):
        x = x.squeeze(axis)
    return x


@op('Slice')
def slice_(a, x, starts=None, ends=None, axes=None, steps=None):
    starts = integers(starts) if starts is not None else a['starts']
    ends = integers(ends) if ends is not None else a['ends']
    axes = axes_of(a, axes, list(range(len(starts))))
    steps = integers(steps) if steps is not None else [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps):
        n = x.shape[axis]
        chosen = range(n)[start:(None if step < 0 and end < -n else end):step]
        x = x.index_select(axis, torch.tensor(list(chosen), dtype=torch.long, device=x.device))
    return x


@op('Pad')
def pad(a, x, pads=None, value=None, axes=None):
    pads = integers(pads) if pads is not None else list(a['pads'])
    n = len(pads) // 2
    low, high = [0] * x.dim(), [0] * x.dim()
    for i, axis in enumerate(integers(axes) if axes is not None else range(n)):
        low[axis], high[axis] = pads[i], pads[n + i]
    mode = a.get('mode', b'constant').decode()
    if mode == 'constant':
        return padded(x, low, high, float(value) if value is not None else a.get('value', 0.0))
    pairs = [p for axis in (3, 2) for p in (low[axis], high[axis])]
    return F.pad(x, pairs, mode={'reflect': 'reflect', 'edge': 'replicate', 'wrap': 'circular'}[mode])


@op('Gather')
def gather(a, x, index):
    axis = a.get('axis', 0) % x.dim()
    y = x.index_select(axis, index.reshape(-1).to(x.device) % x.shape[axis])
    return y.reshape(list(x.shape[:axis]) + list(index.shape) + list(x.shape[axis + 1:]))


@op('Split')
def split(a, x, sizes=None):
    axis = a.get('axis', 0)
    sizes = integers(sizes) if sizes is not None else a.get('split')
    if sizes is None:
        return list(torch.split(x, math.ceil(x.shape[axis] / a['num_outputs']), axis))
    return list(torch.split(x, list(sizes), axis))


@op('SplitToSequence')
def split_to_sequence(a, x, sizes):
    return (list(torch.split(x, int(sizes) if sizes.dim() == 0 else integers(sizes), a.get('axis', 0))),)


@op('DepthToSpace')
def depth_to_space(a, x):
    size = a['blocksize']
    if a.get('mode', b'DCR') == b'CRD':
        return F.pixel_shuffle(x, size)
    n, c, h, w = x.shape
    x = x.reshape(n, size, size, c // size**2, h, w)
    return x.permute(0, 3, 4, 1, 5, 2).reshape(n, -1, h * size, w * size)


OPS['SequenceAt'] = lambda a, sequence, i: sequence[int(i)]
OPS['Concat'] = lambda a, *inputs: torch.cat(inputs, a['axis'])
OPS['Transpose'] = lambda a, x: x.permute(list(a.get('perm', range(x.dim() - 1, -1, -1))))
OPS['Expand'] = lambda a, x, shape: x.expand(torch.broadcast_shapes(x.shape, integers(shape)))
OPS['Shape'] = lambda a, x: torch.tensor(list(x.shape)[a.get('start', 0):a.get('end')], dtype=torch.int64)


class Interpreter:
    """An ONNX model as torch tensors; floating-point ones in `dtype` on `device`, the others, mostly shapes, on the CPU."""

    def __init__(self, model, dtype, device='cpu'):
        if model.functions:
            raise NotImplementedError('model-local functions')
        self.graph, self.dtype, self.device = model.graph, dtype, device
        self.opset = next(o.version for o in model.opset_import if o.domain in ('', 'ai.onnx'))
        self.values = {i.name: self.tensor(i) for i in model.graph.initializer}
        self.inputs = [i.name for i in model.graph.input if i.name not in self.values]
        self.outputs = [o.name for o in model.graph.output]
        self.attributes = [{a.name: helper.get_attribute_value(a) for a in n.attribute} for n in model.graph.node]
        unknown = sorted({n.op_type for n in model.graph.node} - set(OPS) -
                         {'Constant', 'BatchNormalization', 'Dropout', 'Cast', 'ConstantOfShape'})
        if unknown:
            raise NotImplementedError('operators ' + ', '.join(unknown))
        for node, attributes in zip(model.graph.node, self.attributes):
            if node.op_type == 'Constant':
                self.values[node.output[0]] = self.constant(attributes)
            if node.op_type == 'Split' and 'num_outputs' not in attributes:
                attributes['num_outputs'] = len(node.output)
        # a file in which any node is marked for training freezes the others
        self.marked = (any(p.key == 'renaissance.batch_norm' for p in model.metadata_props)
                       or any(n.op_type == 'BatchNormalization' and self.is_marked(n, a)
                              for n, a in zip(model.graph.node, self.attributes)))

    def tensor(self, proto):
        value = torch.from_numpy(np.array(numpy_helper.to_array(proto)))
        return value.to(self.device, self.dtype) if value.is_floating_point() else value

    def constant(self, attributes):
        kind, value = next(iter(attributes.items()))
        if kind == 'value':
            return self.tensor(value)
        if kind.startswith('value_int'):
            return torch.tensor(value, dtype=torch.int64)
        return torch.tensor(value, dtype=self.dtype, device=self.device)

    def is_marked(self, node, attributes):
        return bool(attributes.get('training_mode', 0)) or (self.opset < 14 and len(node.output) == 5)

    def batch_norm(self, node, attributes, inputs, training, statistics):
        """statistics: (owner, mean or variance initializer) -> running value, read and updated.

        A module that is used twice moves its statistics twice: they belong to their initializers. An optimiser
        that merges initializers of equal value ties statistics of a fresh network to scale and bias, and to each
        other: those belong to their node, named by its first output.
        """
        merged = set(node.input[3:5]) & set(node.input[1:3])
        keys = [(node.output[0] if merged else '', name) for name in node.input[3:5]]
        mean, var = (statistics.get(key, value).detach().clone() for key, value in zip(keys, inputs[3:5]))
        training = training and (self.is_marked(node, attributes) or not self.marked)
        y = F.batch_norm(inputs[0], mean, var, inputs[1], inputs[2], training,
                         1.0 - attributes.get('momentum', 0.9), attributes.get('epsilon', 1e-5))
        statistics.update(zip(keys, (mean, var)))
        return y

    def dropout(self, attributes, inputs, training):
        """Random only when the node itself is in training mode with a ratio, as in the file."""
        ratio = float(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else attributes.get('ratio', 0.5)
        live = training and len(inputs) > 2 and inputs[2] is not None and bool(inputs[2])
        return F.dropout(inputs[0], ratio, live)

    def run(self, feeds, training, parameters=None, statistics=None):
        """The graph's outputs by name."""
        values = {**self.values, **(parameters or {}), **feeds, '': None}
        statistics = {} if statistics is None else statistics
        for node, attributes in zip(self.graph.node, self.attributes):
            kind, inputs = node.op_type, [values[name] for name in node.input]
            if kind == 'Constant':
                continue
            if kind == 'BatchNormalization':
                result = self.batch_norm(node, attributes, inputs, training, statistics)
            elif kind == 'Dropout':
                result = self.dropout(attributes, inputs, training)
            elif kind == 'Cast':
                to = TYPES.get(attributes['to'], self.dtype)
                result = inputs[0].to(self.device if to.is_floating_point else 'cpu', to)
            elif kind == 'ConstantOfShape':
                fill = (self.tensor(attributes['value']) if 'value' in attributes
                        else torch.zeros(1, dtype=self.dtype, device=self.device))
                result = torch.full(integers(inputs[0]), fill.item(), dtype=fill.dtype, device=fill.device)
            else:
                result = OPS[kind](attributes, *inputs)
            several = kind in ('Split', 'SplitToSequence')
            values.update(zip(node.output, result if several else [result]))
        return {name: values[name] for name in self.outputs}
