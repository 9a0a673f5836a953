/// Attention prefill on Blackwell, the shape of FlashAttention-4: TMA loads and tcgen05 multiplies. Scores,
/// probabilities and outputs are in tensor memory.
///
/// A CTA owns two query tiles of 128 rows of one (batch, head) pair, or one tile for short sequences. It walks their
/// key tiles from the last to the first. Queued, it goes on with other items (attention_sm100_walk.cuh). Each role is a
/// function of its own. All roles derive the same list of key tiles, and wait for each other on mbarriers
/// (contract/attention_sm100.h):
///
///     warps 0-3, 4-7   softmax of query tile 0, 1     S -> P, and at the end O -> memory; with one query tile of its
///                                                     even and odd key tiles
///     warps 8-11       correction of both outputs      O *= factor, where a row maximum moved
///     warp 12          one thread multiplies           S = Q K^T, O += P V
///     warp 13          one thread loads                Q, K, V
///     warp 14          cleans values                   zeros for keys that are not the sequence's
///     warps 14, 15     gather keys of small pages      K, V, row by row, in place of warp 13
///     warp 15          queued: loads queries           Q, unless it gathers
///     warp 15          loads scales                    where they differ by key
///
/// In a pair of CTAs (cta_group 2) the CTAs share each product. It has 256 rows: each CTA's shared memory holds 128 of
/// them, half of K's keys and half of V's columns. The first CTA issues the products for both; the other roles run in
/// each CTA as without pairs.
///
/// attention_sm100_load.cuh, _mma.cuh, _scales.cuh and _softmax.cuh have the roles. attention_sm100_tiles.cuh has what
/// they share.
/// attention_sm100_parts.cuh merges the outputs of several CTAs that share an item's keys.
#include "spec.h"

#include "contract/attention_sm100.h"
#include "kernels/attention/sm100/attention_sm100_load.cuh"
#include "kernels/attention/sm100/attention_sm100_mma.cuh"
#include "kernels/attention/sm100/attention_sm100_parts.cuh"
#include "kernels/attention/sm100/attention_sm100_scales.cuh"
#include "kernels/attention/sm100/attention_sm100_softmax.cuh"
#include "kernels/attention/sm100/attention_sm100_walk.cuh"
#include "ptx/barrier.cuh"
#include "ptx/launch.cuh"
#include "ptx/tma.cuh"

