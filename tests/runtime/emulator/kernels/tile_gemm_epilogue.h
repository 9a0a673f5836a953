/// Cases of gemm_sm90 with everything that happens at the end of a tile, and with operands where k is not innermost.
#pragma once

#include <string>

#include "runtime/emulator/kernels/tile_gemm.h"

namespace kernelwright::test {

/// D[m][n] = activation(alpha A[m][k] B[n][k]^T + bias[n]) + beta C[m][n]. Sizes are the problem's, also if operands
/// are swapped. If the size asks for it, the bits must equal those of the same in fp64. Otherwise values must be within
/// the error of f32.
struct EpilogueCase {
  TileGemmCase gemm;
  float alpha = 1, beta = 1;
  int c_padding = 0;        // elements between rows of c
  bool misaligned = false;  // bias and c begin one element after an aligned address
  bool c_is_d = false;      // c is what d held before: equal dtypes, no padding
};

HopperCase tile_gemm(const std::string& name, const EpilogueCase& epilogue);

}  // namespace kernelwright::test
