// SPDX-License-Identifier: Apache-2.0
// What this machine has, and what is missing to use it.
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "capi/device.h"
#include "capi/report.h"
#include "engine/base/threads.h"

namespace ren::capi {
namespace {

// The value of the first line "KEY ...: VALUE" of a file of /proc, or "".
std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(key, 0) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

double gigabytes(const std::string& kilobytes) {
  double value = 0;
  std::istringstream(kilobytes) >> value;
  return value / (1 << 20);
}

struct Finding {
  std::string device, name, problem;  // either a name or what is missing
  double free_gigabytes = 0;
};

Finding look_at(const std::string& device) {
  Finding finding;
  finding.device = device;
  try {
    const ChosenDevice chosen = choose_device(device);
    const auto opened = chosen.backend->open(chosen.index);
    finding.name = opened->name();
    finding.free_gigabytes = double(opened->free_memory()) / (1 << 30);
  } catch (const Error& e) {
    finding.problem = e.what();
  }
  return finding;
}

Report examine() {
  const std::string processor = proc_value("/proc/cpuinfo", "model name");
  const std::string flags = " " + proc_value("/proc/cpuinfo", "flags") + " ";
  std::vector<std::string> known;
  for (const char* flag : {"avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16"})
    if (flags.find(fmt::format(" {} ", flag)) != std::string::npos) known.push_back(flag);
  const double total = gigabytes(proc_value("/proc/meminfo", "MemTotal"));
  const double available = gigabytes(proc_value("/proc/meminfo", "MemAvailable"));

  Report report;
  nlohmann::json json = {{"event", "doctor"},        {"version", ren_version()},
                         {"abi", ren_abi_version()}, {"processor", processor},
                         {"instructions", known},    {"threads", hardware_threads()},
                         {"memory_gb", total},       {"memory_available_gb", available}};
  report.text = fmt::format(
      "renaissance  {} (ABI {})\nprocessor    {}, {} threads{}{}\nmemory       {:.1f} GB, {:.1f} GB "
      "available\n",
      ren_version(), ren_abi_version(), processor.empty() ? "unknown" : processor, hardware_threads(),
      known.empty() ? "" : "; ", fmt::join(known, " "), total, available);
  json["devices"] = nlohmann::json::array();
  std::vector<std::string> devices = {"cpu", "cuda:0"};
  for (size_t i = 0; i < devices.size(); ++i) {
    const Finding f = look_at(devices[i]);
    const std::string shown = f.problem.empty() ? fmt::format("{}, {:.1f} GB free", f.name, f.free_gigabytes)
                                                : "not usable: " + f.problem;
    report.text += fmt::format("{:<12} {}\n", f.device, shown);
    json["devices"].push_back({{"device", f.device},
                               {"usable", f.problem.empty()},
                               {"name", f.name},
                               {"problem", f.problem},
                               {"free_gb", f.free_gigabytes}});
    // GPUs are numbered without gaps; the first one that isn't there ends the list.
    if (f.problem.empty() && i > 0 && i < 64) {
      const std::string next = fmt::format("cuda:{}", i);
      if (look_at(next).problem.empty()) devices.push_back(next);
    }
    if (i == 0 && !f.problem.empty()) report.passed = false;
  }
  report.json = json_text(json);
  return report;
}

}  // namespace
}  // namespace ren::capi

using namespace ren;
using namespace ren::capi;

extern "C" {

int32_t ren_set_compute_threads(int32_t count) {
  return guard([&] {
    if (count < 0 || count > 4096) fail(StatusCode::invalid_argument, "{} threads", count);
    set_compute_threads(count);
  });
}

int32_t ren_doctor(ren_report** report) {
  return guard([&] {
    not_null(report, "report");
    give_report(report, examine());
  });
}

}  // extern "C"
