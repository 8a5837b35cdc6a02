// SPDX-License-Identifier: Apache-2.0
#include "cli/loader_use.h"

#include <fmt/format.h>

#include "cli/api.h"

namespace ren::cli {
namespace {

// Of the epoch. The first batch of a training is always waited for, and little ones need not be told.
constexpr double kWaitShare = 0.1;

ren_loader_statistics difference(const ren_loader_statistics& now, const ren_loader_statistics& before) {
  ren_loader_statistics d = now;
  d.batches -= before.batches;
  d.pictures -= before.pictures;
  d.pictures_read -= before.pictures_read;
  d.bytes_read -= before.bytes_read;
  d.read_seconds -= before.read_seconds;
  d.decode_seconds -= before.decode_seconds;
  d.transform_seconds -= before.transform_seconds;
  d.cpu_seconds -= before.cpu_seconds;
  d.wait_seconds -= before.wait_seconds;
  return d;
}

}  // namespace

void LoaderUse::end_epoch(const ren_loader* loader, double seconds) {
  ren_loader_statistics now = REN_LOADER_STATISTICS_INIT;
  check(ren_loader_get_statistics(loader, &now));
  epoch_ = difference(now, last_);
  last_ = now;
  seconds_ = seconds;
}

nlohmann::json LoaderUse::json() const {
  const ren_loader_statistics& e = epoch_;
  return {{"threads", e.threads},
          {"batches", e.batches},
          {"pictures", e.pictures},
          {"pictures_read", e.pictures_read},
          {"bytes_read", e.bytes_read},
          {"read_seconds", e.read_seconds},
          {"decode_seconds", e.decode_seconds},
          {"transform_seconds", e.transform_seconds},
          {"cpu_seconds", e.cpu_seconds},
          {"wait_seconds", e.wait_seconds}};
}

std::string LoaderUse::bottleneck_text() const {
  const ren_loader_statistics& e = epoch_;
  if (e.wait_seconds <= kWaitShare * seconds_) return {};
  const double work = e.read_seconds + e.decode_seconds + e.transform_seconds;
  const auto percent = [&](double s, double of) { return of > 0 ? 100 * s / of : 0.0; };
  return fmt::format(
      "          waited for pictures {:.0f} % of the time: {} loader thread{} spent {:.0f} % on reading, "
      "{:.0f} % "
      "on decoding, {:.0f} % on transforms",
      percent(e.wait_seconds, seconds_), e.threads, e.threads == 1 ? "" : "s", percent(e.read_seconds, work),
      percent(e.decode_seconds, work), percent(e.transform_seconds, work));
}

}  // namespace ren::cli
