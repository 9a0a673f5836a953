/// Tiles of query and output rows: Q to shared memory and fragments, O from accumulators to device memory.
#pragma once

#include "contract/attention_params.h"
#include "contract/words.h"
#include "ptx/memory.cuh"
#include "tile/element.cuh"
#include "tile/shared_tile.cuh"

namespace kernelwright::tile {

/// [rows][cols] of 16-bit elements, copied by kNumThreads threads with cp.async to the columns of Tile from kFirstCol
/// on. Rows past the last become zeros.
/// kElementBytes 1: elements come as bytes. 16 of them lie in the second of the two pieces that they will fill, until
/// the caller converts them.
template <int kRows, int kCols, class Tile, int kNumThreads, int kElementBytes = 2, int kFirstCol = 0>
struct RowTile {
  enum : int { kPieceCols = 16 / kElementBytes, kPieces = 2 / kElementBytes };
  uint32_t shared;
  /// The caller commits, waits and synchronises.
  template <class Rows>
  __device__ __forceinline__ void load(int thread, int num_rows, const Rows& rows) const {
    constexpr int kRowLoads = kCols / kPieceCols, kPassRows = kNumThreads / kRowLoads;
    if constexpr (Rows::even && kNumThreads % kRowLoads == 0 && kRows % kPassRows == 0) {
      const int first = thread / kRowLoads, column = thread % kRowLoads;
      const auto* from = rows.row(first) + column * kPieceCols;
#pragma unroll 4
      for (int i = 0; i < kRows / kPassRows; ++i) {
        const int row = first + i * kPassRows;
        ptx::cp_async_cg_16(shared + Tile::offset(row, piece(column)), from, row < num_rows ? 16 : 0);
        from += kPassRows * rows.step();
      }
    } else {
#pragma unroll 1
      for (int load = thread; load < kRows * kRowLoads; load += kNumThreads) {
        const int row = load / kRowLoads, column = load % kRowLoads;
        ptx::cp_async_cg_16(shared + Tile::offset(row, piece(column)),
                            rows.row(min(row, num_rows - 1)) + column * kPieceCols, row < num_rows ? 16 : 0);
      }
    }
  }

  /// Multiplies the tile by the sign of `scale`, which is not positive: by -1 or by 0.
  __device__ void take_sign(int thread, float scale) const {
#pragma unroll 1
    for (int offset = thread * 16; offset < Tile::bytes; offset += kNumThreads * 16) {
      ptx::Vector16 piece = ptx::ld_shared_v4(shared + offset);
#pragma unroll
      for (int w = 0; w < 4; ++w) piece.word[w] = scale == 0 ? 0 : piece.word[w] ^ 0x80008000u;
      ptx::st_shared_v4(shared + offset, piece);
    }
  }

 private:
  __device__ static constexpr int piece(int column) {
    return (kFirstCol / kPieceCols + column) * kPieces + kPieces - 1;
  }
};

/// Fragments of the A operand, for the warp's kRowTiles x 16 query rows. They stay in registers, or are read anew for
/// each k16 step.
template <class Tile, int kRowTiles, bool kInRegisters>
class QueryFragments {
  static constexpr int kSteps = Tile::cols / 16;

 public:
  __device__ QueryFragments(uint32_t shared, int first_row, int lane)
      : fragments_(first_row + (lane & 15), lane >> 4), shared_(shared) {}

  /// Call it once Q has landed and after a barrier.
  __device__ void load_all() {
    if constexpr (kInRegisters) {
      const uint32_t from = base();
#pragma unroll
      for (int step = 0; step < kSteps; ++step) read(kept_[step], from, step);
    }
  }

  /// The base that load() needs; compute it once per key tile.
  __device__ uint32_t base() const { return fragments_.base(shared_); }

  __device__ void load(uint32_t (&a)[kRowTiles][4], uint32_t base, int step) const {
    if constexpr (kInRegisters) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][i] = kept_[step][m][i];
    } else {
      read(a, base, step);
    }
  }

 private:
  __device__ void read(uint32_t (&a)[kRowTiles][4], uint32_t base, int step) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) ptx::ldmatrix_x4(a[m], fragments_.address(base, m, step));
  }

  typename Tile::Fragments fragments_;
  uint32_t shared_;
  uint32_t kept_[kInRegisters ? kSteps : 1][kRowTiles][4];
};

