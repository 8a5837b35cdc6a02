// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace ren::cli {

// Runs the program with stacks of a usual size, whatever `ulimit -s` says: where that is less, on a thread of
// its own, and threads that are started later get as much.
int with_enough_stack(const std::function<int()>& program);

}  // namespace ren::cli
