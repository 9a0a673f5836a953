/// What a GEMM takes whose columns are queries, keys and values: its launch parameters, and the memory in which heads
/// of a tile wait for their steps. In one place for the host and the kernels.
#pragma once

#include "contract/gemm_launch.h"
#include "contract/kv_write.h"

namespace kernelwright::contract {

/// The parameters of such a kernel: those of its family, and those of kv_write. q_out is d. q, k and v are not read.
template <class Params>
struct GemmWithKvWrite : Params {
  KvWriteParams kv;
};

/// gemm_portable: bytes from one row of a tile to the next in shared memory, where each element has 16 bits. Lanes
/// write 8 rows at once, and the 16 bytes behind a row put these into other banks.
constexpr int32_t gemm_kv_pitch(int32_t block_n) { return block_n * 2 + 16; }

/// gemm_sm90: slabs of 16 rows and 64 columns that a warp has a whole head in.
constexpr int32_t gemm_kv_slabs(int32_t head_dim) { return head_dim / 64; }
/// With swapped operands, slabs that have what a warp has of all tokens: 16 columns of d of each, for each 64 rows that
/// its warpgroup has of the tile.
constexpr int32_t gemm_kv_swapped_slabs(int32_t block_n, int32_t waves) { return (block_n * waves + 63) / 64; }

}  // namespace kernelwright::contract
