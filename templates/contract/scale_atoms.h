/// Where the scales of block-scaled operands lie, in one place for the code that writes them and the code that reads
/// them.
///
/// A scale is a byte that 32 elements of k share (mxfp8, mxfp4), or 16 elements (nvfp4). An atom of 512 bytes holds the
/// scales of 128 rows by 4 scales of k. Within an atom, the scales of rows r, r + 32, r + 64 and r + 96 are 16 bytes
/// side by side. Those for r + 1 come next. This is the order in which tcgen05.cp spreads scales over tensor memory, so
/// kernels copy atoms without reordering.
///
/// Atoms of the same rows lie side by side: [rows / 128][k scales / 4] atoms, both rounded up. Atoms also have bytes
/// for rows and k past the end. In the last atom, bytes of k past the end are never NaN, because the products of zeros
/// are scaled with them.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

// Not variables, which would be in every binary.
struct ScaleAtom {
  enum : int32_t { kBytes = 512, kRows = 128, kScales = 4 };  // scales of k per atom
};

/// Atoms side by side for the same rows, given `k` elements and `vector` elements per scale.
constexpr int32_t scale_atoms_of_row(int32_t k, int32_t vector) {
  return (k + ScaleAtom::kScales * vector - 1) / (ScaleAtom::kScales * vector);
}

/// Bytes of all atoms of an operand of [rows][k].
constexpr int64_t block_scale_bytes(int64_t rows, int32_t k, int32_t vector) {
  return (rows + ScaleAtom::kRows - 1) / ScaleAtom::kRows * scale_atoms_of_row(k, vector) * ScaleAtom::kBytes;
}

/// Rows of atoms of groups of rows. Each group's scales begin a row of atoms, so that any group may begin at any row of
/// its matrix and yet have whole atoms. Groups with bounds take the next rows of atoms in turn: a group begins behind
/// the atoms of all groups ahead of it. These are the most that `groups` of them take, which have `rows` rows.
constexpr int64_t scale_atom_rows_of_groups(int64_t rows, int64_t groups) {
  return (rows + (ScaleAtom::kRows - 1) * (groups < rows ? groups : rows)) / ScaleAtom::kRows;
}

/// Offset in bytes of scale `scale` (elements [scale, scale + 1) * vector) of row `row`. `atoms` is
/// scale_atoms_of_row().
constexpr int64_t block_scale_offset(int32_t atoms, int64_t row, int32_t scale) {
  const int64_t atom = row / ScaleAtom::kRows * atoms + scale / ScaleAtom::kScales;
  const int64_t lane = row % 32, quarter = row % ScaleAtom::kRows / 32;
  return atom * ScaleAtom::kBytes + lane * 16 + quarter * 4 + scale % ScaleAtom::kScales;
}

}  // namespace kernelwright::contract
