// SPDX-License-Identifier: Apache-2.0
#include <zip.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>

#include "data/decode/decode.h"
#include "data/source/stores.h"
#include "data/source/zip_file.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

constexpr int kMostHandles = 8;             // each holds the archive's directory in memory
constexpr size_t kChunk = size_t{1} << 20;  // of an entry, whose size is only what the archive says

struct CloseZipFile {
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using OpenEntry = std::unique_ptr<zip_file_t, CloseZipFile>;

class ZipStore final : public FileStore {
 public:
  explicit ZipStore(const std::string& path) : archive_(std::make_shared<const InputFile>(path)) {
    uri_ = path;
    ZipHandle archive = open_zip(archive_);
    list(archive.get());
    free_.push_back(std::move(archive));
    opened_ = 1;
  }

  std::string full_path(int64_t file) const override { return uri_ + '/' + std::string(path(file)); }
  FileFacts facts(int64_t file) const override { return facts_[size_t(file)]; }

  void read(int64_t file, std::string& bytes) const override {
    const Lease lease(*this);
    Entry entry(*this, lease, file);
    entry.read(kFormatHeadBytes, bytes);
    if (is_decodable(recognise_format(bytes))) entry.read_rest(bytes);
  }

  std::string read_head(int64_t file, size_t limit) const override {
    const Lease lease(*this);
    std::string head;
    Entry(*this, lease, file).read(limit, head);
    return head;
  }

 private:
  // A handle of the archive for one read: libzip's are not to be shared between threads.
  class Lease {
   public:
    explicit Lease(const ZipStore& store) : store_(store), handle_(store.take()) {}
    ~Lease() { store_.give(std::move(handle_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    zip_t* get() const { return handle_.get(); }

   private:
    const ZipStore& store_;
    ZipHandle handle_;
  };

  ZipHandle take() const {
    {
      std::unique_lock lock(mutex_);
      if (free_.empty() && opened_ >= kMostHandles) available_.wait(lock, [&] { return !free_.empty(); });
      if (!free_.empty()) {
        ZipHandle handle = std::move(free_.back());
        free_.pop_back();
        return handle;
      }
      ++opened_;
    }
    try {
      return open_zip(archive_);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      --opened_;
      throw;
    }
  }

  void give(ZipHandle handle) const {
    if (!handle) return;
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(std::move(handle));
    }
    available_.notify_one();
  }

  void list(zip_t* archive) {
    struct Listed {
      std::string path;
      zip_uint64_t index;
      FileFacts facts;
    };
    std::vector<Listed> entries;
    std::set<std::string> folders;
    Problems problems;
    const zip_int64_t count = zip_get_num_entries(archive, 0);
    std::string last_parent;
    for (zip_int64_t i = 0; i < count; ++i) {
      zip_stat_t info;
      if (zip_stat_index(archive, zip_uint64_t(i), ZIP_FL_ENC_GUESS, &info) != 0 ||
          (info.valid & ZIP_STAT_NAME) == 0) {
        problems.add(fmt::format("entry {}", i), zip_strerror(archive), "make the archive again");
        continue;
      }
      std::string path = info.name;
      const bool is_folder = !path.empty() && path.back() == '/';
      while (path.size() >= 2 && path.compare(0, 2, "./") == 0) path.erase(0, 2);
      if (is_folder) path.pop_back();
      if (is_folder && path.empty()) continue;
      if (leads_outside(path)) {
        problems.add(fmt::format("'{}'", info.name), "names a place outside the archive",
                     "make the archive again with relative names");
        continue;
      }
      if (is_ignored_path(path)) continue;
      add_parents(is_folder ? path + '/' : path, last_parent, folders);
      if (is_folder) continue;
      check_readable(info, problems);
      entries.push_back({std::move(path), zip_uint64_t(i), facts_of(info)});
    }
    std::sort(entries.begin(), entries.end(),
              [](const Listed& a, const Listed& b) { return a.path < b.path; });
    for (size_t i = 1; i < entries.size(); ++i)
      if (entries[i].path == entries[i - 1].path)
        problems.add(fmt::format("'{}'", entries[i].path), "is twice in the archive",
                     "make the archive again");
    problems.throw_if_any(StatusCode::invalid_data, fmt::format("the archive '{}' can't be used", uri_));
    indices_.reserve(entries.size());
    facts_.reserve(entries.size());
    for (Listed& entry : entries) {
      paths_.add(entry.path);
      indices_.push_back(entry.index);
      facts_.push_back(entry.facts);
    }
    folders_.assign(folders.begin(), folders.end());
  }

  static void add_parents(const std::string& path, std::string& last_parent, std::set<std::string>& folders) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return;
    if (path.compare(0, slash, last_parent) == 0 && last_parent.size() == slash)
      return;  // as the file before
    last_parent = path.substr(0, slash);
    for (size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1))
      folders.insert(path.substr(0, end));
  }

