// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "capi/guard.h"
#include "data/pipeline/job.h"

namespace ren::capi {

// The caller's progress function as a job's watcher.
inline data::JobWatch watch_with(ren_job_progress_fn fn, void* user) {
  using Phase = data::JobProgress::Phase;
  static_assert(int(Phase::reading_part) == REN_JOB_READING_PART && int(Phase::packing) == REN_JOB_PACKING &&
                int(Phase::verifying) == REN_JOB_VERIFYING && int(Phase::inspecting) == REN_JOB_INSPECTING);
  if (fn == nullptr) return {};
  return [fn, user](const data::JobProgress& p) {
    ren_job_progress out{};
    out.struct_size = sizeof out;
    out.phase = int32_t(p.phase);
    out.done = p.done;
    out.total = p.total;
    out.pictures_per_second = p.pictures_per_second;
    out.seconds_left = p.seconds_left;
    const std::string message = as_utf8(p.message);
    out.message = message.empty() ? nullptr : message.c_str();
    return fn(user, &out) == 0;
  };
}

}  // namespace ren::capi
