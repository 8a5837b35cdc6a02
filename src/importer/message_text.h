// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace ren::importer {

// What a user reads of a shape is ONNX's: in every "[...]" of whole numbers a multiple of the number
// that stands for a dynamic batch (0: there is none) becomes N, and with `channels_last` four
// numbers in the engine's order N, H, W, C come in the file's.
std::string onnx_shapes(const std::string& text, int64_t batch_placeholder, bool channels_last);

}  // namespace ren::importer
