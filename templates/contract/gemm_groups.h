/// Groups of rows of a GEMM: what a launch tells the kernels of all families alike, and the table that a CTA makes of
/// it in shared memory.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

/// A part of the parameters of a family that has groups. Dense kernels do not read it.
struct GemmGroupsParams {
  const int32_t* bounds;    // starts [count + 1], ends [count], or counts [count]
  int32_t* status;          // null, or a word that becomes 1 where bounds do not fit
  int32_t count;            // of groups
  int32_t rows;             // of a and d; of kind k, of a and b
  int32_t capacity;         // masked: rows from one group to the next
  void* d;                  // for kernels that store through maps: single rows at a group's end go to [rows][d_stride].
                            // With swap_ab, a quantised result goes there too, with groups or without
  int64_t d_stride;         // elements
  const int32_t* gather;    // [rows]: the row of a for each row; one outside [0, source_rows) is of zeros
  int32_t source_rows;      // of a
  const void* a;            // for kernels that read other operands through maps: [source_rows][a_stride]
  int64_t a_stride;         // elements
  const int32_t* scatter;   // [rows]: the row of d that each row becomes; -1: none. No row of d is given twice
  int32_t result_rows;      // of d, with scatter
  const int64_t* pointers;  // [count]: the address of each group's b, [n][b_stride] or [k][b_stride]; else null
  int64_t b_stride;         // elements
};

/// Byte offsets from the start of the table.
struct GemmGroupTable {
  int32_t first;   // [groups + 1]: tiles of rows ahead of each group, and of all groups
  int32_t rows;    // [groups][2]: the group's first row of a and d, and the end of its rows
  int32_t totals;  // [32]: a warp's tiles, while the table is made
  int32_t total;
};
constexpr GemmGroupTable gemm_group_table(int32_t groups) {
  if (groups == 0) return {};
  const int32_t rows = (groups + 2) / 2 * 8, totals = rows + groups * 8;
  return {0, rows, totals, totals + 32 * 4};
}

/// Bytes of words behind the table where it also says which rows of atoms are ahead of each group's.
constexpr int32_t gemm_group_atoms_bytes(int32_t groups) { return groups * 4; }

/// Groups for which a kernel's table has room, given that a problem has `count`. Problems share kernels.
constexpr int32_t gemm_group_room(int32_t count) { return (count + 63) / 64 * 64; }

}  // namespace kernelwright::contract
