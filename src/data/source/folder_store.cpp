// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "data/source/input_file.h"
#include "data/source/stores.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

enum class EntryKind { file, folder, other };

EntryKind kind_of(int folder, const dirent& entry) {
  if (entry.d_type == DT_REG) return EntryKind::file;
  if (entry.d_type == DT_DIR) return EntryKind::folder;
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return EntryKind::other;
  struct stat info {};
  // A link to nothing is listed as a file, so that reading it says what is wrong.
  if (fstatat(folder, entry.d_name, &info, 0) != 0) return EntryKind::file;
  if (S_ISREG(info.st_mode)) return EntryKind::file;
  return S_ISDIR(info.st_mode) ? EntryKind::folder : EntryKind::other;
}

class FolderStore final : public FileStore {
 public:
  explicit FolderStore(const std::string& path) {
    uri_ = path;
    root_ = path;
    while (root_.size() > 1 && root_.back() == '/') root_.pop_back();
    std::set<std::pair<dev_t, ino_t>> above;
    list("", above);
    paths_.sort();
    std::sort(folders_.begin(), folders_.end());
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

 private:
  // `above` holds the folders on the way down: a link back to one of them would never end.
  void list(const std::string& below, std::set<std::pair<dev_t, ino_t>>& above) {
    const std::string here = below.empty() ? root_ : root_ + '/' + below;
    DIR* const folder = opendir(here.c_str());
    if (folder == nullptr) fail_open(here, errno);
    std::unique_ptr<DIR, int (*)(DIR*)> closer(folder, closedir);
    struct stat info {};
    if (fstat(dirfd(folder), &info) != 0) fail_open(here, errno);
    const auto identity = std::make_pair(info.st_dev, info.st_ino);
    if (!above.insert(identity).second)
      fail(StatusCode::invalid_data, "'{}' is a link back to a folder that contains it: remove the link",
           here);
    std::vector<std::string> children;
    while (const dirent* entry = readdir(folder)) {
      const std::string_view name = entry->d_name;
      if (is_ignored_name(name)) continue;
      std::string path = below.empty() ? std::string(name) : below + '/' + std::string(name);
      switch (kind_of(dirfd(folder), *entry)) {
        case EntryKind::file:
          paths_.add(path);
          break;
        case EntryKind::folder:
          children.push_back(std::move(path));
          break;
        case EntryKind::other:
          break;  // sockets, FIFOs and devices hold no pictures
      }
    }
    closer.reset();  // one open folder at a time, however deep
    for (const std::string& child : children) {
      folders_.push_back(child);
      list(child, above);
    }
    above.erase(identity);
  }

  std::string root_;
};

class SingleFileStore final : public FileStore {
 public:
  explicit SingleFileStore(const std::string& path) {
    uri_ = path;
    const size_t slash = path.rfind('/');
    paths_.add(slash == std::string::npos ? path : path.substr(slash + 1));
  }
  std::string full_path(int64_t) const override { return uri_; }
  FileFacts facts(int64_t) const override { return facts_of_file(uri_); }
  void read(int64_t, std::string& bytes) const override {
    read_picture_file(uri_, size_t(kMostFileBytes), bytes);
  }
  std::string read_head(int64_t, size_t limit) const override {
    std::string head;
    read_picture_file(uri_, limit, head);
    return head;
  }
};

}  // namespace

std::shared_ptr<const FileStore> open_folder_store(const std::string& path) {
  return std::make_shared<FolderStore>(path);
}

std::shared_ptr<const FileStore> open_single_file_store(const std::string& path) {
  return std::make_shared<SingleFileStore>(path);
}

}  // namespace ren::data
