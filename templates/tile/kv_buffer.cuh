/// The KV buffer: a tile of keys or values on its way from device memory to the fragments of the tensor cores.
///
///   device memory --load_from_dram--> (registers) --copy_to_shared--> shared memory --load_from_shared--> MMA
///   fragments
///
/// One type serves keys and values. A trait says how each is cut:
///   keys    [BN][BK]      a tile walks axis 1, the depth; the B operand is used as it lies
///   values  [BN][depth]   a tile walks axis 0, the keys; ldmatrix transposes the B operand
/// A warp reads WN of the BN keys, those of its column: num_warps_n = BN / WN warps share query rows and split a tile.
/// One of three forms says how a tile travels:
///   kCpAsync           cp.async straight to one of num_stages shared slots; copy_to_shared only waits
///   kTma               boxes of TMA to one of num_stages shared slots: the caller copies and waits, and reads
///                      fragments here
///   kRegisterStaged    through one of num_stages tiles of registers to the one shared slot, unchanged or converted
///                      (fp8 under 16-bit queries)
/// Threads: kNumThreads threads act together; `thread` counts them from 0. In the token_gen form they are one warp,
/// which needs no CTA barrier; otherwise they are the CTA. The caller synchronises these threads after copy_to_shared,
/// and again before the slot is loaded anew.
#pragma once

#include "contract/words.h"
#include "ptx/memory.cuh"
#include "tile/element.cuh"
#include "tile/shared_tile.cuh"

namespace kernelwright::tile {

/// How keys are cut. kWarpKeys: the keys that one warp multiplies, WN.
template <int kBlockN, int kBlockK, int kDepth, int kWarpKeys>
struct KeyTrait {
  static constexpr int btile_dim0 = kBlockN, btile_dim1 = kBlockK;    // the block's tile: keys x depth chunk
  static constexpr int wtile_dim0 = kWarpKeys, wtile_dim1 = kBlockK;  // the part that a warp reads
  static constexpr int wsize = kWarpKeys;                             // the extent that becomes the MMA's N
  static constexpr int iterator_axis = 1;                             // chunks follow each other along the depth
  static constexpr int num_chunks = kDepth / kBlockK;
  static constexpr int num_warps_n = kBlockN / kWarpKeys;
  static constexpr bool transposed = false;
  static_assert(kDepth % kBlockK == 0, "block_k divides the head");
  static_assert(kBlockN % kWarpKeys == 0 && kWarpKeys % 16 == 0, "warps share the keys evenly, 16 at least");
};

/// How values are cut: the depth is whole, and keys are the MMA's K. A warp multiplies the values of those keys whose
/// scores it has.
template <int kBlockN, int kDepth, int kWarpKeys = kBlockN>
struct ValueTrait {
  static constexpr int btile_dim0 = kBlockN, btile_dim1 = kDepth;
  static constexpr int wtile_dim0 = kWarpKeys, wtile_dim1 = kDepth;
  static constexpr int wsize = kDepth;
  static constexpr int iterator_axis = 0;
  static constexpr int num_chunks = 1;
  static constexpr int num_warps_n = kBlockN / kWarpKeys;
  static constexpr bool transposed = true;
  static_assert(kBlockN % kWarpKeys == 0 && kWarpKeys % 16 == 0, "warps share the keys evenly, 16 at least");
};

/// The keys that a load may read: [low, high), never empty, or any. Without kLow the lower end is 0 and costs nothing.
template <bool kLow>
struct RowBound {
  static constexpr bool always = false;
  int low, high;
  __device__ bool holds_all(int first, int count) const { return first + count <= high && (!kLow || first >= low); }
  __device__ bool holds(int key) const { return key < high && (!kLow || key >= low); }
  __device__ int nearest(int key) const { return kLow ? max(low, min(key, high - 1)) : min(key, high - 1); }
};

struct Unbounded {
  static constexpr bool always = true;
  __device__ static constexpr bool holds(int) { return true; }
  __device__ static int nearest(int key) { return key; }
};

/// Chunks of the depth, one behind the other: those whose elements lie in one tensor.
template <int kFirst, int kCount>
struct DepthChunks {
  enum : int { first = kFirst, count = kCount };
};

enum class KvForm { kCpAsync, kTma, kRegisterStaged };

template <class Trait, KvForm kForm, DType kStored, DType kComputed, int kNumStages, int kNumThreads, int kSwizzleBytes,
          int kArch>
class KvBuffer {
  using Tile = SharedTile<Trait::btile_dim0, Trait::btile_dim1, kSwizzleBytes>;
  using StorageT = Storage<kStored>;
  static constexpr int kSimdWidth = 16 / static_cast<int>(sizeof(StorageT));  // elements of one 16-byte load
  static constexpr int kRowLoads = Trait::btile_dim1 / kSimdWidth;
  static constexpr int kTileLoads = Trait::btile_dim0 * kRowLoads;
  static constexpr int kThreadLoads = (kTileLoads + kNumThreads - 1) / kNumThreads;
  static constexpr bool kConverts = kStored != kComputed;
  // Each pass of the threads covers whole rows; a thread has the same column in each pass.
  static constexpr bool kEvenRows = kNumThreads % kRowLoads == 0 && kTileLoads % kNumThreads == 0;
  static constexpr int kPassRows = kNumThreads / kRowLoads;
  // Registers must be indexed by constants, so their loops are unrolled. Loops of copies are not: more than 8 addresses
  // at once would only crowd the registers.
  static constexpr int kUnroll = kForm == KvForm::kRegisterStaged || kThreadLoads <= 8 ? kThreadLoads : 8;
  static constexpr int kPieces = kConverts ? 2 : 1;  // 16-byte pieces of the shared tile into which one load turns
  static constexpr int kRegisterStages = kForm == KvForm::kRegisterStaged ? kNumStages : 1;
  static_assert(kForm == KvForm::kRegisterStaged || !kConverts, "only registers can convert");

