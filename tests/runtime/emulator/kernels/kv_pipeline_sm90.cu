/// The K/V pipelines with next to nothing around them: bulk copies fill the rings, two warps add up what they find.
///
/// out[item][warp][lane] = sum over the item's tiles j and i of (j + 1) K_j[lane + 32 i] + V_j[lane + 32 i]. An item's
/// tiles are 0 .. tiles[item] - 1.
#include "spec.h"

#include "ptx/memory.cuh"
#include "ptx/tma.cuh"

#include "pipeline/kv_consumer_pipeline.cuh"
#include "pipeline/tma_producer_pipeline.cuh"

namespace kernelwright::test {

using namespace pipeline;

namespace {

struct Tiles {
  static constexpr KvPipelineVariant kVariant = spec::kVariant;
  static constexpr int element_bytes = 4, k_rows_per_cta = 16, v_cols_per_cta = 8, cluster = 1;
  static constexpr int num_kv_stages = kVariant.stages;
  static constexpr int num_qk_stages = kVariant.of_k, num_mma_stages = kVariant.of_v;
  static constexpr int BK0 = 16 / num_qk_stages, BK1 = 16 / num_mma_stages;
  static constexpr bool shared_ring = kVariant.shared_ring;
  static constexpr KvOrder order = kVariant.keys_ahead ? KvOrder::kKeysAhead : KvOrder::kAlternating;
};

using Consumer = KvConsumerPipeline<Tiles, WarpRelease<>>;
constexpr int kConsumerWarps = 2;

static_assert(KvRings<Tiles>::bytes <= kKvPipelineBarrierBytes);
static_assert(Tiles::num_kv_stages * (KvBytes<Tiles>::k_slot + KvBytes<Tiles>::v_slot) <=
              kKvPipelineSharedBytes - kKvPipelineBarrierBytes);

/// Sub-stages kPart and later of tile j.
template <int kPart = 0, class View>
__device__ __forceinline__ void load_tile(View& view, const float* from, int j) {
  view.template acquire<kPart>();
  const TileTarget to = view.template get_tile<kPart>(true);
  ptx::cp_async_bulk_load(to.smem, from + j * View::elements_full + kPart * View::elements, View::tile_bytes, to.full);
  if constexpr (kPart + 1 < View::num_stages)
    load_tile<kPart + 1>(view, from, j);
  else
    view.commit_step();
}

__device__ __forceinline__ void produce(const KvPipelineParams& params, uint32_t barriers, uint32_t k_smem,
                                        uint32_t v_smem) {
  KvProducer<Tiles> rings(barriers, k_smem, v_smem);
  auto k = rings.k();
  auto v = rings.v();
  for (int item = 0; item < params.items; ++item) {
    for_each_load<Tiles::order>(
        params.tiles[item], [&](int j) { load_tile(k, params.k, j); }, [&](int j) { load_tile(v, params.v, j); });
  }
}

__device__ __forceinline__ float sum_at(uint32_t address, uint32_t bytes, uint32_t lane) {
  float sum = 0;
  for (uint32_t at = lane * 4; at < bytes; at += 128) sum += ptx::ld_shared_f32(address + at);
  __syncwarp();  // every lane has read before one lets go for all
  return sum;
}

/// Sub-stages kStage and later of the tile that was waited for last, whose sub-stage 0 is at `first`: each is waited
/// for, added up and let go of before the next.
template <int kStage = 0>
__device__ __forceinline__ float take_k(Consumer& kv, uint32_t first, uint32_t lane) {
  uint32_t at = first;
  if constexpr (kStage > 0) at = kv.template wait_k<kStage>();
  const float sum = sum_at(at, KvBytes<Tiles>::k_stage, lane);
  kv.template release_k<kStage>();
  if constexpr (kStage + 1 < Consumer::num_qk_stages)
    return sum + take_k<kStage + 1>(kv, first, lane);
  else
    return sum;
}
template <int kStage = 0>
__device__ __forceinline__ float take_v(Consumer& kv, uint32_t first, uint32_t lane) {
  uint32_t at = first;
  if constexpr (kStage > 0) at = kv.template wait_v<kStage>();
  const float sum = sum_at(at, KvBytes<Tiles>::v_stage, lane);
  kv.template release_v<kStage>();
  if constexpr (kStage + 1 < Consumer::num_mma_stages)
    return sum + take_v<kStage + 1>(kv, first, lane);
  else
    return sum;
}

__device__ __forceinline__ void consume(const KvPipelineParams& params, Consumer& kv, uint32_t warp, uint32_t lane) {
  for (int item = 0; item < params.items; ++item) {
    const int tiles = params.tiles[item];
    float sum = 0;
    if constexpr (Tiles::order == KvOrder::kKeysAhead) {
      if (tiles > 0) {
        sum += take_k(kv, kv.template wait_k<0>(), lane);
        for (int j = 1; j < tiles; ++j) {
          const uint32_t k = kv.template wait_k<0>(), v = kv.template wait_v<0>();
          sum += static_cast<float>(j + 1) * take_k(kv, k, lane);
          sum += take_v(kv, v, lane);
        }
        sum += take_v(kv, kv.template wait_v<0>(), lane);
      }
    } else {
      uint32_t v = 0;
      for (int j = 0; j < tiles; ++j) {
        const uint32_t k = kv.template wait_k<0>();
        if (j > 0) sum += take_v(kv, v, lane);
        sum += static_cast<float>(j + 1) * take_k(kv, k, lane);
        v = kv.template wait_v<0>();
      }
      if (tiles > 0) sum += take_v(kv, v, lane);
    }
    params.out[(static_cast<uint32_t>(item) * kConsumerWarps + warp) * 32 + lane] = sum;
  }
}

}  // namespace
}  // namespace kernelwright::test

extern "C" __global__ void __launch_bounds__(kernelwright::test::kKvPipelineThreads)
    kv_pipeline_sm90(const __grid_constant__ kernelwright::test::KvPipelineParams params) {
  using namespace kernelwright;
  using namespace kernelwright::test;
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t barriers = ptx::shared_address(memory), k_smem = barriers + kKvPipelineBarrierBytes;
  const uint32_t v_smem = k_smem + Tiles::num_kv_stages * pipeline::KvBytes<Tiles>::k_slot;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) Consumer::init(barriers, 1, kConsumerWarps);
  __syncthreads();
  if (warp == kConsumerWarps) {
    if (lane == 0) produce(params, barriers, k_smem, v_smem);
  } else {
    Consumer kv(barriers, k_smem, v_smem, {lane});
    consume(params, kv, warp, lane);
  }
}
