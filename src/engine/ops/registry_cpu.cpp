// SPDX-License-Identifier: Apache-2.0
#include "engine/base/status.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/ops/op.h"

namespace ren {

// A backend column of op_list.def turns into a declaration and a table row, or into nothing.
#define REN_CPU_DECLARE_NONE(name)
#define REN_CPU_DECLARE_CPU(name) const OpBackend& name##_cpu();
#define REN_CPU_DECLARE_CPU_CUDA(name) REN_CPU_DECLARE_CPU(name)
#define REN_OP(name, folder, backends) REN_CPU_DECLARE_##backends(name)
#include "engine/ir/op_list.def"
#undef REN_OP

namespace {

#define REN_CPU_ROW_NONE(name) \
  case Op::name:               \
    return nullptr;
#define REN_CPU_ROW_CPU(name) \
  case Op::name:              \
    return &name##_cpu();
#define REN_CPU_ROW_CPU_CUDA(name) REN_CPU_ROW_CPU(name)

const OpBackend* cpu_kernels(Op op) {
  switch (op) {
#define REN_OP(name, folder, backends) REN_CPU_ROW_##backends(name)
#include "engine/ir/op_list.def"
#undef REN_OP
  }
  return nullptr;
}

std::unique_ptr<Device> open_cpu(int) { return open_cpu_device(); }

}  // namespace

const Backend& cpu_backend() {
  static const Backend backend{DeviceKind::cpu, open_cpu, cpu_kernels};
  return backend;
}

}  // namespace ren
