// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace ren {

// Compute threads, shared with oneDNN through OpenMP (std::thread under TSan, where
// libgomp reports races on correct code). The data loader has threads of its own.

int hardware_threads();               // processors this process may run on
int compute_threads();                // what parallel loops use
void set_compute_threads(int count);  // 0 = hardware_threads(); before an engine is built

// A reference to a callable void(int part, int64_t begin, int64_t end); unlike std::function it
// never allocates. The callable must outlive the call it is passed to.
class RangeBody {
 public:
  template <typename F, typename = std::enable_if_t<!std::is_same_v<std::remove_cvref_t<F>, RangeBody>>>
  RangeBody(F&& body)  // NOLINT(google-explicit-constructor): made from lambdas in calls
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(body)))),
        call_([](void* object, int part, int64_t begin, int64_t end) {
          (*static_cast<std::remove_reference_t<F>*>(object))(part, begin, end);
        }) {}
  void operator()(int part, int64_t begin, int64_t end) const { call_(object_, part, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, int, int64_t, int64_t);
};

// Calls body(part, begin, end) once for each of `parts` equal, contiguous pieces of
// [0, count), parts = min(compute_threads(), ceil(count / grain)). The partition depends
// on nothing else, so results that are combined by part are repeatable bit for bit.
// The body must not throw. Allocates nothing.
void parallel_for(int64_t count, int64_t grain, const RangeBody& body);
int parallel_parts(int64_t count, int64_t grain);

}  // namespace ren
