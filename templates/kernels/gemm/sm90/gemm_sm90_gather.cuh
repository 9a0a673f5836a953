/// Role of the loading warpgroup of gemm_sm90 where rows of the problem's a lie anywhere: TMA gathers rows from sm_100
/// on only. The threads copy these rows, 16 bytes at a time, to the places where TMA's swizzle would put them. One of
/// them also loads the matrix b of the tile's group, by TMA.
///
/// A slot is full when TMA's bytes have landed and every loading thread has arrived. A thread's copies arrive for it
/// when they are done, so copies to all free slots are in flight. The math warps fence behind the wait for a slot,
/// because wgmma reads it through the async proxy.
#pragma once

#include "kernels/gemm/sm90/gemm_sm90_load.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

class GatherLoader {
  static constexpr contract::SharedSlab kSlab = spec::kSwapAb ? kBSlab : kASlab;
  static constexpr int kPieces = spec::kSlabBytes / contract::kPieceBytes, kPassRows = kLoadThreads / kPieces;
  static constexpr int kPasses = (kSlab.rows + kPassRows - 1) / kPassRows;
  static constexpr uint32_t kMappedBytes = (spec::kSwapAb ? kABytes : kBBytes) * spec::kKGroup;
  static_assert(!kGathers || (kCluster == 1 && spec::kSwizzleBytes == spec::kSlabBytes && kPassRows % 8 == 0),
                "a row is one line of the swizzle, at the same place of its pattern in every pass");

 public:
  __device__ __forceinline__ GatherLoader(const GemmParams& params, const WarpWork& work, uint32_t barriers,
                                          const Payload& payload)
      : params_(params),
        work_(work),
        input_(barriers, payload),
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
        stage.arrive_with_copies();
      }
    }
    if (thread_ == 0) ptx::griddepcontrol_launch_dependents();
  }

 private:
  /// The row of a that is row `row` of the tile; -1: a row of zeros.
  __device__ __forceinline__ int source(const Tile& tile, int row) const {
    const int at = (spec::kSwapAb ? tile.column : tile.row) + row;
    if (row >= kSlab.rows || at >= (spec::kSwapAb ? tile.column_end : tile.row_end)) return -1;
    return source_row(params_, at);
  }
  __device__ __forceinline__ void look_up(const Tile& tile) {
    const int64_t stride = params_.groups.a_stride * kElementBytes;
    const unsigned char* const piece =
        static_cast<const unsigned char*>(params_.groups.a) + piece_ * contract::kPieceBytes;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int from = source(tile, row_ + pass * kPassRows);
      rows_[pass] = piece + max(from, 0) * stride;
      exist_[pass] = from >= 0;
    }
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
  __device__ __forceinline__ void copy(const SlotTile& to, int slab) {
    const int k = slab * kSlabDepth + piece_ * (contract::kPieceBytes / kElementBytes);
    const bool in_row = k < params_.k;  // rows have whole pieces
    const uint32_t at = (spec::kSwapAb ? to.b() : to.a()) + to_;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if (kSlab.rows % kPassRows != 0 && row_ + pass * kPassRows >= kSlab.rows) break;
      ptx::cp_async_cg_16(at + pass * (kPassRows * spec::kSlabBytes), rows_[pass],
                          in_row && exist_[pass] ? contract::kPieceBytes : 0);
      rows_[pass] += spec::kSlabBytes;
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
  const int thread_, row_, piece_;
  const uint32_t to_;
  const unsigned char* rows_[kPasses];  // the thread's piece of each row, of the next slab
  bool exist_[kPasses];
  int scales_[kBlockScales ? kScalesOfThread : 1];
};

}  // namespace
}  // namespace kernelwright
