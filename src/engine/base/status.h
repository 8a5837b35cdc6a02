// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ren {

// The codes of the C API (ren_status); 0 is success and never thrown.
enum class StatusCode : int32_t {
  ok = 0,
  invalid_argument = -1,  // a caller's value is out of range, NULL or of the wrong kind
  invalid_model = -2,     // the ONNX file is damaged or contradicts itself
  unsupported = -3,       // understood, but the engine cannot do it
  not_found = -4,         // no such file, tensor, class, device ...
  io = -5,                // reading or writing failed
  invalid_data = -6,      // a data set or an image is unusable
  out_of_memory = -7,
  device = -8,         // a device, driver or library of it failed
  invalid_state = -9,  // a call that makes no sense now
  cancelled = -10,     // a stop was requested or a callback said so
  numerical = -11,     // training diverged: overflow in too many steps in a row
  internal = -12       // a fault of the engine's own
};

const char* name_of(StatusCode code);

// The one exception type of the engine. Everything before a step may throw it;
// kernels never do. The C API turns it into a status and the thread's last error.
class Error : public std::runtime_error {
 public:
  Error(StatusCode code, std::string message, std::string op = {}, std::string node = {})
      : std::runtime_error(std::move(message)), code_(code), op_(std::move(op)), node_(std::move(node)) {}

  StatusCode code() const { return code_; }
  const std::string& op() const { return op_; }
  const std::string& node() const { return node_; }

 private:
  StatusCode code_;
  std::string op_, node_;
};

template <typename... Args>
[[noreturn]] void fail(StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// A condition that only a fault in the engine itself can break.
template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw Error(StatusCode::internal, fmt::format(format, std::forward<Args>(args)...));
}

// One thing that is wrong with an input: where, what, and what to do about it.
struct Problem {
  std::string where, what, remedy;
};

// Collects what is wrong, so that a user sees everything at once.
class Problems {
 public:
  void add(std::string where, std::string what, std::string remedy = {}) {
    items_.push_back({std::move(where), std::move(what), std::move(remedy)});
  }
  bool empty() const { return items_.empty(); }
  const std::vector<Problem>& items() const { return items_; }
  std::string text() const;                                             // one line a problem
  void throw_if_any(StatusCode code, std::string_view headline) const;  // Error with the whole list

 private:
  std::vector<Problem> items_;
};

}  // namespace ren
