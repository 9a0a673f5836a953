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
  static constexpr int element_bytes = 4, k_rows_per_cta = 16, v_cols_per_cta = 8, BK1 = 16;
  static constexpr int num_kv_stages = kVariant.stages, num_qk_stages = kVariant.chunks;
  static constexpr int num_mma_stages = 1, cluster = 1, BK0 = 16 / num_qk_stages;
  static constexpr bool shared_ring = kVariant.shared_ring;
  static constexpr KvOrder order = kVariant.keys_ahead ? KvOrder::kKeysAhead : KvOrder::kAlternating;
};

using Consumer = KvConsumerPipeline<Tiles, WarpRelease<>>;
constexpr int kConsumerWarps = 2;

static_assert(KvRings<Tiles>::bytes <= kKvPipelineBarrierBytes);
static_assert(Tiles::num_kv_stages * (KvBytes<Tiles>::k_slot + KvBytes<Tiles>::v_slot) <=
              kKvPipelineSharedBytes - kKvPipelineBarrierBytes);

/// Chunks kPart and later of tile j of K.
template <int kPart, class View>
__device__ __forceinline__ void load_k(View& k, const float* from, int j) {
  k.template acquire_k<kPart>();
  const TileTarget to = k.template get_k<kPart>(true);
  ptx::cp_async_bulk_load(to.smem, from + j * View::elements_full + kPart * View::elements, View::tile_bytes, to.full);
  if constexpr (kPart + 1 < View::num_stages) load_k<kPart + 1>(k, from, j);
}

__device__ __forceinline__ void produce(const KvPipelineParams& params, uint32_t barriers, uint32_t k_smem,
                                        uint32_t v_smem) {
  KvProducer<Tiles> rings(barriers, k_smem, v_smem);
  auto k = rings.k();
  auto v = rings.v();
  for (int item = 0; item < params.items; ++item) {
    for_each_load<Tiles::order>(
        params.tiles[item],
        [&](int j) {
          load_k<0>(k, params.k, j);
          k.commit_step();
        },
        [&](int j) {
          v.acquire_v();
          const TileTarget to = v.get_v(true);
          ptx::cp_async_bulk_load(to.smem, params.v + j * v.elements, v.tile_bytes, to.full);
          v.commit_step();
        });
  }
}

__device__ __forceinline__ float sum_at(uint32_t address, uint32_t bytes, uint32_t lane) {
  float sum = 0;
  for (uint32_t at = lane * 4; at < bytes; at += 128) sum += ptx::ld_shared_f32(address + at);
  __syncwarp();  // every lane has read before one lets go for all
  return sum;
}

__device__ __forceinline__ void consume(const KvPipelineParams& params, Consumer& kv, uint32_t warp, uint32_t lane) {
  constexpr uint32_t kKBytes = KvBytes<Tiles>::k_tile, kVBytes = KvBytes<Tiles>::v_tile;
  for (int item = 0; item < params.items; ++item) {
    const int tiles = params.tiles[item];
    float sum = 0;
    if constexpr (Tiles::order == KvOrder::kKeysAhead) {
      if (tiles > 0) {
        sum += sum_at(kv.wait_k(), kKBytes, lane);
        kv.release_k();
        for (int j = 1; j < tiles; ++j) {
          const uint32_t k = kv.wait_k(), v = kv.wait_v();
          sum += static_cast<float>(j + 1) * sum_at(k, kKBytes, lane);
          kv.release_k();
          sum += sum_at(v, kVBytes, lane);
          kv.release_v();
        }
        sum += sum_at(kv.wait_v(), kVBytes, lane);
        kv.release_v();
      }
    } else {
      uint32_t v = 0;
      for (int j = 0; j < tiles; ++j) {
        const uint32_t k = kv.wait_k();
        if (j > 0) {
          sum += sum_at(v, kVBytes, lane);
          kv.release_v();
        }
        sum += static_cast<float>(j + 1) * sum_at(k, kKBytes, lane);
        kv.release_k();
        v = kv.wait_v();
      }
      if (tiles > 0) {
        sum += sum_at(v, kVBytes, lane);
        kv.release_v();
      }
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
