// SPDX-License-Identifier: Apache-2.0
// What every kernel source begins with. No header of the toolkit is needed: 16-bit floats
// are their bits here, and arithmetic is FP32.

using int64 = long long;
using uint64 = unsigned long long;

struct f32 { float bits; };
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
struct i32 { int bits; };
struct u8 { unsigned char bits; };
struct i8 { signed char bits; };
struct b1 { unsigned char bits; };  // eight elements

// One element between its storage, as the low bits of a word, and FP32.
template <typename T> struct Codec;
template <> struct Codec<f32> {
  static __device__ float decode(unsigned word) { return __uint_as_float(word); }
  static __device__ unsigned encode(float value) { return __float_as_uint(value); }
};
template <> struct Codec<f16> {
  static __device__ unsigned encode_pair(float low, float high) {
    unsigned bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
  }
  static __device__ float decode(unsigned word) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)word));
    return value;
  }
  static __device__ unsigned encode(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
};
template <> struct Codec<bf16> {
  static __device__ unsigned encode_pair(float low, float high) {
    unsigned bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
  }
  static __device__ float decode(unsigned word) { return __uint_as_float(word << 16); }
  static __device__ unsigned encode(float value) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
};
template <> struct Codec<i32> {
  static __device__ float decode(unsigned word) { return float(int(word)); }
  static __device__ unsigned encode(float value) { return unsigned(int(value)); }
};
template <> struct Codec<u8> {
  static __device__ float decode(unsigned word) { return float(word & 255u); }
  static __device__ unsigned encode(float value) { return unsigned(value) & 255u; }
};
template <> struct Codec<i8> {
  static __device__ float decode(unsigned word) { return float((signed char)(word & 255u)); }
  static __device__ unsigned encode(float value) { return unsigned(int(value)) & 255u; }
};

// V neighbouring elements, moved by the widest accesses that fit; the address is aligned to
// the whole, or to 16 bytes when that is less.
template <typename T, int V>
struct Vec {
  static constexpr int kBytes = int(sizeof(T)) * V;
  static constexpr int kWords = (kBytes + 3) / 4;
  unsigned words[kWords];

  static __device__ Vec load(const T* p) {
    Vec r;
    if constexpr (kBytes % 16 == 0) {
#pragma unroll
      for (int i = 0; i < kBytes / 16; ++i) {
        const uint4 q = reinterpret_cast<const uint4*>(p)[i];
        r.words[4 * i] = q.x, r.words[4 * i + 1] = q.y, r.words[4 * i + 2] = q.z, r.words[4 * i + 3] = q.w;
      }
    } else if constexpr (kBytes == 8) {
      const uint2 q = *reinterpret_cast<const uint2*>(p);
      r.words[0] = q.x, r.words[1] = q.y;
    } else if constexpr (kBytes == 4) {
      r.words[0] = *reinterpret_cast<const unsigned*>(p);
    } else if constexpr (kBytes == 2) {
      r.words[0] = *reinterpret_cast<const unsigned short*>(p);
    } else {
      static_assert(kBytes == 1, "no access of this size");
      r.words[0] = *reinterpret_cast<const unsigned char*>(p);
    }
    return r;
  }
  __device__ void store(T* p) const {
    if constexpr (kBytes % 16 == 0) {
#pragma unroll
      for (int i = 0; i < kBytes / 16; ++i)
        reinterpret_cast<uint4*>(p)[i] =
            make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
    } else if constexpr (kBytes == 8) {
      *reinterpret_cast<uint2*>(p) = make_uint2(words[0], words[1]);
    } else if constexpr (kBytes == 4) {
      *reinterpret_cast<unsigned*>(p) = words[0];
    } else if constexpr (kBytes == 2) {
      *reinterpret_cast<unsigned short*>(p) = (unsigned short)words[0];
    } else {
      *reinterpret_cast<unsigned char*>(p) = (unsigned char)words[0];
    }
  }

  // `i` must be a constant once loops are unrolled, or the words go to local memory.
  __device__ unsigned raw(int i) const {
    constexpr int kEach = 4 / int(sizeof(T));
    if constexpr (kEach == 1) return words[i];
    else return (words[i / kEach] >> (i % kEach * 8 * int(sizeof(T)))) & ((1u << (8 * sizeof(T))) - 1u);
  }
  __device__ void set_raw(int i, unsigned value) {
    constexpr int kEach = 4 / int(sizeof(T));
    if constexpr (kEach == 1) words[i] = value;
    else if (i % kEach == 0) words[i / kEach] = value;
    else words[i / kEach] |= value << (i % kEach * 8 * int(sizeof(T)));
  }
  __device__ float get(int i) const { return Codec<T>::decode(raw(i)); }
  static __device__ Vec pack(const float (&values)[V]) {
    Vec r;
    if constexpr (sizeof(T) == 2 && V % 2 == 0) {
#pragma unroll
      for (int i = 0; i < V / 2; ++i) r.words[i] = Codec<T>::encode_pair(values[2 * i], values[2 * i + 1]);
    } else {
#pragma unroll
      for (int i = 0; i < V; ++i) r.set(i, values[i]);
    }
    return r;
  }
  // In the order i = 0, 1, ... : the first of a word clears it.
  __device__ void set(int i, float value) { set_raw(i, Codec<T>::encode(value)); }
};

