// SPDX-License-Identifier: Apache-2.0
#include "capi/device.h"

#include <charconv>

#include "engine/base/status.h"
#include "engine/runtime/backends.h"

namespace ren::capi {

ChosenDevice choose_device(const std::string& name) {
  if (name == "auto") return choose_device(report_backend(DeviceKind::cuda).usable ? "cuda" : "cpu");
  ChosenDevice chosen;
  const size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  if (colon != std::string::npos) {
    const char* const last = name.data() + name.size();
    const auto [end, error] = std::from_chars(name.data() + colon + 1, last, chosen.index);
    if (error != std::errc() || end != last || chosen.index < 0)
      fail(StatusCode::invalid_argument, "device '{}' is not auto, cpu, cuda or cuda:NUMBER", name);
  }
  if (kind == "cpu") {
    if (chosen.index != 0) fail(StatusCode::not_found, "there is one CPU device, 'cpu', not '{}'", name);
    chosen.backend = &find_backend(DeviceKind::cpu);
  } else if (kind == "cuda") {
    chosen.backend = &find_backend(DeviceKind::cuda);
  } else {
    fail(StatusCode::invalid_argument, "device '{}' is not auto, cpu, cuda or cuda:NUMBER", name);
  }
  return chosen;
}

}  // namespace ren::capi
