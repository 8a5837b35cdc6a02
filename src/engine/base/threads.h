// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace ren {

// Compute threads, shared with oneDNN through OpenMP (std::thread under TSan, where
// libgomp reports races on correct code). The data loader has threads of its own.

int hardware_threads();                 // processors this process may run on
int compute_threads();                  // what parallel loops use
void set_compute_threads(int count);    // 0 = hardware_threads(); before an engine is built

// Calls body(part, begin, end) once for each of `parts` equal, contiguous pieces of
// [0, count), parts = min(compute_threads(), ceil(count / grain)). The partition depends
// on nothing else, so results that are combined by part are repeatable bit for bit.
// The body must not throw.
using RangeBody = std::function<void(int part, int64_t begin, int64_t end)>;
void parallel_for(int64_t count, int64_t grain, const RangeBody& body);
int parallel_parts(int64_t count, int64_t grain);

}  // namespace ren
