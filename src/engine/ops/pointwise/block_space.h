// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/shape.h"
#include "engine/pointwise/block_program.h"

namespace ren {

// How a CPU walks over the broadcast shape of some operands: dimensions that all of them treat
// alike are joined, so that what is left is `rows` (three dimensions) of `columns` each, and
// cut into blocks of whole rows, or pieces of one row where rows are long.
class BlockSpace {
 public:
  using Extents = std::array<int64_t, 4>;

  // `keep_samples`: dimension 0 stays the samples' (random numbers are drawn by sample).
  BlockSpace(const Shape& full, std::span<const Shape> operands, bool keep_samples);

  int64_t rows() const { return extent_[0] * extent_[1] * extent_[2]; }
  int64_t columns() const { return extent_[3]; }
  const Extents& extent() const { return extent_; }
  const Extents& stride(size_t operand) const { return strides_[operand]; }  // elements; 0 repeats
  bool is_full(size_t operand) const { return full_[operand]; }
  int64_t rows_per_sample() const { return rows() / samples_; }

  // Blocks: `piece` columns (all of them when one block holds a row) of `block_rows` rows.
  int64_t block_rows() const { return block_rows_; }
  int64_t piece() const { return piece_; }
  int64_t pieces() const { return (columns() + piece_ - 1) / piece_; }

  int64_t offset(size_t operand, int64_t row) const {
    const Extents& s = strides_[operand];
    return row / (extent_[1] * extent_[2]) * s[0] + row / extent_[2] % extent_[1] * s[1] +
           row % extent_[2] * s[2];
  }

 private:
  Extents extent_;
  std::vector<Extents> strides_;
  std::vector<bool> full_;
  int64_t samples_ = 1;
  int64_t block_rows_, piece_;
};

// Part of the space: `rows` rows from `row`, of each the columns [column, column + columns);
// several rows only with all columns.
struct Block {
  int64_t row, rows, column, columns;
  int count() const { return int(rows * columns); }
};

// One operand's memory.
struct BlockOperand {
  const std::byte* data = nullptr;  // nullptr: bound for its shape alone
  DType type = DType::f32;
};

// Evaluates blocks for one thread: gathers the operands, runs the program. Its scratch memory
// belongs to the caller.
class BlockEvaluator {
 public:
  // Floats of scratch that one evaluator needs.
  static size_t scratch_floats(const BlockProgram& program);

  BlockEvaluator(const BlockProgram& program, const BlockSpace& space, std::span<const BlockOperand> operands,
                 const int32_t* random_state, float* scratch);

  void begin();  // of a launch: what was gathered in the last one is forgotten
  // Output k, count() floats, goes to outputs[k]; when that is nullptr it may be anywhere until the
  // next run. Returns where they are.
  const float* const* run(const Block& block, float* const* outputs) noexcept;

 private:
  void gather(size_t operand, const Block& block);
  void gather_rows(size_t operand, const Block& block, float* target);
  void draw(size_t random, const Block& block);

  const BlockProgram& program_;
  const BlockSpace& space_;
  std::vector<BlockOperand> operands_;
  const int32_t* random_state_;
  float* scratch_;
  std::vector<float*> buffers_;  // as BlockProgram orders them
  std::vector<const float*> results_;
  std::vector<BlockProgram::Fetch> next_;  // where the operands go on
  struct Held {
    int64_t offset = -1, rows = 0;  // which row of the operand the buffer repeats, how often
  };
  std::vector<Held> held_;
};

}  // namespace ren
