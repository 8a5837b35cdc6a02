// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "capi/first_size.h"
#include "engine/base/status.h"
#include "renaissance_c.h"

// What every entry point of the C API is made of: the guard that lets no exception out, handles
// that keep their content alive, and checked ways to take options and to give results.
namespace ren::capi {

// Turns the exception in flight into the thread's last error; gives back its status.
int32_t keep_current_exception() noexcept;

// Runs one entry point. The body gives nothing (REN_OK) or a status.
template <typename Body>
int32_t guard(Body&& body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return REN_OK;
    } else {
      return body();
    }
  } catch (...) {
    return keep_current_exception();
  }
}

// ---- Handles -----------------------------------------------------------------------------

// A handle owns a share of its state, and so does whatever was made from it.
template <typename State, uint64_t kMagic>
struct Handle {
  uint64_t magic = kMagic;  // another kind of handle, passed by mistake, has another
  std::shared_ptr<State> state;

  bool is_valid() const { return magic == kMagic && state != nullptr; }
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { magic = 0; }
};

template <typename H>
auto& state_of(H* handle, const char* what) {
  if (handle == nullptr) fail(StatusCode::invalid_argument, "the {} handle is NULL", what);
  if (!handle->is_valid())
    fail(StatusCode::invalid_argument, "this is not a {} handle, or it was destroyed", what);
  return handle->state;
}

template <typename H, typename State>
void give_handle(H** out, std::shared_ptr<State> state) {
  auto handle = std::make_unique<H>();
  handle->state = std::move(state);
  *out = handle.release();
}

// NULL is fine; a handle of another kind is left alone.
template <typename H>
void destroy_handle(H* handle) noexcept {
  if (handle != nullptr && handle->is_valid()) delete handle;
}

// Who is inside a call of a handle that takes one at a time.
struct UseFlag {
  std::atomic<std::thread::id> user{};
  bool is_mine() const { return user.load() == std::this_thread::get_id(); }
};

// Held by each such call. A second call is refused: what would come of it nobody could tell.
class InUse {
 public:
  InUse(UseFlag& flag, const char* what) : flag_(flag) {
    std::thread::id nobody;
    if (!flag.user.compare_exchange_strong(nobody, std::this_thread::get_id()))
      fail(StatusCode::invalid_state, "the {} is in use by another call{}: it takes one at a time", what,
           flag.is_mine() ? " of this thread" : "");
  }
  ~InUse() { flag_.user = std::thread::id(); }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  UseFlag& flag_;
};

template <typename T>
T* not_null(T* pointer, const char* what) {
  if (pointer == nullptr) fail(StatusCode::invalid_argument, "{} is NULL", what);
  return pointer;
}

// ---- Structs with a size -----------------------------------------------------------------

constexpr uint32_t kLargestStruct = 1 << 16;  // a size beyond it was never set

template <typename T>
void check_size(const T* given, const char* what) {
  if (given->struct_size < first_size<T> || given->struct_size > kLargestStruct)
    fail(StatusCode::invalid_argument, "{}.struct_size is {}: begin with its _INIT macro", what,
         given->struct_size);
}

// The caller's options, or all defaults. What an older caller lacks is zero; what a newer one
// has beyond this library's knowledge must be zero.
template <typename T>
T read_options(const T* given, const char* what) {
  T options{};
  options.struct_size = sizeof(T);
  if (given == nullptr) return options;
  check_size(given, what);
  const size_t known = given->struct_size < sizeof(T) ? given->struct_size : sizeof(T);
  std::memcpy(&options, given, known);
  const char* bytes = reinterpret_cast<const char*>(given);
  for (size_t i = known; i < given->struct_size; ++i)
    if (bytes[i] != 0)
      fail(StatusCode::unsupported, "{} has an option that this version of the library doesn't know", what);
  if constexpr (requires { options.reserved0; })
    if (options.reserved0 != 0)
      fail(StatusCode::unsupported, "{}: reserved0 is {}; this version of the library takes 0", what,
           options.reserved0);
  options.struct_size = sizeof(T);
  return options;
}

// Before any work: can a result be given into it? optional: NULL is fine.
template <typename T>
void check_result(const T* out, const char* what, bool optional = false) {
  if (out == nullptr) {
    if (optional) return;
    fail(StatusCode::invalid_argument, "{} is NULL", what);
  }
  check_size(out, what);
}

template <typename T>
void give_result(T* out, const T& value) {
  if (out == nullptr) return;
  const uint32_t size = out->struct_size;
  std::memcpy(out, &value, size < sizeof(T) ? size : sizeof(T));
  out->struct_size = size;
}

// ---- Text and arrays ---------------------------------------------------------------------

std::string as_utf8(const std::string& text);  // names in files may be any bytes; what leaves is UTF-8
std::string text_of(const char* given, const char* what);                        // throws on NULL and ""
std::string text_or(const char* given, const char* fallback, const char* what);  // NULL gives the fallback
void give_text(const std::string& text, char* buffer, size_t capacity, size_t* needed);
void give_floats(const float* values, size_t count, float* buffer, size_t capacity, size_t* needed);
void check_index(int64_t index, size_t count, const char* what);
void check_flag(int32_t value, const char* what);  // 0 or 1
std::vector<std::string> texts_of(const char* const* given, size_t count, const char* what);

}  // namespace ren::capi
