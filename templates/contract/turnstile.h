/// The global memory for parts of k that take turns at a tile of a GEMM, in one place for the host and the kernels.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

/// The parameters of one launch. Kernels without such parts do not read them.
struct TurnstileParams {
  uint32_t* begun;  // number of CTAs, or clusters, that have begun, 0 at the start: the n-th one takes item n
  uint32_t* turns;  // [tiles of CTAs][warps], the part whose turn it is, 0 at the start
  float* partials;  // [tiles of CTAs][elements of a tile], sums of the earlier parts, in the kernel's order
};

/// Byte offsets in the workspace, which is aligned to 16. `begun` is at the workspace's start. The first `zeros` bytes
/// must be zero when the kernel begins.
struct TurnstileWorkspace {
  int64_t turns, partials, zeros, total;
};
/// `tiles`: tiles of CTAs, including those of edge clusters that lie past the end. `warps`: warps of a CTA that hold
/// sums, a multiple of four.
constexpr TurnstileWorkspace turnstile_workspace(int64_t tiles, int32_t warps, int32_t tile_elements) {
  TurnstileWorkspace workspace{};
  workspace.turns = 16;
  workspace.partials = workspace.zeros = workspace.turns + tiles * warps * 4;
  workspace.total = workspace.partials + tiles * tile_elements * 4;
  return workspace;
}

}  // namespace kernelwright::contract
