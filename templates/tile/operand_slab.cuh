/// A slab of one GEMM operand in shared memory, kSlabBytes of k deep: how cp.async fills it and ldmatrix reads it.
///
/// An operand is kExtent rows of A or columns of B. In device memory either k or the extent is innermost. With k
/// innermost, a row of the slab is kSlabBytes of k. With the extent innermost, a row of the slab is one k, and elements
/// must have 16 bits. The reason is ldmatrix: on the way to registers it transposes 16-bit elements, but cannot
/// transpose 8-bit ones.
#pragma once

#include "ptx/memory.cuh"
#include "tile/shared_tile.cuh"

namespace kernelwright::tile {

template <int kExtent, bool kAlongK, int kElementBytes, int kNumThreads, int kSlabBytes = 128, int kSwizzleBytes = 128>
class OperandSlab {
  static_assert(kAlongK || kElementBytes == 2, "ldmatrix transposes elements of 16 bits");
  static constexpr int kDepth = kSlabBytes / kElementBytes;
  static constexpr int kRows = kAlongK ? kExtent : kDepth;
  // In units of 16 bits, for every element type.
  static constexpr int kRowBytes = kAlongK ? kSlabBytes : kExtent * 2;
  using Tile = SharedTile < kRows, kRowBytes / 2, kRowBytes<kSwizzleBytes ? kRowBytes : kSwizzleBytes>;
  static_assert(Tile::even_strips && Tile::bytes == kExtent * kSlabBytes);
  // If the slab is small, only some of the threads load it.
  static constexpr int kMostRows = kNumThreads / Tile::pieces, kPassRows = kRows < kMostRows ? kRows : kMostRows;
  static constexpr int kPasses = kRows / kPassRows, kLoaders = kPassRows * Tile::pieces;
  static_assert(kNumThreads % Tile::pieces == 0 && kRows % kPassRows == 0, "who loads at all loads in every pass");

 public:
  static constexpr uint32_t bytes = Tile::bytes;

  /// One thread's part of the slabs of a tile, in the order of k. Places past the extent or past k become zeros and are
  /// not read.
  class Loader {
   public:
    /// `operand` is [rows][stride] in memory; `origin` is the tile's place in the operand's `extent`.
    __device__ __forceinline__ Loader(const void* operand, int64_t stride, int origin, int extent, int k, int thread) {
      const int first = thread / Tile::pieces, piece = thread % Tile::pieces;
      to_ = Tile::offset(first, piece);
      const int64_t stride_bytes = stride * kElementBytes;
      pass_bytes_ = kPassRows * stride_bytes;
      from_ = static_cast<const unsigned char*>(operand);
      if constexpr (kAlongK) {
        from_ += (origin + first) * stride_bytes + piece * 16;
        piece_bytes_ = 16;
        rows_left_ = extent - origin - first;
        depth_left_ = k - piece * (16 / kElementBytes);
      } else {
        const int column = origin + piece * 8;
        from_ += first * stride_bytes + int64_t{column} * kElementBytes;  // 2^30 columns exceed 32 bits
        piece_bytes_ = min(8, max(0, extent - column)) * kElementBytes;
        rows_left_ = kRows;
        depth_left_ = k - first;
      }
    }
    /// Loads the next slab to the slab at `slab`.
    __device__ __forceinline__ void load(uint32_t slab) {
      if constexpr (kLoaders < kNumThreads) {
        if (static_cast<int>(threadIdx.x) >= kLoaders) return;
      }
      const unsigned char* from = from_;
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        const bool exists = kAlongK ? pass * kPassRows < rows_left_ && depth_left_ > 0 : pass * kPassRows < depth_left_;
        // 8 rows further on, a piece has the same place in the pattern. Passes of fewer than 8 rows compute the place
        // anew.
        const uint32_t to = kPassRows % 8 == 0 ? to_ + pass * kPassRows * Tile::strip_bytes : offset(pass);
        ptx::cp_async_cg_16(slab + to, from, exists ? piece_bytes_ : 0);
        from += pass_bytes_;
      }
      from_ += kAlongK ? kSlabBytes : kPasses * pass_bytes_;
      depth_left_ -= kDepth;
    }

