/// Rows of a ragged output that belong to no sequence: those before the first offset and after the last. They occur
/// when a server pads its batches, or replays a graph with fewer queries than at capture.
#pragma once

#include "contract/attention_params.h"
#include "contract/words.h"
#include "policy/attention_item.cuh"
#include "ptx/math.cuh"
#include "ptx/memory.cuh"
#include "tile/element.cuh"

namespace kernelwright::policy {

/// Sets O = 0 and an LSE of -inf in such rows, if the launch asks for it (params.zero_padding). All lanes of warp
/// `warp` call it; the grid has `warps` warps for this work.
template <QLayout kQLayout, DType kOut, int kDepth, bool kLse>
__device__ __forceinline__ void fill_padding_rows(const contract::AttentionParams& params, unsigned warp,
                                                  unsigned warps, int lane) {
  if constexpr (kQLayout == QLayout::kRagged) {
    if (!params.zero_padding) return;
    constexpr int kBytes = tile::kBytesOf<kOut>;
    const RaggedRows owned = all_rows(params.q_offsets, params.batch, params.q_tokens);
    const int64_t rows = static_cast<int64_t>(params.q_tokens - owned.count) * params.q_heads;
#pragma unroll 1
    for (int64_t row = warp; row < rows; row += warps) {
      const int head = static_cast<int>(row % params.q_heads);
      int64_t token = row / params.q_heads;
      if (token >= owned.start) token += owned.count;
      unsigned char* const to = static_cast<unsigned char*>(params.o) +
                                (token * params.o_strides.token + head * params.o_strides.head) * kBytes;
      for (int byte = lane * 16; byte < kDepth * kBytes; byte += 32 * 16) ptx::st_global_v4(to + byte, {});
      if (kLse && lane == 0) params.lse[token * params.q_heads + head] = ptx::minus_infinity();
    }
  }
}

}  // namespace kernelwright::policy
