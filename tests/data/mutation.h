// SPDX-License-Identifier: Apache-2.0
// Damaged input of every kind must come to a result or to an Error with a text: no crash, no hang. Under the
// sanitizers these tests are a small fuzzer without a corpus that grows.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "engine/base/rng.h"
#include "engine/base/status.h"

namespace ren::data::test {

// Changes any bytes: single ones, numbers, bits; cuts, drops, doubles, or copies a stretch over another.
std::string mutate(std::string bytes, RandomStream& random);
// Changes what a JPEG file is made of: segments are doubled, dropped, swapped, taken from `other`, get other
// lengths, markers or contents; markers appear in the middle of them.
std::string mutate_jpeg(const std::string& bytes, const std::string& other, RandomStream& random);
// The same with the chunks of a PNG file, whose checksums are right; or other rows than the header tells.
std::string mutate_png(const std::string& bytes, const std::string& other, RandomStream& random);

// RENAISSANCE_MUTATIONS=N, for long runs: N times as many inputs, and what they were is printed.
uint64_t mutation_factor();

// Ends the program, naming the run, when one takes too long: nothing else would tell a hang from a slow
// machine.
class Watchdog {
 public:
  static constexpr unsigned kSeconds =
      30;  // of the clock; the slowest of 100,000 takes 0.02 s under the sanitizers

  Watchdog(uint32_t purpose, uint64_t run, unsigned seconds = kSeconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
};

struct Survived {
  int64_t good = 0, refused = 0;
};
void tell_survived(const Survived& seen, double slowest_seconds);

// Runs body(i, random) for i from 0 to count - 1, with random numbers that depend on `purpose` and i alone,
// and expects more than `good` results and more than `refused` errors, so that neither is all there is.
template <typename Body>
void expect_survives(uint64_t count, uint32_t purpose, const Survived& more_than, Body&& body) {
  using Clock = std::chrono::steady_clock;
  Survived seen;
  Clock::duration slowest{};
  for (uint64_t i = 0; i < count * mutation_factor(); ++i) {
    RandomStream random(3, purpose, i);
    const Watchdog watchdog(purpose, i);
    const auto begin = Clock::now();
    try {
      body(i, random);
      ++seen.good;
    } catch (const Error& error) {
      ASSERT_STRNE(error.what(), "") << "run " << i;
      ++seen.refused;
    }
    slowest = std::max(slowest, Clock::now() - begin);
    if (::testing::Test::HasFatalFailure()) return;
  }
  tell_survived(seen, std::chrono::duration<double>(slowest).count());
  EXPECT_GT(seen.good, more_than.good);
  EXPECT_GT(seen.refused, more_than.refused);
}

}  // namespace ren::data::test