/// A sequence's line of the page table; null if keys are not paged. K and V call it once together, so that they share
/// what they read of it.
template <class Rows>
__device__ const int32_t* page_line(const contract::AttentionParams& params, int batch) {
  if constexpr (!Rows::is_paged) return nullptr;
  return ptx::opaque(params.page_table + static_cast<int64_t>(batch) * params.page_table_stride);
}

/// The KV rows of one sequence and head.
template <class Rows>
__device__ Rows kv_rows(const contract::AttentionParams& params, const void* base, const contract::Strides& strides,
                        const int32_t* pages, int batch, int64_t start, int kv_head) {
  using Pointer = decltype(Rows::origin);
  Rows rows;
  rows.origin = static_cast<Pointer>(base) + kv_head * strides.head + start * strides.token;
  rows.token_stride = strides.token;
  rows.page_stride = strides.batch;
  rows.pages = pages;
  rows.num_pages = static_cast<unsigned>(params.num_pages);
  if constexpr (!Rows::is_paged) rows.origin += batch * strides.batch;
  return rows;
}

/// Two neighbours of an output row; `offset` is even.
template <DType kOut>
__device__ __forceinline__ void store_pair(void* out, int64_t offset, float low, float high) {
  if constexpr (kOut == DType::kF32) {
    *reinterpret_cast<float2*>(static_cast<float*>(out) + offset) = make_float2(low, high);
  } else if constexpr (kOut == DType::kE4m3) {
    *reinterpret_cast<uint16_t*>(static_cast<uint8_t*>(out) + offset) = ptx::cvt_rn_satfinite_e4m3x2_f32(low, high);
  } else {
    *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(out) + offset) = Element<kOut>::pack(low, high);
  }
}

/// Stores the warp's accumulator rows. 16-bit outputs pass through the warp's own rows of `shared`, so that each store
/// is 16 bytes. f32 outputs are stored directly, because a quad's pairs fill a sector.
template <DType kOut, class Tile, int kRowTiles, int kTiles, class Rows>
__device__ __forceinline__ void store_rows(const float (&values)[kRowTiles][kTiles][4], uint32_t shared, int first_row,
                                           int lane, int num_rows, const Rows& rows) {
  if constexpr (kOut == DType::kF32) {
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      const int row = first_row + r / 2 * 16 + r % 2 * 8 + lane / 4;
      if (row >= num_rows) continue;
      float* to = rows.row(row) + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        *reinterpret_cast<float2*>(to + n * 8) =
            make_float2(values[r / 2][n][r % 2 * 2], values[r / 2][n][r % 2 * 2 + 1]);
    }
  } else {
    __syncwarp();  // every lane has read its fragments of Q from these rows
    const typename Tile::Fragments lanes(first_row + lane / 4, 0);
    const uint32_t base = lanes.base(shared) + lane % 4 * 4;
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        ptx::st_shared_u32(lanes.piece_address(base, r, n),
                           Element<kOut>::pack(values[r / 2][n][r % 2 * 2], values[r / 2][n][r % 2 * 2 + 1]));
    __syncwarp();
    constexpr int kRowStores = kTiles;  // of 16 bytes each
    if constexpr (Rows::even && 32 % kRowStores == 0) {
      constexpr int kPassRows = 32 / kRowStores;
      const int first = first_row + lane / kRowStores, column = lane % kRowStores;
      uint16_t* to = rows.row(first) + column * 8;
#pragma unroll 4
      for (int i = 0; i < kRowTiles * 16 / kPassRows; ++i) {
        const int row = first + i * kPassRows;
        if (row < num_rows) ptx::st_global_v4(to, ptx::ld_shared_v4(shared + Tile::offset(row, column)));
        to += kPassRows * rows.step();
      }
    } else {
#pragma unroll 1
      for (int store = lane; store < kRowTiles * 16 * kRowStores; store += 32) {
        const int row = first_row + store / kRowStores, column = store % kRowStores;
        if (row < num_rows)
          ptx::st_global_v4(rows.row(row) + column * 8, ptx::ld_shared_v4(shared + Tile::offset(row, column)));
      }
    }
  }
}

}  // namespace kernelwright::tile
