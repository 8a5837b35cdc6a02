// SPDX-License-Identifier: Apache-2.0
#include "engine/ir/graph.h"

#include "engine/base/status.h"

namespace ren {

const char* name_of(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::weight:
      return "weight";
    case ParameterKind::bias:
      return "bias";
    case ParameterKind::norm_scale:
      return "norm scale";
    case ParameterKind::norm_bias:
      return "norm bias";
    case ParameterKind::scale:
      return "scale";
    case ParameterKind::constant:
      return "constant";
  }
  return "?";
}

const char* content_of(Region region) {
  switch (region) {
#define REN_REGION(letter, name, family, content) \
  case Region::letter:                            \
    return content;
#include "engine/ir/region_list.def"
#undef REN_REGION
  }
  return "?";
}

}  // namespace ren
