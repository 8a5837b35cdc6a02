// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "capi/guard.h"

namespace ren::capi {

struct Report {
  std::string text, json, html;  // html empty: there is none
  bool passed = true;
};

// A name in a report's text, where it must neither steer the terminal nor begin a line of its own: control
// characters become \xNN.
std::string on_one_line(const std::string& name);

// One line; bytes of names that are no UTF-8 are replaced.
std::string json_text(const nlohmann::json& value);

void give_report(ren_report** out, Report report);

}  // namespace ren::capi

struct ren_report : ren::capi::Handle<ren::capi::Report, 0x52454e5f52505431> {};
