// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ren {

enum class Op : uint8_t {
#define REN_OP(name, folder, backends) name,
#include "engine/ir/op_list.def"
#undef REN_OP
};

constexpr int kOps = 0
#define REN_OP(name, folder, backends) +1
#include "engine/ir/op_list.def"
#undef REN_OP
    ;

constexpr const char* name_of(Op op) {
  switch (op) {
#define REN_OP(name, folder, backends) \
  case Op::name:                       \
    return #name;
#include "engine/ir/op_list.def"
#undef REN_OP
  }
  return "?";
}

}  // namespace ren
