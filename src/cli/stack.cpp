// SPDX-License-Identifier: Apache-2.0
#include "cli/stack.h"

#include <pthread.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstdio>

#include "cli/api.h"

namespace ren::cli {
namespace {

// What compilers of kernels (oneDNN's, NVIDIA's) and decoders take is theirs to decide; Linux's default of
// 8 MiB is what everything is tried with, and a stack takes only the memory that it touches.
constexpr size_t kStack = size_t{8} << 20;

struct Call {
  const std::function<int()>* program;
  int result = 0;
};

void* run_call(void* argument) {
  auto* call = static_cast<Call*>(argument);
  call->result = (*call->program)();
  return nullptr;
}

}  // namespace

int with_enough_stack(const std::function<int()>& program) {
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur >= kStack) return program();
  pthread_attr_t attributes;
  pthread_t thread;
  Call call{&program, 0};
  const bool started = pthread_attr_init(&attributes) == 0 &&
                       pthread_attr_setstacksize(&attributes, kStack) == 0 &&
                       pthread_setattr_default_np(&attributes) == 0 &&
                       pthread_create(&thread, &attributes, run_call, &call) == 0;
  if (!started) {
    std::fprintf(stderr,
                 "error: the stack may have %llu KiB only and no larger one can be made (ulimit -s)\n",
                 static_cast<unsigned long long>(limit.rlim_cur) / 1024);
    return kFailure;
  }
  pthread_attr_destroy(&attributes);
  pthread_join(thread, nullptr);
  return call.result;
}

}  // namespace ren::cli