 public:
  using AllChunks = DepthChunks<0, Trait::num_chunks>;
  static constexpr int num_chunks = Trait::num_chunks;    // chunks of the depth, in a slot
  static constexpr int num_warps_n = Trait::num_warps_n;  // warps that split the keys of a tile
  static constexpr int num_mmas = Trait::wsize / 8;       // n8 MMAs across the warp tile
  static constexpr int num_k_tiles =
      (Trait::transposed ? Trait::wtile_dim0 : Trait::wtile_dim1) / 16;  // k16 steps of a chunk
  static constexpr int group_size = 2;                                   // MMAs fed by one ldmatrix.x4
  static constexpr int num_repeats = Trait::btile_dim1 / 8;              // 16-byte pieces in a row of the shared tile
  static constexpr int chunk_bytes = Tile::bytes;
  static constexpr int slot_bytes = chunk_bytes * Trait::num_chunks;
  static constexpr int num_stages = kNumStages;
  static constexpr int num_slots = kForm == KvForm::kRegisterStaged ? 1 : kNumStages;
  static constexpr int bytes = slot_bytes * num_slots;  // shared memory of the whole buffer

  /// `shared`: address of `bytes` bytes, aligned to 1024 if swizzled. `warp_column` (less than num_warps_n) says which
  /// keys of a tile the thread's warp multiplies.
  __device__ KvBuffer(uint32_t shared, int thread, int warp_column = 0)
      : shared_(shared),
        thread_(thread),
        thread_row_(thread / kRowLoads),
        thread_column_(thread % kRowLoads),
        fragments_(fragment_row(thread % 32) + (num_warps_n > 1 ? warp_column * Trait::wtile_dim0 : 0),
                   fragment_half(thread % 32)) {}

  /// Starts to move a tile into stage `stage` of num_stages. The tile's first key is `first_key` of `rows`. Only keys
  /// in `bound` that lie on an existing page are read. The other rows become zeros: a key that no query sees may hold a
  /// NaN, and 0 * NaN is NaN. The whole tile takes one branch, and rows take none: the surrounding loop carries its
  /// accumulators across every branch. Chunks: the chunks of the depth that `rows` hold.
  template <class Chunks = AllChunks, class Rows, class Bound>
  __device__ __forceinline__ void load_from_dram(const Rows& rows, int first_key, const Bound& bound, int stage) {
    static_assert(kForm != KvForm::kTma, "one thread has TMA copy");
    if (bound.holds_all(first_key, Trait::btile_dim0)) {
      load_rows<Chunks>(rows, first_key, Unbounded{}, stage);
    } else {
      load_rows<Chunks>(rows, first_key, bound, stage);
    }
  }

