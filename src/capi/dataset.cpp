// SPDX-License-Identifier: Apache-2.0
#include "capi/dataset.h"

namespace ren::capi {

const data::Split& find_split(const data::Dataset& dataset, const std::string& name) {
  if (const data::Split* split = dataset.find(name)) return *split;
  if (name == "train") return dataset.train();
  if (name == "val" && dataset.has_validation()) return *dataset.validation();
  std::string names;
  for (const data::Split& s : dataset.splits)
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", s.name);
  fail(StatusCode::not_found, "the data set '{}' has no split '{}'; it has {}", dataset.uri, name, names);
}

}  // namespace ren::capi

using namespace ren;
using namespace ren::capi;

extern "C" {

int32_t ren_dataset_open(const char* uri, const ren_dataset_options* given, ren_dataset** out) {
  return guard([&] {
    const std::string place = text_of(uri, "uri");
    const ren_dataset_options options = read_options(given, "ren_dataset_options");
    not_null(out, "dataset");
    check_flag(options.allow_empty_classes, "allow_empty_classes");
    check_flag(options.allow_one_class, "allow_one_class");
    data::DatasetOptions chosen;
    chosen.validation_uri = text_or(options.validation_uri, "", "validation_uri");
    chosen.allow_empty_classes = options.allow_empty_classes != 0;
    chosen.allow_one_class = options.allow_one_class != 0;
    give_handle(out, std::make_shared<data::Dataset>(data::open_dataset(place, chosen)));
  });
}

int32_t ren_dataset_open_pictures(const char* uri, ren_dataset** out) {
  return guard([&] {
    const std::string place = text_of(uri, "uri");
    not_null(out, "dataset");
    auto set = std::make_shared<data::Dataset>();
    set->uri = place;
    set->splits.push_back(data::open_pictures(place));
    give_handle(out, std::move(set));
  });
}

void ren_dataset_destroy(ren_dataset* dataset) { destroy_handle(dataset); }

int32_t ren_dataset_class_count(const ren_dataset* dataset, int64_t* count) {
  return guard([&] {
    const auto& set = state_of(dataset, "dataset");
    *not_null(count, "count") = int64_t(set->classes.size());
  });
}

int32_t ren_dataset_class_name(const ren_dataset* dataset, int64_t index, char* buffer, size_t capacity,
                               size_t* needed) {
  return guard([&] {
    const auto& classes = state_of(dataset, "dataset")->classes;
    check_index(index, classes.size(), "class");
    give_text(classes[size_t(index)], buffer, capacity, needed);
  });
}

int32_t ren_dataset_size(const ren_dataset* dataset, const char* split, int64_t* pictures) {
  return guard([&] {
    const auto& set = state_of(dataset, "dataset");
    const std::string name = text_of(split, "split");
    not_null(pictures, "pictures");
    *pictures = find_split(*set, name).size();
  });
}

int32_t ren_dataset_path(const ren_dataset* dataset, const char* split, int64_t index, char* buffer,
                         size_t capacity, size_t* needed) {
  return guard([&] {
    const data::Split& found = find_split(*state_of(dataset, "dataset"), text_of(split, "split"));
    check_index(index, size_t(found.size()), "picture");
    give_text(found.path(index), buffer, capacity, needed);
  });
}

int32_t ren_dataset_label(const ren_dataset* dataset, const char* split, int64_t index, int32_t* label) {
  return guard([&] {
    const data::Split& found = find_split(*state_of(dataset, "dataset"), text_of(split, "split"));
    check_index(index, size_t(found.size()), "picture");
    *not_null(label, "label") = found.labels[size_t(index)];
  });
}

int32_t ren_dataset_warning_count(const ren_dataset* dataset, int64_t* count) {
  return guard([&] {
    const auto& set = state_of(dataset, "dataset");
    *not_null(count, "count") = int64_t(set->warnings.size());
  });
}

int32_t ren_dataset_warning(const ren_dataset* dataset, int64_t index, char* buffer, size_t capacity,
                            size_t* needed) {
  return guard([&] {
    const auto& warnings = state_of(dataset, "dataset")->warnings;
    check_index(index, warnings.size(), "warning");
    give_text(warnings[size_t(index)], buffer, capacity, needed);
  });
}

}  // extern "C"
