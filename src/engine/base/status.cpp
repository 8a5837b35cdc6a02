// SPDX-License-Identifier: Apache-2.0
#include "engine/base/status.h"

#include "engine/base/shape.h"

namespace ren {

const char* name_of(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return "ok";
    case StatusCode::invalid_argument:
      return "invalid argument";
    case StatusCode::invalid_model:
      return "invalid model";
    case StatusCode::unsupported:
      return "unsupported";
    case StatusCode::not_found:
      return "not found";
    case StatusCode::io:
      return "input/output error";
    case StatusCode::invalid_data:
      return "invalid data";
    case StatusCode::out_of_memory:
      return "out of memory";
    case StatusCode::device:
      return "device error";
    case StatusCode::invalid_state:
      return "invalid state";
    case StatusCode::cancelled:
      return "cancelled";
    case StatusCode::numerical:
      return "numerical failure";
    case StatusCode::internal:
      return "internal error";
  }
  return "unknown status";
}

std::string Problems::text() const {
  std::string out;
  for (const Problem& p : items_) {
    if (!out.empty()) out += '\n';
    out += fmt::format("  {}: {}", p.where, p.what);
    if (!p.remedy.empty()) out += fmt::format(" -> {}", p.remedy);
  }
  return out;
}

void Problems::throw_if_any(StatusCode code, std::string_view headline) const {
  if (items_.empty()) return;
  const char* noun = items_.size() == 1 ? "problem" : "problems";
  throw Error(code, fmt::format("{} ({} {}):\n{}", headline, items_.size(), noun, text()));
}

std::string to_string(const Shape& s) { return fmt::format("[{},{},{},{}]", s.n, s.h, s.w, s.c); }

}  // namespace ren
