// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "renaissance_c.h"

namespace ren::cli {

// Where results and progress go: people's lines or JSON lines on standard output, a progress
// bar on standard error when that is a terminal. Nothing that is written goes unchecked.
class Output {
 public:
  bool json = false, quiet = false;

  void event(const nlohmann::json& value);  // one line, with --json only
  void line(const std::string& text);       // without --json and --quiet
  void result(const std::string& text);     // without --json
  void raw_json(const std::string& text);   // with --json
  void note(const std::string& text);       // on standard error, unless quiet
  void problem(const std::string& text);    // on standard error, always

  // A bar on a terminal; elsewhere a line or an event now and then. `what` begins the line.
  void progress(const std::string& what, const ren_progress& progress);
  void progress(const std::string& what, const ren_job_progress& progress);
  void end_progress();  // removes the bar

  bool failed() const { return failed_; }
  void finish();  // throws CliError when output was lost

 private:
  void write(const std::string& text);
  bool is_due(double seconds);
  void bar(const std::string& what, int64_t done, int64_t total, const std::string& numbers);

  using Clock = std::chrono::steady_clock;
  Clock::time_point last_{};
  bool bar_shown_ = false, failed_ = false, begun_ = false;
  int error_ = 0;
};

// Text for people: names in it must not steer the terminal, so control characters but line ends and tabs
// become \xNN.
std::string shown(const std::string& text);
std::string duration_text(double seconds);  // "1:02:03", "4:05"
std::string percent_text(double share);     // "81.25 %"
std::string bytes_text(double bytes);       // "1.5 GB"

}  // namespace ren::cli
