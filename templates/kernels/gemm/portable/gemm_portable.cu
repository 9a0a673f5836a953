/// GEMM on mma.sync, for every architecture since sm_80: D = epilogue(A B) of 16-bit operands in any layout. From sm_89
/// on also of fp8 operands with k innermost. The fallback that is right on every input.
///
/// A CTA computes block_m x block_n of D. A slot of the ring holds a slab of 128 bytes of k of both operands. All warps
/// fill the slots with cp.async, kStages - 1 slabs ahead, and all warps multiply: one barrier a slab. A warp reads its
/// fragments one step of 32 bytes ahead of the products that take them.
///
/// Every sum adds its products in the order of k, 32 bytes at a time, in tiles of any shape. So the result does not
/// depend on which kernel of a plan computed it.
#include "kernels/gemm/portable/gemm_portable_store.cuh"
#include "kernels/gemm/portable/gemm_portable_tiles.cuh"
#include "mma/sm80.cuh"
#include "ptx/launch.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

constexpr bool kBlockScales = spec::kScales == ScaleKind::kPerBlock;
constexpr bool kPromotes = spec::kPromotion > 0;  // each slab's products are added to the sums in f32
static_assert(!kPromotes || spec::kPromotion == 1, "slab by slab");
static_assert(!kBlockScales || (kPromotes && kElementBytes == 1 && spec::kBlockN <= (kGated ? 256 : 128)),
              "a slab and a tile's columns have a scale");

// Row tiles whose products are held beside the sums at one time. sm_90 and sm_100 have no mma.sync for fp8: there it is
// multiplied as f16, and sums, products and fragments of all row tiles need more registers than a thread has.
constexpr int kPieceTiles = kPromotes && kRowTiles * kColumnTiles >= 16 ? kRowTiles / 2 : kRowTiles;
using Products = float[kPieceTiles][kColumnTiles][4];

template <int kTiles>
__device__ __forceinline__ void clear(float (&sums)[kTiles][kColumnTiles][4]) {
#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[m][n][e] = 0;
}

/// The scales of the products of one slab: 128 elements of a row of a have a scale, and 128 x 128 elements of b. With
/// gates, 128 gates and the ups between them have a scale for each kind: first lie those of all gates, then of all ups.
class SlabScales {
  static constexpr int kKinds = kGated ? 2 : 1;

 public:
  __device__ __forceinline__ SlabScales(const GemmPortableParams& params, const Place& place)
      : rows_(kBlockScales ? ptx::opaque(params.scale_a) : nullptr),
        columns_(kBlockScales ? ptx::opaque(params.scale_b) + place.column / (128 * kKinds) * params.scale_b_stride
                              : nullptr) {
    if constexpr (kManyB && kBlockScales) {
      columns_ += int64_t{place.group} * kKinds * blocks_of(params) * params.scale_b_stride;
      if constexpr (kBatched || (kMasked && !kGathers))
        rows_ += int64_t{place.group} * ((params.k + 127) / 128) * params.scale_a_stride;
    }
    if constexpr (kGrouped && kBlockScales && !kGathers) rows_ += place.to_scale;
    if constexpr (kBlockScales && !kGathers) rows_ += place.row;
  }
  /// Loads the scales of the next slab, in the order of k.
  __device__ __forceinline__ void load(const GemmPortableParams& params, const Place& place) {
    if constexpr (kBlockScales) {
      float of_columns[kKinds];
#pragma unroll
      for (int kind = 0; kind < kKinds; ++kind)
        of_columns[kind] = ptx::ld_global_settled_f32(columns_ + kind * blocks_of(params) * params.scale_b_stride);
      const int last = place.row_end - 1 - place.row;
#pragma unroll
      for (int r = 0; r < kRowsOfThread; ++r) {
        int row = min(Place::rows_to(r), last);
        if constexpr (kGathers) row = source_row(params, place.row + row);  // read again: no register keeps it
        const float of_row = row < 0 && kGathers ? 0 : ptx::ld_global_settled_f32(rows_ + row);
#pragma unroll
        for (int kind = 0; kind < kKinds; ++kind) scales_[kind][r] = of_row * of_columns[kind];
      }
      rows_ += params.scale_a_stride;
      ++columns_;
    }
  }
  /// Adds scaled products to the sums of row tiles `first` and on.
  __device__ __forceinline__ void add(Sums& sums, int first, const Products& products) const {
#pragma unroll
    for (int m = 0; m < kPieceTiles; ++m)
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& sum = sums[first + m][n][e];
          if constexpr (kBlockScales)
            sum = fmaf(products[m][n][e], scales_[n % kKinds][2 * (first + m) + e / 2], sum);
          else
            sum += products[m][n][e];
        }
  }

 private:
  /// Blocks of columns of b, of a kind.
  __device__ __forceinline__ static int blocks_of(const GemmPortableParams& params) {
    return (params.n + 128 * kKinds - 1) / (128 * kKinds);
  }

  const float* rows_;
  const float* columns_;
  float scales_[kKinds][kBlockScales ? kRowsOfThread : 1];  // of a row times that of the columns
};

