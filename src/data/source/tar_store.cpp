// SPDX-License-Identifier: Apache-2.0
// Tar archives, one or several: samples as WebDataset names them (KEY.jpg beside KEY.cls or KEY.json), or
// class folders. Each is walked once; pictures are then read at their places.
#include <algorithm>
#include <array>
#include <atomic>
#include <set>

#include <nlohmann/json.hpp>

#include "data/source/labelled.h"
#include "data/source/labels.h"
#include "data/source/tar_reader.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

constexpr size_t kMostOpen = 256;  // archives that stay open; others are opened for each picture
constexpr int64_t kMostLabelBytes = int64_t{1} << 20;
constexpr std::array<const char*, 4> kSplits = {"all", "train", "val", "test"};

struct Key {
  std::string_view key, ending;
};

// WebDataset's rule: the key goes to the first dot of the file's name.
Key key_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  const size_t dot = path.find('.', slash == std::string_view::npos ? 0 : slash + 1);
  if (dot == std::string_view::npos) return {path, {}};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

bool is_picture_ending(std::string_view ending) {
  return ending == "jpg" || ending == "jpeg" || ending == "png";
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace(" \t\r\n\0", 5);
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// "label" or "cls" of a JSON object, a whole number or a text; empty: it has none. `repeated` is set where
// the object gives one of them twice; the parser alone would take the last.
std::string label_in_json(const std::string& text, bool& repeated) {
  static constexpr std::array kNames{"label", "cls"};
  std::array<int, kNames.size()> given{};
  const auto count = [&](int depth, nlohmann::json::parse_event_t event, const nlohmann::json& key) {
    if (depth == 1 && event == nlohmann::json::parse_event_t::key)
      for (size_t i = 0; i < kNames.size(); ++i) given[i] += key == kNames[i];
    return true;
  };
  const auto json = nlohmann::json::parse(text, count, false);
  repeated = json.is_object() && *std::max_element(given.begin(), given.end()) > 1;
  if (!json.is_object()) return {};
  for (const char* name : kNames) {
    const auto found = json.find(name);
    if (found == json.end()) continue;
    if (found->is_string()) return found->get<std::string>();
    if (found->is_number_integer()) return found->dump();
  }
  return {};
}

// The split that a shard's name tells, as in "imagenet-train-0001.tar": a number in kSplits.
int8_t split_of_name(const std::string& shard) {
  const std::string name = lower_case(shard);
  for (size_t begin = 0; begin < name.size();) {
    size_t end = begin;
    while (end < name.size() && name[end] >= 'a' && name[end] <= 'z') ++end;
    const char* split = split_name_of(std::string_view(name).substr(begin, end - begin));
    for (size_t i = 1; split != nullptr && i < kSplits.size(); ++i)
      if (std::string_view(split) == kSplits[i]) return int8_t(i);
    begin = end + 1;
  }
  return 0;
}

// The archives' names below the folder that all of them are in.
std::vector<std::string> names_of(const std::vector<std::string>& shards) {
  std::string_view common = std::string_view(shards[0]).substr(0, shards[0].rfind('/') + 1);
  for (const std::string& shard : shards)
    while (!shard.starts_with(common))
      common = common.substr(0, common.size() < 2 ? 0 : common.rfind('/', common.size() - 2) + 1);
  std::vector<std::string> names;
  for (const std::string& shard : shards) names.push_back(shard.substr(common.size()));
  return names;
}

// A shard as it was when its pictures were listed.
struct Listed {
  InputFile::Identity identity;
  int64_t modified;
};

struct Place {
  uint64_t offset;
  uint32_t shard, size;
};

// What one walk over all archives finds.
struct Listing {
  PathList names;
  std::vector<std::pair<uint32_t, std::string>> folders;  // with entries of their own, by archive
  std::vector<Place> places;                              // one a name
  std::vector<int32_t> labels;                            // one a name, provisional; -1 = none
  std::vector<bool> samples;  // one a name: named as a picture of a WebDataset sample is
  LabelTexts texts;
  Tally too_large, outside, bad_labels, repeated_labels, second_pictures, no_pictures, no_labels, twice,
      links;
};

// Lists one archive; consecutive entries with the same key are one sample.
class Lister {
 public:
  // `shown` stands before the paths in messages.
  Lister(const InputFile& file, uint32_t shard, Purpose purpose, std::string shown, Listing& out)
      : reader_(file),
        shard_(shard),
        labels_wanted_(purpose == Purpose::labels),
        out_(out),
        shown_(std::move(shown)) {}

  void list() {
    TarEntry entry;
    while (reader_.next(entry)) {
      while (entry.name.starts_with("./")) entry.name.erase(0, 2);
      if (entry.kind == TarEntry::Kind::other) continue;
      if (entry.kind == TarEntry::Kind::folder && entry.name.ends_with('/')) entry.name.pop_back();
      if (entry.kind == TarEntry::Kind::folder && (entry.name.empty() || entry.name == ".")) continue;
      if (leads_outside(entry.name)) {
        out_.outside.add(shown(entry.name));
        continue;
      }
      if (is_ignored_path(entry.name)) continue;
      if (entry.kind == TarEntry::Kind::file)
        add(entry);
      else if (entry.kind == TarEntry::Kind::folder)
        out_.folders.emplace_back(shard_, entry.name);
      else if (is_picture_ending(lower_case(entry.name.substr(entry.name.rfind('.') + 1))))
        out_.links.add(shown(entry.name));
    }
    finish_sample();
  }

 private:
  std::string shown(std::string_view name) const { return fmt::format("'{}{}'", shown_, name); }

  void add(const TarEntry& entry) {
    const Key key = key_of(entry.name);
    const std::string ending = lower_case(key.ending);
    if (key.key != key_) {
      finish_sample();
      key_ = key.key;
    }
    if (ending == "cls" || ending == "json") return add_label(entry, ending == "cls");
    if (entry.size > kMostFileBytes) return out_.too_large.add(shown(entry.name));
    const bool is_picture = is_picture_ending(ending);
    if (is_picture && picture_ >= 0) out_.second_pictures.add(shown(entry.name));
    if (is_picture) picture_ = out_.names.size();
    out_.names.add(entry.name);
    out_.places.push_back({uint64_t(entry.offset), shard_, uint32_t(entry.size)});
    out_.labels.push_back(-1);
    out_.samples.push_back(is_picture);
  }

  void add_label(const TarEntry& entry, bool is_class) {
    if (!labels_wanted_) return;
    const bool readable = entry.size <= kMostLabelBytes;
    const std::string text = readable ? reader_.content(entry) : "";
    bool repeated = false;
    const std::string label = is_class ? std::string(trim(text)) : label_in_json(text, repeated);
    if (repeated) out_.repeated_labels.add(shown(entry.name));
    if (label.empty() && is_class) out_.bad_labels.add(shown(entry.name));
    if (!label.empty() && (is_class || label_ < 0)) label_ = out_.texts.add(label);
  }

  void finish_sample() {
    if (label_ >= 0 && picture_ < 0) out_.no_pictures.add(shown(key_));
    if (label_ >= 0 && picture_ >= 0) out_.labels[size_t(picture_)] = label_;
    label_ = -1;
    picture_ = -1;
    key_.clear();
  }

  TarReader reader_;
  const uint32_t shard_;
  const bool labels_wanted_;
  Listing& out_;
  std::string shown_, key_;
  int64_t picture_ = -1;
  int32_t label_ = -1;
};

class TarStore final : public FileStore {
 public:
  TarStore(const std::string& uri, const std::vector<std::string>& shards, Purpose purpose)
      : shards_(shards), names_(names_of(shards)) {
    uri_ = uri;
    open_ = std::vector<std::unique_ptr<const InputFile>>(std::min(shards.size(), kMostOpen));
    Listing listing;
    for (size_t i = 0; i < shards.size(); ++i) {
      auto file = std::make_unique<const InputFile>(shards[i]);
      listed_.push_back({file->identity(), file->modified_now()});
      Lister(*file, uint32_t(i), purpose, shards.size() > 1 ? names_[i] + '/' : "", listing).list();
      if (i < kMostOpen) open_[i] = std::move(file);
    }
    name_splits(purpose);
    if (purpose == Purpose::labels && !listing.texts.empty())
      use_labels(listing);
    else
      use_folders(listing);
    report(listing);
    problems_.throw_if_any(StatusCode::invalid_data, fmt::format("the archive '{}' can't be used", uri_));
  }

  std::string full_path(int64_t file) const override {
    const Place& place = places_[size_t(file)];
    return shards_[place.shard] + '/' + std::string(path(file).substr(prefix_of(place.shard).size()));
  }
  FileFacts facts(int64_t file) const override {
    FileFacts facts;
    facts.size = places_[size_t(file)].size;
    facts.modified = modified(places_[size_t(file)].shard);
    return facts;
  }
  void read(int64_t file, std::string& bytes) const override { read_head_into(file, SIZE_MAX, bytes); }
  std::string read_head(int64_t file, size_t limit) const override {
    std::string head;
    read_head_into(file, limit, head);
    return head;
  }

  void give_labels(Source& source) {
    if (!labelled_) return;
    source.labelled = true;
    source.classes = std::move(classes_);
    source.warning = std::move(warning_);
    for (size_t split = 0; split < kSplits.size(); ++split) {
      LabelledFiles found;
      found.split = kSplits[split];
      for (int64_t i = 0; i < size(); ++i) {
        if (size_t(splits_[places_[size_t(i)].shard]) != split) continue;
        found.files.push_back(i);
        found.labels.push_back(labels_[size_t(i)]);
      }
      if (!found.files.empty()) source.splits.push_back(std::move(found));
    }
  }

 private:
  void read_head_into(int64_t file, size_t limit, std::string& bytes) const {
    const Place& place = places_[size_t(file)];
    bytes.resize(std::min(limit, size_t(place.size)));
    if (place.shard < open_.size()) return read_listed(*open_[place.shard], place, bytes);
    read_listed(InputFile(shards_[place.shard]), place, bytes);
  }

  // Tar has no checksums: behind the back of a listing other pictures may lie at its places.
  void read_listed(const InputFile& shard, const Place& place, std::string& bytes) const {
    const Listed& listed = listed_[place.shard];
    const bool replaced = shard.identity() != listed.identity;
    shard.read_exactly(int64_t(place.offset), bytes.data(), bytes.size());
    if (replaced || shard.modified_now() != listed.modified)
      fail(StatusCode::invalid_data, "'{}' was {} while it was used", shard.path(),
           replaced ? "replaced" : "written");
  }

  // Asked each time: an archive that is written while it is read holds other pictures than it listed.
  int64_t modified(uint32_t shard) const {
    return shard < open_.size() ? open_[shard]->modified_now() : facts_of_file(shards_[shard]).modified;
  }

  // Either all shards' names tell a split or none does.
  void name_splits(Purpose purpose) {
    Tally unnamed;
    for (const std::string& name : names_)
      splits_.push_back(names_.size() > 1 ? split_of_name(name) : int8_t{0});
    const bool any = std::any_of(splits_.begin(), splits_.end(), [](int8_t s) { return s > 0; });
    for (size_t i = 0; i < shards_.size() && any && purpose == Purpose::labels; ++i)
      if (splits_[i] == 0) unnamed.add('\'' + shards_[i] + '\'');
    unnamed.report(problems_, "the shards", "name tells no split, while others do",
                   "names tell no split, while others do",
                   "put train, val or test into each name, or into none");
  }

  // What a path in this store begins with before the path in the archive.
  std::string prefix_of(uint32_t shard) const {
    if (shards_.size() == 1) return {};
    if (labelled_) return names_[shard] + '/';
    return splits_[shard] > 0 ? std::string(kSplits[size_t(splits_[shard])]) + '/' : "";
  }

  void use_labels(Listing& listing) {
    labelled_ = true;
    PathList sorted;
    for (int64_t i = 0; i < listing.names.size(); ++i) {
      if (!listing.samples[size_t(i)]) continue;
      const std::string name = prefix_of(listing.places[size_t(i)].shard) + std::string(listing.names[i]);
      if (listing.labels[size_t(i)] < 0) listing.no_labels.add('\'' + name + '\'');
      paths_.add(name);
      places_.push_back(listing.places[size_t(i)]);
      labels_.push_back(listing.labels[size_t(i)]);
      sorted.add(name);
    }
    sorted.sort();
    for (int64_t i = 1; i < sorted.size(); ++i)
      if (sorted[i] == sorted[i - 1]) listing.twice.add(fmt::format("'{}'", sorted[i]));
    classes_ = listing.texts.settle(labels_, "the labels", problems_);
    warning_ = listing.texts.mixture();
  }

  void use_folders(Listing& listing) {
    for (int64_t i = 0; i < listing.names.size(); ++i)
      paths_.add(prefix_of(listing.places[size_t(i)].shard) + std::string(listing.names[i]));
    paths_.sort();
    std::set<std::string, std::less<>> folders;
    std::string_view last;
    for (int64_t i = 0; i < size(); ++i) {
      places_.push_back(listing.places[size_t(paths_.was(i))]);
      if (i > 0 && path(i) == path(i - 1)) listing.twice.add(fmt::format("'{}'", path(i)));
      const size_t slash = path(i).rfind('/');
      if (slash == std::string_view::npos || path(i).substr(0, slash) == last) continue;
      last = path(i).substr(0, slash);
      add_with_parents(last, folders);
    }
    for (const auto& [shard, folder] : listing.folders) add_with_parents(prefix_of(shard) + folder, folders);
    folders_.assign(folders.begin(), folders.end());
  }

  static void add_with_parents(std::string_view folder, std::set<std::string, std::less<>>& folders) {
    for (size_t end = folder.find('/'); end != std::string_view::npos; end = folder.find('/', end + 1))
      folders.emplace(folder.substr(0, end));
    folders.emplace(folder);
  }

  void report(const Listing& listing) {
    const auto tell = [&](const Tally& tally, const char* one, const char* many, const char* remedy) {
      tally.report(problems_, "the archive", one, many, remedy);
    };
    tell(listing.too_large, "entry is too large for a picture (at most 268435456 bytes)",
         "entries are too large for pictures (at most 268435456 bytes)", "take them out of the archive");
    tell(listing.outside, "entry names a place outside the archive",
         "entries name places outside the archive", "make the archive again with relative names");
    tell(listing.links, "entry is a link", "entries are links",
         "make the archive again with the files in place of links (tar --dereference --hard-dereference)");
    tell(listing.twice, "entry is twice in the archive", "entries are twice in the archive",
         "make the archive again");
    tell(listing.bad_labels, "label is empty or too long", "labels are empty or too long",
         "write a class number or name into each .cls");
    tell(listing.repeated_labels, "label is given more than once in its .json",
         "labels are given more than once in their .json", "keep one \"label\" or \"cls\" in each");
    if (!labelled_) return;
    tell(listing.second_pictures, "picture is the second of its sample",
         "pictures are the second of their samples", "keep one picture a key");
    tell(listing.no_pictures, "label has no picture", "labels have no picture",
         "put KEY.jpg or KEY.png beside KEY.cls, one after the other");
    tell(listing.no_labels, "picture has no label", "pictures have no label",
         "put KEY.cls, or KEY.json with \"label\" or \"cls\", beside the picture, one after the other");
  }

  const std::vector<std::string> shards_, names_;
  std::vector<int8_t> splits_;  // one a shard, of kSplits
  std::vector<std::unique_ptr<const InputFile>> open_;
  std::vector<Listed> listed_;  // one a shard
  std::vector<Place> places_;
  std::vector<int32_t> labels_;
  std::vector<std::string> classes_;
  std::string warning_;
  bool labelled_ = false;
  Problems problems_;
};

}  // namespace

Source open_tar(const std::string& uri, const std::vector<std::string>& shards, Purpose purpose) {
  auto store = std::make_shared<TarStore>(uri, shards, purpose);
  Source source;
  store->give_labels(source);
  source.store = std::move(store);
  return source;
}

}  // namespace ren::data
