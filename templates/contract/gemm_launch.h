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

}  // namespace kernelwright::contract
