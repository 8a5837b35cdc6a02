// SPDX-License-Identifier: Apache-2.0
#include "data/mutation.h"

#include <unistd.h>
#include <zlib.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "engine/base/checksum.h"

namespace ren::data::test {
namespace {

template <typename T>
T& one_of(std::vector<T>& values, RandomStream& random) {
  return values[random.below(uint32_t(values.size()))];
}

// Numbers at which sizes, counts and offsets go wrong.
uint64_t awkward_number(RandomStream& random, uint64_t near) {
  switch (random.below(6)) {
    case 0:
      return random.below(4);
    case 1:
      return ~uint64_t{0} - random.below(2);
    case 2:
      return uint64_t{1} << random.below(64);
    case 3:
      return (uint64_t{1} << random.below(64)) - 1;
    case 4:
      return near + random.below(5) - 2;
    default:
      return random.bits();
  }
}

void put_number(std::string& bytes, size_t at, size_t size, uint64_t value, bool big_endian) {
  for (size_t k = 0; k < size && at + k < bytes.size(); ++k)
    bytes[at + k] = char(value >> (8 * (big_endian ? size - 1 - k : k)));
}

// Doubles, drops, swaps parts or takes one from another file; false: something else is to be done.
template <typename Part>
bool rearrange(std::vector<Part>& parts, std::vector<Part>& others, uint32_t how, RandomStream& random) {
  const auto place = [&] { return parts.begin() + random.below(uint32_t(parts.size())); };
  switch (how) {
    case 0: {
      const Part part = *place();
      parts.insert(place(), part);
      return true;
    }
    case 1:
      if (parts.size() > 1) parts.erase(place());
      return true;
    case 2:
      std::swap(*place(), *place());
      return true;
    case 3:
      parts.insert(place(), one_of(others, random));
      return true;
    default:
      return false;
  }
}

// A marker with its length and contents; behind a start of scan, the scan.
std::vector<std::string> segments_of(const std::string& bytes) {
  std::vector<std::string> segments;
  size_t begin = 0;
  const auto is_marker = [&](size_t at) {
    const auto code = uint8_t(bytes[at + 1]);
    return uint8_t(bytes[at]) == 0xFF && code != 0 && code != 0xFF && (code < 0xD0 || code > 0xD7);
  };
  bool in_scan = false;
  for (size_t at = 0; at + 3 < bytes.size();) {
    if (in_scan && !is_marker(at)) {
      ++at;
      continue;
    }
    if (at > begin) segments.push_back(bytes.substr(begin, at - begin));
    begin = at;
    const auto code = uint8_t(bytes[at + 1]);
    in_scan = code == 0xDA;
    at += code == 0xD8 ? 2 : 2 + (size_t{uint8_t(bytes[at + 2])} << 8 | uint8_t(bytes[at + 3]));
  }
  segments.push_back(bytes.substr(begin));
  return segments;
}

void change_segment(std::string& segment, RandomStream& random) {
  const auto any_place = [&] { return size_t{random.below(uint32_t(segment.size()))}; };
  switch (random.below(4)) {
    case 0:
      put_number(segment, 2, 2, awkward_number(random, segment.size() - 2), true);
      break;
    case 1:  // tables and headers stand at the beginning
      segment[std::min<size_t>(any_place(), random.below(24))] = char(random.bits());
      break;
    case 2:
      segment.insert(any_place(), {char(0xFF), char(0xC0 + random.below(0x3F))});
      break;
    default:
      if (segment.size() > 1) segment[1] = char(0xC0 + random.below(0x3F));
  }
}

struct Chunk {
  std::string type, data;
};

std::vector<Chunk> chunks_of(const std::string& bytes) {
  std::vector<Chunk> chunks;
  for (size_t at = 8; at + 12 <= bytes.size();) {
    size_t size = 0;
    for (size_t k = 0; k < 4; ++k) size = size << 8 | uint8_t(bytes[at + k]);
    chunks.push_back({bytes.substr(at + 4, 4), bytes.substr(at + 8, size)});
    at += 12 + size;
  }
  return chunks;
}

std::string deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()),
           bytes.size());
  out.resize(size);
  return out;
}

