// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

namespace ren {

// Sixteen lanes at a time in the compiler's vector extension: inside a REN_CLONES function they
// become what the processor has. For loops that the compiler doesn't vectorise by itself.
typedef float Floats __attribute__((vector_size(64)));
typedef double Doubles __attribute__((vector_size(64)));
typedef float HalfFloats __attribute__((vector_size(32)));

constexpr int64_t kLanes = 16;

// Callees of a REN_CLONES function must become part of it to be compiled as it is.
#define REN_INLINE __attribute__((always_inline))

// Macros and not functions: passing wide vectors would need an ABI that the baseline lacks.
#define REN_LOAD(vector, pointer) std::memcpy(&(vector), (pointer), sizeof(vector))
#define REN_STORE(pointer, vector) std::memcpy((pointer), &(vector), sizeof(vector))

}  // namespace ren
