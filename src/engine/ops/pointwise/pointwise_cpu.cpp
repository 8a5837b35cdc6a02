// SPDX-License-Identifier: Apache-2.0
#include "engine/base/half.h"
#include "engine/base/status.h"
#include "engine/ops/pointwise/block_kernel.h"
#include "engine/ops/pointwise/operands.h"
#include "engine/ops/pointwise/pointwise.h"

namespace ren {
namespace {

BlockSpace space_of(const Graph& graph, const Node& node, const Expression& expression) {
  const std::vector<Shape> shapes = operand_shapes(graph, node, expression);
  return BlockSpace(broadcast_shapes(shapes), shapes, expression.uses_random());
}

int64_t block_count(const BlockSpace& space) {
  return space.pieces() * ((space.rows() + space.block_rows() - 1) / space.block_rows());
}

// One output's memory; `direct` when blocks are computed where they belong.
struct Target {
  std::byte* data;  // nullptr: unwanted
  DType type;
  bool direct;
};

class PointwiseKernel final : public Kernel {
 public:
  explicit PointwiseKernel(const BindContext& context)
      : expression_(context.node.as<PointwiseAttributes>().expression),
        program_(expression_),
        space_(space_of(context.graph, context.node, expression_)),
        blocks_(block_count(space_)),
        parts_(context.choice.knobs.at(0)) {
    const std::vector<BlockOperand> operands = block_operands(context, expression_);
    for (size_t k = 0; k < context.outputs.size(); ++k) targets_.push_back(target(context, operands, k));
    const size_t floats = BlockEvaluator::scratch_floats(program_);
    for (int64_t p = 0; p < parts_; ++p) {
      float* scratch = reinterpret_cast<float*>(context.workspace) + size_t(p) * floats;
      evaluators_.emplace_back(program_, space_, operands, random_state(context, expression_), scratch);
      outputs_.emplace_back(targets_.size(), nullptr);
    }
  }

  void launch() noexcept override {
    parallel_for(parts_, 1, [this](int, int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) run(part);
    });
  }

 private:
  static Target target(const BindContext& context, const std::vector<BlockOperand>& operands, size_t k) {
    const TensorId id = context.node.outputs[k];
    if (id == kNoTensor) return {nullptr, DType::f32, false};
    const DType type = context.graph.at(id).dtype;
    return {context.outputs[k], type, type == DType::f32 && !is_read_later(context, operands, k)};
  }

  // In place: an output that holds an operand's bytes is stored after the block's last read of it.
  static bool is_read_later(const BindContext& context, const std::vector<BlockOperand>& operands, size_t k) {
    const Expression& expression = context.node.as<PointwiseAttributes>().expression;
    const BlockProgram program(expression);
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i].data == context.outputs[k] && program.reads_after_write(int(i), int(k))) return true;
    return false;
  }

  void run(int64_t part) {
    BlockEvaluator& evaluator = evaluators_[size_t(part)];
    evaluator.begin();
    const int64_t last = blocks_ * (part + 1) / parts_, pieces = space_.pieces();
    for (int64_t i = blocks_ * part / parts_; i < last; ++i) {
      Block block;
      block.row = i / pieces * space_.block_rows();
      block.rows = std::min(space_.block_rows(), space_.rows() - block.row);
      block.column = i % pieces * space_.piece();
      block.columns = std::min(space_.piece(), space_.columns() - block.column);
      run_block(evaluator, block, outputs_[size_t(part)]);
    }
  }

  void run_block(BlockEvaluator& evaluator, const Block& block, std::vector<float*>& outputs) {
    const int64_t element = block.row * space_.columns() + block.column;
    for (size_t k = 0; k < targets_.size(); ++k)
      outputs[k] = targets_[k].direct ? reinterpret_cast<float*>(targets_[k].data) + element : nullptr;
    const float* const* results = evaluator.run(block, outputs.data());
    for (size_t k = 0; k < targets_.size(); ++k) {
      const Target& t = targets_[k];
      if (t.data && !t.direct)
        convert_from_f32(results[k], t.type, t.data + element * int64_t(size_of(t.type)),
                         size_t(block.count()));
    }
  }

  const Expression expression_;
  const BlockProgram program_;
  const BlockSpace space_;
  const int64_t blocks_, parts_;
  std::vector<Target> targets_;
  std::vector<BlockEvaluator> evaluators_;
  std::vector<std::vector<float*>> outputs_;  // of each part
};

NodeChoice prepare(const PrepareContext& context) {
  refuse_forms_of_gpus(context.graph, context.node);
  const Expression& expression = context.node.as<PointwiseAttributes>().expression;
  const BlockSpace space = space_of(context.graph, context.node, expression);
  const int64_t parts = std::max(1, parallel_parts(block_count(space), kBlocksPerPart));
  const BlockProgram program(expression);
  return {"own", uint64_t(parts) * BlockEvaluator::scratch_floats(program) * sizeof(float), {parts}};
}

std::unique_ptr<Kernel> bind(const BindContext& context) {
  return std::make_unique<PointwiseKernel>(context);
}

}  // namespace

const OpBackend& pointwise_cpu() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
