/// What a launch tells the GEMM kernels of all families alike.
#pragma once

#include "contract/integers.h"
#include "contract/tile_bands.h"

namespace kernelwright::contract {

/// A part of each family's parameters. A new number of the launch goes to its end.
struct GemmLaunchParams {
  TileBands bands;  // of the walk over clusters of tiles
  bool bands_of_n;  // bands are of columns, not of rows
  bool constant_b;  // no launch ahead writes the problem's b: a kernel with tensor maps loads b's first slabs before
                    // those launches end
};

/// Where the groups of a batch lie, or of kind k those of c and d (generator/problem/problem.h: GemmGroups). m of the
/// kernel's parameters is then the rows of one group. Strides are in elements, from a group's matrix to the next one's.
struct GemmBatchParams {
  int32_t count;  // of groups
  int64_t a_stride, b_stride, c_stride, d_stride;
};

/// The parameters of a kernel of such groups: those of its family, and where the groups lie.
template <class Params>
struct GemmWithBatch : Params {
  GemmBatchParams batch;
};

// Neighbouring columns of d that share a scale, where d is quantised. Not a variable, which would be in every binary.
enum : int32_t { kGemmScaledColumns = 128 };

/// The parameters of a kernel that quantises its result: those of its family or batch, and where the scales go.
template <class Params>
struct GemmWithScales : Params {
  float* scale_d;  // [columns of d / kGemmScaledColumns][scale_d_stride]; masked groups, a batch: [group][..][..]
  int64_t scale_d_stride;
};

/// Outputs beside d, and factors of rows (generator/problem/epilogue.h).
struct GemmStatisticsParams {
  uint32_t* amax;          // the bits of an f32: the larger of what it was and of the values' magnitudes
  float* squares;          // [columns of d / kGemmScaledColumns, rounded up][squares_stride]
  const float* squares_a;  // of the left operand, [k / kGemmScaledColumns, rounded up][squares_a_stride]
  int64_t squares_stride, squares_a_stride;
  float eps;  // joins the mean of squares
};

/// The parameters of a kernel that has any of them.
template <class Params>
struct GemmWithStatistics : Params {
  GemmStatisticsParams statistics;
};

/// The parameters of a kernel that stores a quantised result and its scales itself. The result is in a block-scaled
/// format. Blackwell's kernel takes them for f32 scales, too: those lie as GemmWithScales has them.
template <class Params>
struct GemmWithBlocks : Params {
  void* elements;     // [rows of d], row_bytes apart, aligned to 16 bytes
  uint8_t* scale_d;   // [rows / 128][scale_d_stride] atoms of contract/scale_atoms.h, or [rows][scale_d_stride]
                      // With groups, each group's atoms begin a row of them, where scale_atoms.h says
  int64_t row_bytes;  // from one row of d to the next
  int64_t scale_d_stride;
  float tensor_scale;  // values / tensor_scale are quantised
};

/// The parameters of a kernel whose columns are queries, keys and values: contract/gemm_kv_write.h.
template <class Params>
struct GemmWithKvWrite;

}  // namespace kernelwright::contract
