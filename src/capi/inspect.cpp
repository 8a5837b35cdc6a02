// SPDX-License-Identifier: Apache-2.0
#include "data/inspect/inspect.h"

#include <nlohmann/json.hpp>

#include "capi/dataset.h"
#include "capi/job.h"
#include "capi/loader.h"
#include "capi/report.h"
#include "data/decode/decode.h"
#include "data/source/input_file.h"
#include "engine/base/file.h"

namespace ren::capi {
namespace {

constexpr size_t kShownBroken = 20, kShownClasses = 100;

std::string range_text(const char* what, const data::SizeRange& r) {
  return fmt::format("{:<9} {} to {}, median {}\n", what, r.least, r.most, r.median);
}

std::string class_table(const data::Findings& f) {
  size_t widest = 5;
  for (size_t i = 0; i < f.classes.size() && i < kShownClasses; ++i)
    widest = std::max(widest, std::min<size_t>(on_one_line(f.classes[i]).size(), 40));
  std::string text = fmt::format("{:>6}  {:<{}}", "label", "class", widest);
  for (const auto& split : f.splits) text += fmt::format("  {:>9}", split.name);
  text += '\n';
  for (size_t i = 0; i < f.classes.size() && i < kShownClasses; ++i) {
    text += fmt::format("{:>6}  {:<{}}", i, on_one_line(f.classes[i]), widest);
    for (const auto& split : f.splits) text += fmt::format("  {:>9}", split.by_class[i]);
    text += '\n';
  }
  if (f.classes.size() > kShownClasses)
    text += fmt::format("        {} more classes\n", f.classes.size() - kShownClasses);
  return text;
}

template <typename Items, typename Shown>
std::string listed(const Items& items, int64_t all, Shown&& shown) {
  std::string text;
  for (size_t i = 0; i < items.size() && i < kShownBroken; ++i)
    text += "  " + on_one_line(shown(items[i])) + '\n';
  const int64_t more = all - int64_t(std::min(items.size(), kShownBroken));
  return more > 0 ? text + fmt::format("  and {} more\n", more) : text;
}

std::string text_of_findings(const std::string& uri, const data::Findings& f, bool quick) {
  std::string text = fmt::format("data      {}: {} pictures of {} classes\n", on_one_line(uri), f.pictures,
                                 f.classes.size());
  for (const auto& split : f.splits)
    text += fmt::format("split     {}: {} pictures{}\n", split.name, split.pictures,
                        split.broken > 0 ? fmt::format(", {} of them broken", split.broken) : "");
  for (const auto& [format, count] : f.formats) text += fmt::format("format    {}: {}\n", format, count);
  if (f.gray > 0) text += fmt::format("gray      {}\n", f.gray);
  text += range_text("width", f.width) + range_text("height", f.height) + range_text("bytes", f.bytes);
  text += class_table(f);
  if (f.damaged_files > 0)
    text += fmt::format("damaged, but used as Pillow does: {}\n", f.damaged_files) +
            listed(f.damaged, f.damaged_files, [](const std::string& path) { return path; });
  if (f.broken_files > 0)
    text += fmt::format("broken: {}\n", f.broken_files) + listed(f.broken, f.broken_files, [](const auto& b) {
              return fmt::format("{}: {}", b.path, b.reason);
            });
  else
    text += quick ? "no header is broken (what comes behind was not looked at)\n" : "nothing is broken\n";
  return text;
}

nlohmann::json json_of(const data::SizeRange& r) {
  return {{"min", r.least}, {"median", r.median}, {"max", r.most}};
}

std::string json_of_findings(const std::string& uri, const data::Findings& f, bool quick) {
  nlohmann::json splits = nlohmann::json::array(), classes = nlohmann::json::array(),
                 broken = nlohmann::json::array();
  for (const auto& split : f.splits)
    splits.push_back({{"name", split.name}, {"pictures", split.pictures}, {"broken", split.broken}});
  for (size_t i = 0; i < f.classes.size(); ++i) {
    nlohmann::json counts = nlohmann::json::object();
    for (const auto& split : f.splits) counts[split.name] = split.by_class[i];
    classes.push_back({{"label", i}, {"name", f.classes[i]}, {"pictures", counts}});
  }
  for (const auto& b : f.broken) broken.push_back({{"path", b.path}, {"reason", b.reason}});
  const nlohmann::json json = {{"event", "data inspect"},
                               {"data", uri},
                               {"quick", quick},
                               {"pictures", f.pictures},
                               {"splits", splits},
                               {"classes", classes},
                               {"formats", f.formats},
                               {"gray", f.gray},
                               {"width", json_of(f.width)},
                               {"height", json_of(f.height)},
                               {"bytes", json_of(f.bytes)},
                               {"broken_files", f.broken_files},
                               {"broken", broken},
                               {"damaged_files", f.damaged_files},
                               {"damaged", f.damaged}};
  return json_text(json);
}

// A sheet must not replace one of the pictures it is made of.
void refuse_pictures(const std::string& path, const data::Dataset& set) {
  const std::string target = final_target(path), name = target.substr(target.rfind('/') + 1);
  for (const data::Split& split : set.splits) {
    if (same_file(path, split.store->uri()))
      fail(StatusCode::invalid_argument, "'{}' is the data set itself: name another file", path);
    for (int64_t i = 0; i < split.size(); ++i) {
      const std::string_view picture = split.store->path(split.files[size_t(i)]);
      if (picture.ends_with(name) && same_file(path, split.path(i)))
        fail(StatusCode::invalid_argument, "'{}' is a picture of the data set: name another file", path);
    }
  }
}

// Whatever else is needed, a model, an archive, a list: what is no picture is there by mistake.
void refuse_other_than_png(const std::string& path) {
  std::string head;
  try {
    data::read_picture_file(path, data::kFormatHeadBytes, head);
  } catch (const Error& error) {
    if (error.code() == StatusCode::not_found) return;
    fail(StatusCode::invalid_argument,
         "'{}' is there already, and whether it is a PNG file can't be seen ({}): name another file", path,
         error.what());
  }
  if (!head.empty() && data::recognise_format(head) != data::Format::png)
    fail(StatusCode::invalid_argument, "'{}' is there already and is no PNG file: name another file", path);
}

}  // namespace
}  // namespace ren::capi

