// SPDX-License-Identifier: Apache-2.0
// A list of pictures: lines "path,label" or "path,label,split".
#include <array>
#include <atomic>
#include <climits>
#include <cstdlib>

#include "data/source/csv.h"
#include "data/source/input_file.h"
#include "data/source/labelled.h"
#include "data/source/labels.h"
#include "engine/base/status.h"
#include "engine/base/threads.h"

namespace ren::data {
namespace {

constexpr int64_t kMostListBytes = int64_t{1} << 30;
constexpr const char* kForm = "write lines 'path,label' or 'path,label,split', with commas and in UTF-8";
constexpr std::array<const char*, 3> kSplits = {"train", "val", "test"};

std::string_view without_bom(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// Where the columns are; -1: there is none.
struct Columns {
  int path = 0, label = 1, split = 2;
  bool header = false;
};

int find_column(const std::vector<std::string>& fields, std::initializer_list<const char*> names) {
  for (const char* name : names)
    for (size_t i = 0; i < fields.size(); ++i)
      if (lower_case(fields[i]) == name) return int(i);
  return -1;
}

// The first row is a header when it names the column of the paths as headers do.
Columns columns_of(const std::vector<std::string>& row) {
  Columns named;
  named.path = find_column(row, {"path", "file", "filename", "file_name", "filepath", "file_path", "image",
                                 "image_path", "image_name", "img", "img_path", "picture"});
  named.label = find_column(row, {"label", "labels", "class", "class_name", "target", "category", "y"});
  named.split = find_column(row, {"split", "set", "subset", "partition"});
  named.header = true;
  if (named.path >= 0 && (named.label >= 0 || row.size() == 1)) return named;
  Columns standing;
  if (row.size() < 3) standing.split = -1;
  return standing;
}

class ListStore final : public FileStore {
 public:
  ListStore(const std::string& path, Purpose purpose) : labels_wanted_(purpose == Purpose::labels) {
    uri_ = path;
    root_ = folder_of(path);
    const std::string text = read_text_file(path, kMostListBytes, "a list");
    if (!is_utf8(text))
      problems_.add("the list", "is not UTF-8", "save it as UTF-8");
    else
      parse(without_bom(text));
    if (problems_.empty()) check_files();
    report();
    problems_.throw_if_any(StatusCode::invalid_data, fmt::format("the list '{}' can't be used", uri_));
  }

  std::string full_path(int64_t file) const override { return root_ + '/' + std::string(path(file)); }
  FileFacts facts(int64_t file) const override { return facts_of_file(full_path(file)); }
  void read(int64_t file, std::string& bytes) const override {
    read_picture_file(full_path(file), size_t(kMostFileBytes), bytes);
  }
  std::string read_head(int64_t file, size_t limit) const override {
    std::string head;
    read_picture_file(full_path(file), limit, head);
    return head;
  }

  void give_labels(Source& source) {
    source.labelled = true;
    source.classes = std::move(classes_);
    source.warning = texts_.mixture();
    for (int8_t split = -1; split < 3; ++split) {
      LabelledFiles found;
      found.split = split < 0 ? "all" : kSplits[size_t(split)];
      for (int64_t i = 0; i < size(); ++i) {
        if (splits_[size_t(i)] != split) continue;
        found.files.push_back(i);
        found.labels.push_back(labels_[size_t(i)]);
      }
      if (!found.files.empty()) source.splits.push_back(std::move(found));
    }
  }

 private:
  void parse(std::string_view text) {
    CsvReader reader(text);
    std::vector<std::string> fields;
    Columns columns;
    bool first = true;
    for (;;) {
      const CsvReader::Row row = reader.next(fields);
      if (row == CsvReader::Row::end) break;
      const int64_t line = reader.line();
      if (row != CsvReader::Row::good) {
        bad_quotes_.add(fmt::format("line {}", line));
        continue;
      }
      if (first) {
        columns = columns_of(fields);
        columns_ = fields.size();
      }
      if (!first || !columns.header) add_row(fields, columns, line);
      first = false;
    }
    classes_ = texts_.settle(labels_, "the list", problems_);
    if (size() == 0 && !has_bad_rows()) problems_.add("the list", "names no pictures", kForm);
  }

  void add_row(std::vector<std::string>& fields, const Columns& columns, int64_t line) {
    const auto here = [&](const std::string& what) { return fmt::format("line {} '{}'", line, what); };
    const bool enough = fields.size() >= 2 || !labels_wanted_;
    if (!enough || fields.size() != columns_ || (!columns.header && fields.size() > 3))
      return bad_counts_.add(fmt::format("line {} ({})", line, fields.size()));
    std::string& path = fields[size_t(columns.path)];
    if (path.starts_with(root_ + '/')) path.erase(0, root_.size() + 1);
    while (path.starts_with("./")) path.erase(0, 2);
    if (path.empty()) return no_path_.add(fmt::format("line {}", line));
    if (path.find('\0') != std::string::npos || path.size() >= PATH_MAX)
      return bad_path_.add(fmt::format("line {}", line));
    if (leads_outside(path)) return outside_.add(here(path));
    int32_t label = -1;
    int8_t split = -1;
    if (labels_wanted_) {
      const std::string& text = fields[size_t(columns.label)];
      if (text.empty()) return no_label_.add(here(path));
      label = texts_.add(text);
      if (columns.split >= 0) {
        split = split_number(fields[size_t(columns.split)]);
        if (split < 0) return bad_split_.add(here(fields[size_t(columns.split)]));
      }
    }
    paths_.add(path);
    labels_.push_back(label);
    splits_.push_back(split);
    lines_.push_back(line);
  }

  static int8_t split_number(const std::string& text) {
    const char* name = split_name_of(lower_case(text));
    for (size_t i = 0; name != nullptr && i < kSplits.size(); ++i)
      if (std::string_view(name) == kSplits[i]) return int8_t(i);
    return -1;
  }

  std::string place(int64_t file) const {
    return fmt::format("line {} '{}'", lines_[size_t(file)], path(file));
  }

  void check_files() {
    PathList sorted;
    for (int64_t i = 0; i < size(); ++i) sorted.add(path(i));
    sorted.sort();
    for (int64_t i = 1; i < size(); ++i)
      if (sorted[i] == sorted[i - 1])
        twice_.add(fmt::format("{} and {}", place(sorted.was(i - 1)), lines_[size_t(sorted.was(i))]));
    std::vector<char> there(static_cast<size_t>(size()));
    parallel_for(size(), 256, [&](int, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) there[size_t(i)] = char(facts(i).size >= 0);
    });
    for (int64_t i = 0; i < size(); ++i)
      if (!there[size_t(i)]) missing_.add(place(i));
    lines_ = {};
  }

  bool has_bad_rows() const {
    for (const Tally* tally :
         {&bad_quotes_, &bad_counts_, &no_path_, &bad_path_, &outside_, &no_label_, &bad_split_})
      if (!tally->empty()) return true;
    return false;
  }

  void report() {
    const auto tell = [&](const Tally& tally, const char* one, const char* many, const char* remedy) {
      tally.report(problems_, "the list", one, many, remedy);
    };
    tell(bad_quotes_, "line has quotes that don't match", "lines have quotes that don't match",
         "close each quoted field before its comma; write a quote inside as two");
    tell(bad_counts_, "line has another number of columns than is expected",
         "lines have another number of columns than is expected", kForm);
    tell(no_path_, "line has no path", "lines have no path", kForm);
    tell(bad_path_, "line has no possible path", "lines have no possible path", kForm);
    tell(outside_, "path leads outside the list's folder", "paths lead outside the list's folder",
         "put the list into a folder above the pictures, and write paths below that");
    tell(no_label_, "line has no label", "lines have no label", kForm);
    tell(bad_split_, "line has an unknown split", "lines have an unknown split", "write train, val or test");
    tell(twice_, "path is there twice", "paths are there twice", "remove one of the lines");
    tell(missing_, "file is missing or no regular file", "files are missing or no regular files",
         "correct the paths, which count from the list's folder, or bring the files back");
  }

  const bool labels_wanted_;
  std::string root_;
  size_t columns_ = 0;
  std::vector<std::string> classes_;
  std::vector<int32_t> labels_;
  std::vector<int8_t> splits_;  // of kSplits; -1 = all
  std::vector<int64_t> lines_;
  LabelTexts texts_;
  Problems problems_;
  Tally bad_quotes_, bad_counts_, no_path_, bad_path_, outside_, no_label_, bad_split_, twice_, missing_;
};

}  // namespace

// A list is text, and its first line has a comma, unless its name says what it is.
bool looks_like_list(std::string_view path, std::string_view head) {
  if (lower_case(path).ends_with(".csv")) return true;
  head = without_bom(head);
  const std::string_view line = head.substr(0, head.find('\n'));
  const auto is_text = [](char c) { return uint8_t(c) >= 0x20 || c == '\t' || c == '\r' || c == '\n'; };
  return line.find(',') != std::string_view::npos && std::all_of(head.begin(), head.end(), is_text);
}

Source open_list(const std::string& path, Purpose purpose) {
  auto store = std::make_shared<ListStore>(path, purpose);
  Source source;
  store->give_labels(source);
  source.store = std::move(store);
  return source;
}

}  // namespace ren::data
