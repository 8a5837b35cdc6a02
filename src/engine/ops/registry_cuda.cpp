// SPDX-License-Identifier: Apache-2.0
// What librenaissance_cuda.so shows of itself: one table of functions.
#include "engine/ops/cuda_module.h"

#include "engine/device/cuda/cuda_device.h"

namespace ren {

// A backend column of op_list.def turns into a declaration and a table row, or into nothing.
#define REN_CUDA_DECLARE_NONE(name)
#define REN_CUDA_DECLARE_CPU(name)
#define REN_CUDA_DECLARE_CPU_CUDA(name) const OpBackend& name##_cuda();
#define REN_OP(name, folder, backends) REN_CUDA_DECLARE_##backends(name)
#include "engine/ir/op_list.def"
#undef REN_OP

namespace {

#define REN_CUDA_ROW_NONE(name) \
  case Op::name:                \
    return nullptr;
#define REN_CUDA_ROW_CPU(name) REN_CUDA_ROW_NONE(name)
#define REN_CUDA_ROW_CPU_CUDA(name) \
  case Op::name:                    \
    return &name##_cuda();

const OpBackend* cuda_kernels(Op op) {
  switch (op) {
#define REN_OP(name, folder, backends) REN_CUDA_ROW_##backends(name)
#include "engine/ir/op_list.def"
#undef REN_OP
  }
  return nullptr;
}

}  // namespace
}  // namespace ren

extern "C" [[gnu::visibility("default")]] const ren::Backend* ren_cuda_backend(int abi) {
  static const ren::Backend backend{ren::DeviceKind::cuda, ren::cuda::open_cuda_device, ren::cuda_kernels};
  return abi == ren::module_abi() ? &backend : nullptr;
}
