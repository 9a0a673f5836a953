/// Attention prefill on Hopper: TMA loads, wgmma multiplies.
///
/// Warpgroup 0 loads: one thread of it walks the CTA's work items and issues every copy. Each other warpgroup owns 64
/// query rows of a tile and walks its key tiles from the last to the first, so that tiles with a mask come first. The
/// CTA is persistent. Its work is one long list of steps: a step is a key tile of a work item. In step j a warpgroup
///
///     issues S = Q K(j)^T and, behind it, O += P(j-1) V(j-1)        in turns, if it takes turns
///     waits for S; masks it; exponentials of S, while P V runs
///     waits for O; rescales it where a row maximum moved; packs P(j)
///
/// so that its exponentials hide behind its own product and behind those of the others. The first step of an item
/// issues the last P V of the item before it: no product waits for an output to be stored.
///
/// attention_sm90_load.cuh has the warps that load, and attention_sm90_columns.cuh what differs where V lies in
/// columns. attention_sm90_gather.cuh has the warps that copy keys of small pages row by row, and
/// attention_sm90_convert.cuh those that convert or transpose fp8. attention_sm90_math.cuh has the warps that multiply,
/// and attention_sm90_store.cuh how they store, attention_sm90_mask.cuh how they mask, attention_sm90_values.cuh how
/// they clean values. attention_sm90_halves.cuh has scores in halves, and attention_sm90_pass.cuh items without rows of
/// a warpgroup. attention_sm90_tiles.cuh has what all share.
#include "spec.h"

#include "contract/attention_sm90.h"
#include "kernels/attention/sm90/attention_sm90_gather.cuh"
#include "kernels/attention/sm90/attention_sm90_halves.cuh"
#include "kernels/attention/sm90/attention_sm90_load.cuh"
#include "kernels/attention/sm90/attention_sm90_mask.cuh"
#include "kernels/attention/sm90/attention_sm90_pass.cuh"
#include "kernels/attention/sm90/attention_sm90_store.cuh"
#include "kernels/attention/sm90/attention_sm90_values.cuh"
#include "ptx/barrier.cuh"
#include "ptx/tma.cuh"

// Behind the others: the order in which namespaces appear is the order of variables in a binary.
#include "kernels/attention/sm90/attention_sm90_convert.cuh"

extern "C" __global__ void __launch_bounds__(kernelwright::kNumThreads, 1)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::KernelParams params) {
  using namespace kernelwright;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared shared{ptx::shared_address(memory)};
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // the same in all lanes, also for the compiler
  if (threadIdx.x == 0) {
    QueryRing::init(shared.query_barriers(), 1, kMathWarps);
    init_kv(shared);
    if constexpr (kRestagesKv) RawRing::init(shared.raw_barriers(), 1, contract::kConvertingWarps);
    if constexpr (kGathersKv || kRestagesKv) init_told(shared);
  } else if (threadIdx.x == 32) {  // so the first copies find their maps in the cache
    ptx::prefetch_tensormap(params.q);
    prefetch_rotary_maps(params);
    if constexpr (!kGathersKv) {
      ptx::prefetch_tensormap(params.k);
      ptx::prefetch_tensormap(params.v);
    }
  }
  if constexpr (kNarrow && spec::kVColumns) ValueColumns::write_ones(shared.values());
  if constexpr (kCluster > 1) {  // copies and arrivals come from all CTAs
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  } else {
    __syncthreads();
  }
  if (warp < 4) {
    ptx::setmaxnreg_dec<kLoadRegisters>();
    if constexpr (kRestagesKv)
      if (warp >= kFirstConvertingWarp) OperandMaker(shared, warp - kFirstConvertingWarp).run();
    if (warp == 1) {
      fill_unseen(params);
    } else if (warp == 0 && ptx::elect_one()) {
      load(params, shared);
    } else if constexpr (kGathersKv) {
      if (warp >= kFirstGatherWarp) Gatherer(params, shared, warp - kFirstGatherWarp).run();
    }
  } else {
    ptx::setmaxnreg_inc<kMathRegisters>();
    MathWarpgroup(params, shared, warp / 4 - 1).run();
  }
}
