// SPDX-License-Identifier: Apache-2.0
// From a store's list of files to splits and classes.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "data/dataset.h"
#include "data/decode/decode.h"
#include "data/source/labels.h"
#include "data/source/stores.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

constexpr size_t kNamesShown = 5;

using StorePtr = std::shared_ptr<const FileStore>;

std::string join(const std::string& folder, std::string_view name) {
  return folder.empty() ? std::string(name) : folder + '/' + std::string(name);
}

std::string shown(const FileStore& store, const std::string& folder) {
  return folder.empty() ? store.uri() : store.uri() + (store.uri().ends_with('/') ? "" : "/") + folder;
}

std::string list_names(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < kNamesShown; ++i) out += (i ? ", '" : "'") + names[i] + "'";
  if (names.size() > kNamesShown) out += fmt::format(" and {} more", names.size() - kNamesShown);
  return out;
}

// The folders directly below one, by name.
std::vector<std::string> children(const FileStore& store, const std::string& folder) {
  const std::string prefix = folder.empty() ? "" : folder + '/';
  std::vector<std::string> names;
  for (auto it = std::lower_bound(store.folders().begin(), store.folders().end(), prefix);
       it != store.folders().end() && it->starts_with(prefix); ++it) {
    const std::string_view name = std::string_view(*it).substr(prefix.size());
    if (!name.empty() && name.find('/') == std::string_view::npos) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The files below a folder are contiguous in the sorted list.
std::pair<int64_t, int64_t> files_below(const FileStore& store, const std::string& folder) {
  if (folder.empty()) return {0, store.size()};
  const auto less = [&](int64_t file, const std::string& bound) { return store.path(file) < bound; };
  const auto find = [&](const std::string& bound) {
    int64_t low = 0, high = store.size();
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (less(middle, bound))
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  };
  return {find(folder + '/'), find(folder + char('/' + 1))};
}

// Pictures by name are taken unread (an error later names the file); others by their first bytes.
bool is_picture(const FileStore& store, int64_t file) {
  if (has_picture_name(store.path(file))) return true;
  try {
    return is_decodable(recognise_format(store.read_head(file, kFormatHeadBytes)));
  } catch (const Error&) {
    return false;  // unreadable, and its name doesn't say that it is a picture
  }
}

bool has_pictures_directly_in(const FileStore& store, const std::string& folder) {
  const auto [begin, end] = files_below(store, folder);
  const size_t prefix = folder.empty() ? 0 : folder.size() + 1;
  for (int64_t file = begin; file < end; ++file)
    if (store.path(file).find('/', prefix) == std::string_view::npos && is_picture(store, file)) return true;
  return false;
}

struct SplitFolder {
  std::string name, folder;
};

// train/ decides: without it, folders called val or test are taken for classes, unless
// nothing else is there.
std::vector<SplitFolder> split_folders(const FileStore& store, const std::string& root, Problems& problems) {
  const std::vector<std::string> names = children(store, root);
  const bool has_train = std::find(names.begin(), names.end(), "train") != names.end();
  const bool only_splits = !names.empty() && std::all_of(names.begin(), names.end(),
                                                         [](const auto& n) { return split_name_of(n); });
  if (!has_train && !only_splits) return {};
  std::vector<SplitFolder> found;
  for (const std::string& name : names) {
    const char* split = split_name_of(name);
    if (split == nullptr) continue;
    if (children(store, join(root, name)).empty() && !has_train) return {};
    const auto same = [&](const SplitFolder& s) { return s.name == split; };
    if (std::any_of(found.begin(), found.end(), same))
      problems.add(shown(store, join(root, name)), "is a second validation folder", "keep one of them");
    else
      found.push_back({split, join(root, name)});
  }
  const auto rank = [](const SplitFolder& s) { return s.name == "train" ? 0 : s.name == "val" ? 1 : 2; };
  std::sort(found.begin(), found.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return found;
}

// Steps into a single folder that holds nothing but folders, e.g. the one an archive was made from.
std::string strip_root(const FileStore& store) {
  std::string root;
  for (;;) {
    const std::vector<std::string> names = children(store, root);
    if (names.size() != 1 || split_name_of(names[0]) || has_pictures_directly_in(store, root)) return root;
    const std::string inner = join(root, names[0]);
    if (children(store, inner).empty() || has_pictures_directly_in(store, inner)) return root;
    root = inner;
  }
}

class SplitReader {
 public:
  SplitReader(StorePtr store, const DatasetOptions& options, Problems& problems,
              std::vector<std::string>& warnings)
      : store_(std::move(store)), options_(options), problems_(problems), warnings_(warnings) {}

  Split read(const SplitFolder& where) {
    Split split;
    split.name = where.name;
    split.store = store_;
    split.classes = children(*store_, where.folder);
    const std::string here = shown(*store_, where.folder);
    const bool loose = has_pictures_directly_in(*store_, where.folder);
    if (split.classes.empty()) {
      problems_.add(here, loose ? "has pictures but no class folders" : "has no pictures",
                    "make one folder a class and put its pictures there");
      return split;
    }
    if (loose) warnings_.push_back(here + ": pictures beside the class folders are ignored");
    std::vector<std::string> empty;
    for (size_t label = 0; label < split.classes.size(); ++label)
      if (add_class(split, where.folder, int32_t(label)) == 0) empty.push_back(split.classes[label]);
    check(split, here, empty);
    return split;
  }

 private:
  int64_t add_class(Split& split, const std::string& folder, int32_t label) {
    const auto [begin, end] = files_below(*store_, join(folder, split.classes[size_t(label)]));
    int64_t added = 0, ignored = 0;
    for (int64_t file = begin; file < end; ++file) {
      if (!is_picture(*store_, file)) {
        ++ignored;
        continue;
      }
      split.files.push_back(file);
      split.labels.push_back(label);
      ++added;
    }
    if (ignored > 0)
      warnings_.push_back(fmt::format("{}: {} file{} ignored, not pictures",
                                      shown(*store_, join(folder, split.classes[size_t(label)])), ignored,
                                      ignored == 1 ? "" : "s"));
    return added;
  }

  void check(const Split& split, const std::string& here, const std::vector<std::string>& empty) {
    if (split.files.empty()) {
      problems_.add(here, "has class folders but no pictures in them", "put JPEG or PNG files there");
      return;
    }
    if (!empty.empty() && !options_.allow_empty_classes)
      problems_.add(here,
                    fmt::format("{} class folder{} no pictures: {}", empty.size(),
                                empty.size() == 1 ? " has" : "s have", list_names(empty)),
                    "remove it, add pictures, or allow empty classes");
    if (split.classes.size() == 1 && !options_.allow_one_class)
      problems_.add(here, fmt::format("has one class only, '{}'", split.classes[0]),
                    "classification needs two class folders or more");
    if (split.files.size() > UINT32_MAX)
      problems_.add(here, "has more than 4,294,967,295 pictures", "split it");
  }

  StorePtr store_;
  const DatasetOptions& options_;
  Problems& problems_;
  std::vector<std::string>& warnings_;
};

// A training split without pictures of a class would train that output to never answer. In
// the others a class may be missing.
void check_labelled(const Split& split, bool first, const std::string& uri, const DatasetOptions& options,
                    Problems& problems) {
  std::vector<bool> found(split.classes.size());
  for (const int32_t label : split.labels) found[size_t(label)] = true;
  std::vector<std::string> empty;
  for (size_t i = 0; i < found.size() && first; ++i)
    if (!found[i]) empty.push_back(split.classes[i]);
  const std::string here = fmt::format("'{}' of '{}'", split.name, uri);
  if (!empty.empty() && !options.allow_empty_classes)
    problems.add(here,
                 fmt::format("{} class{} no pictures: {}", empty.size(),
                             empty.size() == 1 ? " has" : "es have", list_names(empty)),
                 "add pictures, number the classes from 0 without a gap, or allow empty classes");
  if (split.classes.size() == 1 && !options.allow_one_class)
    problems.add(here, fmt::format("has one class only, '{}'", split.classes[0]),
                 "classification needs two classes or more");
  if (split.files.size() > UINT32_MAX) problems.add(here, "has more than 4,294,967,295 pictures", "split it");
}

std::vector<Split> labelled_splits(Source& source, const DatasetOptions& options, Problems& problems) {
  std::vector<Split> splits;
  for (LabelledFiles& given : source.splits) {
    splits.push_back({std::move(given.split), source.store, std::move(given.files), std::move(given.labels),
                      source.classes});
    check_labelled(splits.back(), splits.size() == 1, source.store->uri(), options, problems);
  }
  return splits;
}

// What one URI gives. Problems are collected, not thrown.
std::vector<Split> read_splits(const std::string& uri, const DatasetOptions& options, Problems& problems,
                               std::vector<std::string>& warnings) {
  Source source = open_source(uri, Purpose::labels);
  if (!source.warning.empty()) warnings.push_back(uri + ": " + source.warning);
  if (source.labelled) return labelled_splits(source, options, problems);
  const StorePtr store = source.store;
  SplitReader reader(store, options, problems, warnings);
  if (store->size() == 0) {
    problems.add(uri, "has no pictures",
                 "name a folder or archive that holds class folders of JPEG or PNG files");
    return {};
  }
  const std::string root = strip_root(*store);
  std::vector<Split> splits;
  const std::vector<SplitFolder> folders = split_folders(*store, root, problems);
  for (const SplitFolder& folder : folders) splits.push_back(reader.read(folder));
  if (folders.empty()) splits.push_back(reader.read({"all", root}));
  return splits;
}

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return names;
}

// Numbers without names can't tell how many there are: the last ones may have no pictures in `other`.
void extend_numbered(const Split& first, Split& other) {
  if (other.classes.size() < first.classes.size() && are_numbered(first.classes) &&
      are_numbered(other.classes))
    other.classes = first.classes;
}

void check_same_classes(const Split& first, const Split& other, Problems& problems) {
  if (first.classes == other.classes || first.classes.empty() || other.classes.empty()) return;
  const std::vector<std::string> a = sorted(first.classes), b = sorted(other.classes);
  std::vector<std::string> missing, extra;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(missing));
  std::set_difference(b.begin(), b.end(), a.begin(), a.end(), std::back_inserter(extra));
  std::string what = fmt::format("its classes are not those of '{}'", first.name);
  if (!missing.empty()) what += ": lacks " + list_names(missing);
  if (!extra.empty())
    what += std::string(missing.empty() ? ": has also " : "; has also ") + list_names(extra);
  if (missing.empty() && extra.empty()) what += ": they have other numbers";
  problems.add(fmt::format("'{}' ({})", other.name, other.store->uri()), what, "give both the same classes");
}

// The split of a second URI that serves as validation: its own one, or all of it.
void use_validation(std::vector<Split>& splits, std::vector<Split> given) {
  const auto named = [&](const char* name) {
    return std::find_if(given.begin(), given.end(), [&](const Split& s) { return s.name == name; });
  };
  auto chosen = named("val");
  if (chosen == given.end()) chosen = named("test");
  if (chosen == given.end()) chosen = given.begin();
  if (chosen == given.end()) return;
  chosen->name = "val";
  std::erase_if(splits, [](const Split& s) { return s.name == "val"; });
  splits.insert(splits.begin() + (splits.empty() ? 0 : 1), std::move(*chosen));
}

}  // namespace

