// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/pointwise/block_space.h"

#include <algorithm>
#include <cstring>

#include "engine/base/half.h"
#include "engine/pointwise/vector_math.h"

namespace ren {
namespace {

// From one buffer to the next. Not a power of two: equal places of all buffers would fall into the
// same set of the first-level cache, and stores would seem to overlap loads 4 KiB away.
constexpr size_t kBufferStride = BlockProgram::kBlock + 48;

BlockSpace::Extents extents_of(const Shape& s) { return {s.n, s.h, s.w, s.c}; }

float load(const std::byte* data, DType type, int64_t index) {
  float value;
  convert_to_f32(data + index * int64_t(size_of(type)), type, &value, 1);
  return value;
}

// target[0, period) repeated until `count` floats are there.
void repeat(float* target, size_t period, size_t count) {
  for (size_t done = period; done < count;) {
    const size_t take = std::min(done, count - done);
    std::memcpy(target + done, target, take * sizeof(float));
    done += take;
  }
}

}  // namespace

BlockSpace::BlockSpace(const Shape& full, std::span<const Shape> operands, bool keep_samples) {
  const Extents whole = extents_of(full);
  const auto repeats = [&](const Shape& s, size_t d) { return extents_of(s)[d] == 1; };

  // Joins from the left: groups[g] is the extent of a run of dimensions in which every operand
  // repeats, or goes along, as one.
  struct Group {
    int64_t extent;
    std::vector<bool> repeats;
  };
  std::vector<Group> groups;
  for (size_t d = 0; d < 4; ++d) {
    std::vector<bool> pattern;
    for (const Shape& s : operands) pattern.push_back(repeats(s, d));
    if (d == 0 && keep_samples) {
      groups.push_back({whole[0], pattern});
      samples_ = whole[0];
      continue;
    }
    if (whole[d] == 1) continue;
    const bool joins =
        !groups.empty() && !(keep_samples && groups.size() == 1) && groups.back().repeats == pattern;
    if (joins)
      groups.back().extent *= whole[d];
    else
      groups.push_back({whole[d], pattern});
  }

  // The last group is the columns, those before it the rows; samples that are kept come first.
  std::array<int, 4> place{-1, -1, -1, -1};  // group of each dimension of the space
  const int count = int(groups.size()), first = keep_samples ? 1 : 0;
  if (keep_samples) place[0] = 0;
  for (int g = first; g < count; ++g) place[size_t(4 - count + g)] = g;

  for (size_t d = 0; d < 4; ++d) extent_[d] = place[d] < 0 ? 1 : groups[size_t(place[d])].extent;
  for (size_t i = 0; i < operands.size(); ++i) {
    Extents strides{};
    int64_t step = 1;
    for (size_t d = 4; d-- > 0;) {
      if (place[d] < 0 || groups[size_t(place[d])].repeats[i]) continue;
      strides[d] = step;
      step *= extent_[d];
    }
    strides_.push_back(strides);
    full_.push_back(operands[i] == full);
  }

  const int64_t columns = std::max<int64_t>(extent_[3], 1), limit = BlockProgram::kBlock;
  const int64_t pieces = (columns + limit - 1) / limit;
  piece_ = pieces == 1 ? columns : ((columns + pieces - 1) / pieces + 15) / 16 * 16;
  block_rows_ = pieces == 1 ? limit / columns : 1;
}

size_t BlockEvaluator::scratch_floats(const BlockProgram& program) {
  return size_t(program.buffers()) * kBufferStride;
}

BlockEvaluator::BlockEvaluator(const BlockProgram& program, const BlockSpace& space,
                               std::span<const BlockOperand> operands, const int32_t* random_state,
                               float* scratch)
    : program_(program),
      space_(space),
      operands_(operands.begin(), operands.end()),
      random_state_(random_state),
      scratch_(scratch),
      buffers_(size_t(program.buffers())),
      results_(size_t(program.outputs())),
      held_(operands.size()) {
  next_.reserve(operands.size());
  for (size_t i = 0; i < buffers_.size(); ++i) buffers_[i] = scratch_ + i * kBufferStride;
}

void BlockEvaluator::begin() { std::fill(held_.begin(), held_.end(), Held{}); }

const float* const* BlockEvaluator::run(const Block& block, float* const* outputs) noexcept {
  next_.clear();
  for (size_t i = 0; i < operands_.size(); ++i)
    if (operands_[i].data) gather(i, block);
  for (size_t r = 0; r < program_.randoms().size(); ++r) draw(r, block);
  const size_t first = operands_.size() + program_.randoms().size();
  for (size_t k = 0; k < results_.size(); ++k)
    buffers_[first + k] = outputs[k] ? outputs[k] : scratch_ + (first + k) * kBufferStride;
  program_.run(buffers_.data(), block.count(), next_);
  for (size_t k = 0; k < results_.size(); ++k) {
    const float* held = buffers_[size_t(program_.source(int(k)))];
    if (outputs[k] && held != outputs[k])
      std::memcpy(outputs[k], held, size_t(block.count()) * sizeof(float));
    results_[k] = outputs[k] ? outputs[k] : held;
  }
  return results_.data();
}

void BlockEvaluator::gather(size_t operand, const Block& block) {
  const BlockOperand& o = operands_[operand];
  const BlockSpace::Extents& stride = space_.stride(operand);
  float* scratch = scratch_ + operand * kBufferStride;
  // Contiguous: read where it lies, or converted.
  if (space_.is_full(operand) || (block.rows == 1 && stride[3] == 1)) {
    const int64_t offset = space_.offset(operand, block.row) + block.column;
    const std::byte* source = o.data + offset * int64_t(size_of(o.type));
    const int64_t bytes = int64_t(block.count()) * int64_t(size_of(o.type));
    if (space_.is_full(operand)) next_.push_back({source + bytes, bytes});
    if (o.type == DType::f32) {
      buffers_[operand] = const_cast<float*>(reinterpret_cast<const float*>(source));
    } else {
      convert_to_f32(source, o.type, scratch, size_t(block.count()));
      buffers_[operand] = scratch;
    }
    return;
  }
  buffers_[operand] = scratch;
  // The same row for the whole block: kept from block to block.
  const int64_t per_outer = space_.extent()[1] * space_.extent()[2];
  const bool same_outer = stride[0] == 0 || block.row / per_outer == (block.row + block.rows - 1) / per_outer;
  if (stride[1] == 0 && stride[2] == 0 && same_outer) {
    const int64_t offset = space_.offset(operand, block.row);
    Held& held = held_[operand];
    if (stride[3] == 0) {
      if (held.offset != offset || held.rows * block.columns < block.count()) {
        std::fill_n(scratch, BlockProgram::kBlock, load(o.data, o.type, offset));
        held = {offset, BlockProgram::kBlock};
      }
      return;
    }
    if (held.offset == offset && held.rows >= block.rows) return;
    convert_to_f32(o.data + offset * int64_t(size_of(o.type)), o.type, scratch, size_t(block.columns));
    repeat(scratch, size_t(block.columns), size_t(block.count()));
    held = {offset, block.rows};
    return;
  }
  held_[operand] = {};
  gather_rows(operand, block, scratch);
}

void BlockEvaluator::gather_rows(size_t operand, const Block& block, float* target) {
  const BlockOperand& o = operands_[operand];
  const bool repeats = space_.stride(operand)[3] == 0;
  const int64_t inner = space_.extent()[2], step = space_.stride(operand)[2];
  for (int64_t row = block.row; row < block.row + block.rows;) {
    int64_t offset = space_.offset(operand, row) + (repeats ? 0 : block.column);
    const int64_t run = std::min(block.row + block.rows - row, inner - row % inner);
    for (int64_t r = 0; r < run; ++r, offset += step, target += block.columns) {
      if (repeats)
        std::fill_n(target, block.columns, load(o.data, o.type, offset));
      else
        convert_to_f32(o.data + offset * int64_t(size_of(o.type)), o.type, target, size_t(block.columns));
    }
    row += run;
  }
}

void BlockEvaluator::draw(size_t random, const Block& block) {
  const BlockProgram::Random& r = program_.randoms()[random];
  float* target = buffers_[operands_.size() + random];
  const int64_t per_sample = space_.rows_per_sample();
  RandomPoint point{
      {uint32_t(random_state_[0]), uint32_t(random_state_[1])}, uint32_t(random_state_[2]), 0, 0};
  for (int64_t row = block.row; row < block.row + block.rows;) {
    const int64_t sample = row / per_sample,
                  take = std::min((sample + 1) * per_sample, block.row + block.rows) - row;
    const int count = int(take * block.columns);
    point.sample = uint64_t(uint32_t(random_state_[3])) + uint64_t(sample);
    point.element = uint64_t(row % per_sample * space_.columns() + block.column);
    if (r.per_sample)
      std::fill_n(target, count, uniform_at(point, r.stream, true));
    else
      vector_uniform(point, r.stream, target, count);
    target += count;
    row += take;
  }
}

}  // namespace ren
