// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "data/pipeline/job.h"

namespace ren::data {

// Tells a watcher how far a job is, and how long the rest will take at the rate so far.
class JobClock {
 public:
  // `before`: pictures that are done already when the clock starts.
  JobClock(const JobWatch& watch, JobProgress::Phase phase, int64_t total, int64_t before = 0)
      : watch_(watch), before_(before), begin_(Clock::now()) {
    progress_.phase = phase;
    progress_.total = total;
    progress_.done = before;
  }

  void count() { ++progress_.done; }
  int64_t done() const { return progress_.done; }

  // False: the watcher wants the job to stop.
  bool tell() {
    if (!watch_) return true;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const auto fresh = double(progress_.done - before_);
    progress_.pictures_per_second = seconds > 0 ? fresh / seconds : 0;
    progress_.seconds_left =
        fresh > 0 ? double(progress_.total - progress_.done) / progress_.pictures_per_second : 0;
    return watch_(progress_);
  }
  bool say(const std::string& message) {
    progress_.message = message;
    const bool goes_on = tell();
    progress_.message.clear();
    return goes_on;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const JobWatch& watch_;
  JobProgress progress_;
  const int64_t before_;
  const Clock::time_point begin_;
};

}  // namespace ren::data