using namespace ren;
using namespace ren::capi;

extern "C" {

int32_t ren_dataset_inspect(const ren_dataset* dataset, const ren_inspect_options* given, ren_report** out,
                            ren_job_progress_fn fn, void* user) {
  return guard([&] {
    const auto set = state_of(dataset, "dataset");
    const ren_inspect_options options = read_options(given, "ren_inspect_options");
    not_null(out, "report");
    check_flag(options.quick, "quick");
    const bool quick = options.quick != 0;
    const data::Findings found = data::inspect_dataset(*set, {quick, options.threads}, watch_with(fn, user));
    give_report(out, {text_of_findings(set->uri, found, quick),
                      json_of_findings(set->uri, found, quick),
                      {},
                      found.broken_files == 0});
  });
}

int32_t ren_dataset_sheet(const ren_dataset* dataset, const char* split, const ren_loader_options* given,
                          const char* path) {
  return guard([&] {
    const auto set = state_of(dataset, "dataset");
    const data::Split& chosen = find_split(*set, text_of(split, "split"));
    const data::LoaderOptions options =
        loader_options(read_options(not_null(given, "ren_loader_options"), "ren_loader_options"));
    const std::string target = text_of(path, "path");
    refuse_pictures(target, *set);
    check_can_write(target, 0);
    refuse_other_than_png(target);
    write_file(target, data::contact_sheet(chosen, options));
  });
}

}  // extern "C"
