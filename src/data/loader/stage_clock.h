// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace ren::data {

// What a loader thread did, in sums.
struct ThreadWork {
  int64_t pictures = 0, files = 0, bytes = 0;  // samples made, files read for them, their bytes
  int64_t read_ns = 0, decode_ns = 0, transform_ns = 0;

  void add(const ThreadWork& w) {
    pictures += w.pictures, files += w.files, bytes += w.bytes;
    read_ns += w.read_ns, decode_ns += w.decode_ns, transform_ns += w.transform_ns;
  }
};

// Charges one thread's time to the stage it is in. Entering the stage that it is in already costs nothing, a
// change one look at a clock.
class StageClock {
 public:
  // Nowhere: what passes is charged to nothing.
  void leave() { enter(nullptr); }
  void enter_read() { enter(&work_.read_ns); }
  void enter_decode() { enter(&work_.decode_ns); }
  void enter_transform() { enter(&work_.transform_ns); }
  void count_picture() { ++work_.pictures; }
  void count_file(size_t bytes) { ++work_.files, work_.bytes += int64_t(bytes); }

  // Leaves, and gives what was done since the last call.
  ThreadWork take() {
    leave();
    const ThreadWork done = work_;
    work_ = {};
    return done;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void enter(int64_t* stage) {
    if (stage == stage_) return;
    const Clock::time_point now = Clock::now();
    if (stage_ != nullptr)
      *stage_ += std::chrono::duration_cast<std::chrono::nanoseconds>(now - since_).count();
    stage_ = stage;
    since_ = now;
  }

  ThreadWork work_;
  int64_t* stage_ = nullptr;
  Clock::time_point since_{};
};

}  // namespace ren::data
