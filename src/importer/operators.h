// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "importer/import_context.h"

namespace ren::importer {

using OpImporter = void (*)(const NodeView& node);

// One ONNX operator: the function checks and builds.
struct OperatorInfo {
  const char* name;
  OpImporter import;
  const char* becomes;  // ops of the engine; "folded" where nothing is left at run time
  const char* limits;   // for docs/operators.md; empty: all of ONNX's forms
};

std::span<const OperatorInfo> operators();
const OperatorInfo* find_operator(const std::string& name);
// docs/operators.md.
std::string operators_markdown();

// Newest versions that this importer was written for.
constexpr int64_t kNewestOpset = 28;
constexpr int64_t kNewestIr = 14;

// True when all inputs are known and the node was computed (evaluate.cpp).
bool evaluate_known(const NodeView& node);

// LayerNorm as exporters write it below opset 17, beginning with this ReduceMean; false when
// the nodes that follow are something else.
bool import_decomposed_layer_norm(const NodeView& node);
OnnxValue layer_normalise(const NodeView& node, const OnnxValue& x, int axis, const OnnxValue& scale,
                          const OnnxValue& bias, float epsilon);

#define REN_IMPORTER(function) void function(const NodeView& node);
REN_IMPORTER(import_conv)
REN_IMPORTER(import_gemm)
REN_IMPORTER(import_matmul)
REN_IMPORTER(import_batch_normalization)
REN_IMPORTER(import_layer_normalization)
REN_IMPORTER(import_instance_normalization)
REN_IMPORTER(import_group_normalization)
REN_IMPORTER(import_max_pool)
REN_IMPORTER(import_average_pool)
REN_IMPORTER(import_global_pool)
REN_IMPORTER(import_reduce)
REN_IMPORTER(import_activation)
REN_IMPORTER(import_prelu)
REN_IMPORTER(import_clip)
REN_IMPORTER(import_arithmetic)
REN_IMPORTER(import_variadic)
REN_IMPORTER(import_unary)
REN_IMPORTER(import_compare)
REN_IMPORTER(import_where)
REN_IMPORTER(import_dropout)
REN_IMPORTER(import_softmax)
REN_IMPORTER(import_cast)
REN_IMPORTER(import_identity)
REN_IMPORTER(import_constant)
REN_IMPORTER(import_shape)
REN_IMPORTER(import_reshape)
REN_IMPORTER(import_flatten)
REN_IMPORTER(import_squeeze)
REN_IMPORTER(import_unsqueeze)
REN_IMPORTER(import_transpose)
REN_IMPORTER(import_expand)
REN_IMPORTER(import_concat)
REN_IMPORTER(import_slice)
REN_IMPORTER(import_split)
REN_IMPORTER(import_split_to_sequence)
REN_IMPORTER(import_sequence_at)
REN_IMPORTER(import_pad)
REN_IMPORTER(import_gather)
REN_IMPORTER(import_random_uniform_like)
REN_IMPORTER(import_bernoulli)
REN_IMPORTER(import_with_noise)  // any node that reads random numbers
REN_IMPORTER(import_known_only)
#undef REN_IMPORTER

}  // namespace ren::importer
