// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "renaissance_c.h"

namespace ren::cli {

// Where the time of the training loader went, epoch by epoch.
class LoaderUse {
 public:
  // Since the last call; `seconds` is how long the epoch trained. Callable in a progress callback.
  void end_epoch(const ren_loader* loader, double seconds);

  nlohmann::json json() const;
  // One line when training waited for pictures more than a tenth of the epoch, else "".
  std::string bottleneck_text() const;

 private:
  ren_loader_statistics last_ = REN_LOADER_STATISTICS_INIT, epoch_ = REN_LOADER_STATISTICS_INIT;
  double seconds_ = 0;
};

}  // namespace ren::cli
