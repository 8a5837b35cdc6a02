// SPDX-License-Identifier: Apache-2.0
#include "cli/api.h"

namespace ren::cli {
namespace {

int exit_code_for(int32_t status) {
  switch (status) {
    case REN_ERROR_INVALID_ARGUMENT:
    case REN_ERROR_INVALID_MODEL:
    case REN_ERROR_UNSUPPORTED:
    case REN_ERROR_NOT_FOUND:
    case REN_ERROR_INVALID_DATA:
      return kRefused;
    case REN_ERROR_CANCELLED:
      return kInterrupted;
    default:
      return kFailure;
  }
}

}  // namespace

ApiError::ApiError(int32_t status)
    : CliError(exit_code_for(status), ren_last_error_message()), status_(status) {}

std::string text_of(const ReportHandle& report) {
  return text_from([&](char* b, size_t c, size_t* n) { return ren_report_text(report.get(), b, c, n); });
}
std::string json_of(const ReportHandle& report) {
  return text_from([&](char* b, size_t c, size_t* n) { return ren_report_json(report.get(), b, c, n); });
}

}  // namespace ren::cli