  /// The same without the check of the whole tile: one copy of the code, but three instructions more per row.
  template <class Chunks = AllChunks, int kStage = 0, class Rows, class Bound>
  __device__ __forceinline__ void load_rows(const Rows& rows, int first_key, const Bound& bound, int stage) {
    // Registers are indexed by constants, so each stage of registers has its own code.
    if constexpr (kStage + 1 < kRegisterStages) {
      if (stage != kStage) return load_rows<Chunks, kStage + 1>(rows, first_key, bound, stage);
    }
    // The page-table lookup, and a register load of unpaged keys, happen whether or not the key is inside: a key that
    // is inside stands in for one that is not. A cp.async of 0 bytes reads nothing, so evenly spaced rows may run past
    // the end.
    constexpr bool kEvenlySpaced = !Rows::is_paged || Rows::template one_page<Trait::btile_dim0>;
    constexpr bool kStandIn = kForm == KvForm::kRegisterStaged && !Bound::always && !Rows::is_paged;
    // Rows that do not divide evenly among threads are counted anew for each tile, to save registers.
    const int odd_thread = kEvenRows ? thread_ : static_cast<int>(ptx::opaque(thread_));
    const StorageT* even = nullptr;
    const StorageT* stand_in = nullptr;
    const int known = bound.nearest(first_key);
    bool exists = true;  // of the page, if the tile lies in one page
    if constexpr (kEvenlySpaced && kEvenRows) {
      const auto place = rows.template tile_row<Trait::btile_dim0>(first_key, thread_row_, known);
      even = place.at + thread_column_ * kSimdWidth;
      exists = place.exists;
    }
    if constexpr (kEvenlySpaced && kStandIn) stand_in = rows.row(known).at;
#pragma unroll kUnroll
    for (int i = 0; i < kThreadLoads; ++i) {
      const int load = i * kNumThreads + odd_thread;
      if (kTileLoads % kNumThreads != 0 && load >= kTileLoads) break;
      const int key = first_key + (kEvenRows ? thread_row_ + i * kPassRows : load / kRowLoads);
      const int column = (kEvenRows ? thread_column_ : load % kRowLoads) * kSimdWidth;
      bool inside = bound.holds(key) && exists;
      const StorageT* source = even;
      if constexpr (!kEvenlySpaced || !kEvenRows) {
        const auto place = kEvenlySpaced ? rows.template tile_row<Trait::btile_dim0>(first_key, key - first_key, known)
                                         : rows.row(bound.nearest(static_cast<int>(ptx::opaque(key))));
        source = place.at + column;
        inside = inside && place.exists;
      }
      if constexpr (kEvenlySpaced && kStandIn) source = inside ? source : stand_in;
      fetch<Rows::is_paged, Chunks>(source, inside, i, stage, registers_[kStage]);
      if constexpr (kEvenlySpaced && kEvenRows) even += kPassRows * rows.token_stride;
    }
  }

  /// Register-staged: converts what load_from_dram fetched to stage kTileId and stores it to the shared slot. cp.async:
  /// does nothing, because the copies of the stage land by themselves and the caller has waited for them.
  template <int kTileId = 0>
  __device__ __forceinline__ void copy_to_shared() {
    if constexpr (kForm == KvForm::kRegisterStaged) {
#pragma unroll
      for (int i = 0; i < kThreadLoads; ++i) {
        if (!kEvenRows && i * kNumThreads + thread_ >= kTileLoads) break;
#pragma unroll
        for (int chunk = 0; chunk < Trait::num_chunks; ++chunk) {
          if constexpr (kConverts) {
            ptx::Vector16 converted[2];
            convert_fp8<kStored, kComputed, kArch>(registers_[kTileId][chunk][i], converted);
            ptx::st_shared_v4(shared_ + chunk * chunk_bytes + piece_offset(i, 0), converted[0]);
            ptx::st_shared_v4(shared_ + chunk * chunk_bytes + piece_offset(i, 1), converted[1]);
          } else {
            ptx::st_shared_v4(shared_ + chunk * chunk_bytes + piece_offset(i, 0), registers_[kTileId][chunk][i]);
          }
        }
      }
    }
  }

  /// The same for a stage whose number a loop counts.
  __device__ __forceinline__ void copy_to_shared(int tile_id) { copy_one_of<0>(tile_id); }

  /// Whether anything that this thread has brought to `stage` is an infinity or a NaN. Call it after this thread's own
  /// wait, or after copy_to_shared(). It does not read other threads' bytes.
  __device__ __forceinline__ bool holds_non_finite(int stage) const {
    uint32_t sum = 0;  // a sum of products with 0: a finite value adds 0
    for_each_own_piece(stage, [&](uint32_t at) {
      const ptx::Vector16 piece = ptx::ld_shared_v4(at);
#pragma unroll
      for (int w = 0; w < 4; ++w) sum = Element<kComputed>::fma_pair(piece.word[w], 0, sum);
    });
    return sum != 0;
  }

  /// Puts zeros in place of what holds_non_finite() found. The caller synchronises the threads before and after.
  __device__ __forceinline__ void clear_non_finite(int stage) const {
    for_each_own_piece(stage, [&](uint32_t at) {
      ptx::Vector16 piece = ptx::ld_shared_v4(at);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const uint32_t bad = Element<kComputed>::non_finite_bits(piece.word[w]);
        if (bad & 0x8000u) piece.word[w] &= 0xffff0000u;
        if (bad & 0x80000000u) piece.word[w] &= 0xffffu;
      }
      ptx::st_shared_v4(at, piece);
    });
  }