/// The warp's fragments of both operands.
class Fragments {
  // Without this limit, ptxas would convert all fragments of a slab at once.
  static constexpr int kUnroll = kPieceTiles < kRowTiles ? 2 : kSteps;

 public:
  __device__ __forceinline__ Fragments(int warp, int lane)
      : a_(warp % kRowWarps * kWarpRows, lane), b_(warp / kRowWarps * kWarpColumns, lane) {}

  /// sums += the products of the slabs at `a` and `b`, for row tiles `first` and on.
  template <int kTiles>
  __device__ __forceinline__ void multiply(float (&sums)[kTiles][kColumnTiles][4], int first, uint32_t a,
                                           uint32_t b) const {
    const uint32_t a_base = a_.base(a), b_base = b_.base(b);
    uint32_t rows[2][kTiles][4], columns[2][kColumnTiles][2];
    const auto read = [&](int step) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) a_.read(rows[step % 2][m], a_base, first + m, step);
#pragma unroll
      for (int n = 0; n < kColumnTiles; n += 2) {
        uint32_t pair[4];
        b_.read(pair, b_base, n / 2, step);
#pragma unroll
        for (int i = 0; i < 4; ++i) columns[step % 2][n + i / 2][i % 2] = pair[i];
      }
    };
    read(0);
#pragma unroll kUnroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 < kSteps) read(step + 1);
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n)
          mma::multiply_accumulate_of<spec::kADType, spec::kBDType>(sums[m][n], rows[step % 2][m],
                                                                    columns[step % 2][n]);
    }
  }

 private:
  const ASlab::Fragments<false> a_;
  const BSlab::Fragments<true> b_;
};

// ptxas aims at some number of CTAs an SM by itself, and for that spills a register of groups with scales of blocks, or
// of a quantised result. With a 1 it takes the registers that it needs. 0: as it chooses.
constexpr int kLeastCtas = (kGrouped && kBlockScales) || spec::kQuantizes ? 1 : 0;

/// The left operand of a tile: of a batch its group's, of kind k its group's rows; else that of all rows.
__device__ __forceinline__ const void* matrix_a(const EntryParams& params, const Tile& tile) {
  if constexpr (kBatched)
    return static_cast<const unsigned char*>(params.a) + tile.group * batch_of(params).a_stride * kElementBytes;
  if constexpr (kSlicesK)
    return static_cast<const unsigned char*>(params.a) + tile.first_k * params.a_stride * kElementBytes;
  return params.a;
}
/// The right operand of a tile; without groups, the only one.
__device__ __forceinline__ const void* matrix_b(const EntryParams& params, const Tile& tile) {
  if constexpr (kBatched)
    return static_cast<const unsigned char*>(params.b) + tile.group * batch_of(params).b_stride * kElementBytes;
  if constexpr (kSlicesK)
    return static_cast<const unsigned char*>(params.b) + tile.first_k * params.b_stride * kElementBytes;
  if constexpr (!kGrouped) return params.b;
  if constexpr (spec::kPointers)
    return reinterpret_cast<const void*>(ptx::ld_global_s64(params.groups.pointers + tile.group));
  const int rows = kBAlongK ? params.n : params.k;
  return static_cast<const unsigned char*>(params.b) + int64_t{tile.group} * rows * params.b_stride * kElementBytes;
}
/// Slabs that have some of `depth` elements of k.
__device__ __forceinline__ int slabs_of(int depth) { return (depth + kSlabDepth - 1) / kSlabDepth; }
/// Elements of k that a tile's sums have.
__device__ __forceinline__ int depth_of(const EntryParams& params, const Tile& tile) {
  return kSlicesK ? tile.depth : params.k;
}

