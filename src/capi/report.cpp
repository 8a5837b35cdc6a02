// SPDX-License-Identifier: Apache-2.0
#include "capi/report.h"

#include <nlohmann/json.hpp>

#include "engine/base/file.h"

namespace ren::capi {

std::string on_one_line(const std::string& name) {
  std::string text;
  for (const char c : name) {
    const auto byte = uint8_t(c);
    text += byte < 0x20 || byte == 0x7F ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return text;
}

std::string json_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void give_report(ren_report** out, Report report) {
  give_handle(out, std::make_shared<Report>(std::move(report)));
}

}  // namespace ren::capi

using namespace ren::capi;

extern "C" {

int32_t ren_report_text(const ren_report* report, char* buffer, size_t capacity, size_t* needed) {
  return guard([&] { give_text(state_of(report, "report")->text, buffer, capacity, needed); });
}

int32_t ren_report_json(const ren_report* report, char* buffer, size_t capacity, size_t* needed) {
  return guard([&] { give_text(state_of(report, "report")->json, buffer, capacity, needed); });
}

int32_t ren_report_html(const ren_report* report, char* buffer, size_t capacity, size_t* needed) {
  return guard([&] {
    const auto& state = state_of(report, "report");
    if (state->html.empty()) ren::fail(ren::StatusCode::unsupported, "this report has no HTML form");
    give_text(state->html, buffer, capacity, needed);
  });
}

int32_t ren_report_write(const ren_report* report, int32_t format, const char* path) {
  return guard([&] {
    const auto& state = state_of(report, "report");
    const std::string file = text_of(path, "path");
    if (format < REN_REPORT_TEXT || format > REN_REPORT_HTML)
      ren::fail(ren::StatusCode::invalid_argument, "format is {}", format);
    if (format == REN_REPORT_HTML && state->html.empty())
      ren::fail(ren::StatusCode::unsupported, "this report has no HTML form");
    ren::write_file(file, format == REN_REPORT_TEXT   ? state->text
                          : format == REN_REPORT_JSON ? state->json
                                                      : state->html);
  });
}

int32_t ren_report_passed(const ren_report* report, int32_t* passed) {
  return guard([&] {
    const auto& state = state_of(report, "report");
    *not_null(passed, "passed") = state->passed ? 1 : 0;
  });
}

void ren_report_destroy(ren_report* report) { destroy_handle(report); }

}  // extern "C"