// Truth values: `e` is the first element's place, a multiple of V. To store, V is 8: whole bytes.
template <int V>
struct Vec<b1, V> {
  static_assert(V <= 8, "a byte at a time");
  unsigned bits;
  static __device__ Vec load(const b1* p, uint64 e) { return {unsigned(p[e / 8].bits) >> (e % 8)}; }
  __device__ void store(b1* p) const {
    static_assert(V == 8, "a byte at a time");
    p->bits = (unsigned char)bits;
  }
  __device__ float get(int i) const { return float((bits >> i) & 1u); }
  static __device__ Vec pack(const float (&values)[V]) {
    Vec r{0};
#pragma unroll
    for (int i = 0; i < V; ++i) r.bits |= (values[i] != 0.0f ? 1u : 0u) << i;
    return r;
  }
};

template <typename T> __device__ float load_one(const T* p) { return Vec<T, 1>::load(p).get(0); }
template <typename T> __device__ void store_one(T* p, float value) {
  Vec<T, 1> r;
  r.set(0, value);
  r.store(p);
}

// NaN wins, as in PyTorch.
__device__ inline float maximum(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ inline float minimum(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}

// Words of one or two elements, compared without widening them. Masks are ones in the lanes that it holds for.
template <typename T> struct Packed;
template <> struct Packed<f32> {
  static constexpr int kEach = 1;
  static constexpr unsigned kLowest = 0xff800000u;  // minus infinity
  static __device__ unsigned greater(unsigned a, unsigned b) {
    return __uint_as_float(a) > __uint_as_float(b) ? ~0u : 0u;
  }
  static __device__ unsigned is_nan(unsigned a) { return __uint_as_float(a) != __uint_as_float(a) ? ~0u : 0u; }
  static __device__ unsigned maximum(unsigned a, unsigned b) {
    return __float_as_uint(::maximum(__uint_as_float(a), __uint_as_float(b)));
  }
};
template <> struct Packed<f16> {
  static constexpr int kEach = 2;
  static constexpr unsigned kLowest = 0xfc00fc00u;
  static __device__ unsigned greater(unsigned a, unsigned b) {
    unsigned r;
    asm("set.gt.u32.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
  }
  static __device__ unsigned is_nan(unsigned a) {
    unsigned r;
    asm("set.nan.u32.f16x2 %0, %1, %1;" : "=r"(r) : "r"(a));
    return r;
  }
  static __device__ unsigned maximum(unsigned a, unsigned b) {
    unsigned r;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
  }
};
template <> struct Packed<bf16> {
  static constexpr int kEach = 2;
  static constexpr unsigned kLowest = 0xff80ff80u;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  static __device__ unsigned greater(unsigned a, unsigned b) {
    unsigned r;
    asm("set.gt.u32.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
  }
  static __device__ unsigned is_nan(unsigned a) {
    unsigned r;
    asm("set.nan.u32.bf16x2 %0, %1, %1;" : "=r"(r) : "r"(a));
    return r;
  }
#else
  static __device__ float low(unsigned a) { return __uint_as_float(a << 16); }
  static __device__ float high(unsigned a) { return __uint_as_float(a & 0xffff0000u); }
  static __device__ unsigned both(bool low, bool high) { return (low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u); }
  static __device__ unsigned greater(unsigned a, unsigned b) { return both(low(a) > low(b), high(a) > high(b)); }
  static __device__ unsigned is_nan(unsigned a) { return both(low(a) != low(a), high(a) != high(a)); }
#endif
  static __device__ unsigned maximum(unsigned a, unsigned b) {
    unsigned r;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
  }
};

// A sum that keeps its rounding error (Kahan): thousands of terms without drift.
struct Sum {
  float value = 0.0f, lost = 0.0f;
  __device__ void add(float x) {
    const float y = x - lost, t = value + y;
    lost = (t - value) - y;
    value = t;
  }
  __device__ float result() const { return value; }
};
// Enough where the terms themselves have 16 bits and a thread adds some hundreds of them.
struct PlainSum {
  float value = 0.0f;
  __device__ void add(float x) { value += x; }
  __device__ float result() const { return value; }
};
struct Maximum {
  float value = -__int_as_float(0x7f800000);
  __device__ void add(float x) { value = maximum(value, x); }
  __device__ float result() const { return value; }
};

// Over the 32 lanes in a fixed tree; every lane gets the result.
template <typename Combine>
__device__ float warp_reduce(float value, Combine combine) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, mask));
  return value;
}

// What other blocks wrote in this launch, past the first-level cache. Volatile keeps the loads behind the
// barrier; several in a row are in flight together.
template <int V>
__device__ void load_shared_result(const float* p, float (&to)[V]) {
  if constexpr (V % 4 == 0) {
#pragma unroll
    for (int i = 0; i < V; i += 4)
      asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(to[i]), "=f"(to[i + 1]), "=f"(to[i + 2]), "=f"(to[i + 3])
                   : "l"(p + i));
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(to[i]) : "l"(p + i));
  }
}

// True in every thread of the block that is the last of `blocks` to come here; what the others wrote
// before is visible to it (by load_shared_result). The counter returns to zero, ready for the next launch.
__device__ inline bool last_to_arrive(unsigned* counter, unsigned blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) last = atomicInc(counter, blocks - 1) == blocks - 1;
  __syncthreads();
  if (last) __threadfence();
  return last;
}
