// SPDX-License-Identifier: Apache-2.0
#include "cli/outputs.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "cli/output.h"

namespace ren::cli {
namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

bool replaces(const std::string& path, const std::string& other) {
  const char* const others[] = {other.c_str()};
  return ren_check_output(path.c_str(), 0, others, 1) == REN_ERROR_INVALID_ARGUMENT;
}

// By its first bytes: nobody means to write a model over one.
bool is_picture(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  std::ifstream file(path, std::ios::binary);
  std::string head(8, '\0');
  file.read(head.data(), 8);
  return head.starts_with("\xFF\xD8\xFF") || head.starts_with("\x89PNG\r\n\x1a\n");
}

}  // namespace

void PlannedOutputs::add(const std::string& option, const std::string& path, uint64_t bytes,
                         std::vector<NeededFile> not_over, int copies) {
  files_.push_back({option, path, bytes, std::move(not_over), copies, false});
}

void PlannedOutputs::add_picture(const std::string& option, const std::string& path) {
  add(option, path, 0);
  files_.back().is_picture = true;
}

void PlannedOutputs::keep(const std::vector<NeededFile>& files) {
  kept_.insert(kept_.end(), files.begin(), files.end());
}

void PlannedOutputs::check() const {
  for (const File& file : files_) check_one(file);
  for (size_t i = 0; i < files_.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (replaces(files_[i].path, files_[k].path))
        throw CliError(kRefused, fmt::format("{} '{}' and {} '{}' are one file: name two", files_[k].option,
                                             files_[k].path, files_[i].option, files_[i].path));
  check_room();
}

void PlannedOutputs::check_one(const File& file) const {
  const auto refuse = [&](const std::string& why) {
    throw CliError(kRefused, fmt::format("{} '{}' {}", file.option, file.path, why));
  };
  for (const auto* list : {&file.not_over, &kept_})
    for (const NeededFile& needed : *list)
      if (!needed.path.empty() && replaces(file.path, needed.path))
        refuse(fmt::format("is {}, which it would replace: name another file", needed.what));
  if (!file.is_picture && is_picture(file.path))
    refuse("is a picture, which it would replace: name another file");
  if (ren_check_output(file.path.c_str(), 0, nullptr, 0) != REN_OK)
    refuse(fmt::format("can't be written: {}", ren_last_error_message()));
}

void PlannedOutputs::check_room() const {
  struct Room {
    uint64_t free = 0, wanted = 0;
    std::vector<std::string> options;
  };
  std::map<uint64_t, Room> disks;
  for (const File& file : files_) {
    struct stat status {};
    struct statvfs disk {};
    const std::string folder = folder_of(file.path);
    if (stat(folder.c_str(), &status) != 0 || statvfs(folder.c_str(), &disk) != 0) continue;
    Room& room = disks[uint64_t(status.st_dev)];
    room.free = uint64_t(disk.f_bavail) * disk.f_frsize;
    // What lies there already takes no more room, but the new one is written beside it.
    const uint64_t all = file.bytes * uint64_t(file.copies);
    room.wanted += std::max(file.bytes, all - std::min(all, file_bytes(file.path)));
    room.options.push_back(file.option);
  }
  for (const auto& [device, room] : disks)
    if (room.wanted > room.free)
      throw CliError(kRefused,
                     fmt::format("{} can't be written: {} needed, {} free", fmt::join(room.options, ", "),
                                 bytes_text(double(room.wanted)), bytes_text(double(room.free))));
}

uint64_t file_bytes(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) ? uint64_t(status.st_size) : 0;
}

std::vector<NeededFile> external_files(const ModelHandle& model) {
  ren_model_info info = REN_MODEL_INFO_INIT;
  check(ren_model_get_info(model.get(), &info));
  std::vector<NeededFile> files;
  for (int64_t i = 0; i < info.external_files; ++i)
    files.push_back({text_from([&](char* b, size_t c, size_t* n) {
                       return ren_model_external_file(model.get(), i, b, c, n);
                     }),
                     "a file of the model's external data"});
  return files;
}

uint64_t model_bytes(const std::string& path, const ModelHandle& model) {
  uint64_t bytes = file_bytes(path);
  for (const NeededFile& file : external_files(model)) bytes += file_bytes(file.path);
  return bytes;
}

uint64_t checkpoint_bytes(const ModelHandle& model, int values_a_weight) {
  ren_model_info info = REN_MODEL_INFO_INIT;
  check(ren_model_get_info(model.get(), &info));
  uint64_t values = 0;
  for (int64_t i = 0; i < info.tensors; ++i) {
    ren_tensor_info tensor = REN_TENSOR_INFO_INIT;
    check(ren_model_tensor_info(model.get(), i, &tensor));
    if (tensor.role == REN_ROLE_PARAMETER) values += uint64_t(tensor.elements) * uint64_t(values_a_weight);
    if (tensor.role == REN_ROLE_BUFFER) values += uint64_t(tensor.elements);
  }
  constexpr uint64_t kDescription = 1 << 16;  // about: names, shapes, options
  return 4 * values + kDescription;
}

}  // namespace ren::cli