namespace kernelwright {
namespace {

constexpr uint32_t kMmaWarp = 12, kLoadWarp = 13, kCleanWarp = 14, kFirstGatherWarp = 14, kQueryWarp = 15,
                   kScaleWarp = 15;

/// Returns the same in all lanes, also for the compiler. Each use calls it anew, so that it holds no register.
__device__ __forceinline__ uint32_t warp_index() { return __shfl_sync(0xffffffff, ptx::opaque(threadIdx.x) / 32, 0); }

/// The numbers of an item that the correcting, multiplying and cleaning roles have to know.
struct Extent : policy::HiddenKeys<kCleansFirst> {
  int tiles = 0, last_keys = 0;
  Extent() = default;
  __device__ __forceinline__ Extent(const contract::AttentionParams& params, const Work& work)
      : tiles(work.tiles.count()), last_keys(work.last_keys(params)) {
    hide(work.hidden_keys());
  }
};

/// Called by one thread.
__device__ __forceinline__ void init_barriers(const Shared& shared) {
  for (int tile = 0; tile < contract::kScoreTiles; ++tile) {
    shared.query_full(tile).init();
    shared.score_full(tile).init();
    shared.probability_ready(tile).init();
    shared.probability_rest(tile).init();
    shared.factor_full(tile).init();
    shared.output_full(tile).init();
  }
  shared.values_landed().init();
  shared.values_clean().init();
  if constexpr (kTokenScales)
    for (int slot = 0; slot < contract::kScaleSlots; ++slot) {
      shared.scale_full(slot).init();
      shared.scale_empty(slot).init();
    }
  if constexpr (kQueued) {
    for (int tile = 0; tile < spec::kNumQ; ++tile) shared.query_empty(tile).init();
    ItemQueue<true>::init(shared);
  }
  Consumer::init(shared.kv_barriers(), kGathersKv ? kGatherThreads : 1, 1);
}

/// The whole work of a CTA without key tiles.
__device__ __forceinline__ void end_without_keys(const contract::AttentionParams& params, const Shared& shared,
                                                 const Work& work) {
  if constexpr (kClusterParts > 1) {
    if (!work.unseen()) return end_without_keys_in_cluster(params, shared, work.item);
    if (work.item.coord.split > 0) return;  // only the first CTA writes: all CTAs know the result
  } else if constexpr (kPartsInMemory) {
    if (params.num_splits > 1) return end_without_keys_in_memory(params, work.item);
  }
  fill_unseen(params, work.item);
}

/// Called by all warps. One warp allocates tensor memory; a thread of another makes barriers and fetches tensor maps.
__device__ __forceinline__ void set_up(const BlackwellAttentionParams& params, const Shared& shared) {
  if (const uint32_t warp = warp_index(); warp == kMmaWarp) {
    ptx::tcgen05_alloc<kCtas>(shared.tensor_address(), kColumns.allocated);
    ptx::tcgen05_relinquish_alloc_permit<kCtas>();
    ptx::tcgen05_fence_before_thread_sync();
  } else if (warp == kLoadWarp && ptx::elect_one()) {
    init_barriers(shared);
    ptx::prefetch_tensormap(params.q);
    if constexpr (spec::kRopeWidth > 0) {
      ptx::prefetch_tensormap(params.q_rope);
      ptx::prefetch_tensormap(params.k_rope);
    }
    if constexpr (!kGathersKv) {
      ptx::prefetch_tensormap(params.k);
      ptx::prefetch_tensormap(params.v);
    }
  }
}

/// The role of warp 12, 13, 14 or 15. extent(items) returns the extent of the item on which `items` stands.
template <class ExtentOf>
__device__ __forceinline__ void run_other_role(const BlackwellAttentionParams& params, const Shared& shared,
                                               const Tensor& tensor, uint32_t warp, const ExtentOf& extent) {
  if (warp == kMmaWarp) {
    if (cluster_rank() == kLeader && ptx::elect_one()) {
      Multiplier multiplier(shared, tensor);
      for_each_item<true>(shared, [&](const auto& items) {
        const Extent item = extent(items);
        multiplier.run(item.tiles, (item.last_keys < spec::kBlockN), (item.hidden_keys() > 0));
      });
    }
  } else if (warp == kLoadWarp) {
    if (ptx::elect_one()) {
      if constexpr (kGathersKv)
        load_only_queries<true>(params, shared);
      else
        load(params, shared);
    }
  } else if constexpr (kGathersKv) {
    gather(params.attention, shared, warp - kFirstGatherWarp);
  } else if (warp == kCleanWarp) {
    Cleaner cleaner(shared);
    for_each_item<false>(shared, [&](const auto& items) {
      const Extent item = extent(items);
      cleaner.run(item.tiles, item.last_keys, item.hidden_keys());
    });
  } else if constexpr (kTokenScales) {
    load_key_scales(params.attention, shared);
  } else if constexpr (kQueued) {
    if (ptx::elect_one()) load_only_queries<false>(params, shared);
  }
}

}  // namespace
}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(kernelwright::contract::kBlackwellThreads, 1)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::BlackwellAttentionParams params) {
  using namespace kernelwright;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared shared{ptx::shared_address(memory)};
  ptx::griddepcontrol_wait();  // every thread needs lengths and offsets, at once
  Extent own{};
  if constexpr (!kQueued) {
    fill_padding(params.attention, blockIdx.x, threadIdx.x / 32, contract::kBlackwellThreads / 32);
    const Work work(params.attention, ptx::opaque(blockIdx.x));
    // Both CTAs of a pair return here, because they have the same tiles. Neither has met the other yet.
    if (work.tiles.empty()) return end_without_keys(params.attention, shared, work);
    own = Extent(params.attention, work);
  }
  if constexpr (kPair) ptx::sync_ctas<kCtas>();  // a pair allocates together: now both CTAs run
  set_up(params, shared);
  ptx::sync_ctas<kCtas>();
  ptx::tcgen05_fence_after_thread_sync();
  const Tensor tensor{ptx::ld_shared_u32(shared.tensor_address())};
  const auto extent = [&](const auto& items) {
    return kQueued ? Extent(params.attention, Work(params.attention, items.block())) : own;
  };
  const uint32_t warp = warp_index();
  if (warp < 2 * kRoleWarps) {
    ptx::setmaxnreg_inc<kSoftmaxRegisters>();
    SoftmaxBefore before;
    for_each_item<false>(shared, [&](const auto& items) {
      if constexpr (kQueued) fill_padding(params.attention, items.block(), warp, 2 * kRoleWarps);
      SoftmaxThread(params.attention, shared, tensor, items.block(), before).run();
    });
  } else if (warp < 3 * kRoleWarps) {
    ptx::setmaxnreg_dec<kCorrectionRegisters>();
    Corrector corrector(shared, tensor);
    for_each_item<false>(shared, [&](const auto& items) { corrector.run(extent(items).tiles); });
    if constexpr (kClusterParts > 1) meet_cluster();
  } else {
    ptx::setmaxnreg_dec<kOtherRegisters>();
    run_other_role(params, shared, tensor, warp, extent);
    if constexpr (kClusterParts > 1) meet_cluster();
  }
  ptx::griddepcontrol_launch_dependents();
  ptx::tcgen05_fence_before_thread_sync();
  if constexpr (kClusterParts > 1)
    meet_cluster();  // now no other CTA reads this one's shared memory
  else
    ptx::sync_ctas<kCtas>();  // now no thread reads tensor memory
  if (warp_index() == kMmaWarp) {
    ptx::tcgen05_fence_after_thread_sync();
    ptx::tcgen05_dealloc<kCtas>(tensor.base, kColumns.allocated);
  }
}
