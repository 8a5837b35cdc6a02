// SPDX-License-Identifier: Apache-2.0
#include "engine/ops/support/copy_cpu.h"

namespace ren {
namespace {

struct Part {
  const std::byte* source;
  int64_t bytes, offset;  // of each block, and where it begins in the output's
};

std::unique_ptr<Kernel> bind(const BindContext& context) {
  const Axis axis = context.node.as<ConcatAttributes>().axis;
  const Tensor& out = output_tensor(context, 0);
  const AxisBlocks whole = axis_blocks(out.shape, axis, out.dtype);
  std::vector<Part> parts;
  int64_t offset = 0;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    const int64_t bytes = axis_blocks(input_tensor(context, i).shape, axis, out.dtype).bytes();
    parts.push_back({context.inputs[i], bytes, offset});
    offset += bytes;
  }
  std::byte* target = context.outputs[0];
  return make_kernel([=] {
    parallel_for(whole.outer, block_grain(whole.bytes()), [&](int, int64_t begin, int64_t end) {
      for (const Part& p : parts)
        copy_pieces(target + begin * whole.bytes() + p.offset, whole.bytes(), p.source + begin * p.bytes,
                    p.bytes, p.bytes, end - begin);
    });
  });
}

}  // namespace

const OpBackend& concat_cpu() {
  static const OpBackend backend{prepare_own, bind};
  return backend;
}

}  // namespace ren
