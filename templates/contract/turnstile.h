/// Parts of k that take turns at a tile of a GEMM: what they need of global memory, said once for the host and the
/// kernels.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

/// Of a launch; not read by kernels without such parts.
struct TurnstileParams {
  uint32_t* begun;  // CTAs, or clusters, that have begun, 0 at the start: the n-th one takes item n
  uint32_t* turns;  // [tiles of CTAs][warps], the part whose turn it is, 0 at the start
  float* partials;  // [tiles of CTAs][elements of a tile], sums of the parts before, as the kernel orders them
};

/// Byte offsets in the workspace, which is aligned to 16. `begun` is at its start, and the first `zeros` bytes are
/// zeros when the kernel begins.
struct TurnstileWorkspace {
  int64_t turns, partials, zeros, total;
};
/// `tiles`: of CTAs, those of the clusters at the edges that lie past the end among them. `warps`: of a CTA that hold
/// sums, four or a multiple.
constexpr TurnstileWorkspace turnstile_workspace(int64_t tiles, int32_t warps, int32_t tile_elements) {
  TurnstileWorkspace workspace{};
  workspace.turns = 16;
  workspace.partials = workspace.zeros = workspace.turns + tiles * warps * 4;
  workspace.total = workspace.partials + tiles * tile_elements * 4;
  return workspace;
}

}  // namespace kernelwright::contract
