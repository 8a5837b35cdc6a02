// SPDX-License-Identifier: Apache-2.0
#include "engine/base/memory.h"
#include "engine/base/status.h"
#include "engine/ops/pointwise/block_kernel.h"
#include "engine/ops/pointwise/operands.h"
#include "engine/ops/reduce/accumulate.h"
#include "engine/ops/reduce/reduce.h"

namespace ren {
namespace {

// The order in which rows are visited: all that one result needs come one after another. An
// `item` is what is finished at once: with columns that stay, the results of one piece of a row;
// else one result. Work is counted in units, a piece of one row each.
class Visit {
 public:
  Visit(const BlockSpace& space, const BlockSpace::Extents& target) : space_(space), target_(target) {
    bool reduced_before = false;
    for (size_t d = 0; d < 3; ++d) {
      const int64_t extent = space.extent()[d];
      if (target[d] != 0) {
        natural_ &= !reduced_before;
      } else {
        reduced_ *= extent;
        reduced_before |= extent > 1;
      }
    }
  }

  bool keeps_columns() const { return target_[3] != 0; }
  int64_t units() const { return space_.rows() * space_.pieces(); }
  int64_t units_per_item() const { return reduced_ * (keeps_columns() ? 1 : space_.pieces()); }
  int64_t pieces() const { return space_.pieces(); }

  // The block of at most `limit` units from unit u on; with rows cut into pieces it stays in its item.
  Block block(int64_t u, int64_t limit) const {
    const bool by_piece = keeps_columns() && pieces() > 1;
    const int64_t position = by_piece ? u / (pieces() * reduced_) * reduced_ + u % reduced_ : u / pieces();
    const int64_t piece = by_piece ? u / reduced_ % pieces() : u % pieces();
    if (by_piece) limit = std::min(limit, reduced_ - u % reduced_);
    Block b;
    b.row = row_at(position);
    b.rows = pieces() > 1 ? 1 : std::min({space_.block_rows(), limit, run_at(position)});
    b.column = piece * space_.piece();
    b.columns = std::min(space_.piece(), space_.columns() - b.column);
    return b;
  }

  // Where an item's first result lies in the target.
  int64_t target_of(int64_t item) const {
    const int64_t per_row = keeps_columns() ? pieces() : 1;
    const int64_t row = row_at(item / per_row * reduced_);
    const int64_t e2 = space_.extent()[2], e1 = space_.extent()[1];
    return row / (e1 * e2) * target_[0] + row / e2 % e1 * target_[1] + row % e2 * target_[2] +
           item % per_row * space_.piece();
  }

 private:
  int64_t row_at(int64_t position) const {
    if (natural_) return position;
    int64_t kept = position / reduced_, reduced = position % reduced_, row = 0, step = 1;
    for (size_t d = 3; d-- > 0;) {
      int64_t& index = target_[d] != 0 ? kept : reduced;
      const int64_t extent = space_.extent()[d];
      row += index % extent * step;
      index /= extent;
      step *= extent;
    }
    return row;
  }

  // Rows from `position` on that lie one behind the other in the space.
  int64_t run_at(int64_t position) const {
    if (natural_) return space_.rows() - position;
    const int64_t inner = space_.extent()[2];
    return target_[2] == 0 ? inner - position % inner : 1;
  }

  const BlockSpace& space_;
  const BlockSpace::Extents target_;
  int64_t reduced_ = 1;  // rows that make one result
  bool natural_ = true;  // visited in the order in which they lie
};

struct Layout {
  Layout(const Layout&) = delete;  // `visit` refers to `space`
  Layout(const Graph& graph, const Node& node)
      : expression(node.as<ReduceAttributes>().expression),
        program(expression),
        space(make_space(graph, node, expression)),
        visit(space, space.stride(size_t(expression.inputs))) {
    const int64_t columns = std::min(space.piece(), space.columns());
    // Narrow rows are added several at a time, so that lanes are filled; they are folded at the end.
    if (!visit.keeps_columns())
      width = 1;
    else
      width = space.pieces() > 1 ? columns : columns * std::max<int64_t>(1, 64 / columns);
  }

  static BlockSpace make_space(const Graph& graph, const Node& node, const Expression& expression) {
    std::vector<Shape> shapes = operand_shapes(graph, node, expression);
    const auto& a = node.as<ReduceAttributes>();
    const Shape full = broadcast_shapes(shapes);
    shapes.push_back({a.n ? full.n : 1, a.h ? full.h : 1, a.w ? full.w : 1, a.c ? full.c : 1});
    return BlockSpace(full, shapes, expression.uses_random());
  }

  size_t sums_per_part() const { return align_up(2 * expression.outputs.size() * size_t(width), 32); }
  size_t bytes_per_part() const {
    return BlockEvaluator::scratch_floats(program) * sizeof(float) + sums_per_part() * sizeof(double);
  }

  const Expression expression;
  const BlockProgram program;
  const BlockSpace space;
  const Visit visit;
  int64_t width;  // partial sums of one output
};

// Each part visits a contiguous range of units. An item that begins and ends in one part is stored
// by it; of the others each part keeps its share, and those are joined in the order of the parts.
class ReduceKernel final : public Kernel {
 public:
  explicit ReduceKernel(const BindContext& context)
      : layout_(context.graph, context.node),
        kind_(context.node.as<ReduceAttributes>().kind),
        parts_(size_t(context.choice.knobs.at(0))) {
    for (std::byte* output : context.outputs) outputs_.push_back(reinterpret_cast<float*>(output));
    const std::vector<BlockOperand> operands = block_operands(context, layout_.expression);
    for (size_t p = 0; p < parts_.size(); ++p) {
      std::byte* base = context.workspace + p * layout_.bytes_per_part();
      Part& part = parts_[p];
      part.open = reinterpret_cast<double*>(base);
      part.head = part.open + layout_.sums_per_part() / 2;
      part.results.assign(outputs_.size(), nullptr);
      evaluators_.emplace_back(layout_.program, layout_.space, operands,
                               random_state(context, layout_.expression),
                               reinterpret_cast<float*>(part.open + layout_.sums_per_part()));
    }
  }

