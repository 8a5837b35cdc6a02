// SPDX-License-Identifier: Apache-2.0
// Which source a URI is.
#include <sys/stat.h>

#include <cerrno>

#include "data/decode/decode.h"
#include "data/source/input_file.h"
#include "data/source/labelled.h"
#include "data/source/stores.h"
#include "engine/base/status.h"

namespace ren::data {
namespace {

Source of(std::shared_ptr<const FileStore> store) {
  Source source;
  source.store = std::move(store);
  return source;
}

Source open_folder(const std::string& path, Purpose) { return of(open_folder_store(path)); }

Source open_file(const std::string& path, Purpose purpose) {
  std::string head(4096, '\0');
  {
    const InputFile file(path);
    head.resize(file.read(0, head.data(), head.size()));
  }
  if (head.starts_with("PK\x03\x04") || head.starts_with("PK\x05\x06")) return of(open_zip_store(path));
  if (purpose == Purpose::pictures && is_decodable(recognise_format(head)))
    return of(open_single_file_store(path));
  if (path.ends_with(".zip")) return of(open_zip_store(path));
  if (looks_like_list(path, head)) return open_list(path, purpose);
  if (purpose == Purpose::pictures) return of(open_single_file_store(path));
  fail(StatusCode::invalid_data,
       "'{}' is neither a folder nor a zip archive nor a CSV list: name a folder of class folders, a zip of "
       "one, or a list with lines 'path,label'",
       path);
}

}  // namespace

Source open_source(const std::string& uri, Purpose purpose) {
  struct stat info {};
  if (uri.empty()) fail(StatusCode::invalid_argument, "the path of the data set is empty");
  if (stat(uri.c_str(), &info) != 0) fail_open(uri, errno);
  return S_ISDIR(info.st_mode) ? open_folder(uri, purpose) : open_file(uri, purpose);
}

std::shared_ptr<const FileStore> open_file_store(const std::string& uri, bool allow_single_file) {
  return open_source(uri, allow_single_file ? Purpose::pictures : Purpose::labels).store;
}

}  // namespace ren::data
