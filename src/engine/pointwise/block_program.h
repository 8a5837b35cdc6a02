// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/pointwise/expression.h"

namespace ren {

// An expression made ready for a CPU: a list of vectorised loops, each over one block of
// elements that stays in the first-level cache. Its arithmetic is FP32, rounded after every
// primitive whatever is computed together, so that a value is the same number in every
// expression that it is inlined into.
class BlockProgram {
 public:
  static constexpr int kBlock = 1024;  // elements, at most

  explicit BlockProgram(const Expression& expression);

  // What run() needs buffers for, in this order: inputs, random numbers, outputs, temporaries.
  struct Random {
    uint32_t stream;
    bool per_sample;
    bool operator==(const Random&) const = default;
  };
  int inputs() const { return inputs_; }
  std::span<const Random> randoms() const { return randoms_; }
  int outputs() const { return outputs_; }
  int temporaries() const { return temporaries_; }
  int buffers() const { return inputs_ + int(randoms_.size()) + outputs_ + temporaries_; }

  // Each buffer holds `count` floats. Afterwards output k is in the buffer source(k): its own,
  // or that of the operand or other output that it merely repeats.
  // Meanwhile what `next` names is fetched into the cache, a part of it with each loop.
  struct Fetch {
    const std::byte* data;
    int64_t bytes;
  };
  void run(float* const* buffers, int count, std::span<const Fetch> next = {}) const noexcept;
  int source(int output) const { return sources_[size_t(output)]; }

  // Whether `input` is still read after `output` was written: then the two must not share memory.
  bool reads_after_write(int input, int output) const;

  enum class Loop : uint8_t;  // see block_program.cpp
  struct Step {
    Loop loop;
    int16_t target, a = -1, b = -1, c = -1;  // buffers
    float immediate[2] = {0, 0};
  };

 private:
  friend class BlockCompiler;
  int inputs_ = 0, outputs_ = 0, temporaries_ = 0;
  std::vector<Random> randoms_;
  std::vector<Step> steps_;
  std::vector<int16_t> sources_;
};

}  // namespace ren
