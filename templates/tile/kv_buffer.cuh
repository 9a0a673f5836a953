/// The KV buffer: a tile of keys or values on its way from device memory to the fragments of the tensor cores.
///
///   device memory --load_from_dram--> (registers) --copy_to_shared--> shared memory --load_from_shared--> MMA fragments
///
/// One type serves keys and values; a trait says how each is cut:
///   keys    [BN][BK]      a tile walks axis 1, the depth; B operand as it lies
///   values  [BN][depth]   a tile walks axis 0, the keys; B operand transposed by ldmatrix
/// and one of two forms how it travels:
///   kCpAsync           cp.async straight to one of num_stages shared slots; copy_to_shared only waits
///   kRegisterStaged    through registers, converted on the way (fp8 under 16-bit queries), to the one shared slot
/// Threads: kNumThreads of them act together; `thread` counts them from 0. In the token_gen form that is one warp, which
/// needs no CTA barrier; otherwise it is the CTA. After copy_to_shared the caller synchronises those threads, and again
/// before the slot is loaded anew.
#pragma once

#include "contract/spec_words.h"
#include "ptx/memory.cuh"
#include "tile/element.cuh"
#include "tile/shared_tile.cuh"

namespace kernelwright::tile {

/// How keys are cut. kWarpKeys: keys that one warp multiplies.
template <int kBlockN, int kBlockK, int kDepth, int kWarpKeys>
struct KeyTrait {
  static constexpr int btile_dim0 = kBlockN, btile_dim1 = kBlockK;  // the block's tile: keys x depth chunk
  static constexpr int wtile_dim0 = kWarpKeys, wtile_dim1 = kBlockK;  // the part that a warp reads
  static constexpr int wsize = kWarpKeys;    // the extent that becomes the MMA's N
  static constexpr int iterator_axis = 1;    // chunks follow each other along the depth
  static constexpr int num_chunks = kDepth / kBlockK;
  static constexpr bool transposed = false;
  static_assert(kDepth % kBlockK == 0, "block_k divides the head");
};

/// How values are cut: the depth is whole, keys are the MMA's K.
template <int kBlockN, int kDepth>
struct ValueTrait {
  static constexpr int btile_dim0 = kBlockN, btile_dim1 = kDepth;
  static constexpr int wtile_dim0 = kBlockN, wtile_dim1 = kDepth;
  static constexpr int wsize = kDepth;
  static constexpr int iterator_axis = 0;
  static constexpr int num_chunks = 1;
  static constexpr bool transposed = true;
};

enum class KvForm { kCpAsync, kRegisterStaged };

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
  static_assert(kForm == KvForm::kRegisterStaged || !kConverts, "cp.async cannot convert");

 public:
  static constexpr int num_mmas = Trait::wsize / 8;                                           // of n8 across the warp tile
  static constexpr int num_k_tiles = (Trait::transposed ? Trait::wtile_dim0 : Trait::wtile_dim1) / 16;  // k16 steps of a chunk
  static constexpr int group_size = 2;                          // MMAs fed by one ldmatrix.x4
  static constexpr int num_repeats = Trait::btile_dim1 / 8;     // 16-byte pieces in a row of the shared tile
  static constexpr int chunk_bytes = Tile::bytes;
  static constexpr int slot_bytes = chunk_bytes * Trait::num_chunks;
  static constexpr int num_slots = kForm == KvForm::kCpAsync ? kNumStages : 1;
  static constexpr int bytes = slot_bytes * num_slots;          // shared memory of the whole buffer

  /// `shared`: address of `bytes` bytes, aligned to 1024 if swizzled.
  __device__ KvBuffer(uint32_t shared, int thread) : shared_(shared), thread_(thread) {
    const int lane = thread & 31;
    if constexpr (Trait::transposed) {
      fragment_row_ = (lane & 7) + ((lane >> 3) & 1) * 8;
      fragment_half_ = lane >> 4;
    } else {
      fragment_row_ = (lane & 7) + (lane >> 4) * 8;
      fragment_half_ = (lane >> 3) & 1;
    }
  }