  /// The base that load_from_shared needs for the tile in `stage`.
  __device__ uint32_t fragment_base(int stage) const {
    return fragments_.base(shared_ + (num_slots > 1 ? stage * slot_bytes : 0));
  }

  /// Fragments of two neighbouring n8 MMAs at one k16 step. For keys, `step` counts along the whole depth and `pair`
  /// along the keys. For values, `step` counts along the keys and `pair` along the depth. Both are constants once loops
  /// are unrolled.
  __device__ void load_from_shared(uint32_t (&first)[2], uint32_t (&second)[2], uint32_t base, int step,
                                   int pair) const {
    uint32_t matrix[4];
    if constexpr (Trait::transposed) {
      ptx::ldmatrix_x4_trans(matrix, fragments_.address(base, step, pair));
    } else {
      ptx::ldmatrix_x4(matrix, fragments_.address(base, pair, step % num_k_tiles) + step / num_k_tiles * chunk_bytes);
    }
    first[0] = matrix[0], first[1] = matrix[1];
    second[0] = matrix[2], second[1] = matrix[3];
  }

 private:
  using Registers = ptx::Vector16[Trait::num_chunks][kForm == KvForm::kRegisterStaged ? kThreadLoads : 1];

  template <int kTileId>
  __device__ __forceinline__ void copy_one_of(int tile_id) {
    if constexpr (kTileId + 1 < kRegisterStages) {
      if (tile_id != kTileId) return copy_one_of<kTileId + 1>(tile_id);
    }
    copy_to_shared<kTileId>();
  }

  /// Visits the 16-byte pieces of the shared tile that this thread's loads fill.
  template <class Visit>
  __device__ __forceinline__ void for_each_own_piece(int stage, const Visit& visit) const {
#pragma unroll kUnroll
    for (int i = 0; i < kThreadLoads; ++i) {
      if (!kEvenRows && i * kNumThreads + thread_ >= kTileLoads) break;
#pragma unroll
      for (int chunk = 0; chunk < Trait::num_chunks; ++chunk)
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece)
          visit(shared_ + (num_slots > 1 ? stage * slot_bytes : 0) + chunk * chunk_bytes + piece_offset(i, piece));
    }
  }

  /// Load `i` of this thread, from `source` for each of Chunks, or zeros if not `inside`. kMayLack: `source` may point
  /// anywhere if not `inside`.
  template <bool kMayLack, class Chunks>
  __device__ __forceinline__ void fetch(const StorageT* source, bool inside, int i, int stage, Registers& registers) {
#pragma unroll
    for (int chunk = Chunks::first; chunk < Chunks::first + Chunks::count; ++chunk) {
      const StorageT* from = source + (chunk - Chunks::first) * Trait::btile_dim1;
      if constexpr (kForm == KvForm::kCpAsync) {
        ptx::cp_async_cg_16(shared_ + stage * slot_bytes + chunk * chunk_bytes + piece_offset(i, 0), from,
                            inside ? 16 : 0);
      } else if constexpr (kMayLack) {
        registers[chunk][i] = ptx::ld_global_once_v4_if(from, inside);
      } else {
        ptx::Vector16 loaded = ptx::ld_global_once_v4(from);
#pragma unroll
        for (int w = 0; w < 4; ++w) loaded.word[w] = inside ? loaded.word[w] : 0;
        registers[chunk][i] = loaded;
      }
    }
  }

  /// Where piece `piece` of load `i` stands in the shared tile.
  __device__ uint32_t piece_offset(int i, int piece) const {
    if constexpr (kEvenRows && kPassRows % 8 == 0 && Tile::even_strips) {
      return Tile::offset(thread_row_, thread_column_ * kPieces + piece) + i * (kPassRows * Tile::strip_bytes);
    } else if constexpr (kEvenRows) {
      return Tile::offset(thread_row_ + i * kPassRows, thread_column_ * kPieces + piece);
    } else {
      const int load = i * kNumThreads + thread_;
      return Tile::offset(load / kRowLoads, load % kRowLoads * kPieces + piece);
    }
  }

  /// The lane's row and 16-byte half in an ldmatrix.x4. Matrices 0, 1 and 2, 3 become the register pairs of two MMAs;
  /// any other order costs moves.
  __device__ static int fragment_row(int lane) {
    return (lane & 7) + (Trait::transposed ? lane >> 3 & 1 : lane >> 4) * 8;
  }
  __device__ static int fragment_half(int lane) { return Trait::transposed ? lane >> 4 : lane >> 3 & 1; }

  uint32_t shared_;
  int thread_;
  int thread_row_, thread_column_;  // position of the thread's first load
  typename Tile::Fragments fragments_;
  Registers registers_[kRegisterStages];
};

}  // namespace kernelwright::tile
