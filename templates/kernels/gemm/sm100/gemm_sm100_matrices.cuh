/// Role of two warps of gemm_sm100 where matrices b lie where the launch says: a tensor map has one address. The
/// threads copy a group's matrix, 16 bytes at a time, to the places where TMA's swizzle would put it.
///
/// A slot is full when TMA's bytes have landed and every copying thread has arrived. A thread's copies arrive for it
/// when they are done, so copies to all free slots are in flight. The multiplying thread fences behind the wait for a
/// slot, because tcgen05 reads it through the async proxy.
#pragma once

#include "kernels/gemm/sm100/gemm_sm100_walk.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// A template, so that other kernels have none of its constants. kOfA: the tile's rows are those of b.
template <bool kOfA>
class MatrixCopier {
  enum : int {
    kLineBytes = spec::kSlabBytes,
    kPieces = kLineBytes / contract::kPieceBytes,
    kPassLines = static_cast<int>(kCopyThreads) / kPieces,
    kPassBytes = kPassLines * kLineBytes,
    kElementBytes = (kOfA ? kASlab : kBSlab).element_bits / 8,
    kPieceElements = contract::kPieceBytes / kElementBytes,
    kLines = (kOfA ? kASlab : kBSlab).part_bytes() / kLineBytes,  // of a part: rows of b as they lie in memory
    kPasses = (kLines + kPassLines - 1) / kPassLines
  };
  static_assert(spec::kSwizzleBytes == kLineBytes && kLineBytes == 128 && kPassLines % contract::kSwizzleRows == 0,
                "a line of 128 bytes is a row, at the same place of the swizzle's pattern in every pass");

 public:
  __device__ __forceinline__ MatrixCopier(const EntryParams& params, const Shared& shared, const AnyWork& work)
      : params_(params),
        input_(shared.input(), shared.payload()),
        shared_(shared),
        work_(work),
        line_(thread() / kPieces),
        piece_(thread() % kPieces) {}

  __device__ __forceinline__ void run() {
    // From a part's start, for the thread's first line.
    const uint32_t to = static_cast<uint32_t>(line_ * kLineBytes) +
                        (static_cast<uint32_t>(piece_) ^ contract::swizzle_of_row(line_, kLineBytes)) * 16;
    for_each_item<false>(shared_, work_, [&](int index) {
      const Item item = work_.at<false>(index, 0);
      begin(item);
#pragma unroll 1
      for (int slab = item.slabs.begin; slab < item.slabs.end; slab += spec::kKGroup) {
        const auto stage = input_.acquire();
#pragma unroll
        for (int j = 0; j < spec::kKGroup; ++j) {
          const auto tile = stage.get_tile(j);
          copy((kOfA ? tile.a() : tile.b()) + to, slab + j);
        }
        stage.arrive_with_copies();
      }
    });  // the loading warp drains the ring
  }

 private:
  __device__ __forceinline__ static int thread() { return static_cast<int>(threadIdx.x - kItemWarp * 32); }

  /// For the next item.
  __device__ __forceinline__ void begin(const Item& item) {
    constexpr contract::SharedSlab kSlab = kOfA ? kASlab : kBSlab;
    const contract::GemmGroupsParams& groups = groups_of(params_);
    const int first = kOfA ? item.row : item.column;
    left_ = (kOfA ? rows_end(params_, item) : columns_end(params_, item)) - first;
    stride_ = groups.b_stride * kElementBytes;
    const int64_t row = kSlab.mn_major ? line_ : first + line_;
    const int64_t column = (kSlab.mn_major ? first : 0) + piece_ * kPieceElements;
    from_ = reinterpret_cast<const unsigned char*>(ptx::ld_global_s64(groups.pointers + group_of(item))) +
            row * stride_ + column * kElementBytes;
  }
  /// Copies slab `slab`, the one behind the last. Elements past the matrix' rows and columns become zeros.
  __device__ __forceinline__ void copy(uint32_t to, int slab) {
    constexpr contract::SharedSlab kSlab = kOfA ? kASlab : kBSlab;
    const int k = slab * kSlabDepth;
    const unsigned char* from = from_;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int line = line_ + pass * kPassLines;
      if (kLines % kPassLines != 0 && line >= kLines) break;
#pragma unroll
      for (int part = 0; part < kSlab.parts(); ++part) {
        const int within = part * kSlab.width_elements() + piece_ * kPieceElements;
        const bool exists =
            kSlab.mn_major ? k + line < params_.k && within < left_ : line < left_ && k + within < params_.k;
        ptx::cp_async_cg_16(to + part * kSlab.part_bytes() + pass * kPassBytes, from + part * kLineBytes,
                            exists ? contract::kPieceBytes : 0);
      }
      from += kPassLines * stride_;
    }
    from_ += kSlab.mn_major ? kSlabDepth * stride_ : kLineBytes;
  }

  const EntryParams& params_;
  pipeline::InputProducer<Input> input_;
  const Shared& shared_;
  const AnyWork& work_;
  const int line_, piece_;     // of the first pass
  const unsigned char* from_;  // the thread's first piece of the next slab
  int64_t stride_;             // bytes
  int left_;                   // rows or columns from the tile's first one to the end
};

template <bool kPointers>
__device__ __forceinline__ void copy_matrices(const EntryParams& params, const Shared& shared, const AnyWork& work) {
  MatrixCopier<kPointers && spec::kSwapAb>(params, shared, work).run();
}

}  // namespace
}  // namespace kernelwright
