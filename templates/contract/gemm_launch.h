/// What a launch tells the GEMM kernels of all families alike.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

/// A part of each family's parameters. A new number of the launch goes to its end.
struct GemmLaunchParams {
  int32_t band;     // rows of clusters that form a band of the walk: policy/tile_raster.cuh
  bool bands_of_n;  // bands are of columns instead
  bool constant_b;  // no launch ahead writes the problem's b: a kernel with tensor maps loads b's first slabs before
                    // those launches end
};

// Neighbouring columns of d that share a scale, where d is quantised. Not a variable, which would be in every binary.
enum : int32_t { kGemmScaledColumns = 128 };

/// The parameters of a kernel that quantises its result: those of its family, and where the scales go.
template <class Params>
struct GemmWithScales : Params {
  float* scale_d;  // [columns of d / kGemmScaledColumns][scale_d_stride]; masked groups: [group][..][..]
  int64_t scale_d_stride;
};

}  // namespace kernelwright::contract
