/// Fragments of fp8 keys and values that lie in shared memory as they lie in device memory: f16 operands of m16n8k16,
/// converted behind the shared-memory read. Both formats become f16 exactly.
///
/// A KvBuffer reads pairs of bytes as if they were 16-bit elements. One ldmatrix.x4 then brings 32 bytes of a row:
/// 16 elements of the head for each of two steps. A lane's word has four bytes, which fill its place in one step:
///   keys     bytes 4c .. 4c + 3 of a key's 16, c = lane % 4, where a 16-bit operand has elements 2c, 2c + 1, 2c + 8
///            and 2c + 9. The product sums over them, so only Q has to have the same order: in_key_order().
///   values   bytes 2g and 2g + 1, g = lane / 4, of two keys. The MMA of even elements takes one byte of each key, that
///            of odd elements the other. So a pair of MMAs has elements 0, 2, .. 14 and 1, 3, .. 15 of 16, where a pair
///            on 16-bit operands has the first 8 and the last 8: store_value_columns().
#pragma once

#include "contract/words.h"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "tile/element.cuh"

namespace kernelwright::tile {

/// Four fp8 to two words of packed f16: bytes 0 and 1, bytes 2 and 3.
template <DType kFp8, int kArch>
__device__ __forceinline__ void neighbours_to_f16(uint32_t bytes, uint32_t (&pairs)[2]) {
  if constexpr (kFp8 == DType::kE5m2) {  // e5m2 is the upper byte of an f16
    pairs[0] = ptx::prmt(bytes, 0, 0x1404), pairs[1] = ptx::prmt(bytes, 0, 0x3424);
  } else {
    static_assert(kArch >= 89, "older ones lack the conversion");
    ptx::cvt_rn_f16x2_e4m3x4(bytes, pairs[0], pairs[1]);
  }
}

/// Four fp8 to two words of kTo, bf16 or f16: exact, and NaN stays NaN.
template <DType kFp8, DType kTo, int kArch>
__device__ __forceinline__ void convert_four(uint32_t bytes, uint32_t (&pairs)[2]) {
  neighbours_to_f16<kFp8, kArch>(bytes, pairs);
  if constexpr (kTo == DType::kBf16) {
#pragma unroll
    for (uint32_t& pair : pairs)
      pair = ptx::cvt_rn_bf16x2_f32(ptx::cvt_f32_f16(static_cast<uint16_t>(pair)),
                                    ptx::cvt_f32_f16(static_cast<uint16_t>(pair >> 16)));
  }
}

/// The same as neighbours_to_f16(), for bytes 0 and 2, and bytes 1 and 3.
template <DType kFp8, int kArch>
__device__ __forceinline__ void alternates_to_f16(uint32_t bytes, uint32_t (&pairs)[2]) {
  if constexpr (kFp8 == DType::kE5m2) {
    pairs[0] = ptx::prmt(bytes, 0, 0x2404), pairs[1] = ptx::prmt(bytes, 0, 0x3414);
  } else {
    neighbours_to_f16<kFp8, kArch>(ptx::prmt(bytes, 0, 0x3120), pairs);
  }
}

/// `Buffer` is a KvBuffer of keys, whose elements are pairs of bytes.
template <class Buffer, DType kFp8, int kArch>
class ByteKeys : public Buffer {
  static constexpr int kPairs = Buffer::num_mmas / 2;
  mutable uint32_t kept_[kPairs][2];  // the bytes of the odd step, read with those of the even one

 public:
  using Buffer::Buffer;

  /// Fragments of two neighbouring n8 MMAs at one step of 16 elements. Call it for steps in their order.
  __device__ __forceinline__ void load_from_shared(uint32_t (&first)[2], uint32_t (&second)[2], uint32_t base, int step,
                                                   int pair) const {
    if (step % 2 == 0) {
      uint32_t low[2], high[2];  // of the first and the last 8 keys, for both steps
      Buffer::load_from_shared(low, high, base, step / 2, pair);
      kept_[pair][0] = low[1], kept_[pair][1] = high[1];
      neighbours_to_f16<kFp8, kArch>(low[0], first);
      neighbours_to_f16<kFp8, kArch>(high[0], second);
    } else {
      neighbours_to_f16<kFp8, kArch>(kept_[pair][0], first);
      neighbours_to_f16<kFp8, kArch>(kept_[pair][1], second);
    }
  }
};

/// `Buffer` is a KvBuffer of values, whose elements are pairs of bytes.
template <class Buffer, DType kFp8, int kArch>
class ByteValues : public Buffer {
  mutable uint32_t kept_[2];  // the bytes of the odd pair

 public:
  using Buffer::Buffer;

  /// Fragments of the MMAs of even and of odd elements, of 16 elements at one step of 16 keys. Call it for pairs in
  /// their order.
  __device__ __forceinline__ void load_from_shared(uint32_t (&even)[2], uint32_t (&odd)[2], uint32_t base, int step,
                                                   int pair) const {
    uint32_t keys[2];  // bytes of the first and of the last 8 keys
    if (pair % 2 == 0)
      Buffer::load_from_shared(keys, kept_, base, step, pair / 2);
    else
      keys[0] = kept_[0], keys[1] = kept_[1];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t columns[2];
      alternates_to_f16<kFp8, kArch>(keys[half], columns);
      even[half] = columns[0], odd[half] = columns[1];
    }
  }
};

/// Sixteen 16-bit elements of Q, two 16-byte pieces, in the order that fragments of ByteKeys have.
__device__ __forceinline__ void in_key_order(const uint32_t (&words)[8], ptx::Vector16 (&pieces)[2]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) pieces[0].word[i] = words[2 * i], pieces[1].word[i] = words[2 * i + 1];
}

}  // namespace kernelwright::tile
