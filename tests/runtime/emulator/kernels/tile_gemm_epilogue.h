/// Cases of gemm_sm90 with everything that happens at the end of a tile, and with operands where k is not innermost.
#pragma once

#include <string>

#include "runtime/emulator/kernels/tile_gemm.h"

namespace kernelwright::test {

/// D[m][n] = activation(alpha A[m][k] B[n][k]^T + bias[n]) + beta C[m][n]; sizes are the problem's, whoever is swapped.
/// Bits are those of the same in fp64 where that is asked of the size; else values are within what f32 may lose on the
/// way.
struct EpilogueCase {
  TileGemmCase gemm;
  float alpha = 1, beta = 1;
  int c_padding = 0;        // elements between rows of c
  bool misaligned = false;  // bias and c begin an element off what an allocation gives
  bool c_is_d = false;      // c is what d held: dtypes alike, no padding
};

HopperCase tile_gemm(const std::string& name, const EpilogueCase& epilogue);

}  // namespace kernelwright::test