void change_chunk(Chunk& chunk, RandomStream& random) {
  switch (random.below(4)) {
    case 0:
      if (!chunk.data.empty()) chunk.data[random.below(uint32_t(chunk.data.size()))] = char(random.bits());
      break;
    case 1:
      chunk.data.resize(size_t{random.below(uint32_t(2 * chunk.data.size() + 2))}, char(random.bits()));
      break;
    case 2: {
      static const char* const types[] = {"IHDR", "PLTE", "IDAT", "IEND", "tRNS",
                                          "gAMA", "iCCP", "sBIT", "abcd"};
      chunk.type = types[random.below(9)];
      break;
    }
    default: {  // rows that inflate well: too few, too many, with filters that there aren't
      std::string rows(size_t{random.below(4096)}, char(random.below(8)));
      if (!rows.empty()) rows[random.below(uint32_t(rows.size()))] = char(random.bits());
      chunk = {"IDAT", deflated(rows)};
    }
  }
}

std::string png_of(const std::vector<Chunk>& chunks) {
  std::string bytes = "\x89PNG\r\n\x1a\n";
  const auto add_number = [&](uint64_t value) {
    bytes.append(4, '\0');
    put_number(bytes, bytes.size() - 4, 4, value, true);
  };
  for (const Chunk& chunk : chunks) {
    const std::string checked = chunk.type + chunk.data;
    add_number(chunk.data.size());
    bytes += checked;
    add_number(crc32(0, checked.data(), checked.size()));
  }
  return bytes;
}

// For the signal's handler, which may do little.
char g_hang_message[128];
size_t g_hang_message_size = 0;

void tell_hang(int) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, g_hang_message, g_hang_message_size);
  std::abort();
}

}  // namespace

std::string mutate(std::string bytes, RandomStream& random) {
  const uint32_t changes = 1 + random.below(4);
  for (uint32_t i = 0; i < changes && !bytes.empty(); ++i) {
    const size_t at = random.below(uint32_t(bytes.size()));
    switch (random.below(8)) {
      case 0:
        bytes[at] = char(random.bits());
        break;
      case 1:
        bytes[at] = char(bytes[at] ^ (1 << random.below(8)));
        break;
      case 2:
        bytes[at] = char(random.below(2) ? 0xFF : 0);
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.insert(at, bytes.substr(at, 1 + random.below(16)));
        break;
      case 5:
        bytes.erase(at, 1 + random.below(8));
        break;
      case 6:
        put_number(bytes, at, size_t{1} << random.below(4), awkward_number(random, bytes.size()),
                   random.below(2) != 0);
        break;
      default: {
        const std::string stretch = bytes.substr(random.below(uint32_t(bytes.size())), 1 + random.below(64));
        bytes.replace(at, stretch.size(), stretch);
      }
    }
  }
  return bytes;
}

std::string mutate_jpeg(const std::string& bytes, const std::string& other, RandomStream& random) {
  std::vector<std::string> segments = segments_of(bytes), others = segments_of(other);
  const uint32_t changes = 1 + random.below(3);
  for (uint32_t i = 0; i < changes; ++i)
    if (!rearrange(segments, others, random.below(8), random))
      change_segment(one_of(segments, random), random);
  std::string changed;
  for (const std::string& segment : segments) changed += segment;
  return changed;
}

std::string mutate_png(const std::string& bytes, const std::string& other, RandomStream& random) {
  std::vector<Chunk> chunks = chunks_of(bytes), others = chunks_of(other);
  const uint32_t changes = 1 + random.below(3);
  for (uint32_t i = 0; i < changes; ++i)
    if (!rearrange(chunks, others, random.below(8), random)) change_chunk(one_of(chunks, random), random);
  return png_of(chunks);
}

uint64_t mutation_factor() {
  const char* const factor = std::getenv("RENAISSANCE_MUTATIONS");
  return factor != nullptr ? std::max<uint64_t>(1, std::strtoull(factor, nullptr, 10)) : 1;
}

Watchdog::Watchdog(uint32_t purpose, uint64_t run, unsigned seconds) {
  const int size = std::snprintf(g_hang_message, sizeof g_hang_message,
                                 "a damaged input takes more than %u s: purpose %u, run %llu\n", seconds,
                                 purpose, static_cast<unsigned long long>(run));
  g_hang_message_size = size_t(size);
  std::signal(SIGALRM, tell_hang);
  alarm(seconds);
}

Watchdog::~Watchdog() { alarm(0); }

void tell_survived(const Survived& seen, double slowest_seconds) {
  if (mutation_factor() == 1) return;
  std::printf("[  inputs  ] %lld: %lld good, %lld refused; the slowest took %.3f s\n",
              static_cast<long long>(seen.good + seen.refused), static_cast<long long>(seen.good),
              static_cast<long long>(seen.refused), slowest_seconds);
}

}  // namespace ren::data::test
