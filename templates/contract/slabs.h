/// Operands that TMA writes and tensor cores read, said once for the host and the kernels: how wide their slabs are,
/// and what tells a product where things lie.
///
/// A tile of `rows` rows is [slabs][rows][slab_bytes()], from an address that is a multiple of 1024. A row of a slab is
/// as wide as the swizzle, or 16 bytes without one; a box of TMA fills rows of one slab. The swizzle moves pieces of 16
/// bytes within 8 rows: the pattern depends on the address alone, so that a tile may be entered at every eighth row.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

constexpr int32_t kSwizzleRows = 8;  // what the widest swizzle repeats after, and where a box may begin
constexpr int32_t kPieceBytes = 16;  // what a swizzle moves
constexpr int32_t kStepBytes = 32;   // K of a wgmma or tcgen05.mma, of any operand

/// Bytes of a row of a slab. `swizzle_bytes`: 128, 64, 32, or 0 for none.
constexpr int32_t slab_bytes(int32_t swizzle_bytes) { return swizzle_bytes == 0 ? kPieceBytes : swizzle_bytes; }

/// Slabs that belong to each other: those of a step of a product, where a slab is narrower than the step.
constexpr int32_t slabs_of_step(int32_t swizzle_bytes) {
  return slab_bytes(swizzle_bytes) < kStepBytes ? kStepBytes / slab_bytes(swizzle_bytes) : 1;
}

/// Slabs that `depth` elements of a row take, for whole steps of a product: what lies behind the depth is zeros.
constexpr int32_t slabs_of(int32_t depth, int32_t element_bytes, int32_t swizzle_bytes) {
  const int32_t together = slabs_of_step(swizzle_bytes), bytes = together * slab_bytes(swizzle_bytes);
  return (depth * element_bytes + bytes - 1) / bytes * together;
}

/// Columns of a tile of 16-bit elements in shared memory: whole slabs.
constexpr int32_t padded_depth(int32_t depth, int32_t swizzle_bytes) {
  return slabs_of(depth, 2, swizzle_bytes) * slab_bytes(swizzle_bytes) / 2;
}

/// By how much the pieces of row `row` of a slab are moved: piece p stands at p XOR this.
constexpr uint32_t swizzle_of_row(uint32_t row, int32_t swizzle_bytes) {
  const uint32_t pieces = static_cast<uint32_t>(slab_bytes(swizzle_bytes) / kPieceBytes);
  return row % kSwizzleRows * pieces / kSwizzleRows;
}

/// The byte offsets of a matrix descriptor (PTX ISA "Matrix Descriptors", "Strides").
struct SlabStrides {
  uint32_t leading, stride;
};

/// Of an operand whose rows lie along k, a tile of `rows` rows. K goes on from step to step by k_major_step(): the
/// leading offset leads to the second half of a step, where that is a slab of its own, and is not read otherwise.
constexpr SlabStrides k_major_strides(int32_t swizzle_bytes, int32_t rows) {
  const uint32_t row = static_cast<uint32_t>(slab_bytes(swizzle_bytes)), slab = static_cast<uint32_t>(rows) * row;
  return {swizzle_bytes == 0 ? slab : 0, kSwizzleRows * row};
}

/// Of an operand each of whose `rows` rows is one k, and lies along m or n.
constexpr SlabStrides mn_major_strides(int32_t swizzle_bytes, int32_t rows) {
  const uint32_t row = static_cast<uint32_t>(slab_bytes(swizzle_bytes)), slab = static_cast<uint32_t>(rows) * row;
  const uint32_t next_rows = kSwizzleRows * row;
  return swizzle_bytes == 0 ? SlabStrides{next_rows, slab} : SlabStrides{slab, next_rows};
}

/// Bytes from a tile's first step of k to its step `step`, rows along k.
constexpr int32_t k_major_step(int32_t swizzle_bytes, int32_t rows, int32_t step) {
  const int32_t row = slab_bytes(swizzle_bytes), column = step * kStepBytes;
  return column / row * (rows * row) + column % row;
}

}  // namespace kernelwright::contract
