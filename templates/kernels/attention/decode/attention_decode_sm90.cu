/// Attention for few query rows on Hopper: attention_decode.cuh with rings that TMA fills. One lane of a warp issues
/// the copies of its ring, and all stages may be in flight. Bytes in flight cost no register and hardly an instruction.
/// The warp that reads a slot also fills it again. So a slot needs no barrier for its release: __syncwarp() is enough.
/// fp8 keys and values come as they are; they are converted behind the shared-memory read.
#include "kernels/attention/decode/attention_decode.cuh"

#include "contract/attention_decode_sm90.h"
#include "pipeline/phased_barrier.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "tile/column_tile.cuh"

namespace kernelwright {
namespace {

using namespace decode;

// The columns of slots count 16 bits: an element, or two bytes of fp8.
enum : int { kElementBytes = sizeof(tile::Storage<spec::kKvDType>) };  // no variable of a binary
constexpr int kPaddedQk =
    contract::decode_columns(spec::kHeadDimQk, kElementBytes, spec::kSwizzleBytes) * kElementBytes / 2;
constexpr int kPaddedV =
    contract::decode_columns(spec::kHeadDimV, kElementBytes, spec::kSwizzleBytes) * kElementBytes / 2;
constexpr int kBoxRows = contract::hopper_kv_box_rows(kWarpKeys, spec::kPageSize);
constexpr int kBoxes = kWarpKeys / kBoxRows;  // boxes along the keys
constexpr uint32_t kRowBytes = contract::slab_width(spec::kSwizzleBytes), kSlabBytes = kWarpKeys * kRowBytes;
constexpr int kSlabColumns = kRowBytes / 2, kStepColumns = kSlabColumns * contract::slabs_of_step(spec::kSwizzleBytes);
constexpr bool kPaged = spec::kKvLayout == KvLayoutKind::kPaged;
// V in columns: a slab is a box of all of the depth.
enum : int { kColumnWidth = contract::column_slab_bytes(kWarpKeys, spec::kPageSize) };  // no variable of a binary
using Columns = tile::ColumnTile<spec::kHeadDimV, kColumnWidth>;
static_assert(kBoxRows % contract::kSwizzleRows == 0, "a box begins where the swizzle's pattern does");

/// Pages of the warp's boxes, in the order of the loads: each lane looks one page up, 32 boxes ahead of need.
class Pages {
 public:
  __device__ __forceinline__ Pages(const int32_t* table, const policy::TileList& tiles, int warp, int lane)
      : table_(table), tiles_(tiles), warp_(warp), lane_(lane) {
    if constexpr (kPaged) now_ = look_up(lane), next_ = look_up(32 + lane);
  }

  /// The page of the next box. All lanes of the warp call it.
  __device__ __forceinline__ int next() {
    if (box_ > 0 && box_ % 32 == 0) {
      now_ = next_;
      next_ = look_up(box_ + 32 + lane_);
    }
    return __shfl_sync(0xffffffff, now_, box_++ % 32);
  }

 private:
  __device__ __forceinline__ int look_up(int box) const {
    constexpr int kPage = spec::kPageSize > 0 ? spec::kPageSize : 1;
    const int tile = tiles_.begin + box / kBoxes;
    const int key = tile * spec::kBlockN + warp_ * kWarpKeys + box % kBoxes * kBoxRows;
    // The table may end with the sequence, and begin with the window. A page outside of the tensor reads as zeros: the
    // map knows how many pages exist, so a wrong entry of the table needs no check here.
    const bool seen = tile < tiles_.end && key < tiles_.keys.high && key + kBoxRows > tiles_.keys.low;
    return seen ? table_[key / kPage] : -1;  // no __ldg: ptx/launch.cuh
  }

  const int32_t* table_;
  const policy::TileList& tiles_;
  int warp_, lane_, box_ = 0;
  int now_ = -1, next_ = -1;
};

class Stream {
  template <class Trait>
  using Buffer = tile::KvBuffer<Trait, tile::KvForm::kTma, spec::kQDType, spec::kQDType, spec::kNumStages, 32,
                                spec::kSwizzleBytes, spec::kArch>;

 public:
  using Products = policy::Either<spec::kVColumns, policy::KvColumns<spec::kQDType, spec::kKvDType, spec::kArch>,
                                  policy::KvOperands<spec::kQDType, spec::kKvDType, spec::kArch>>::type;

