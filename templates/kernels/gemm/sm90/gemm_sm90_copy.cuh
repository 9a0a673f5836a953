/// Role of the loading warpgroup of gemm_sm90 where tensor maps do not reach an operand of the problem. Rows of a may
/// lie anywhere: TMA gathers rows from sm_100 on only. Matrices b may lie where the launch says: a map has one address.
/// The threads copy such an operand, 16 bytes at a time, to the places where TMA's swizzle would put it. One of them
/// loads the other operand by TMA.
///
/// A slot is full when TMA's bytes have landed and every loading thread has arrived. A thread's copies arrive for it
/// when they are done, so copies to all free slots are in flight. The math warps fence behind the wait for a slot,
/// because wgmma reads it through the async proxy.
#pragma once

#include "kernels/gemm/sm90/gemm_sm90_load.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

// Bytes of a slot that TMA brings, but for scales, and whether it brings any.
constexpr uint32_t kMappedBytes = ((kMapsRows ? kABytes : 0) + (kMapsColumns ? kBBytes : 0)) * spec::kKGroup;
enum : int { kSomeMapped = kMappedBytes > 0 ? 1 : 0 };

/// Where a thread's copies go in a part of a slab: each 16 threads-th line, at one place of the swizzle's pattern.
struct CopyLines {
  static constexpr int kPieces = spec::kSlabBytes / contract::kPieceBytes, kPassLines = kLoadThreads / kPieces;
  static constexpr int kPassBytes = kPassLines * spec::kSlabBytes,
                       kPieceElements = contract::kPieceBytes / kElementBytes;
  static_assert(!kCopies || (kCluster == 1 && spec::kSwizzleBytes == spec::kSlabBytes && kPassLines % 8 == 0),
                "a line of 128 bytes is a row, at the same place of the swizzle's pattern in every pass");
  int line, piece;
  uint32_t to;  // from the part's start

  __device__ __forceinline__ explicit CopyLines(int thread)
      : line(thread / kPieces),
        piece(thread % kPieces),
        to(static_cast<uint32_t>(line * spec::kSlabBytes) +
           (static_cast<uint32_t>(piece) ^ contract::swizzle_of_row(line, spec::kSwizzleBytes)) * 16) {}
};

/// Copies the matrix b of a tile's group, slab by slab. Elements past its rows and columns become zeros.
class MatrixCopies {
  static constexpr contract::SharedSlab kSlab = spec::kSwapAb ? kASlab : kBSlab;
  static constexpr int kLines = kSlab.part_bytes() / spec::kSlabBytes;  // of a part: rows of b as they lie in memory
  static constexpr int kPasses = (kLines + CopyLines::kPassLines - 1) / CopyLines::kPassLines;

 public:
  /// For the next tile.
  __device__ __forceinline__ void begin(const GemmParams& params, const Tile& tile, const CopyLines& lines) {
    const int first = spec::kSwapAb ? tile.row : tile.column;
    left_ = (spec::kSwapAb ? tile.row_end : tile.column_end) - first;
    stride_ = params.groups.b_stride * kElementBytes;
    const int64_t row = kSlab.mn_major ? lines.line : first + lines.line;
    const int64_t column = (kSlab.mn_major ? first : 0) + lines.piece * CopyLines::kPieceElements;
    from_ = reinterpret_cast<const unsigned char*>(ptx::ld_global_s64(params.groups.pointers + tile.group)) +
            row * stride_ + column * kElementBytes;
  }
  /// Copies slab `slab`, the one behind the last. `to`: the thread's place in it.
  __device__ __forceinline__ void copy(const GemmParams& params, uint32_t to, int slab, const CopyLines& lines) {
    const int k = slab * kSlabDepth;
    const unsigned char* from = from_;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int line = lines.line + pass * CopyLines::kPassLines;
      if (kLines % CopyLines::kPassLines != 0 && line >= kLines) break;
#pragma unroll
      for (int part = 0; part < kSlab.parts(); ++part) {
        const int within = part * kSlab.width_elements() + lines.piece * CopyLines::kPieceElements;
        const bool exists =
            kSlab.mn_major ? k + line < params.k && within < left_ : line < left_ && k + within < params.k;
        ptx::cp_async_cg_16(to + part * kSlab.part_bytes() + pass * CopyLines::kPassBytes,
                            from + part * spec::kSlabBytes, exists ? contract::kPieceBytes : 0);
      }
      from += CopyLines::kPassLines * stride_;
    }
    from_ += kSlab.mn_major ? kSlabDepth * stride_ : spec::kSlabBytes;
  }

 private:
  const unsigned char* from_;  // the thread's first piece of the next slab
  int64_t stride_;             // bytes
  int left_;                   // rows or columns from the tile's first one to the end
};

