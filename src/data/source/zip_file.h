// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zip.h>

#include <memory>

#include "data/source/input_file.h"

namespace ren::data {

struct DiscardZip {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
using ZipHandle = std::unique_ptr<zip_t, DiscardZip>;

// A further handle of an archive that is open: all of them read the same file, also when its name is gone or
// another's by then. libzip itself opens by name only. Throws io or invalid_data.
ZipHandle open_zip(std::shared_ptr<const InputFile> file);

}  // namespace ren::data
