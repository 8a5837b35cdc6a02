// SPDX-License-Identifier: Apache-2.0
#include "engine/base/threads.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>
#include <vector>

#if defined(REN_OPENMP)
#include <omp.h>
#endif

namespace ren {
namespace {

int g_threads = 0;

int64_t boundary(int64_t count, int parts, int part) { return count * part / parts; }

// Processors' worth of time that a container may use (cgroup v2, then v1); a large number without a
// limit. More threads than that would wait for each other while none of them runs.
int container_limit() {
  double quota = -1, period = 0;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> quota >> period) {  // "max 100000" doesn't parse
  } else {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? std::max(1, int(std::ceil(quota / period))) : 1 << 20;
}

int count_hardware_threads() {
  cpu_set_t set;
  const int processors = sched_getaffinity(0, sizeof set, &set) == 0
                             ? CPU_COUNT(&set)
                             : int(std::thread::hardware_concurrency());
  return std::max(1, std::min(processors, container_limit()));
}

}  // namespace

int hardware_threads() {
  static const int count = count_hardware_threads();
  return count;
}

int compute_threads() { return g_threads > 0 ? g_threads : hardware_threads(); }

void set_compute_threads(int count) {
  g_threads = std::max(0, count);
#if defined(REN_OPENMP)
  omp_set_num_threads(compute_threads());
#endif
}

int parallel_parts(int64_t count, int64_t grain) {
  if (count <= 0) return 0;
  const int64_t pieces = (count + std::max<int64_t>(grain, 1) - 1) / std::max<int64_t>(grain, 1);
  return int(std::min<int64_t>(compute_threads(), pieces));
}

void parallel_for(int64_t count, int64_t grain, const RangeBody& body) {
  const int parts = parallel_parts(count, grain);
  if (parts <= 1) {
    if (parts == 1) body(0, 0, count);
    return;
  }
#if defined(REN_OPENMP)
#pragma omp parallel for num_threads(parts) schedule(static, 1)
  for (int part = 0; part < parts; ++part)
    body(part, boundary(count, parts, part), boundary(count, parts, part + 1));
#else
  std::vector<std::thread> threads;
  for (int part = 1; part < parts; ++part)
    threads.emplace_back(
        [&, part] { body(part, boundary(count, parts, part), boundary(count, parts, part + 1)); });
  body(0, 0, boundary(count, parts, 1));
  for (std::thread& t : threads) t.join();
#endif
}

}  // namespace ren