class CopyLoader {
  static constexpr contract::SharedSlab kSlab = spec::kSwapAb ? kBSlab : kASlab;  // of rows that are gathered
  static constexpr int kPassRows = CopyLines::kPassLines, kPasses = (kSlab.rows + kPassRows - 1) / kPassRows;

 public:
  __device__ __forceinline__ CopyLoader(const GemmParams& params, const WarpWork& work, uint32_t barriers,
                                        const Payload& payload)
      : params_(params),
        work_(work),
        input_(barriers, payload),
        thread_(static_cast<int>(threadIdx.x)),
        lines_(thread_) {}

  __device__ __forceinline__ void run() {
    const Part part = work_.part();
#pragma unroll 1
    for (int t = work_.first; t < work_.count(); t = work_.after(t)) {
      const Tile tile = work_.at(t, 0);
      if constexpr (kGathers) look_up(tile);
      if constexpr (spec::kPointers) matrix_.begin(params_, tile, lines_);
      row_scales_.begin(params_, tile);
#pragma unroll 1
      for (int slab = part.begin; slab < part.end; slab += spec::kKGroup) {
        const auto stage = input_.acquire();
        if (kSomeMapped != 0 && thread_ == 0) load_mapped(stage, slab, tile);
#pragma unroll
        for (int j = 0; j < spec::kKGroup; ++j) {
          const auto to = stage.get_tile(j);
          if constexpr (kGathers) copy_rows(to, slab + j);
          if constexpr (spec::kPointers)
            matrix_.copy(params_, (spec::kSwapAb ? to.a() : to.b()) + lines_.to, slab + j, lines_);
        }
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
        static_cast<const unsigned char*>(params_.groups.a) + lines_.piece * contract::kPieceBytes;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int from = source(tile, lines_.line + pass * kPassRows);
      rows_[pass] = piece + max(from, 0) * stride;
      exist_[pass] = from >= 0;
    }
    if constexpr (kBlockScales) {
#pragma unroll
      for (int i = 0; i < kScalesOfThread; ++i) scales_[i] = source(tile, thread_ + i * kLoadThreads);
    }
  }
  /// What TMA brings of a group of slabs: one operand, and if that is a its scales of blocks.
  __device__ __forceinline__ void load_mapped(const pipeline::ProducerStage<Input>& stage, int slab, const Tile& tile) {
    constexpr bool kScales = kBlockScales && !kGathers;
    stage.expect_bytes(kMappedBytes + (kScales ? row_scales_.bytes() * spec::kKGroup : 0));
#pragma unroll
    for (int j = 0; j < spec::kKGroup; ++j) {
      const auto to = stage.get_tile(j);
      const int k = (slab + j) * kSlabDepth;  // TMA brings zeros past the end
      if constexpr (kMapsRows) load_a(params_, to.a(), k, tile, stage.full());
      if constexpr (kMapsColumns) load_b(params_, to.b(), k, tile, 0, stage.full());
      if constexpr (kScales) row_scales_.load(params_, to.scales(), slab + j, tile, stage.full());
    }
  }
  template <class SlotTile>
  __device__ __forceinline__ void copy_rows(const SlotTile& to, int slab) {
    const int k = slab * kSlabDepth + lines_.piece * CopyLines::kPieceElements;
    const bool in_row = k < params_.k;  // rows have whole pieces
    const uint32_t at = (spec::kSwapAb ? to.b() : to.a()) + lines_.to;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if (kSlab.rows % kPassRows != 0 && lines_.line + pass * kPassRows >= kSlab.rows) break;
      ptx::cp_async_cg_16(at + pass * CopyLines::kPassBytes, rows_[pass],
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
  const int thread_;
  const CopyLines lines_;
  MatrixCopies matrix_;
  RowScales row_scales_;
  const unsigned char* rows_[kPasses];  // the thread's piece of each row, of the next slab
  bool exist_[kPasses];
  int scales_[kBlockScales ? kScalesOfThread : 1];
};

}  // namespace
}  // namespace kernelwright
