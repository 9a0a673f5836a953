/// Attention for few query rows on every architecture: attention_decode.cuh with the token_gen form of the KV buffer. A
/// warp's own cp.async fill its ring. Where keys are converted on the way, the warp's registers fill it.
#include "kernels/attention/decode/attention_decode.cuh"

#include "tile/kv_rows.cuh"

namespace kernelwright {
namespace {

using namespace decode;

constexpr bool kRegisters = spec::kStaging == Staging::kRegisters;
constexpr tile::KvForm kForm = kRegisters ? tile::KvForm::kRegisterStaged : tile::KvForm::kCpAsync;

class Stream {
 public:
  using Products = policy::ConvertedOperands<spec::kQDType, spec::kArch>;  // converted on the way

 private:
  using Keys =
      tile::KvBuffer<tile::KeyTrait<kWarpKeys, spec::kBlockK, spec::kHeadDimQk, kWarpKeys>, kForm, spec::kKvDType,
                     Products::computed(), spec::kNumStages, 32, spec::kSwizzleBytes, spec::kArch>;
  using Values = tile::KvBuffer<tile::ValueTrait<kWarpKeys, spec::kHeadDimV>, kForm, spec::kKvDType,
                                Products::computed(), spec::kNumStages, 32, spec::kSwizzleBytes, spec::kArch>;
  using KvRows = tile::KvRows<tile::Storage<spec::kKvDType>, spec::kKvLayout, spec::kPageSize>;
  // Beside the accumulators of a wide head no tile can wait in registers. So keys are loaded when they are needed, and
  // values after Q K^T. Other warps and CTAs hide that latency.
  static constexpr bool kLate = kRegisters && contract::decode_loads_late(spec::kHeadDimQk, spec::kHeadDimV);
  static_assert(!kLate || spec::kNumStages == 1, "the planner counts the same");

 public:
  static constexpr contract::DecodeLayout layout = contract::decode_layout(
      spec::kBlockM, spec::kBlockN, spec::kNumWarps, spec::kHeadDimQk, spec::kHeadDimV, Keys::num_slots, 2, kSums);
  static_assert(Keys::bytes <= layout.ring_values && Values::bytes <= layout.ring_bytes - layout.ring_values,
                "the host counts the same");
  // Tiles in flight before the loop: one for each slot except the one that is read, or one for each stage of registers.
  static constexpr int groups_ahead = kLate ? 0 : kRegisters ? spec::kNumStages : Keys::num_slots - 1;

  static __device__ __forceinline__ void prepare(int, uint32_t, int, int) {}

  __device__ __forceinline__ Stream(const contract::AttentionParams& params, int, const WorkItem& item,
                                    const policy::TileList& tiles, uint32_t shared, int warp, int lane)
      : tiles_(tiles),
        bound_{tiles.keys.low, tiles.keys.high},
        pages_(tile::page_line<KvRows>(params, item.coord.batch)),
        key_rows_(tile::kv_rows<KvRows>(params, params.k, params.k_strides, pages_, item.coord.batch,
                                        item.sequence.kv_start, item.coord.head)),
        value_rows_(tile::kv_rows<KvRows>(params, params.v, params.v_strides, pages_, item.coord.batch,
                                          item.sequence.kv_start, item.coord.head)),
        keys_(shared + layout.rings + warp * layout.ring_bytes, lane),
        values_(shared + layout.rings + warp * layout.ring_bytes + layout.ring_values, lane),
        warp_(warp) {}

  __device__ __forceinline__ void prefetch() {
#pragma unroll kRegisters ? groups_ahead + 1 : 1
    for (int ahead = 0; ahead < groups_ahead; ++ahead) load(tiles_.begin + ahead, ahead);
  }

  __device__ __forceinline__ const Keys& keys() const { return keys_; }
  __device__ __forceinline__ const Values& values() const { return values_; }

  /// The slot of the tile that is being read, or the stage of registers that it came through.
  __device__ __forceinline__ int stage() const { return stage_; }

  __device__ __forceinline__ void await_keys(int key_tile) {
    if constexpr (kForm == tile::KvForm::kCpAsync) {
      load(key_tile + groups_ahead, stage_ == 0 ? Keys::num_slots - 1 : stage_ - 1);
      ptx::cp_async_wait_group<groups_ahead>();
    } else {
      if constexpr (kLate) load(key_tile, 0);
      keys_.copy_to_shared(stage_);
      if constexpr (kLate) {
        values_.load_from_dram(value_rows_, first_key(key_tile), bound_, 0);
      } else {
        values_.copy_to_shared(stage_);
        load(key_tile + spec::kNumStages, stage_);
      }
    }
    __syncwarp();  // the warp's keys have landed
  }

  __device__ __forceinline__ void await_values(int) {
    if constexpr (kLate) {
      values_.copy_to_shared();
      __syncwarp();  // the warp's values have landed
    }
  }

  __device__ __forceinline__ void release(int) {
    __syncwarp();  // no lane reads the slot that is loaded next
    stage_ = stage_ == Keys::num_stages - 1 ? 0 : stage_ + 1;
  }

  __device__ __forceinline__ void finish() { ptx::cp_async_wait_group<0>(); }

 private:
  __device__ __forceinline__ int first_key(int key_tile) const { return key_tile * spec::kBlockN + warp_ * kWarpKeys; }

  __device__ __forceinline__ void load(int key_tile, int stage) {
    if (key_tile < tiles_.end) {
      keys_.load_from_dram(key_rows_, first_key(key_tile), bound_, stage);
      if constexpr (!kLate) values_.load_from_dram(value_rows_, first_key(key_tile), bound_, stage);
    }
    ptx::cp_async_commit_group();  // empty groups keep the count of groups equal to that of tiles
  }

  const policy::TileList& tiles_;
  const Bound bound_;
  const int32_t* const pages_;
  const KvRows key_rows_, value_rows_;
  Keys keys_;
  Values values_;
  int warp_, stage_ = 0;
};

}  // namespace
}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(kernelwright::decode::kNumThreads, kernelwright::spec::kMinCtas)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::AttentionParams params) {
  kernelwright::decode::attend<kernelwright::Stream>(params, 0);
}
