/// How attention_latent_sm100 ends: each of two warpgroups stores half of the output's columns, in whole lines of 128
/// bytes. Where keys are cut into parts, the CTA that arrives last merges them.
#pragma once

#include "kernels/attention/latent/attention_latent_sm100_tiles.cuh"
#include "ptx/barrier.cuh"
#include "ptx/launch.cuh"
#include "ptx/memory.cuh"
#include "tile/element.cuh"

namespace kernelwright {
namespace {

/// The sum of a row's exponentials: those of both folds. The softmax warpgroup has written them.
__device__ __forceinline__ float row_sum(const Shared& shared, const Lane& at) {
  return ptx::ld_shared_f32(shared.sum(at.row())) + ptx::ld_shared_f32(shared.sum(contract::kLatentRows + at.row()));
}

/// The place of a row of this CTA's part among the rows of all parts.
__device__ __forceinline__ int64_t part_offset(const contract::AttentionParams& params, const WorkItem& item, int row) {
  return item.partial_row(params, row) + item.coord.split * WorkItem::partial_rows(params);
}

/// Half kHalf of the output's columns, by the four warps of a warpgroup. Lines pass through shared memory, in the place
/// of Q: no product reads it any more.
template <int kHalf>
class Store {
 public:
  __device__ __forceinline__ Store(const contract::AttentionParams& params, const WorkItem& item, const Shared& shared,
                                   const Tensor& tensor, const Lane& at)
      : params_(params),
        item_(item),
        at_(at),
        output_(at.of(tensor.output(kHalf))),
        stage_(shared.queries() + (kHalf * kRoleWarps + at.warp) * (kWarpRows * kLineBytes)) {}

  /// `tiles`: of keys; without any, no product has written the output, and rows are zeros. `inverse`: of the row's sum.
  __device__ __forceinline__ void run(int tiles, float inverse) const {
    ptx::griddepcontrol_launch_dependents();  // attention_combine may begin
    if (params_.num_splits > 1)
      store<DType::kF32>(tiles, inverse, [&](int row) {
        return reinterpret_cast<unsigned char*>(params_.partial_o + part_offset(params_, item_, row) * spec::kHeadDimV);
      });
    else
      store<spec::kOutDType>(tiles, inverse, [&](int row) {
        return static_cast<unsigned char*>(params_.o) +
               item_.offset(params_.o_strides, row) * tile::kBytesOf<spec::kOutDType>;
      });
  }

 private:
  enum : int { kLineBytes = 128, kLinePieces = kLineBytes / 16, kRowsAtOnce = 32 / kLinePieces };

  /// row_of(row) is the address of an output row.
  template <DType kTo, class RowOf>
  __device__ __forceinline__ void store(int tiles, float inverse, const RowOf& row_of) const {
    constexpr int kBytes = tile::kBytesOf<kTo>, kLine = kLineBytes / kBytes;
    const int first_column = (kHalf * kFolds + at_.fold()) * kColumns.output_columns;
#pragma unroll 1
    for (int first = 0; first < kColumns.output_columns; first += kLine) {
      float line[kLine] = {};
      if (tiles > 0) {
#pragma unroll
        for (int i = 0; i < kLine; i += 32)
          ptx::tcgen05_ld(output_ + first + i, reinterpret_cast<float(&)[32]>(line[i]));
        ptx::tcgen05_wait_ld(line);
      }
#pragma unroll
      for (float& value : line) value *= inverse;
      put<kTo>(line);
      __syncwarp();
      const int piece = at_.lane % kLinePieces;
#pragma unroll
      for (int i = 0; i < kWarpRows; i += kRowsAtOnce) {
        const int r = i + at_.lane / kLinePieces, row = at_.first_row() + r;
        if (row < item_.num_rows)
          ptx::st_global_v4(row_of(row) + (first_column + first) * kBytes + piece * 16,
                            ptx::ld_shared_v4(place(r, piece)));
      }
      __syncwarp();
    }
  }

  /// The thread's own line, its pieces swizzled: there is no bank conflict, neither here nor where lanes read a line.
  template <DType kTo, int kLine>
  __device__ __forceinline__ void put(const float (&line)[kLine]) const {
    constexpr int kWord = kLine / 32, kPiece = 4 * kWord;  // columns of 4 bytes, and of 16
#pragma unroll
    for (int piece = 0; piece < kLinePieces; ++piece) {
      const auto word = [&](int i) { return tile::pack_word<kTo>(line, piece * kPiece + i * kWord); };
      ptx::st_shared_v4(place(at_.lane, piece), {word(0), word(1), word(2), word(3)});
    }
  }
  __device__ uint32_t place(int row, int piece) const {
    return stage_ + row * kLineBytes + (piece ^ row % kLinePieces) * 16;
  }

  const contract::AttentionParams& params_;
  const WorkItem& item_;
  const Lane at_;
  const uint32_t output_, stage_;
};

__device__ __forceinline__ policy::LastArrival last_arrival(const contract::AttentionParams& params) {
  const unsigned block = ptx::opaque(blockIdx.x), item = block / kCluster / params.num_splits;
  return policy::LastArrival(params.merge_counters + (item * kCluster + block % kCluster));
}
__device__ __forceinline__ bool merges(const contract::AttentionParams& params) {
  return spec::kMerge == Merge::kInKernel && params.num_splits > 1;
}

/// Merges the item's parts if all others have been written. All threads with rows call it, behind their roles: so the
/// merge has their registers.
__device__ __forceinline__ void merge_if_last(const contract::AttentionParams& params, const WorkItem& item,
                                              const Shared& shared, int warp) {
  ptx::bar_sync(kEndBarrier, kRowThreads);  // this part is written
  if (threadIdx.x == 0) ptx::st_shared_u32(shared.last(), last_arrival(params).arrive(params.num_splits));
  ptx::bar_sync(kEndBarrier, kRowThreads);
  if (ptx::ld_shared_u32(shared.last()) != 0)
    merge_rows<kRowThreads / 32>(params, item, warp, static_cast<int>(threadIdx.x % 32));
}

}  // namespace
}  // namespace kernelwright