  /// Starts moving the tile whose first key is `first_key` of `rows` into stage `stage`. With kBounded only keys of
  /// [low, high) are read and the other rows become zeros: a key that nobody sees may hold a NaN, and 0 * NaN is NaN.
  template <bool kBounded, class Rows>
  __device__ void load_from_dram(const Rows& rows, int first_key, int low, int high, int stage) {
#pragma unroll
    for (int i = 0; i < kThreadLoads; ++i) {
      const int load = i * kNumThreads + thread_;
      if (kTileLoads % kNumThreads != 0 && load >= kTileLoads) break;
      const int row = load / kRowLoads, column = load % kRowLoads;
      const int key = first_key + row;
      const bool inside = !kBounded || (key >= low && key < high);
      const StorageT* source = rows.origin;
      if (inside) source = rows.row(key) + column * kSimdWidth;
#pragma unroll
      for (int chunk = 0; chunk < Trait::num_chunks; ++chunk) {
        const StorageT* from = source + chunk * Trait::btile_dim1;
        if constexpr (kForm == KvForm::kCpAsync) {
          const uint32_t to = shared_ + stage * slot_bytes + chunk * chunk_bytes + Tile::offset(row, column);
          if constexpr (kBounded) {
            ptx::cp_async_cg_16(to, from, inside ? 16 : 0);
          } else {
            ptx::cp_async_cg_16(to, from);
          }
        } else {
          registers_[chunk][i] = inside ? ptx::ld_global_nc_v4(from) : ptx::Vector16{};
        }
      }
    }
  }

  /// Register-staged: converts what load_from_dram fetched and stores it to the shared slot. cp.async: nothing, because the
  /// copies of the stage land by themselves; the caller has waited for them.
  __device__ void copy_to_shared() {
    if constexpr (kForm == KvForm::kRegisterStaged) {
#pragma unroll
      for (int i = 0; i < kThreadLoads; ++i) {
        const int load = i * kNumThreads + thread_;
        if (kTileLoads % kNumThreads != 0 && load >= kTileLoads) break;
        const int row = load / kRowLoads, column = load % kRowLoads;
#pragma unroll
        for (int chunk = 0; chunk < Trait::num_chunks; ++chunk) {
          const uint32_t to = shared_ + chunk * chunk_bytes;
          if constexpr (kConverts) {
            ptx::Vector16 converted[2];
            convert_fp8<kStored, kComputed, kArch>(registers_[chunk][i], converted);
            ptx::st_shared_v4(to + Tile::offset(row, 2 * column), converted[0]);
            ptx::st_shared_v4(to + Tile::offset(row, 2 * column + 1), converted[1]);
          } else {
            ptx::st_shared_v4(to + Tile::offset(row, column), registers_[chunk][i]);
          }
        }
      }
    }
  }

  /// Fragments for two n8 MMAs at one k16 step: b[0..1] and b[2..3]. For keys `step` counts along the whole depth and `pair`
  /// along the keys; for values `step` counts along the keys and `pair` along the depth. Both are constants once unrolled.
  __device__ void load_from_shared(uint32_t (&b)[4], int stage, int step, int pair) const {
    const uint32_t slot = shared_ + (num_slots > 1 ? stage * slot_bytes : 0);
    if constexpr (Trait::transposed) {
      ptx::ldmatrix_x4_trans(b, Tile::fragment_address(slot, fragment_row_, fragment_half_, step, pair));
    } else {
      const uint32_t chunk = slot + step / num_k_tiles * chunk_bytes;
      ptx::ldmatrix_x4(b, Tile::fragment_address(chunk, fragment_row_, fragment_half_, pair, step % num_k_tiles));
    }
  }

 private:
  uint32_t shared_;
  int thread_;
  int fragment_row_, fragment_half_;  // the lane's row and 16-byte half in an ldmatrix
  ptx::Vector16 registers_[Trait::num_chunks][kForm == KvForm::kRegisterStaged ? kThreadLoads : 1];
};

}  // namespace kernelwright::tile