 private:
  using Keys = typename Products::template Keys<Buffer<tile::KeyTrait<kWarpKeys, kStepColumns, kPaddedQk, kWarpKeys>>>;
  using ValueRows = typename Products::template Values<Buffer<tile::ValueTrait<kWarpKeys, kPaddedV>>>;
  using Values =
      typename policy::Either<spec::kVColumns,
                              tile::ColumnValues<kWarpKeys, spec::kHeadDimV, kColumnWidth, kWarpKeys * kPaddedV * 2,
                                                 spec::kNumStages, spec::kKvDType, spec::kArch>,
                              ValueRows>::type;

 public:
  static constexpr contract::HopperDecodeLayout layout =
      contract::hopper_decode_layout(spec::kBlockM, spec::kBlockN, spec::kNumWarps, spec::kHeadDimQk, spec::kHeadDimV,
                                     spec::kNumStages, spec::kSwizzleBytes, kElementBytes, kSums);
  static_assert(Keys::bytes <= layout.ring_values && Values::bytes <= layout.ring_bytes - layout.ring_values,
                "the host counts the same");
  static constexpr int groups_ahead = 0;
  /// fp8 keys: where the factors of Q's rows lie.
  static __device__ constexpr uint32_t query_factors() { return contract::query_factors(layout, spec::kBlockM); }

  /// Makes the warp's barriers. Only this warp uses them, and its lanes converge before that: prefetch().
  static __device__ __forceinline__ void prepare(const contract::HopperDecodeParams& operands, uint32_t shared,
                                                 int warp, int lane) {
    if (threadIdx.x == 0) {  // so the first copies find their maps in the cache
      ptx::prefetch_tensormap(operands.k);
      ptx::prefetch_tensormap(operands.v);
    }
    if (lane == 0) {
#pragma unroll
      for (int i = 0; i < 2 * spec::kNumStages; ++i)
        Landed{barriers_of(shared, warp) + i * contract::kBarrierBytes}.init();
      pipeline::fence_barrier_init();
    }
  }

  __device__ __forceinline__ Stream(const contract::AttentionParams& params,
                                    const contract::HopperDecodeParams& operands, const WorkItem& item,
                                    const policy::TileList& tiles, uint32_t shared, int warp, int lane)
      : operands_(operands),
        tiles_(tiles),
        bound_{tiles.keys.low, tiles.keys.high},
        pages_(params.page_table + static_cast<int64_t>(item.coord.batch) * params.page_table_stride, tiles, warp,
               lane),
        ring_(shared + layout.rings + warp * layout.ring_bytes),
        barriers_(barriers_of(shared, warp)),
        keys_(ring_, lane),
        values_(ring_ + layout.ring_values, lane),
        start_(static_cast<int>(item.sequence.kv_start)),
        head_(item.coord.head),
        batch_(spec::kKvLayout == KvLayoutKind::kRagged ? 0 : item.coord.batch),
        warp_(warp),
        lane_(lane) {}

  __device__ __forceinline__ void prefetch() {
    __syncwarp();  // the barriers exist
#pragma unroll 1
    for (int ahead = 0; ahead < spec::kNumStages; ++ahead) load(tiles_.begin + ahead, ahead);
  }

  __device__ __forceinline__ const Keys& keys() const { return keys_; }
  __device__ __forceinline__ const Values& values() const { return values_; }

  /// The slot of the tile that is being read.
  __device__ __forceinline__ int stage() const { return static_cast<int>(at_.index); }

  __device__ __forceinline__ void await_keys(int) {
    full(stage(), 0).wait(at_);
    __syncwarp();  // ldmatrix needs the whole warp
  }

  /// The scores hide keys that no row sees, but their values are multiplied by 0, and 0 * NaN is NaN.
  __device__ __forceinline__ void await_values(int key_tile) {
    full(stage(), 1).wait(at_);
    const int first = first_key(key_tile);
    if (!bound_.holds_all(first, kWarpKeys)) {
      const uint32_t slot = ring_ + layout.ring_values + stage() * Values::slot_bytes;
      if constexpr (spec::kVColumns) {
#pragma unroll 1
        for (int i = lane_; i < kKeySteps * spec::kHeadDimV; i += 32) {
          const int run = i / spec::kHeadDimV;
          Columns::keep(slot + Columns::place(i % spec::kHeadDimV, run), first + run * Columns::kRun,
                        [&](int key) { return bound_.holds(key); });
        }
      } else {
#pragma unroll 1
        for (int piece = lane_; piece < static_cast<int>(Values::slot_bytes) / 16; piece += 32)
          if (!bound_.holds(first + piece % (kSlabBytes / 16) / (kRowBytes / 16)))
            ptx::st_shared_v4(slot + piece * 16, {});
      }
      ptx::fence_proxy_async_shared();  // TMA may fill the slot again, once it has been read
    }
    __syncwarp();
  }

