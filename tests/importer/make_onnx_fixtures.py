#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/fixtures/onnx: small ONNX models, one a form of an operator that exporters write, and
expected.safetensors with an input and the outputs that ONNX Runtime (or PyTorch, where the two
differ and the engine follows PyTorch) computes for them in inference mode.

Needs onnx, onnxruntime, torch, safetensors. Run from anywhere: make_onnx_fixtures.py
"""
import pathlib

import numpy as np
import onnx
import onnxruntime
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

OUT = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "onnx"
N = 3
expected = {}
IR = {7: 3, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 17: 8, 18: 8, 20: 9, 21: 10}


def rng(name):
    return np.random.default_rng(abs(hash_of(name)) % 2**32)


def hash_of(name):
    h = 2166136261
    for c in name.encode():
        h = (h ^ c) * 16777619 % 2**32
    return h


def w(name, *shape, scale=0.5):
    return (rng(name).standard_normal(shape) * scale).astype(np.float32)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(",") if isinstance(inputs, str) else inputs,
                            outputs.split(",") if isinstance(outputs, str) else outputs,
                            name=f"{op}_{outputs.split(',')[0]}", **attributes)


def case(name, opset, shape, nodes, tensors, out="y", reference=None, dynamic=True, out_rank=None):
    """tensors: {name: array}; reference: function of the input as a torch tensor, instead of ONNX Runtime."""
    x = rng(name + "/x").standard_normal((N, *shape)).astype(np.float32)
    dims = ["batch" if dynamic else N, *shape]
    rank = out_rank or 1 + len(shape)
    graph = helper.make_graph(
        nodes, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info(out, TensorProto.FLOAT, [f"o{i}" for i in range(rank)])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in tensors.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR[opset],
                              producer_name="fixtures")
    if IR[opset] < 4:
        for k, v in tensors.items():
            t = numpy_helper.from_array(np.asarray(v), k)
            graph.input.append(helper.make_tensor_value_info(k, t.data_type, t.dims))
        model.graph.CopyFrom(graph)
    onnx.save(model, OUT / f"{name}.onnx")
    if reference is None:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        y = session.run([out], {"x": x})[0]
    else:
        y = reference(torch.from_numpy(x).double()).float().numpy()
    expected[f"{name}/x"] = x
    expected[f"{name}/{out}"] = np.ascontiguousarray(y)


def i64(*v):
    return np.array(v, np.int64)


def f32(v):
    return np.array(v, np.float32)


def convolutions():
    c = {"w": w("w", 4, 3, 3, 3), "b": w("b", 4)}
    case("conv_same_upper_s2", 11, (3, 7, 5), [node("Conv", "x,w,b", "y", auto_pad="SAME_UPPER", strides=[2, 2])], c)
    for mode in ("SAME_UPPER", "SAME_LOWER"):
        case(f"conv_even_{mode.lower()}", 11, (3, 5, 5), [node("Conv", "x,w", "y", auto_pad=mode)], {"w": w("e", 4, 3, 4, 4)})
    case("conv_valid", 11, (3, 6, 6), [node("Conv", "x,w,b", "y", auto_pad="VALID")], c)
    case("conv_asymmetric", 11, (3, 6, 6), [node("Conv", "x,w,b", "y", pads=[0, 0, 1, 1], strides=[2, 2])], c)
    case("conv_group2", 11, (6, 5, 5), [node("Conv", "x,w", "y", group=2, pads=[1, 1, 1, 1])], {"w": w("g", 4, 3, 3, 3)})
    case("conv_depthwise_x2", 11, (4, 5, 5), [node("Conv", "x,w", "y", group=4, dilations=[2, 2], pads=[2, 2, 2, 2])],
         {"w": w("d", 8, 1, 3, 3)})
    case("conv_1d", 11, (3, 9), [node("Conv", "x,w,b", "y", pads=[1, 1], strides=[2])], {"w": w("1d", 4, 3, 3), "b": c["b"]})
    case("conv_weight_constant", 13, (3, 6, 6),
         [node("Constant", [], "w", value=numpy_helper.from_array(c["w"])), node("Conv", "x,w", "y")], {})
    flat = helper.make_tensor("t", TensorProto.FLOAT, (4, 3, 3, 3), c["w"].ravel().tolist())
    case("conv_weight_float_data", 13, (3, 6, 6), [node("Constant", [], "w", value=flat), node("Conv", "x,w", "y")], {})
    case("conv_zero_bias_expand", 20, (3, 6, 6),
         [node("Constant", [], "zero", value=numpy_helper.from_array(f32(0))), node("Shape", "w", "n", start=0, end=1),
          node("CastLike", "zero,x", "z"), node("Expand", "z,n", "b"), node("Conv", "x,w,b", "y")], {"w": c["w"]})
    case("conv_weight_transposed", 13, (3, 6, 6),
         [node("Transpose", "t", "w", perm=[3, 0, 1, 2]), node("Conv", "x,w", "y")], {"t": w("t", 3, 3, 3, 4)})


def products():
    for trans_b in (0, 1):
        b = {"w": w("gw", 5, 6) if trans_b else w("gw", 6, 5)}
        for form, c in {"none": None, "scalar": f32(0.5), "one": f32([0.5]), "n": w("gc", 5), "1n": w("gc", 1, 5)}.items():
            for alpha, beta in ((1.0, 1.0), (0.5, 2.0)):
                t = dict(b) | ({} if c is None else {"c": c})
                case(f"gemm_t{trans_b}_{form}_{alpha}", 13, (6,),
                     [node("Gemm", "x,w" + ("" if c is None else ",c"), "y", transB=trans_b, alpha=alpha, beta=beta)], t)
    case("gemm_defaults", 11, (6,), [node("Gemm", "x,w", "y")], {"w": w("gd", 6, 4)})
    case("gemm_flatten", 13, (3, 4, 5), [node("Flatten", "x", "f"), node("Gemm", "f,w,b", "y", transB=1)],
         {"w": w("gf", 7, 60), "b": w("gfb", 7)}, out_rank=2)
    case("gemm_flatten_axis_negative", 13, (3, 4, 5), [node("Flatten", "x", "f", axis=-3), node("Gemm", "f,w", "y")],
         {"w": w("gf2", 60, 7)}, out_rank=2)
    case("matmul_reshaped_weight", 13, (3, 4, 5),
         [node("Reshape", "x,s", "f"), node("Reshape", "v,s2", "w"), node("MatMul", "f,w", "p"), node("Add", "p,b", "y")],
         {"v": w("mr", 3, 4, 5, 7), "s": i64(-1, 60), "s2": i64(60, 7), "b": w("mrb", 1, 7)}, out_rank=2)
    case("matmul_transposed", 17, (3, 4, 5),
         [node("Transpose", "w", "wt", perm=[1, 0]), node("Transpose", "x", "t", perm=[0, 2, 3, 1]), node("MatMul", "t,wt", "p"),
          node("Add", "b,p", "q"), node("Transpose", "q", "y", perm=[0, 3, 1, 2])], {"w": w("mt", 6, 3), "b": w("mtb", 6)})
    case("matmul_last_axis", 17, (3, 4, 5), [node("MatMul", "x,w", "y")], {"w": w("ml", 5, 6)})


def pools():
    k = {"kernel_shape": [3, 3], "strides": [2, 2]}
    case("max_pool_asymmetric", 12, (3, 7, 7), [node("MaxPool", "x", "y", pads=[0, 0, 1, 1], **k)], {})
    case("max_pool_dilated", 12, (3, 9, 9), [node("MaxPool", "x", "y", kernel_shape=[2, 2], dilations=[2, 2])], {})
    case("max_pool_ceil", 12, (3, 6, 6), [node("MaxPool", "x", "y", ceil_mode=1, **k)], {},
         reference=lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True))
    case("average_pool_ceil_pad", 12, (2, 2, 2),
         [node("AveragePool", "x", "y", kernel_shape=[3, 3], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1, count_include_pad=1)], {},
         reference=lambda x: F.avg_pool2d(x, 3, 3, 1, ceil_mode=True))
    case("average_pool_ceil_9", 12, (2, 9, 9),
         [node("AveragePool", "x", "y", kernel_shape=[4, 4], strides=[4, 4], pads=[2, 2, 2, 2], ceil_mode=1, count_include_pad=1)], {},
         reference=lambda x: F.avg_pool2d(x, 4, 4, 2, ceil_mode=True))
    case("average_pool_exclude", 11, (2, 6, 6), [node("AveragePool", "x", "y", pads=[1, 1, 1, 1], **k)], {})
    case("average_pool_1d", 11, (2, 12), [node("AveragePool", "x", "y", kernel_shape=[7], strides=[3], pads=[3, 3], count_include_pad=1)], {})
    case("average_pool_same", 11, (2, 6, 5), [node("AveragePool", "x", "y", auto_pad="SAME_UPPER", **k)], {})
    case("global_max", 11, (3, 4, 5), [node("GlobalMaxPool", "x", "y")], {})
    case("global_average", 11, (3, 4, 5), [node("GlobalAveragePool", "x", "y")], {})
    case("reduce_mean_13", 13, (3, 4, 5), [node("ReduceMean", "x", "y", axes=[2, 3], keepdims=0)], {}, out_rank=2)
    case("reduce_mean_18", 18, (3, 4, 5), [node("ReduceMean", "x,a", "y", keepdims=1)], {"a": i64(-1, -2)})
    case("reduce_mean_channels", 18, (3, 4, 5), [node("ReduceMean", "x,a", "y", keepdims=1)], {"a": i64(1)})
    case("reduce_max_rows", 18, (3, 4, 5), [node("ReduceMax", "x,a", "y", keepdims=0)], {"a": i64(2)}, out_rank=3)


def norms():
    bn = {"s": w("bs", 3) + 1, "b": w("bb", 3), "m": w("bm", 3), "v": np.abs(w("bv", 3)) + 0.5}
    for opset in (7, 9, 14):
        case(f"bn_{opset}", opset, (3, 4, 5), [node("BatchNormalization", "x,s,b,m,v", "y", epsilon=1e-3)], bn)
    case("bn_2d", 13, (3,), [node("BatchNormalization", "x,s,b,m,v", "y")], bn)
    flat = {k: np.resize(v, 60) + 0.01 * np.arange(60, dtype=np.float32) for k, v in bn.items()}
    case("bn_flattened", 13, (3, 4, 5), [node("Flatten", "x", "f"), node("BatchNormalization", "f,s,b,m,v", "y")], flat, out_rank=2)
    case("bn_between_transposes", 13, (4, 5, 3),
         [node("Transpose", "x", "t", perm=[0, 3, 1, 2]), node("BatchNormalization", "t,s,b,m,v", "u"),
          node("Transpose", "u", "y", perm=[0, 2, 3, 1])], bn)
    case("layer_norm_17", 17, (3, 4, 5), [node("LayerNormalization", "x,s,b", "y", axis=-1)], {"s": w("ls", 5), "b": w("lb", 5)})
    case("layer_norm_all", 17, (3, 4, 5), [node("LayerNormalization", "x,s", "y", axis=1)], {"s": w("la", 3, 4, 5)})
    case("layer_norm_channels_last", 17, (3, 4, 5),
         [node("Transpose", "x", "t", perm=[0, 2, 3, 1]), node("LayerNormalization", "t,s,b", "u"),
          node("Transpose", "u", "y", perm=[0, 3, 1, 2])], {"s": w("ls3", 3), "b": w("lb3", 3)})
    parts = [node("ReduceMean", "x", "m", axes=[-1], keepdims=1), node("Sub", "x,m", "d"), node("Pow", "d,two", "p"),
             node("ReduceMean", "p", "v", axes=[-1], keepdims=1), node("Add", "v,eps", "e"), node("Sqrt", "e", "r"),
             node("Div", "d,r", "n"), node("Mul", "n,s", "k"), node("Add", "k,b", "y")]
    case("layer_norm_decomposed", 13, (3, 4, 5), parts,
         {"two": f32(2), "eps": f32(1e-5), "s": w("ds", 5), "b": w("db", 5)})
    case("instance_norm", 13, (3, 4, 5), [node("InstanceNormalization", "x,s,b", "y")], {"s": bn["s"], "b": bn["b"]})
    case("group_norm_18", 18, (4, 3, 5), [node("GroupNormalization", "x,s,b", "y", num_groups=2)],
         {"s": w("g18s", 2), "b": w("g18b", 2)},
         reference=lambda x: F.group_norm(x, 2) * torch.tensor(np.repeat(w("g18s", 2), 2)).double()[:, None, None]
         + torch.tensor(np.repeat(w("g18b", 2), 2)).double()[:, None, None])
    case("group_norm_21", 21, (4, 3, 5), [node("GroupNormalization", "x,s,b", "y", num_groups=2)],
         {"s": w("g21s", 4), "b": w("g21b", 4)},
         reference=lambda x: F.group_norm(x, 2, torch.tensor(w("g21s", 4)).double(), torch.tensor(w("g21b", 4)).double()))
    case("group_norm_decomposed", 13, (4, 3, 5),
         [node("Reshape", "x,s1", "r"), node("InstanceNormalization", "r,ones,zeros", "i"), node("Shape", "x", "sh"),
          node("Reshape", "i,sh", "b1"), node("Mul", "b1,gamma", "m"), node("Add", "m,beta", "y")],
         {"s1": i64(0, 2, -1), "ones": np.ones(2, np.float32), "zeros": np.zeros(2, np.float32),
          "gamma": w("dg", 4, 1, 1), "beta": w("dgb", 4, 1, 1)})


def elementwise():
    for op, attributes, opset in [
            ("Relu", {}, 13), ("LeakyRelu", {"alpha": 0.2}, 13), ("LeakyRelu", {}, 13), ("Elu", {}, 13), ("Elu", {"alpha": 0.5}, 13),
            ("Selu", {}, 13), ("Celu", {"alpha": 2.0}, 13), ("Sigmoid", {}, 13), ("HardSigmoid", {}, 13),
            ("HardSigmoid", {"alpha": 1 / 6}, 13), ("HardSwish", {}, 14), ("Tanh", {}, 13), ("Softplus", {}, 13), ("Softsign", {}, 13),
            ("Mish", {}, 18), ("Gelu", {}, 20), ("Gelu", {"approximate": "tanh"}, 20), ("ThresholdedRelu", {"alpha": 0.5}, 13)]:
        tag = "_".join(str(v).replace(".", "")[:5] for v in attributes.values()) or "plain"
        case(f"act_{op.lower()}_{tag}", opset, (3, 4, 5), [node("Mul", "x,three", "z"), node(op, "z", "y", **attributes)], {"three": f32(3)})
    case("hard_swish_parts", 13, (3, 4, 5),
         [node("Add", "x,three", "a"), node("Clip", "a,zero,six", "c"), node("Div", "c,six", "d"), node("Mul", "x,d", "y")],
         {"three": f32(3), "zero": f32(0), "six": f32(6)})
    case("relu6_min_max", 13, (3, 4, 5), [node("Max", "x,lo", "a"), node("Min", "a,hi", "y")], {"lo": f32(0), "hi": f32(0.7)})
    case("clip_6", 9, (3, 4, 5), [node("Clip", "x", "y", min=-0.5, max=0.5)], {})
    case("clip_empty_low", 13, (3, 4, 5), [node("Clip", ["x", "", "hi"], "y")], {"hi": f32(0.25)})
    case("clip_low_only", 13, (3, 4, 5), [node("Clip", "x,lo", "y")], {"lo": f32(-0.25)})
    case("prelu_channel", 13, (3, 4, 5), [node("PRelu", "x,s", "y")], {"s": w("ps", 3, 1, 1)})
    case("prelu_one", 13, (3, 4, 5), [node("PRelu", "x,s", "y")], {"s": f32([0.3])})
    case("pow_3", 13, (3, 4, 5), [node("Pow", "x,p", "y")], {"p": f32(3)})
    case("sum_three", 13, (3, 4, 5), [node("Sum", "x,x,c", "y")], {"c": w("s3", 1, 3, 1, 1)})
    case("se_gate", 13, (3, 4, 5), [node("GlobalAveragePool", "x", "p"), node("Flatten", "p", "f"), node("Gemm", "f,w", "g"),
                                    node("Unsqueeze", "g,a", "u"), node("Sigmoid", "u", "s"), node("Mul", "x,s", "y")],
         {"w": w("se", 3, 3), "a": i64(2, 3)})
    case("spatial_gate", 13, (3, 4, 5), [node("ReduceMean", "x", "p", axes=[1]), node("Sigmoid", "p", "s"), node("Mul", "s,x", "y")], {})
    case("outer_product", 13, (3, 4, 5), [node("ReduceMean", "x", "p", axes=[1]), node("GlobalMaxPool", "x", "q"), node("Add", "p,q", "y")], {})
    case("scale_by_width", 13, (3, 4, 5), [node("Mul", "x,c", "y")], {"c": w("sw", 5)})
    case("scale_by_height", 13, (3, 4, 5), [node("Mul", "c,x", "y")], {"c": w("sh", 4, 1)})
    case("add_map", 13, (3, 4, 5), [node("Add", "x,c", "y")], {"c": w("am", 1, 3, 4, 5)})
    case("add_flat_bias", 13, (3, 4, 5), [node("Flatten", "x", "f"), node("Add", "f,c", "y")], {"c": w("af", 60)}, out_rank=2)
    case("where_greater", 13, (3, 4, 5), [node("Greater", "x,t", "g"), node("Exp", "x", "e"), node("Where", "g,x,e", "y")], {"t": f32(0.1)})
    case("dropout_7", 7, (3, 4, 5), [node("Dropout", "x", "d", ratio=0.5), node("Relu", "d", "y")], {})
    case("dropout_12_training", 13, (3, 4, 5), [node("Dropout", "x,r,t", "d,mask"), node("Relu", "d", "y")],
         {"r": f32(0.5), "t": np.array(True)}, reference=F.relu)
    case("log_softmax_tail", 13, (6,), [node("Gemm", "x,w", "z"), node("LogSoftmax", "z", "y")], {"w": w("lst", 6, 4)},
         reference=lambda x: x @ torch.tensor(w("lst", 6, 4)).double())
    case("softmax_inside", 13, (6,), [node("Softmax", "x", "z"), node("Gemm", "z,w", "y")], {"w": w("si", 6, 4)})
    case("softmax_11_4d", 11, (6, 1, 1), [node("Softmax", "x", "z"), node("Relu", "z", "y")], {})


def shapes():
    case("channel_shuffle", 13, (6, 3, 4),
         [node("Reshape", "x,a", "r"), node("Transpose", "r", "t", perm=[0, 2, 1, 3, 4]), node("Reshape", "t,b", "s"),
          node("Conv", "s,w", "y")], {"a": i64(-1, 2, 3, 3, 4), "b": i64(-1, 6, 3, 4), "w": w("cs", 2, 6, 1, 1)})
    case("pixel_unshuffle_parts", 13, (2, 4, 6),
         [node("Reshape", "x,a", "r"), node("Transpose", "r", "t", perm=[0, 1, 3, 5, 2, 4]), node("Reshape", "t,b", "y")],
         {"a": i64(-1, 2, 2, 2, 3, 2), "b": i64(-1, 8, 2, 3)})
    case("view_dynamic", 13, (3, 4, 5),
         [node("Shape", "x", "s"), node("Gather", "s,zero", "n", axis=0), node("Unsqueeze", "n,axis", "u"),
          node("Concat", "u,minus", "c", axis=0), node("Reshape", "x,c", "f"), node("Gemm", "f,w", "y")],
         {"zero": np.array(0, np.int64), "axis": i64(0), "minus": i64(-1), "w": w("vd", 60, 4)}, out_rank=2)
    case("view_static", 13, (3, 4, 5), [node("Reshape", "x,s", "f"), node("Gemm", "f,w", "y")],
         {"s": i64(N, 60), "w": w("vs", 60, 4)}, dynamic=False, out_rank=2)
    case("concat_channels", 13, (3, 4, 5), [node("Relu", "x", "a"), node("Concat", "x,a,x", "y", axis=1)], {})
    case("concat_width", 13, (3, 4, 5), [node("Relu", "x", "a"), node("Concat", "x,a", "y", axis=-1)], {})
    case("concat_flat", 13, (3, 4, 5), [node("Flatten", "x", "a"), node("Relu", "a", "b"), node("Concat", "a,b", "y", axis=1)], {}, out_rank=2)
    case("slice_9", 9, (6, 4, 5), [node("Slice", "x", "y", starts=[1, 1], ends=[4, 100], axes=[1, 2])], {})
    case("slice_13", 13, (6, 4, 5), [node("Slice", "x,s,e,a,t", "y")],
         {"s": i64(-5, 0), "e": i64(2**62, -1), "a": i64(1, 3), "t": i64(2, 1)})
    case("split_attribute", 11, (6, 4, 5), [node("Split", "x", "a,b", axis=1, split=[2, 4]), node("Relu", "b", "c"), node("Concat", "c,a", "y", axis=1)], {})
    case("split_18", 18, (7, 4, 5), [node("Split", "x", "a,b", axis=1, num_outputs=2), node("Concat", "b,a", "y", axis=1)], {})
    case("chunk_sequence", 13, (6, 4, 5),
         [node("SplitToSequence", "x,n", "q", axis=1), node("SequenceAt", "q,one", "b"), node("SequenceAt", "q,zero", "a"), node("Concat", "b,a", "y", axis=1)],
         {"n": np.array(3, np.int64), "zero": np.array(0, np.int64), "one": np.array(1, np.int64)})
    for mode in ("constant", "reflect", "edge"):
        case(f"pad_{mode}", 13, (3, 4, 5), [node("Pad", "x,p", "y", mode=mode)], {"p": i64(0, 0, 1, 2, 0, 0, 3, 0)})
    case("pad_value_9", 9, (3, 4, 5), [node("Pad", "x", "y", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=1.5)], {})
    case("pad_crop", 13, (3, 4, 5), [node("Pad", "x,p", "y")], {"p": i64(0, 0, -1, 1, 0, 0, 0, -2)})
    case("pad_channels", 13, (3, 4, 5), [node("Pad", ["x", "p", ""], "y")], {"p": i64(0, 1, 0, 0, 0, 2, 0, 0)})
    case("squeeze_11", 11, (3, 4, 5), [node("GlobalAveragePool", "x", "p"), node("Squeeze", "p", "y", axes=[2, 3])], {}, out_rank=2)
    case("squeeze_13", 13, (3, 4, 5), [node("GlobalAveragePool", "x", "p"), node("Squeeze", "p,a", "y")], {"a": i64(-1, -2)}, out_rank=2)
    case("input_channels_last", 13, (4, 5, 3), [node("Transpose", "x", "t", perm=[0, 3, 1, 2]), node("Conv", "t,w", "y")], {"w": w("cl", 2, 3, 3, 3)})
    case("gather_run", 13, (6, 4, 5), [node("Gather", "x,i", "y", axis=1)], {"i": i64(1, 3, 5)})
    case("gather_one", 13, (6, 4, 5), [node("Gather", "x,i", "y", axis=3)], {"i": np.array(-1, np.int64)}, out_rank=3)
    case("shape_arithmetic", 13, (6, 4, 5),
         [node("Shape", "x", "s"), node("Gather", "s,one", "c"), node("Div", "c,four", "h"), node("Mul", "h,four", "e"), node("Unsqueeze", "e,zero1", "eu"),
          node("Slice", "x,zero1,eu,one1", "y")],
         {"one": np.array(1, np.int64), "four": np.array(4, np.int64), "zero1": i64(0), "one1": i64(1)})


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.glob("*.onnx"):
        old.unlink()
    for group in (convolutions, products, pools, norms, elementwise, shapes):
        group()
    save_file(expected, OUT / "expected.safetensors")
    print(len(expected) // 2, "models")


if __name__ == "__main__":
    main()
