// SPDX-License-Identifier: Apache-2.0
#include "cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "cli/api.h"

namespace ren::cli {
namespace {

std::atomic<ren_trainer*> running{nullptr};
std::atomic<bool> asking{false};  // a job looks at `signals` itself
std::atomic<int> signals{0};
std::atomic<const char*> doing{nullptr};

void say(const char* text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

void on_signal(int) {
  ren_trainer* const trainer = running.load();
  if (trainer == nullptr && !asking) {
    const char* const what = doing.load();
    say("\ninterrupted");
    if (what != nullptr) {
      say(" while ");
      say(what);
    }
    say("\n");
    _exit(kInterrupted);
  }
  if (signals.fetch_add(1) > 0) _exit(kInterrupted);
  if (trainer != nullptr) ren_trainer_request_stop(trainer);
  say("\nstopping after this step; once more ends at once\n");
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A reader of our output that goes away is an error of writing, not the end of a training.
  signal(SIGPIPE, SIG_IGN);
  // As is a file that may not grow further (`ulimit -f`): the result can still be written elsewhere.
  signal(SIGXFSZ, SIG_IGN);
}

bool stop_was_requested() { return signals.load() > 0; }

DoingScope::DoingScope(const char* what) { doing = what; }
DoingScope::~DoingScope() { doing = nullptr; }

StopScope::StopScope(ren_trainer* trainer) { running = trainer; }
StopScope::StopScope() { asking = true; }
StopScope::~StopScope() {
  running = nullptr;
  asking = false;
}

}  // namespace ren::cli