const Split* Dataset::find(const std::string& name) const {
  for (const Split& split : splits)
    if (split.name == name) return &split;
  return nullptr;
}

const Split& Dataset::train() const {
  if (const Split* split = find("train")) return *split;
  if (const Split* split = find("all")) return *split;
  fail(StatusCode::not_found, "'{}' has no training pictures: only {}", uri,
       splits.empty() ? "" : splits[0].name);
}

const Split* Dataset::validation() const {
  const Split* split = find("val");
  return split != nullptr ? split : find("test");
}

Dataset open_dataset(const std::string& uri, const DatasetOptions& options) {
  Dataset set;
  set.uri = uri;
  Problems problems;
  set.splits = read_splits(uri, options, problems, set.warnings);
  if (!options.validation_uri.empty())
    use_validation(set.splits, read_splits(options.validation_uri, options, problems, set.warnings));
  for (size_t i = 1; i < set.splits.size(); ++i) extend_numbered(set.splits[0], set.splits[i]);
  for (size_t i = 1; i < set.splits.size(); ++i) check_same_classes(set.splits[0], set.splits[i], problems);
  problems.throw_if_any(StatusCode::invalid_data, fmt::format("the data set '{}' can't be used", uri));
  set.classes = set.splits[0].classes;
  return set;
}

Split open_pictures(const std::string& uri) {
  Split split;
  split.name = "all";
  const Source source = open_source(uri, Purpose::pictures);
  split.store = source.store;
  for (int64_t file = 0; file < split.store->size(); ++file)
    if (source.labelled || is_picture(*split.store, file)) split.files.push_back(file);
  if (split.files.empty())
    fail(StatusCode::invalid_data,
         "'{}' has no pictures: name a JPEG or PNG file, or a folder, archive or list of them", uri);
  split.labels.assign(split.files.size(), -1);
  return split;
}

}  // namespace ren::data