   private:
    __device__ __forceinline__ static uint32_t offset(int pass) {
      const int thread = static_cast<int>(threadIdx.x);
      return Tile::offset(thread / Tile::pieces + pass * kPassRows, thread % Tile::pieces);
    }
    const unsigned char* from_;
    int64_t pass_bytes_;
    uint32_t to_;
    int piece_bytes_, rows_left_, depth_left_;
  };

  /// The same of rows that lie anywhere: `source(i)` is the row in memory of row i of the slab, or -1 for a row of
  /// zeros. k is innermost.
  class RowLoader {
   public:
    template <class Source>
    __device__ __forceinline__ RowLoader(const void* operand, int64_t stride, int k, int thread, const Source& source)
        : from_(static_cast<const unsigned char*>(operand) + thread % Tile::pieces * 16),
          stride_bytes_(stride * kElementBytes),
          to_(Tile::offset(thread / Tile::pieces, thread % Tile::pieces)),
          depth_left_(k - thread % Tile::pieces * (16 / kElementBytes)) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) rows_[pass] = source(thread / Tile::pieces + pass * kPassRows);
    }
    /// Loads the next slab to the slab at `slab`.
    __device__ __forceinline__ void load(uint32_t slab) {
      const int thread = static_cast<int>(threadIdx.x);
      if constexpr (kLoaders < kNumThreads) {
        if (thread >= kLoaders) return;
      }
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        const uint32_t to = kPassRows % 8 == 0
                                ? to_ + pass * kPassRows * Tile::strip_bytes
                                : Tile::offset(thread / Tile::pieces + pass * kPassRows, thread % Tile::pieces);
        // A row is kept as its number: pointers would take twice the registers.
        ptx::cp_async_cg_16(slab + to, from_ + max(rows_[pass], 0) * stride_bytes_,
                            rows_[pass] >= 0 && depth_left_ > 0 ? 16 : 0);
      }
      from_ += kSlabBytes;
      depth_left_ -= kDepth;
    }

   private:
    const unsigned char* from_;  // the thread's piece of row 0 of the next slab
    const int64_t stride_bytes_;
    const uint32_t to_;
    int depth_left_;
    int rows_[kPasses];
  };

  /// A warp's fragments: blocks of 16 of the extent from `first` on. `first` is a multiple of 16 and of the warp's part
  /// of the tile. kRight: fragments of B, where a block of 16 is two products of 8 columns. Otherwise fragments of A,
  /// 16 rows.
  template <bool kRight>
  class Fragments {
    // Which of the four 8 x 8 matrices comes second: the one 8 rows further or the one 8 columns further.
    static constexpr bool kRowsFirst = kRight != kAlongK;

   public:
    __device__ __forceinline__ Fragments(int first, int lane)
        : lanes_((kAlongK ? first : 0) + (kRowsFirst ? lane % 16 : lane % 8 + lane / 16 * 8),
                 (kRowsFirst ? lane / 16 : lane / 8 % 2) | (kAlongK ? 0 : first / 8 % Tile::widest)),
          strip_(kAlongK ? 0 : first / 8 / Tile::widest * (Tile::strip_bytes * kRows)) {}

    /// The base that read() needs; compute it once per slab.
    __device__ __forceinline__ uint32_t base(uint32_t slab) const { return lanes_.base(slab + strip_); }

    /// Reads block `block` of the extent at step `step`, 32 bytes of k.
    __device__ __forceinline__ void read(uint32_t (&matrix)[4], uint32_t base, int block, int step) const {
      if constexpr (kAlongK)
        ptx::ldmatrix_x4(matrix, lanes_.address(base, block, step));
      else
        ptx::ldmatrix_x4_trans(matrix, lanes_.address(base, step, block));
    }

   private:
    typename Tile::Fragments lanes_;
    uint32_t strip_;
  };
};

}  // namespace kernelwright::tile