/// The tiles of the launch. Bounds of groups become a table in shared memory, at `table`.
__device__ __forceinline__ auto tiles_of(const EntryParams& params, uint32_t table) {
  if constexpr (kHasBounds) {
    Groups(table, params.groups).make(params.groups, kThreads);
    __syncthreads();
    if constexpr (kSlicesK)
      return SlicedTiles(params, table);
    else
      return GroupedTiles(params, table);
  } else if constexpr (kBatched) {
    return BatchedTiles(params);
  } else {
    return Tiles(params);
  }
}

}  // namespace
}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(kernelwright::kThreads, kernelwright::kLeastCtas)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::EntryParams params) {
  using namespace kernelwright;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const uint32_t shared = ptx::shared_address(shared_memory), a_ring = shared + kLayout.a, b_ring = shared + kLayout.b;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  if constexpr (spec::kArch >= 90) ptx::griddepcontrol_wait();

  const auto tiles = tiles_of(params, shared + kLayout.groups);
  const int slabs_of_k = slabs_of(params.k);
  const Fragments fragments(warp, lane);

  // One tile, unless there are groups with bounds or the launch is limited to few SMs.
#pragma unroll 1
  for (int t = static_cast<int>(blockIdx.x); t < tiles.count(); t += static_cast<int>(gridDim.x)) {
    const Tile tile = tiles.at(t);
    const int slabs = kSlicesK ? slabs_of(tile.depth) : slabs_of_k;
    auto a = [&] {
      if constexpr (kGathers)
        return ASlab::RowLoader(params.a, params.a_stride, depth_of(params, tile), thread, [&](int row) {
          return row < spec::kBlockM && tile.row + row < tile.row_end ? source_row(params, tile.row + row) : -1;
        });
      else
        return ASlab::Loader(matrix_a(params, tile), params.a_stride, tile.row, tile.row_end, depth_of(params, tile),
                             thread);
    }();
    BSlab::Loader b(matrix_b(params, tile), params.b_stride, tile.column, params.n, depth_of(params, tile), thread);
    const auto load = [&](int slab, int stage) {
      if (slab < slabs) {
        a.load(a_ring + stage * ASlab::bytes);
        b.load(b_ring + stage * BSlab::bytes);
      }
      ptx::cp_async_commit_group();  // empty groups keep the count of groups equal to that of slabs
    };
#pragma unroll
    for (int stage = 0; stage < spec::kStages - 1; ++stage) load(stage, stage);

    const Place place(tile, warp, lane);
    SlabScales scales(params, place);
    Sums sums;
    clear(sums);
    int stage = 0;
#pragma unroll 1
    for (int slab = 0; slab < slabs; ++slab) {
      scales.load(params, place);
      ptx::cp_async_wait_group<spec::kStages - 2>();
      __syncthreads();  // the slab has landed; no warp reads the slot that is loaded next
      load(slab + spec::kStages - 1, stage == 0 ? spec::kStages - 1 : stage - 1);
      const uint32_t a_slab = a_ring + stage * ASlab::bytes, b_slab = b_ring + stage * BSlab::bytes;
      if constexpr (kPromotes) {
#pragma unroll
        for (int first = 0; first < kRowTiles; first += kPieceTiles) {
          Products products;
          clear(products);
          fragments.multiply(products, first, a_slab, b_slab);
          scales.add(sums, first, products);
        }
      } else {
        fragments.multiply(sums, 0, a_slab, b_slab);
      }
      stage = stage == spec::kStages - 1 ? 0 : stage + 1;
    }
    // Only stores are left. With groups, a CTA has further tiles, but for the last one.
    if (spec::kArch >= 90 && (!kHasBounds || t + static_cast<int>(gridDim.x) >= tiles.count()))
      ptx::griddepcontrol_launch_dependents();
    if constexpr (spec::kRstd) scale_rows(sums, params, place, lane);
    store(sums, params, tile, place, shared, warp, lane);
    __syncthreads();  // no warp reads the slots that the next tile's first slabs take
  }
}
