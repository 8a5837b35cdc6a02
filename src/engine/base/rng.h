// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace ren {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11).
// A pure function of a key and a counter: every random number of a run is keyed by
// what it is for (seed, epoch, sample or step, node), never by who draws it when.
struct Philox {
  using Counter = std::array<uint32_t, 4>;
  using Key = std::array<uint32_t, 2>;

  static constexpr Counter generate(Counter c, Key k) {
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
      c = {uint32_t(p1 >> 32) ^ c[1] ^ k[0], uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k[1], uint32_t(p0)};
      k[0] += 0x9E3779B9u;
      k[1] += 0xBB67AE85u;
    }
    return c;
  }

  // A uniform number in [0, 1) with 24 random bits, exactly representable in FP32.
  static constexpr float to_unit(uint32_t bits) { return float(bits >> 8) * (1.0f / 16777216.0f); }
};

// Draws in sequence for one keyed purpose; the sequence is fixed by the constructor's arguments.
class RandomStream {
 public:
  RandomStream(uint64_t seed, uint32_t purpose, uint64_t index, uint32_t epoch = 0)
      : key_{uint32_t(seed), uint32_t(seed >> 32)},
        counter_{0, uint32_t(index), uint32_t(index >> 32) ^ (purpose << 16), epoch} {}

  // A stream of its own with this one's arguments, the same however much was drawn here. Tags from 1 to 255
  // tell them apart: they divide the counter of blocks, of which a stream uses far fewer than 2^24.
  RandomStream fork(uint8_t tag) const {
    RandomStream other = *this;
    other.counter_[0] = uint32_t{tag} << 24;
    other.used_ = 4;
    return other;
  }

  uint32_t bits() {
    if (used_ == 4) {
      block_ = Philox::generate(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return block_[used_++];
  }
  float uniform() { return Philox::to_unit(bits()); }  // [0, 1)
  float uniform(float low, float high) { return low + (high - low) * uniform(); }
  // Uniform in 0 .. bound-1 without bias (Lemire's rejection); bound >= 1.
  uint32_t below(uint32_t bound) {
    uint64_t product = uint64_t{bits()} * bound;
    if (uint32_t(product) < bound) {
      const uint32_t threshold = (0u - bound) % bound;
      while (uint32_t(product) < threshold) product = uint64_t{bits()} * bound;
    }
    return uint32_t(product >> 32);
  }

 private:
  Philox::Key key_;
  Philox::Counter counter_;
  Philox::Counter block_{};
  int used_ = 4;
};

}  // namespace ren
