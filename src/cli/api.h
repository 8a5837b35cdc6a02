// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "renaissance_c.h"

// renaissance_c.h in C++: owned handles, strings, and statuses as exceptions.
namespace ren::cli {

// Exit codes of the program, as docs/cli.md lists them.
// kIncomplete: the results are written, but something on the way was not.
enum ExitCode { kOk = 0, kFailure = 1, kRefused = 2, kIncomplete = 3, kInterrupted = 130 };

class CliError : public std::runtime_error {
 public:
  CliError(int exit_code, const std::string& message) : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// What a failed call of the library means for the program: input that is refused, or a failure.
class ApiError : public CliError {
 public:
  explicit ApiError(int32_t status);
  int32_t status() const { return status_; }

 private:
  int32_t status_;
};

inline int32_t check(int32_t status) {
  if (status < 0) throw ApiError(status);
  return status;
}

template <auto kDestroy>
struct Destroy {
  template <typename T>
  void operator()(T* handle) const noexcept {
    kDestroy(handle);
  }
};
using ModelHandle = std::unique_ptr<ren_model, Destroy<ren_model_destroy>>;
using DatasetHandle = std::unique_ptr<ren_dataset, Destroy<ren_dataset_destroy>>;
using LoaderHandle = std::unique_ptr<ren_loader, Destroy<ren_loader_destroy>>;
using TrainerHandle = std::unique_ptr<ren_trainer, Destroy<ren_trainer_destroy>>;
using ReportHandle = std::unique_ptr<ren_report, Destroy<ren_report_destroy>>;

// make<ModelHandle>([&](ren_model** out) { return ren_model_load(..., out); })
template <typename Handle, typename Make>
Handle make(Make&& call) {
  typename Handle::pointer raw = nullptr;
  check(call(&raw));
  return Handle(raw);
}

// For calls that read what the user named: what can't be read is refused input, not a failure.
template <typename Call>
auto reading_input(Call&& call) {
  try {
    return call();
  } catch (const ApiError& e) {
    if (e.status() == REN_ERROR_IO) throw CliError(kRefused, e.what());
    throw;
  }
}

// The whole text of a getter that is called as get(buffer, capacity, needed).
template <typename Get>
std::string text_from(Get&& get) {
  size_t needed = 0;
  check(get(nullptr, size_t{0}, &needed));
  std::string text(needed, '\0');
  check(get(text.data(), text.size(), &needed));
  text.resize(needed - 1);
  return text;
}

std::string text_of(const ReportHandle& report);
std::string json_of(const ReportHandle& report);

}  // namespace ren::cli
