// SPDX-License-Identifier: Apache-2.0
#include "importer/operators.h"

#include <algorithm>
#include <map>

namespace ren::importer {

namespace {

const OperatorInfo kOperators[] = {
    {"Abs", import_activation, "pointwise", ""},
    {"Add", import_arithmetic, "pointwise", ""},
    {"And", import_compare, "pointwise", ""},
    {"AveragePool", import_average_pool, "average_pool", "1-D and 2-D"},
    {"BatchNormalization", import_batch_normalization, "batch_norm",
     "statistics must be tensors of the file"},
    {"Bernoulli", import_bernoulli, "pointwise", "within stochastic depth"},
    {"Cast", import_cast, "folded", "activations between floating-point types only"},
    {"CastLike", import_cast, "folded", "activations between floating-point types only"},
    {"Ceil", import_known_only, "folded", "constants only"},
    {"Celu", import_activation, "pointwise", ""},
    {"Clip", import_clip, "pointwise", "constant bounds"},
    {"Concat", import_concat, "concat", "not along the batch; rank 2 to 4"},
    {"Constant", import_constant, "folded", "no sparse or string constants"},
    {"ConstantOfShape", import_known_only, "folded", "constants only"},
    {"Conv", import_conv, "conv", "1-D and 2-D; the weight is a tensor of the file"},
    {"Div", import_arithmetic, "pointwise", ""},
    {"Dropout", import_dropout, "pointwise", "the mask output must be unused"},
    {"Elu", import_activation, "pointwise", ""},
    {"Equal", import_compare, "pointwise", ""},
    {"Erf", import_activation, "pointwise", ""},
    {"Exp", import_activation, "pointwise", ""},
    {"Expand", import_expand, "folded", "activations only where the shape stays"},
    {"Flatten", import_flatten, "folded", ""},
    {"Floor", import_known_only, "folded", "constants only"},
    {"Gather", import_gather, "slice", "activations only with evenly spaced indices"},
    {"Gelu", import_activation, "pointwise", ""},
    {"Gemm", import_gemm, "gemm", "one factor is a weight"},
    {"GlobalAveragePool", import_global_pool, "reduce", ""},
    {"GlobalMaxPool", import_global_pool, "reduce", ""},
    {"Greater", import_compare, "pointwise", ""},
    {"GreaterOrEqual", import_compare, "pointwise", ""},
    {"GroupNormalization", import_group_normalization, "group_norm", ""},
    {"HardSigmoid", import_activation, "pointwise", ""},
    {"HardSwish", import_activation, "pointwise", ""},
    {"Identity", import_identity, "folded", ""},
    {"InstanceNormalization", import_instance_normalization, "group_norm", ""},
    {"LayerNormalization", import_layer_normalization, "layer_norm",
     "the outputs mean and deviation must be unused"},
    {"LeakyRelu", import_activation, "pointwise", ""},
    {"Less", import_compare, "pointwise", ""},
    {"LessOrEqual", import_compare, "pointwise", ""},
    {"Log", import_activation, "pointwise", ""},
    {"LogSoftmax", import_softmax, "softmax", "left off where it is the model's last node"},
    {"MatMul", import_matmul, "gemm", "activation times weight matrix"},
    {"Max", import_variadic, "pointwise", ""},
    {"MaxPool", import_max_pool, "max_pool", "1-D and 2-D; the indices output must be unused"},
    {"Mean", import_variadic, "pointwise", ""},
    {"Min", import_variadic, "pointwise", ""},
    {"Mish", import_activation, "pointwise", ""},
    {"Mod", import_known_only, "folded", "constants only"},
    {"Mul", import_arithmetic, "pointwise", ""},
    {"Neg", import_activation, "pointwise", ""},
    {"Not", import_unary, "pointwise", ""},
    {"Or", import_compare, "pointwise", ""},
    {"PRelu", import_prelu, "pointwise", ""},
    {"Pad", import_pad, "pad", "constant, reflect, edge; constant pads"},
    {"Pow", import_arithmetic, "pointwise", "constant exponents: whole numbers up to 16, 0.5, -0.5"},
    {"RandomUniformLike", import_random_uniform_like, "pointwise", "within stochastic depth"},
    {"Range", import_known_only, "folded", "constants only"},
    {"Reciprocal", import_activation, "pointwise", ""},
    {"ReduceMax", import_reduce, "reduce", "not over the batch"},
    {"ReduceMean", import_reduce, "reduce", "not over the batch"},
    {"ReduceMin", import_known_only, "folded", "constants only"},
    {"ReduceProd", import_known_only, "folded", "constants only"},
    {"ReduceSum", import_reduce, "reduce", "not over the batch"},
    {"Relu", import_activation, "pointwise", ""},
    {"Reshape", import_reshape, "folded", "must not mix samples; permute where the layout demands a copy"},
    {"Round", import_known_only, "folded", "constants only"},
    {"Selu", import_activation, "pointwise", ""},
    {"SequenceAt", import_sequence_at, "folded", "of SplitToSequence"},
    {"Shape", import_shape, "folded", ""},
    {"Sigmoid", import_activation, "pointwise", ""},
    {"Size", import_shape, "folded", ""},
    {"Slice", import_slice, "slice", "not along the batch; positive steps"},
    {"Softmax", import_softmax, "softmax", "left off where it is the model's last node"},
    {"Softplus", import_activation, "pointwise", ""},
    {"Softsign", import_activation, "pointwise", ""},
    {"Split", import_split, "slice", "not along the batch"},
    {"SplitToSequence", import_split_to_sequence, "slice", "not along the batch"},
    {"Sqrt", import_activation, "pointwise", ""},
    {"Squeeze", import_squeeze, "folded", ""},
    {"Sub", import_arithmetic, "pointwise", ""},
    {"Sum", import_variadic, "pointwise", ""},
    {"Swish", import_activation, "pointwise", ""},
    {"Tanh", import_activation, "pointwise", ""},
    {"ThresholdedRelu", import_activation, "pointwise", ""},
    {"Tile", import_known_only, "folded", "constants only"},
    {"Transpose", import_transpose, "folded", "the batch stays first where an op needs it"},
    {"Unsqueeze", import_unsqueeze, "folded", ""},
    {"Where", import_where, "pointwise", ""},
    {"Xor", import_known_only, "folded", "constants only"},
};

}  // namespace

namespace {

// Where the engine has kernels for what an operator becomes. Composites (NONE) are split into
// operations that have them.
std::string kernels_of(const std::string& op) {
  static const std::map<std::string, std::string> kBackends = {
#define REN_OP(name, folder, backends) {#name, #backends},
#include "engine/ir/op_list.def"
#undef REN_OP
  };
  const auto found = kBackends.find(op);
  if (found == kBackends.end()) return "-";
  const auto statistics = kBackends.find(op + "_statistics");
  const std::string& backends =
      found->second == "NONE" && statistics != kBackends.end() ? statistics->second : found->second;
  return backends == "CPU_CUDA" ? "CPU, CUDA" : "CPU";
}

}  // namespace

std::span<const OperatorInfo> operators() { return kOperators; }

const OperatorInfo* find_operator(const std::string& name) {
  const auto found =
      std::lower_bound(std::begin(kOperators), std::end(kOperators), name,
                       [](const OperatorInfo& info, const std::string& n) { return info.name < n; });
  return found != std::end(kOperators) && found->name == name ? found : nullptr;
}

std::string operators_markdown() {
  std::string text =
      "# ONNX operators\n\n"
      "What the importer takes, written by `test_importer` from the table in `src/importer/operators.cpp`. "
      "Every operator is "
      "read in all its versions from operator set 7 on, and everything that stays in the graph has a "
      "gradient. \"Becomes\" "
      "names the engine's operation; *folded* leaves nothing at run time. Operators on constants and shapes "
      "alone are "
      "computed while importing. A model with anything else is refused with the whole list of what is in the "
      "way.\n\n"
      "| ONNX operator | becomes | kernels | limits |\n|---|---|---|---|\n";
  for (const OperatorInfo& info : kOperators)
    text += fmt::format("| {} | {} | {} | {} |\n", info.name,
                        std::string(info.becomes) == "folded" ? "*folded*" : info.becomes,
                        kernels_of(info.becomes), info.limits);
  return text;
}

}  // namespace ren::importer
