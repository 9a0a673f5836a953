/// The tensor maps through which a GEMM's kernels read and write.
#pragma once

#include "kernelwright/runtime/gemm/arguments.h"

namespace kernelwright::detail {

/// What a launch of gemm_sm90 passes: contract/gemm_params.h says what each map is.
struct GemmTensorMaps {
  TensorMapRequest a, b, d, d_tail, scales;
  bool has_a = true, has_b = true;           // else threads copy the operand
  bool has_whole = false, has_tail = false;  // d and d_tail
  bool has_scales = false;
};
GemmTensorMaps tensor_maps_of(const GemmSpec& spec, const GemmTensors& tensors, const GemmMatrices& matrices,
                              const GemmGroups& groups) noexcept;

/// The same of gemm_sm100: contract/gemm_sm100.h.
struct BlackwellGemmTensorMaps {
  TensorMapRequest a, b, d, scales_a, scales_b;
  TensorMapRequest a_rows, b_rows;  // of groups of kind k: a and b with boxes of one row
  bool has_scales_a = false, has_scales_b = false;
  bool has_a = true, has_b = true, has_d = true;  // else threads copy the operand, or rows of d
};
BlackwellGemmTensorMaps blackwell_tensor_maps_of(const GemmSpec& spec, const GemmTensors& tensors,
                                                 const GemmMatrices& matrices, const GemmGroups& groups) noexcept;

}  // namespace kernelwright::detail
