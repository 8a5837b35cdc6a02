// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/ops/op.h"

namespace ren {

// A kind of device, by kind. The CPU is part of this library; CUDA is a module of its own beside
// it, opened when first asked for. Throws not_found or device with the reason: no such file, what
// the dynamic linker says (a CUDA library that is missing), a module of another build.
const Backend& find_backend(DeviceKind kind);

// What `doctor` says of a kind of device: whether device `index` can be used, its name or the reason
// why not.
struct BackendReport {
  bool usable = false;
  std::string text;
};
BackendReport report_backend(DeviceKind kind, int index = 0);

// The folder of the library or program that this code is part of; modules are looked for there.
std::string module_folder();

}  // namespace ren
