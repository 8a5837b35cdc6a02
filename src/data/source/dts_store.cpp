// SPDX-License-Identifier: Apache-2.0
#include "data/source/dts_store.h"

#include "data/source/labelled.h"
#include "engine/base/checksum.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

dts::Header read_header(const InputFile& file) {
  std::string bytes(dts::kHeaderBytes, '\0');
  bytes.resize(file.read(0, bytes.data(), bytes.size()));
  const dts::Header header = dts::decode_header(bytes, file.path());
  if (!header.complete)
    fail(StatusCode::invalid_data,
         "'{}' isn't packed to its end: give the same `renaissance pack` again, which goes on with it",
         file.path());
  return header;
}

}  // namespace

DtsStore::DtsStore(const std::string& path) : file_(path), header_(read_header(file_)) {
  uri_ = path;
  read_index();
}

DtsStore::DtsStore(const std::string& path, const dts::Header& header) : file_(path), header_(header) {
  uri_ = path;
  read_index();
}

void DtsStore::read_index() {
  if (uint64_t(file_.size()) < header_.file_bytes)
    fail(StatusCode::invalid_data, "'{}' is cut off: it has {} of its {} bytes: copy it again", uri_,
         file_.size(), header_.file_bytes);
  const bool fits = uint64_t(file_.size()) == header_.file_bytes &&
                    header_.index_offset >= dts::kHeaderBytes && header_.index_offset <= header_.file_bytes &&
                    header_.index_bytes == header_.file_bytes - header_.index_offset;
  if (!fits)
    fail(StatusCode::invalid_data,
         "'{}' is damaged: it has {} bytes, its header says {}, with an index of {} at {}: copy it again",
         uri_, file_.size(), header_.file_bytes, header_.index_bytes, header_.index_offset);
  std::string bytes(size_t(header_.index_bytes), '\0');
  file_.read_exactly(int64_t(header_.index_offset), bytes.data(), bytes.size());
  dts::Index index = dts::decode_index(bytes, header_, uri_);
  size_t at = 0;
  for (const dts::Entry& entry : index.entries) {
    paths_.add(std::string_view(index.paths).substr(at, entry.path_bytes));
    at += entry.path_bytes;
  }
  entries_ = std::move(index.entries);
  splits_ = std::move(index.splits);
  classes_ = std::move(index.classes);
}

FileFacts DtsStore::facts(int64_t file) const {
  const dts::Entry& entry = entries_[size_t(file)];
  FileFacts facts;
  facts.size = entry.bytes;
  facts.has_crc = true;
  facts.crc = entry.crc;
  return facts;
}

void DtsStore::read(int64_t file, std::string& bytes) const {
  const dts::Entry& entry = entries_[size_t(file)];
  bytes.resize(entry.bytes);
  file_.read_exactly(int64_t(entry.offset), bytes.data(), bytes.size());
  if (ren::crc32(0, bytes.data(), bytes.size()) != entry.crc)
    fail(StatusCode::invalid_data,
         "cannot read '{}': its checksum is wrong: copy '{}' again, or pack it again", full_path(file), uri_);
}

std::string DtsStore::read_head(int64_t file, size_t limit) const {
  const dts::Entry& entry = entries_[size_t(file)];
  std::string head(std::min<size_t>(limit, entry.bytes), '\0');
  file_.read_exactly(int64_t(entry.offset), head.data(), head.size());
  return head;
}

void DtsStore::verify(int64_t file, std::string& bytes) const {
  const dts::Entry& entry = entries_[size_t(file)];
  read(file, bytes);
  std::string header(dts::kRecordHeaderBytes, '\0');
  file_.read_exactly(int64_t(entry.offset - dts::kRecordHeaderBytes), header.data(), header.size());
  dts::RecordHeader h;
  if (!dts::decode_record_header(header, h) || h.bytes != entry.bytes || h.crc != entry.crc ||
      h.width != entry.width || h.height != entry.height)
    fail(StatusCode::invalid_data, "'{}' is damaged: the header of its record isn't what the index says",
         full_path(file));
}

void DtsStore::give_labels(Source& source) const {
  source.labelled = true;
  source.classes = classes_;
  int64_t next = 0;
  for (const dts::IndexSplit& split : splits_) {
    LabelledFiles found;
    found.split = split.name;
    for (uint64_t i = 0; i < split.records; ++i, ++next) {
      found.files.push_back(next);
      found.labels.push_back(entries_[size_t(next)].label);
    }
    source.splits.push_back(std::move(found));
  }
}

Source open_dts(const std::string& path, Purpose purpose) {
  const auto store = std::make_shared<const DtsStore>(path);
  Source source;
  store->give_labels(source);
  if (purpose == Purpose::labels && source.classes.empty())
    fail(StatusCode::invalid_data, "'{}' was packed without classes: pack it from a source that has labels",
         path);
  source.store = store;
  return source;
}

}  // namespace ren::data