  __device__ __forceinline__ void release(int key_tile) {
    __syncwarp();  // every lane has read the slot
    load(key_tile + spec::kNumStages, stage());
    at_.step();
  }

  /// The warp has waited for everything that it loaded: nothing is in flight.
  __device__ __forceinline__ void finish() {}

 private:
  static __device__ __forceinline__ uint32_t barriers_of(uint32_t shared, int warp) {
    return shared + layout.barriers + warp * spec::kNumStages * 2 * contract::kBarrierBytes;
  }
  __device__ __forceinline__ int first_key(int key_tile) const { return key_tile * spec::kBlockN + warp_ * kWarpKeys; }
  // The keys, or the values, of a slot have landed. The thread that arms the barrier arrives, and so do the copies'
  // bytes.
  using Landed = pipeline::PhasedBarrier<1>;
  __device__ __forceinline__ Landed full(int stage, int values) const {
    return {barriers_ + (stage * 2 + values) * contract::kBarrierBytes};
  }

  __device__ __forceinline__ void load(int key_tile, int stage) {
    if (key_tile >= tiles_.end) return;
    int page[kBoxes];
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) page[box] = kPaged ? pages_.next() : batch_;
    if (lane_ != 0) return;
    const int key = first_key(key_tile);
    load_slabs<kPaddedQk>(operands_.k, ring_ + stage * Keys::slot_bytes, full(stage, 0), key, page);
    const uint32_t values = ring_ + layout.ring_values + stage * Values::slot_bytes;
    if constexpr (spec::kVColumns)
      load_columns(values, full(stage, 1), key, page);
    else
      load_slabs<kPaddedV>(operands_.v, values, full(stage, 1), key, page);
  }

  __device__ __forceinline__ void load_columns(uint32_t slot, Landed landed, int first_key,
                                               const int (&page)[kBoxes]) const {
    constexpr int kPage = spec::kPageSize > 0 ? spec::kPageSize : 1;
    landed.expect_bytes(kWarpKeys * spec::kHeadDimV);
#pragma unroll
    for (int slab = 0; slab < kWarpKeys / kColumnWidth; ++slab)
      ptx::cp_async_bulk_tensor_4d(slot + slab * Columns::kSlabBytes, operands_.v,
                                   (first_key + slab * kColumnWidth) % kPage, 0, head_,
                                   page[slab * kColumnWidth / kBoxRows], landed.address);
  }

  template <int kDepth>
  __device__ __forceinline__ void load_slabs(const contract::TensorMap& map, uint32_t slot, Landed landed,
                                             int first_key, const int (&page)[kBoxes]) const {
    constexpr int kPage = spec::kPageSize > 0 ? spec::kPageSize : 1;
    landed.expect_bytes(kWarpKeys * kDepth * 2);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const int key = first_key + box * kBoxRows;
#pragma unroll
      for (int slab = 0; slab < kDepth / kSlabColumns; ++slab)
        ptx::cp_async_bulk_tensor_4d(slot + slab * kSlabBytes + box * kBoxRows * kRowBytes, map,
                                     slab * kSlabColumns * 2 / kElementBytes, kPaged ? key % kPage : start_ + key,
                                     head_, page[box], landed.address);
    }
  }

  const contract::HopperDecodeParams& operands_;
  const policy::TileList& tiles_;
  const Bound bound_;
  Pages pages_;
  const uint32_t ring_, barriers_;
  Keys keys_;
  Values values_;
  const int start_, head_, batch_, warp_, lane_;
  pipeline::PipelineState<spec::kNumStages> at_ = pipeline::PipelineState<spec::kNumStages>::consumer();
};

}  // namespace
}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(kernelwright::decode::kNumThreads, kernelwright::spec::kMinCtas)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::HopperDecodeParams params) {
  kernelwright::decode::attend<kernelwright::Stream>(params.attention, params);
}
