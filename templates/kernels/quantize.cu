/// Quantises rows of f16, bf16 or f32 to a block-scaled format: elements, and scales in the atoms that gemm_sm100
/// reads. It does so in one pass. A warp has 256 elements of a row. Four lanes, or two, find the largest element of
/// their block. The scales of four blocks are stored as one word. Rows and k past the end, up to whole atoms, get
/// scales of 0.
#include "spec.h"

#include "contract/block_scales.h"
#include "contract/quantize.h"
#include "policy/block_format.cuh"
#include "ptx/launch.cuh"
#include "tile/element_run.cuh"

namespace kernelwright {

using Format = policy::BlockFormat<spec::kToDType, spec::kArch>;
using Run = tile::ElementRun<spec::kFromDType>;
constexpr int kLanes = Format::vector / Run::count;  // lanes that share a block
static_assert(32 * Run::count == contract::kQuantizeColumns);

/// The largest magnitude of the block, as bits: NaN is above infinity, and infinity above all numbers.
__device__ __forceinline__ uint32_t largest_of_block(const float (&values)[Run::count]) {
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < Run::count; ++i) {
    const uint32_t magnitude = __float_as_uint(values[i]) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const uint32_t other = __shfl_xor_sync(0xffffffffu, largest, distance);
    largest = other > largest ? other : largest;
  }
  return largest;
}

/// The scales of four neighbouring blocks in a word, the first one's in the low byte.
__device__ __forceinline__ uint32_t scales_of_four(uint32_t scale, int lane) {
  uint32_t word = scale << lane / kLanes % 4 * 8;
  word |= __shfl_xor_sync(0xffffffffu, word, kLanes);
  return word | __shfl_xor_sync(0xffffffffu, word, 2 * kLanes);
}

__device__ __forceinline__ void quantize_chunk(const contract::QuantizeParams& params, int64_t row, int column,
                                               int atoms, int lane) {
  const int left = row < params.rows ? params.k - column : 0;
  Run run;
  run.load(static_cast<const tile::Storage<spec::kFromDType>*>(params.x) + row * params.x_stride + column, left);
  float values[Run::count];
#pragma unroll
  for (int i = 0; i < Run::count; ++i) values[i] = run.value(i);
  if (params.tensor_scale != 1.f) {
#pragma unroll
    for (int i = 0; i < Run::count; ++i) values[i] = __fdiv_rn(values[i], params.tensor_scale);
  }
  const uint32_t scale = Format::scale(largest_of_block(values));
  if (left > 0) {
    uint32_t words[Format::element_bits / 4];
    Format::elements(values, scale, words);
    char* const to = static_cast<char*>(params.elements) + row * params.row_bytes + column * Format::element_bits / 8;
    if constexpr (Format::element_bits == 8)
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    else
      *reinterpret_cast<uint32_t*>(to) = words[0];
  }
  const uint32_t word = scales_of_four(scale, lane);
  const int block = column / Format::vector;
  if (lane % (4 * kLanes) == 0 && block < atoms * contract::kScaleAtomScales)
    *reinterpret_cast<uint32_t*>(params.scales + contract::block_scale_offset(atoms, row, block)) = word;
}

}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(32 * kernelwright::contract::kQuantizeRows)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::QuantizeParams params) {
  using namespace kernelwright;
  if constexpr (spec::kArch >= 90) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();  // the whole kernel is short
  }
  const int lane = threadIdx.x % 32, atoms = contract::scale_atoms_of_row(params.k, Format::vector);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * contract::kQuantizeRows + threadIdx.x / 32;
  const int chunks = (params.k + contract::kQuantizeColumns - 1) / contract::kQuantizeColumns;
  for (int chunk = blockIdx.y; chunk < chunks; chunk += gridDim.y)
    quantize_chunk(params, row, chunk * contract::kQuantizeColumns + lane * Run::count, atoms, lane);
}
