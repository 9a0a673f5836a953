/// The rules that a GEMM's arguments obey, and the tensor maps that follow from them.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/generator/checked.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/gemm/launch.h"

namespace kernelwright::detail {

/// A matrix in memory: `rows` rows of `columns` elements, `stride` elements apart.
struct Matrix {
  DevicePtr address = 0;
  DType dtype = DType::kBf16;
  std::int64_t rows = 0, columns = 0, stride = 0;

  // Of numbers that callers give, so each is INT64_MAX where its product leaves 64 bits: fits_memory() refuses those.
  std::int64_t row_bytes() const { return (CheckedInt(columns) * bits_of(dtype)).or_most() / 8; }
  std::int64_t stride_bytes() const {
    // Of whole bytes first: strides of 4-bit elements may be odd.
    const int bits = bits_of(dtype);
    return bits >= 8 ? (CheckedInt(stride) * (bits / 8)).or_most() : stride / (8 / bits);
  }
  /// From the first element to behind the last.
  std::int64_t bytes() const { return rows > 0 ? (CheckedInt(rows - 1) * stride_bytes() + row_bytes()).or_most() : 0; }
  /// Whether there can be such a matrix at its address.
  bool fits_memory() const {
    return stride_bytes() <= kMostBytes && is_span(address, static_cast<std::uint64_t>(bytes()));
  }
  bool overlaps(const Matrix& other) const {
    return address < other.address ? other.address - address < static_cast<DevicePtr>(bytes())
                                   : address - other.address < static_cast<DevicePtr>(other.bytes());
  }
};

/// The operands with the contiguous strides filled in.
struct GemmMatrices {
  Matrix a, b, c, d;
  std::int64_t scale_a_stride = 0, scale_b_stride = 0;
};
GemmMatrices matrices_of(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors) noexcept;

/// Every rule that is broken, led by "/tensors".
std::vector<Violation> broken_rules(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors,
                                    const GemmMatrices& matrices);
/// Whether one is. As cheap as can be.
bool surely_fine(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors,
                 const GemmMatrices& matrices) noexcept;

/// What a launch of gemm_sm90 passes: contract/gemm_params.h says what each map is.
struct GemmTensorMaps {
  TensorMapRequest a, b, d, d_tail, scales;
  bool has_whole = false, has_tail = false;  // d and d_tail
  bool has_scales = false;
};
GemmTensorMaps tensor_maps_of(const GemmSpec& spec, const GemmTensors& tensors, const GemmMatrices& matrices) noexcept;

/// The same of gemm_sm100: contract/gemm_sm100.h.
struct BlackwellGemmTensorMaps {
  TensorMapRequest a, b, d, scales_a, scales_b;
  bool has_scales = false;
};
BlackwellGemmTensorMaps blackwell_tensor_maps_of(const GemmSpec& spec, const GemmTensors& tensors,
                                                 const GemmMatrices& matrices) noexcept;

}  // namespace kernelwright::detail
