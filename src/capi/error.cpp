// SPDX-License-Identifier: Apache-2.0
// The thread's last error, versions, and the checked ways in and out that guard.h declares.
#include <new>

#include "capi/guard.h"

namespace ren::capi {
namespace {

// Length of the UTF-8 sequence at `at`, or 0 when it is not one.
size_t utf8_length(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : uint8_t(0); };
  const auto follows = [&](size_t i, uint8_t low = 0x80, uint8_t high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return follows(at + 1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool second = follows(at + 1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF);
    return second && follows(at + 2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool second = follows(at + 1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF);
    return second && follows(at + 2) && follows(at + 3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string as_utf8(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text, i);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      ++i;
    } else {
      out.append(text, i, length);
      i += length;
    }
  }
  return out;
}

namespace {

struct LastError {
  int32_t code = REN_OK;
  std::string message, op, node;
  const char* fixed = nullptr;  // a text that needed no memory, when there was none

  void set(int32_t status, const char* text, const std::string& op_name, const std::string& node_name) {
    message = as_utf8(text);
    op = as_utf8(op_name);
    node = as_utf8(node_name);
    code = status;
    fixed = nullptr;
  }
  void set_fixed(int32_t status, const char* text) noexcept {
    message.clear();
    op.clear();
    node.clear();
    code = status;
    fixed = text;
  }
};

thread_local LastError last_error;

int32_t keep(int32_t status, const char* text, const std::string& op, const std::string& node) noexcept {
  try {
    last_error.set(status, text, op, node);
  } catch (...) {
    last_error.set_fixed(status, "there was no memory for the error's text");
  }
  return status;
}

}  // namespace

int32_t keep_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& e) {
    return keep(int32_t(e.code()), e.what(), e.op(), e.node());
  } catch (const std::bad_alloc&) {
    last_error.set_fixed(REN_ERROR_OUT_OF_MEMORY, "the process is out of memory");
    return REN_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& e) {
    return keep(REN_ERROR_INTERNAL, e.what(), {}, {});
  } catch (...) {
    last_error.set_fixed(REN_ERROR_INTERNAL, "an exception of an unknown kind");
    return REN_ERROR_INTERNAL;
  }
}

std::string text_of(const char* given, const char* what) {
  not_null(given, what);
  std::string text = given;
  if (text.empty()) fail(StatusCode::invalid_argument, "{} is empty", what);
  return text;
}

std::string text_or(const char* given, const char* fallback, const char* what) {
  return given == nullptr ? std::string(fallback) : text_of(given, what);
}

void give_text(const std::string& raw, char* buffer, size_t capacity, size_t* needed) {
  const std::string text = as_utf8(raw);
  const size_t size = text.size() + 1;
  if (needed != nullptr) *needed = size;
  if (buffer == nullptr && capacity == 0 && needed != nullptr) return;
  not_null(buffer, "the buffer");
  if (capacity < size)
    fail(StatusCode::invalid_argument, "the buffer has {} bytes, the text needs {}", capacity, size);
  std::memcpy(buffer, text.c_str(), size);
}

void give_floats(const float* values, size_t count, float* buffer, size_t capacity, size_t* needed) {
  if (needed != nullptr) *needed = count;
  if (buffer == nullptr && capacity == 0 && needed != nullptr) return;
  not_null(buffer, "the buffer");
  if (capacity < count)
    fail(StatusCode::invalid_argument, "the buffer has room for {} values, the tensor has {}", capacity,
         count);
  if (count > 0) std::memcpy(buffer, values, count * sizeof(float));
}

void check_index(int64_t index, size_t count, const char* what) {
  if (index < 0 || uint64_t(index) >= count)
    fail(StatusCode::invalid_argument, "{} {} doesn't exist: there are {}", what, index, count);
}

void check_flag(int32_t value, const char* what) {
  if (value != 0 && value != 1) fail(StatusCode::invalid_argument, "{} is {}; it takes 0 or 1", what, value);
}

std::vector<std::string> texts_of(const char* const* given, size_t count, const char* what) {
  std::vector<std::string> texts;
  if (count > 0) not_null(given, what);
  for (size_t i = 0; i < count; ++i) texts.push_back(text_of(given[i], what));
  return texts;
}

}  // namespace ren::capi

using namespace ren::capi;

extern "C" {

uint32_t ren_abi_version(void) { return REN_ABI_VERSION; }
const char* ren_version(void) { return REN_VERSION; }

const char* ren_status_name(int32_t status) {
  if (status == REN_OK) return "ok";
  if (status == REN_END_OF_DATA) return "end of data";
  if (status < REN_ERROR_INTERNAL || status > REN_END_OF_DATA) return "?";
  return ren::name_of(ren::StatusCode(status));
}

int32_t ren_last_error_code(void) { return last_error.code; }
const char* ren_last_error_message(void) {
  return last_error.fixed != nullptr ? last_error.fixed : last_error.message.c_str();
}
const char* ren_last_error_op(void) { return last_error.op.c_str(); }
const char* ren_last_error_node(void) { return last_error.node.c_str(); }

}  // extern "C"
