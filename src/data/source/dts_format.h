// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/decode/image.h"

// The bytes of a packed data set, docs/dts.md. What is decoded here is checked: nothing that a file says is
// used before it is known to lie within the file.
namespace ren::data::dts {

// As PNG's, it shows copies that were made as text or to seven bits.
inline constexpr std::string_view kMagic{
    "\x89"
    "DTS\r\n\x1A\n",
    8};
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kHeaderBytes = 128;
inline constexpr size_t kRecordHeaderBytes = 64;
// A record begins with a cache line: its header is in one, and its picture is aligned for every vector
// instruction where a program maps the file. Larger steps would only cost room, most of all with small
// pictures: a record is read by position, for which any place is good.
inline constexpr uint64_t kAlignment = 64;
inline constexpr size_t kEntryBytes = 32;
inline constexpr uint64_t kMostRecords = UINT32_MAX;

struct Header {
  bool complete = false;
  PixelForm form;  // of all pictures, where they are bare pixels
  uint64_t file_bytes = 0, index_offset = 0, index_bytes = 0;
  uint32_t index_crc = 0;
  uint64_t records = 0;
  uint64_t job = 0;  // while it is made: a hash of what is packed and how; 0 in a complete file
};

// In front of each picture: enough to go on with a file that has no index yet.
struct RecordHeader {
  uint64_t sample = 0;  // the picture's place among those of the source, from 0
  uint32_t bytes = 0, crc = 0, width = 0, height = 0;
};

// A picture in the index.
struct Entry {
  uint64_t offset = 0;  // of its first byte, behind the record's header
  uint32_t bytes = 0, crc = 0, width = 0, height = 0;
  int32_t label = -1;  // -1: without classes
  uint32_t path_bytes = 0;
};

struct IndexSplit {
  std::string name;  // "train", "val", "test" or "all"
  uint64_t records = 0;
};

struct Index {
  std::vector<Entry> entries;      // split after split
  std::string paths;               // one behind the other
  std::vector<IndexSplit> splits;  // in this order
  std::vector<std::string> classes;
};

inline uint64_t aligned(uint64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

bool is_dts(std::string_view head);

std::string encode(const Header& header);
std::string encode(const RecordHeader& header);
std::string encode(const Index& index);

// Throws invalid_data or unsupported; `path` names the file.
Header decode_header(std::string_view bytes, const std::string& path);
// False for what is no intact header of a record.
bool decode_record_header(std::string_view bytes, RecordHeader& header);
// The index that `header` tells of. Throws invalid_data.
Index decode_index(std::string_view bytes, const Header& header, const std::string& path);

}  // namespace ren::data::dts
