/// Role of the loading warpgroup of gemm_sm90 where rows of the problem's a lie anywhere: TMA gathers rows from sm_100
/// on only. The threads copy these rows, 16 bytes at a time, to the places where TMA's swizzle would put them. One of
/// them also loads the matrix b of the tile's group, by TMA.
///
/// A slot is full when TMA's bytes have landed and every loading warp has arrived. A warp arrives once its copies are
/// done and fences have made them visible to wgmma, which reads through the async proxy. Copies to all other slots are
/// in flight meanwhile.
#pragma once

#include "kernels/gemm/sm90/gemm_sm90_load.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

class GatherLoader {
  static constexpr contract::SharedSlab kSlab = spec::kSwapAb ? kBSlab : kASlab;
  static constexpr int kPieces = spec::kSlabBytes / contract::kPieceBytes, kPassRows = kLoadThreads / kPieces;
  static constexpr int kPasses = (kSlab.rows + kPassRows - 1) / kPassRows;
  // Slots whose copies are in flight. A math warp releases a slot once it has issued products of the next one, which
  // therefore must be full: two slots at least are no more in flight.
  static constexpr int kInFlight = Input::num_group_stages - 2;
  static constexpr uint32_t kMappedBytes = (spec::kSwapAb ? kABytes : kBBytes) * spec::kKGroup;
  static_assert(!kGathers || (kCluster == 1 && spec::kSwizzleBytes == spec::kSlabBytes && kPassRows % 8 == 0),
                "a row is one line of the swizzle, at the same place of its pattern in every pass");

 public:
  __device__ __forceinline__ GatherLoader(const GemmParams& params, const WarpWork& work, uint32_t barriers,
                                          const Payload& payload)
      : params_(params),
        work_(work),
        input_(barriers, payload),
        ring_(Input::Ring::producer(barriers)),
        thread_(static_cast<int>(threadIdx.x)),
        row_(thread_ / kPieces),
        piece_(thread_ % kPieces),
        to_(static_cast<uint32_t>(row_ * spec::kSlabBytes) +
            (static_cast<uint32_t>(piece_) ^ contract::swizzle_of_row(row_, spec::kSwizzleBytes)) * 16) {}

  __device__ __forceinline__ void run() {
    const Part part = work_.part();
#pragma unroll 1
    for (int t = work_.first; t < work_.count(); t += work_.step) {
      const Tile tile = work_.at(t, 0);
      look_up(tile);
#pragma unroll 1
      for (int slab = part.begin; slab < part.end; slab += spec::kKGroup) {
        const auto stage = input_.acquire();
        if (thread_ == 0) load_weights(stage, slab, tile);
#pragma unroll
        for (int j = 0; j < spec::kKGroup; ++j) copy(stage.get_tile(j), slab + j);
        ptx::cp_async_commit_group();
        if (++in_flight_ > kInFlight) {
          ptx::cp_async_wait_group<kInFlight>();
          arrive();
        }
      }
    }
    ptx::cp_async_wait_all();
    while (in_flight_ > 0) arrive();
    if (thread_ == 0) ptx::griddepcontrol_launch_dependents();
  }

 private:
  /// For the oldest slot whose copies were in flight.
  __device__ __forceinline__ void arrive() {
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (thread_ % 32 == 0) ring_.fill();
    ring_.step();
    --in_flight_;
  }
  /// The row of a that is row `row` of the tile; -1: a row of zeros.
  __device__ __forceinline__ int source(const Tile& tile, int row) const {
    const int at = (spec::kSwapAb ? tile.column : tile.row) + row;
    if (row >= kSlab.rows || at >= (spec::kSwapAb ? tile.column_end : tile.row_end)) return -1;
    return source_row(params_, at);
  }
  __device__ __forceinline__ void look_up(const Tile& tile) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) sources_[pass] = source(tile, row_ + pass * kPassRows);
    if constexpr (kBlockScales) {
#pragma unroll
      for (int i = 0; i < kScalesOfThread; ++i) scales_[i] = source(tile, thread_ + i * kLoadThreads);
    }
  }
  __device__ __forceinline__ void load_weights(const pipeline::ProducerStage<Input>& stage, int slab,
                                               const Tile& tile) const {
    stage.expect_bytes(kMappedBytes);
#pragma unroll
    for (int j = 0; j < spec::kKGroup; ++j) {
      const int k = (slab + j) * kSlabDepth;  // TMA brings zeros past the end
      if constexpr (spec::kSwapAb)
        load_a(params_, stage.get_tile(j).a(), k, tile, stage.full());
      else
        load_b(params_, stage.get_tile(j).b(), k, tile, 0, stage.full());
    }
  }
  template <class SlotTile>
  __device__ __forceinline__ void copy(const SlotTile& to, int slab) const {
    const int k = slab * kSlabDepth + piece_ * (contract::kPieceBytes / kElementBytes);
    const bool exists = k < params_.k;  // rows have whole pieces
    const unsigned char* const column =
        static_cast<const unsigned char*>(params_.groups.a) + (exists ? int64_t{k} * kElementBytes : 0);
    const int64_t stride = params_.groups.a_stride * kElementBytes;
    const uint32_t at = (spec::kSwapAb ? to.b() : to.a()) + to_;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if (kSlab.rows % kPassRows != 0 && row_ + pass * kPassRows >= kSlab.rows) break;
      const bool copied = exists && sources_[pass] >= 0;
      ptx::cp_async_cg_16(at + pass * (kPassRows * spec::kSlabBytes), column + max(sources_[pass], 0) * stride,
                          copied ? contract::kPieceBytes : 0);
    }
    if constexpr (kBlockScales) {
      const float* const all = spec::kSwapAb ? params_.scale_b : params_.scale_a;  // of the problem's a
      const float* const of_slab = all + slab * (spec::kSwapAb ? params_.scale_b_stride : params_.scale_a_stride);
      const bool in_k = slab * kSlabDepth < params_.k;
#pragma unroll
      for (int i = 0; i < kScalesOfThread; ++i) {
        const int row = thread_ + i * kLoadThreads;
        if (kScaledRows % kLoadThreads != 0 && row >= kScaledRows) break;
        const bool copied = in_k && scales_[i] >= 0;
        ptx::cp_async_ca_4(to.scales() + static_cast<uint32_t>(row) * 4, copied ? of_slab + scales_[i] : all,
                           copied ? 4 : 0);
      }
    }
  }

  static constexpr int kScalesOfThread = (kScaledRows + kLoadThreads - 1) / kLoadThreads;

  const GemmParams& params_;
  const WarpWork work_;
  pipeline::InputProducer<Input> input_;
  typename Input::Ring ring_;  // stands on the oldest slot whose copies are in flight
  int in_flight_ = 0;
  const int thread_, row_, piece_;
  const uint32_t to_;
  int sources_[kPasses];
  int scales_[kBlockScales ? kScalesOfThread : 1];
};

}  // namespace
}  // namespace kernelwright
