/// The operands of kv_write: queries, keys and values.
#pragma once

#include "spec.h"

#include "contract/kv_write.h"

namespace kernelwright {

using Params = contract::KvWriteParams;

enum class Operand { kQ, kK, kV };

/// What differs between operands. The tensors are functions, so that none but its own is read.
template <Operand kOperand>
struct Traits;
template <>
struct Traits<Operand::kQ> {
  enum : int { kHeads = spec::kQHeads, kHeadDim = spec::kHeadDimQk };
  static constexpr DType kTo = spec::kQDType;
  static constexpr ScaleKind kScales = spec::kQScales;
  __device__ static const void* from(const Params& params) { return params.q; }
  __device__ static const contract::RowStrides& strides(const Params& params) { return params.q_strides; }
  __device__ static const void* weights(const Params& params) { return params.q_weight; }
  __device__ static float* scales(const Params& params) { return params.q_scale; }
};
template <>
struct Traits<Operand::kK> {
  enum : int { kHeads = spec::kKvHeads, kHeadDim = spec::kHeadDimQk };
  static constexpr DType kTo = spec::kKvDType;
  static constexpr ScaleKind kScales = spec::kKScales;
  __device__ static const void* from(const Params& params) { return params.k; }
  __device__ static const contract::RowStrides& strides(const Params& params) { return params.k_strides; }
  __device__ static const void* weights(const Params& params) { return params.k_weight; }
  __device__ static float* scales(const Params& params) { return params.k_scale; }
  __device__ static void* cache(const Params& params) { return params.k_cache; }
  __device__ static const contract::Strides& cache_strides(const Params& params) { return params.k_cache_strides; }
  __device__ static const contract::Strides& scale_strides(const Params& params) { return params.k_scale_strides; }
};
template <>
struct Traits<Operand::kV> {
  enum : int { kHeads = spec::kKvHeads, kHeadDim = spec::kHeadDimV };
  static constexpr DType kTo = spec::kKvDType;
  static constexpr ScaleKind kScales = spec::kVScales;
  __device__ static const void* from(const Params& params) { return params.v; }
  __device__ static const contract::RowStrides& strides(const Params& params) { return params.v_strides; }
  __device__ static float* scales(const Params& params) { return params.v_scale; }
  __device__ static void* cache(const Params& params) { return params.v_cache; }
  __device__ static const contract::Strides& cache_strides(const Params& params) { return params.v_cache_strides; }
  __device__ static const contract::Strides& scale_strides(const Params& params) { return params.v_scale_strides; }
};

}  // namespace kernelwright