  static FileFacts facts_of(const zip_stat_t& info) {
    FileFacts facts;
    if ((info.valid & ZIP_STAT_SIZE) != 0) facts.size = int64_t(info.size);
    facts.has_crc = (info.valid & ZIP_STAT_CRC) != 0;
    if (facts.has_crc) facts.crc = info.crc;
    return facts;
  }

  static void check_readable(const zip_stat_t& info, Problems& problems) {
    if ((info.valid & ZIP_STAT_ENCRYPTION_METHOD) != 0 && info.encryption_method != ZIP_EM_NONE)
      problems.add(fmt::format("'{}'", info.name), "is encrypted",
                   "make the archive again without a password");
    else if ((info.valid & ZIP_STAT_COMP_METHOD) != 0 &&
             zip_compression_method_supported(info.comp_method, 0) == 0)
      problems.add(fmt::format("'{}'", info.name),
                   fmt::format("uses compression method {}", info.comp_method),
                   "make the archive again with deflate or without compression");
    else if ((info.valid & ZIP_STAT_SIZE) != 0 && info.size > zip_uint64_t(kMostFileBytes))
      problems.add(
          fmt::format("'{}'", info.name),
          fmt::format("has {} bytes: too large for a picture (at most {})", info.size, kMostFileBytes),
          "take it out of the archive");
  }

  // An opened entry. The checksum is verified by libzip when it is read to its end.
  class Entry {
   public:
    Entry(const ZipStore& store, const Lease& lease, int64_t file) : store_(store), file_(file) {
      const zip_uint64_t index = store.indices_[size_t(file)];
      zip_stat_t info;
      if (zip_stat_index(lease.get(), index, 0, &info) != 0)
        store.fail_entry(file, zip_strerror(lease.get()));
      size_ = info.size;
      opened_.reset(zip_fopen_index(lease.get(), index, 0));
      if (!opened_) store.fail_entry(file, zip_strerror(lease.get()));
    }

    // The first bytes, `limit` of them or all.
    void read(size_t limit, std::string& bytes) {
      bytes.clear();
      append(std::min<zip_uint64_t>(limit, size_), bytes);
    }

    void read_rest(std::string& bytes) {
      if (size_ > zip_uint64_t(kMostFileBytes))
        store_.fail_entry(file_, fmt::format("it has {} bytes: too large for a picture", size_));
      while (bytes.size() < size_) append(std::min<zip_uint64_t>(kChunk, size_ - bytes.size()), bytes);
      char beyond;
      if (zip_fread(opened_.get(), &beyond, 1) != 0)
        store_.fail_entry(file_, zip_file_strerror(opened_.get()));
    }

   private:
    void append(size_t count, std::string& bytes) {
      size_t filled = bytes.size();
      bytes.resize(filled + count);
      while (filled < bytes.size()) {
        const zip_int64_t got = zip_fread(opened_.get(), bytes.data() + filled, bytes.size() - filled);
        if (got < 0) store_.fail_entry(file_, zip_file_strerror(opened_.get()));
        if (got == 0) store_.fail_entry(file_, "it ends too early");
        filled += size_t(got);
      }
    }

    const ZipStore& store_;
    int64_t file_;
    zip_uint64_t size_ = 0;
    OpenEntry opened_;
  };

  [[noreturn]] void fail_entry(int64_t file, const std::string& reason) const {
    fail(StatusCode::invalid_data, "cannot read '{}': {}", full_path(file), reason);
  }

  const std::shared_ptr<const InputFile> archive_;
  std::vector<zip_uint64_t> indices_;  // of the files, in the archive
  std::vector<FileFacts> facts_;
  mutable std::mutex mutex_;
  mutable std::condition_variable available_;
  mutable std::vector<ZipHandle> free_;
  mutable int opened_ = 0;
};

}  // namespace

std::shared_ptr<const FileStore> open_zip_store(const std::string& path) {
  return std::make_shared<ZipStore>(path);
}

}  // namespace ren::data
