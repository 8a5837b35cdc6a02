// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/device/cuda/kernel_source.h"
#include "engine/ir/graph.h"
#include "engine/ops/pointwise/expression_attributes.h"

namespace ren::cuda {

// How an expression's operands are read at V neighbouring elements of an index space in NHWC
// order: which are vectors, which repeat, which are zero between their pixels, which are windows of
// more channels, and at what offset. Everything becomes constants of the generated lines.
class Operands {
 public:
  // Of a node's expression, or of one over the same operands; it must outlive this.
  Operands(const Graph& graph, const Node& node)
      : Operands(graph, node, node.as<ExpressionAttributes>().expression) {}
  Operands(const Graph& graph, const Node& node, const Expression& expression);

  const Shape& full() const { return full_; }
  // The largest power of two, up to `limit`, that keeps every access inside one run of neighbours.
  int widest(int limit) const;
  int natural_width() const { return natural_width_; }  // elements in 16 bytes of the narrowest operand

  // "const f16* x0, const f32* x1, const int* random_state," - each followed by a comma
  std::string parameters() const;
  // The innermost run of neighbours: operands that repeat over everything else depend on the
  // element's place in it alone.
  int64_t innermost() const { return extents_.empty() ? 1 : extents_.back(); }
  // Declarations of what operands give at the element that `index` names. A thread whose elements
  // all have the same place in the innermost run loads the `fixed` operands once.
  enum class Which { all, fixed, varying };
  std::string loads(int width, Which which = Which::all, std::string_view index = "e") const;
  // The statements of element e + v, and one text for each output.
  std::string evaluate(std::vector<std::string>& outputs) const;
  size_t fixed() const;  // how many operands are
  // The operand that is no `fixed` one, where there is just one of these.
  std::optional<size_t> only_varying() const;
  size_t count() const { return operands_.size(); }
  bool random() const { return random_; }  // the input after the operands is the random state

 private:
  struct Operand {
    DType type;
    Shape shape;  // as the node sees it; a spread one's image is smaller
    OperandView view;
    int64_t channels;              // of its tensor
    std::vector<int64_t> strides;  // by merged dimension; 0: repeats
    std::vector<int64_t> steps;    // by merged dimension; beyond 1: zero but at multiples
    bool full = false;             // as long as the index space
    bool fixed = false;            // repeats over all dimensions but the innermost
  };
  void merge_dimensions(const std::string& name);
  std::string coordinate(size_t dimension, int64_t inner, std::string_view index) const;
  std::string offset(const Operand& operand, std::string_view index) const;
  std::string guard(const Operand& operand, std::string_view index) const;

  const Expression& expression_;
  Shape full_;
  std::vector<int64_t> extents_;  // merged dimensions, outermost first
  std::vector<Operand> operands_;
  int natural_width_ = 4;
  bool random_ = false;
};

// Elements in 16 bytes, at most 8.
int elements_in_16_bytes(DType type);
// The largest power of two that divides `value`, at most `limit`.
int power_of_two_in(int64_t value, int limit);

}  // namespace ren::cuda
