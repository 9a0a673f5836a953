/// Where the scales of block-scaled operands lie, said once for whoever writes them and whoever reads them.
///
/// A scale is a byte that 32 elements of k share (mxfp8, mxfp4), or 16 (nvfp4). Atoms of 512 bytes hold those of 128
/// rows by 4 scales of k, in the order in which tcgen05.cp spreads them over tensor memory, so that nothing is put in
/// order on the way: 16 bytes of rows r, r + 32, r + 64 and r + 96 follow those of r - 1. Atoms of the same rows lie
/// side by side, [rows / 128][k scales / 4] of them, both rounded up. Bytes of rows and k past the end are there; those
/// of k in the last atom are not NaN, for products of zeros are scaled with them.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

constexpr int32_t kScaleAtomBytes = 512;
constexpr int32_t kScaleAtomRows = 128;
constexpr int32_t kScaleAtomScales = 4;  // of k

/// Atoms side by side, those of the same rows: of `k` elements of which `vector` share a scale.
constexpr int32_t scale_atoms_of_row(int32_t k, int32_t vector) {
  return (k + kScaleAtomScales * vector - 1) / (kScaleAtomScales * vector);
}

/// Bytes of all atoms of an operand of [rows][k].
constexpr int64_t block_scale_bytes(int64_t rows, int32_t k, int32_t vector) {
  return (rows + kScaleAtomRows - 1) / kScaleAtomRows * scale_atoms_of_row(k, vector) * kScaleAtomBytes;
}

/// Byte of scale `scale` (elements [scale, scale + 1) * vector) of row `row`, where `atoms` is scale_atoms_of_row().
constexpr int64_t block_scale_offset(int32_t atoms, int64_t row, int32_t scale) {
  const int64_t atom = row / kScaleAtomRows * atoms + scale / kScaleAtomScales;
  const int64_t lane = row % 32, quarter = row % kScaleAtomRows / 32;
  return atom * kScaleAtomBytes + lane * 16 + quarter * 4 + scale % kScaleAtomScales;
}

}  // namespace kernelwright::contract
