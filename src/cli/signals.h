// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "renaissance_c.h"

namespace ren::cli {

// SIGINT and SIGTERM: while a StopScope lives, the first asks its trainer, or its job, to stop after
// the running step, the second ends the program at once with 130; else the first does.
void install_signal_handlers();
bool stop_was_requested();

// While it lives, a signal that ends the program at once says what it was doing. `what` has to outlive it.
class DoingScope {
 public:
  explicit DoingScope(const char* what);
  ~DoingScope();
  DoingScope(const DoingScope&) = delete;
  DoingScope& operator=(const DoingScope&) = delete;
};  // by a signal

class StopScope {
 public:
  explicit StopScope(ren_trainer* trainer);
  // For jobs without a trainer, whose progress callback asks stop_was_requested().
  StopScope();
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;
};

}  // namespace ren::cli
