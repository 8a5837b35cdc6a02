// SPDX-License-Identifier: Apache-2.0
#include "data/pack/pack.h"

#include <nlohmann/json.hpp>

#include "capi/dataset.h"
#include "capi/job.h"
#include "capi/report.h"

namespace ren::capi {
namespace {

data::PackOptions pack_options(const ren_pack_options& o) {
  data::PackOptions out;
  out.short_side = o.short_side;
  if (o.quality != 0) out.quality = o.quality;
  out.threads = o.threads;
  if (o.bad_files != REN_BAD_FILES_FAIL && o.bad_files != REN_BAD_FILES_SKIP)
    fail(StatusCode::invalid_argument, "bad_files is {}: fail and skip are possible", o.bad_files);
  out.bad_files = o.bad_files == REN_BAD_FILES_SKIP ? data::BadFiles::skip : data::BadFiles::fail;
  return out;
}

void add_list(std::string& text, const char* what, const std::vector<std::string>& shown, int64_t all) {
  for (const std::string& item : shown) text += fmt::format("{}: {}\n", what, on_one_line(item));
  if (all > int64_t(shown.size())) text += fmt::format("{}: {} more\n", what, all - int64_t(shown.size()));
}

Report pack_report(const data::Dataset& set, const std::string& path, const data::PackReport& r) {
  Report report;
  report.text = fmt::format("'{}' has {} pictures of {} classes in {} split{}, {} bytes\n", on_one_line(path),
                            r.pictures, set.classes.size(), set.splits.size(),
                            set.splits.size() == 1 ? "" : "s", r.bytes);
  if (r.continued > 0)
    report.text +=
        fmt::format("{} of them were packed before, {} now\n", r.continued, r.pictures - r.continued);
  if (r.resized > 0) report.text += fmt::format("{} were resized now\n", r.resized);
  add_list(report.text, "left out", r.bad, r.bad_files);
  add_list(report.text, "damaged, packed as it is", r.damaged, r.damaged_files);
  const nlohmann::json json = {{"event", "pack"},
                               {"out", path},
                               {"pictures", r.pictures},
                               {"splits", set.splits.size()},
                               {"classes", set.classes.size()},
                               {"bytes", r.bytes},
                               {"resized", r.resized},
                               {"continued", r.continued},
                               {"bad_files", r.bad_files},
                               {"bad", r.bad},
                               {"damaged_files", r.damaged_files},
                               {"damaged", r.damaged}};
  report.json = json_text(json);
  return report;
}

}  // namespace
}  // namespace ren::capi

using namespace ren;
using namespace ren::capi;

extern "C" int32_t ren_dataset_pack(const ren_dataset* dataset, const char* path,
                                    const ren_pack_options* given, ren_report** out, ren_job_progress_fn fn,
                                    void* user) {
  return guard([&] {
    const auto set = state_of(dataset, "dataset");
    const std::string target = text_of(path, "path");
    const data::PackOptions options = pack_options(read_options(given, "ren_pack_options"));
    const data::PackReport made = data::pack_dataset(*set, target, options, watch_with(fn, user));
    if (out != nullptr) give_report(out, pack_report(*set, target, made));
  });
}
