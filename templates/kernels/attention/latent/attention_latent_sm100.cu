/// Latent attention on Blackwell: values are the first elements of each key (multi-head latent attention, DeepSeek-V2,
/// arXiv:2405.04434, in its absorbed form). One KV head serves all query heads, so that 64 rows read each key. Every
/// key is read once for both products.
///
/// A CTA owns 64 query rows and a part of the keys. All accumulators are in tensor memory: tcgen05.mma.ws folds those
/// of 64 rows over all 128 lanes, so the output of 64 x 512 f32 takes 256 columns. Each role is a function or a class
/// of its own. They wait for each other on mbarriers (contract/attention_latent_sm100.h):
///
///     warps 0-3   softmax                    S -> P, in shared memory; zeros for values that no row sees
///     warps 4-7   correction of the output   O *= factor, where a row maximum moved
///     warp 8      one thread multiplies      S = Q K^T, part by part as keys land
///     warp 9      one thread multiplies      O += P V, and releases the slot of the keys
///     warp 10     one thread loads           keys, part by part
///
/// The eight warps with rows bring Q at the beginning, and store half of the output's columns each at the end. In a
/// cluster of two, each CTA loads half of every tile for both.
///
/// attention_latent_load.cuh has the loading thread, attention_latent_sm100_mma.cuh those that multiply,
/// attention_latent_sm100_softmax.cuh the warpgroups with rows, attention_latent_sm100_store.cuh how they end, and
/// attention_latent_sm100_tiles.cuh what all share.
#include "spec.h"

#include "kernels/attention/latent/attention_latent_load.cuh"
#include "kernels/attention/latent/attention_latent_sm100_mma.cuh"
#include "kernels/attention/latent/attention_latent_sm100_softmax.cuh"
#include "policy/padding_rows.cuh"
#include "ptx/barrier.cuh"
#include "ptx/launch.cuh"

namespace kernelwright {
namespace {

constexpr uint32_t kScoreWarp = 2 * kRoleWarps, kOutputWarp = kScoreWarp + 1, kLoadWarp = kScoreWarp + 2;

/// Called by one thread.
__device__ __forceinline__ void make_barriers(const Shared& shared) {
  KeyRing::init_unfenced(shared.key_barriers(), 1, kCluster);
  shared.query_full().init();
  for (int tile = 0; tile < contract::kLatentScoreTiles; ++tile) {
    shared.score_full(tile).init();
    shared.score_empty(tile).init();
    shared.factor_full(tile).init();
  }
  shared.probability_ready().init();
  shared.output_full().init();
  pipeline::fence_barrier_init();
}

/// Called by all warps. One warp allocates tensor memory; a thread of another makes barriers and fetches the tensor
/// map.
__device__ __forceinline__ void set_up(const Params& params, const Shared& shared, uint32_t warp) {
  if (warp == kScoreWarp) {
    ptx::tcgen05_alloc(shared.tensor_address(), kColumns.allocated);
    ptx::tcgen05_relinquish_alloc_permit();
    ptx::tcgen05_fence_before_thread_sync();
  } else if (warp == kLoadWarp && ptx::elect_one()) {
    ptx::prefetch_tensormap(params.k);
    make_barriers(shared);
  }
}

/// The warps that have rows: they bring Q first, and merge at the end.
__device__ __forceinline__ void run_rows(const contract::AttentionParams& params, const Work& work,
                                         const Shared& shared, const Tensor& tensor, uint32_t warp) {
  if (merges(params) && threadIdx.x == 0) last_arrival(params).open();  // long before it arrives
  bring_queries<kRowThreads>(shared, params, work.item, static_cast<int>(threadIdx.x));
  pipeline::SignalledByWarp{threadIdx.x % 32}(shared.query_full().address);
  if (warp < kRoleWarps)
    SoftmaxThread(params, work, shared, tensor).run();
  else
    CorrectionThread(params, work, shared, tensor).run();
  if (merges(params)) merge_if_last(params, work.item, shared, static_cast<int>(warp));
}

}  // namespace
}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(kernelwright::contract::kBlackwellLatentThreads, 1)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::Params params) {
  using namespace kernelwright;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared shared{ptx::shared_address(memory)};
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // the same in all lanes, also for the compiler
  constexpr uint32_t kWarps = contract::kBlackwellLatentThreads / 32;
  ptx::griddepcontrol_wait();  // every thread needs lengths and offsets, at once
  policy::fill_padding_rows<spec::kQLayout, spec::kOutDType, spec::kHeadDimV, spec::kLse>(
      params.attention, blockIdx.x * kWarps + warp, gridDim.x * kWarps, static_cast<int>(threadIdx.x % 32));
  const OneItem items(params.attention, shared);
  if (!items.exists()) return;  // all CTAs of a cluster return here, and none has met the others yet
  const Work& work = items.work;
  set_up(params, shared, warp);
  ptx::sync_ctas<kCluster>();
  ptx::tcgen05_fence_after_thread_sync();
  const Tensor tensor{ptx::ld_shared_u32(shared.tensor_address())};
  if (warp < kScoreWarp) {
    run_rows(params.attention, work, shared, tensor, warp);
  } else if (warp == kScoreWarp) {
    if (ptx::elect_one()) ScoreMultiplier(shared, tensor).run(work.count());
  } else if (warp == kOutputWarp) {
    if (ptx::elect_one()) OutputMultiplier(shared, tensor).run(work.count());
  } else if (warp == kLoadWarp) {
    Laps laps;
    if (ptx::elect_one()) Loader(params, work, shared, laps).run_and_drain();
  }
  ptx::tcgen05_fence_before_thread_sync();
  ptx::sync_ctas<kCluster>();  // now no thread reads tensor memory, and no CTA sends to another
  if (warp == kScoreWarp) {
    ptx::tcgen05_fence_after_thread_sync();
    ptx::tcgen05_dealloc(tensor.base, kColumns.allocated);
  }
}