  void launch() noexcept override {
    parallel_for(int64_t(parts_.size()), 1, [this](int, int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) run(size_t(part));
    });
    join();
  }

 private:
  struct Part {
    double* open;              // sums of the item at hand: per output, `width` of them
    double* head;              // what the part adds to an item that an earlier one began
    bool has_head, head_ends;  // ... and whether the item ends here
    bool has_tail;             // `open` holds an item that later parts go on with
    int64_t first_item, last_item;
    std::vector<float*> results;  // all nullptr: the evaluator keeps the values
  };

  size_t sums() const { return outputs_.size() * size_t(layout_.width); }

  void run(size_t p) {
    Part& part = parts_[p];
    const Visit& visit = layout_.visit;
    const int64_t per_item = visit.units_per_item(), units = visit.units();
    const int64_t begin = units * int64_t(p) / int64_t(parts_.size());
    const int64_t end = units * int64_t(p + 1) / int64_t(parts_.size());
    bool begun_before = begin % per_item != 0;
    part.first_item = begin / per_item;
    part.has_head = false;
    std::fill_n(part.open, sums(), identity_of(kind_));
    evaluators_[p].begin();
    for (int64_t u = begin; u < end;) {
      const Block block = visit.block(u, end - u);
      const float* const* values = evaluators_[p].run(block, part.results.data());
      for (int64_t row = 0; row < block.rows;) {  // a block may hold several items
        const int64_t rows = visit.keeps_columns() ? std::min(block.rows - row, per_item - u % per_item) : 1;
        add(part, values, row * block.columns, rows * block.columns);
        row += rows;
        u += rows;
        if (u % per_item != 0) continue;
        const int64_t item = u / per_item - 1;
        begun_before ? keep_head(part, true) : store(item, part.open);
        begun_before = false;
        std::fill_n(part.open, sums(), identity_of(kind_));
      }
    }
    part.has_tail = end % per_item != 0;
    part.last_item = part.has_tail ? end / per_item : -1;
    if (part.has_tail && begun_before) {
      keep_head(part, false);
      part.has_tail = false;
    }
  }

  void add(Part& part, const float* const* values, int64_t first, int64_t count) {
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (!outputs_[k]) continue;
      double* sums = part.open + k * size_t(layout_.width);
      if (layout_.visit.keeps_columns())
        accumulate_columns(kind_, values[k] + first, int(count), int(layout_.width), sums);
      else
        *sums = combine(kind_, *sums, accumulate_row(kind_, values[k] + first, int(count)));
    }
  }

  void keep_head(Part& part, bool ends) {
    std::copy_n(part.open, sums(), part.head);
    part.has_head = true;
    part.head_ends = ends;
  }

  void store(int64_t item, const double* open) {
    const BlockSpace& space = layout_.space;
    const int64_t target = layout_.visit.target_of(item);
    int64_t columns = 1;
    if (layout_.visit.keeps_columns())
      columns = std::min(space.piece(), space.columns() - item % layout_.visit.pieces() * space.piece());
    for (size_t k = 0; k < outputs_.size(); ++k) {
      if (!outputs_[k]) continue;
      const double* sums = open + k * size_t(layout_.width);
      for (int64_t c = 0; c < columns; ++c) {
        double result = sums[c];
        if (space.pieces() == 1)
          for (int64_t i = c + columns; i < layout_.width; i += columns)
            result = combine(kind_, result, sums[i]);
        outputs_[k][target + c] = float(result);
      }
    }
  }

  void join() {
    double* open = nullptr;  // the last part's that began an item which isn't finished
    for (Part& part : parts_) {
      if (part.has_head) {
        for (size_t i = 0; i < sums(); ++i) open[i] = combine(kind_, open[i], part.head[i]);
        if (part.head_ends) store(part.first_item, open);
      }
      if (part.has_tail) open = part.open;
    }
  }

  const Layout layout_;
  const ReduceKind kind_;
  std::vector<float*> outputs_;  // nullptr: unwanted
  std::vector<Part> parts_;
  std::vector<BlockEvaluator> evaluators_;
};

NodeChoice prepare(const PrepareContext& context) {
  if (!context.node.as<ReduceAttributes>().stored.empty())
    fail(StatusCode::unsupported, "a reduction that also stores has no kernel on CPUs");
  refuse_forms_of_gpus(context.graph, context.node);
  const Layout layout(context.graph, context.node);
  const int64_t elements = layout.space.rows() * layout.space.columns();
  // No more parts than units, so that none is empty.
  const int64_t wanted = parallel_parts(elements, kBlocksPerPart * BlockProgram::kBlock);
  const int64_t parts = std::max<int64_t>(1, std::min(wanted, layout.visit.units()));
  return {"own", uint64_t(parts) * layout.bytes_per_part(), {parts}};
}

std::unique_ptr<Kernel> bind(const BindContext& context) { return std::make_unique<ReduceKernel>(context); }

}  // namespace

const OpBackend& reduce_cpu() {
  static const OpBackend backend{prepare, bind};
  return backend;
}

}  // namespace ren
