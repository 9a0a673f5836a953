/// The warps of attention_sm90 that make operands of fp8. TMA brings tiles to the slots of a ring of their own. From
/// there these warps write the operands of the products, to the slots where TMA writes operands that need no work. The
/// math warps do not know of it.
///
///   f16 queries      K and V become f16. V in columns stays [depth][keys].
///   bf16 queries     V does. Products of two terms of a query read K as it is.
///   fp8 queries      V is transposed: fp8 products read their second operand with k innermost, the keys of P V.
#pragma once

#include "kernels/attention/attention_gather.cuh"
#include "kernels/attention/sm90/attention_sm90_columns.cuh"
#include "kernels/attention/sm90/attention_sm90_tiles.cuh"
#include "policy/item_record.cuh"
#include "ptx/memory.cuh"
#include "tile/byte_fragments.cuh"
#include "tile/column_tile.cuh"

namespace kernelwright {
namespace {

enum : int { kFirstConvertingWarp = 1 };

/// Makes the barriers of the rings of K and V.
__device__ __forceinline__ void init_kv(const Shared& shared) {
  constexpr int kLoading = kGathersKv ? kGatherThreads : 1, kConsumers = kMathWarps * kCluster;
  if constexpr (kRestagesOnlyV) {
    using Rings = pipeline::KvRings<Tiles>;
    Rings::KRing::init(Rings::k_barriers(shared.kv_barriers()), kLoading, kConsumers);
    Rings::VRing::init(Rings::v_barriers(shared.kv_barriers()), contract::kConvertingWarps, kConsumers);
  } else {
    Consumer::init(shared.kv_barriers(), kConvertsKv ? int{contract::kConvertingWarps} : kLoading, kConsumers);
  }
}

/// Rows of a raw tile that are the sequence's. The others become zeros: their probability is 0, but 0 times the bytes
/// there may be NaN.
struct KeptRows {
  int begin, end;
  __device__ bool has(int row) const { return row >= begin && row < end; }
};

/// Converts tiles. Both tiles lie in slabs of the same columns. A slab of bytes is half as wide and has half the
/// swizzle, so it is the converted slab at half its offsets. A lane reads 8 bytes and writes a piece of 16: neither
/// meets a bank conflict.
class WidenedTiles {
  // A warp converts a block of a slab at a time. All reads of a block are on their way before the first write.
  enum : uint32_t {
    kLaneBytes = 8,
    kPart = 32 * kLaneBytes,
    kParts = RawTile::kSlabBytes % (4 * kPart) == 0   ? 4
             : RawTile::kSlabBytes % (2 * kPart) == 0 ? 2
                                                      : 1,
    kBlock = kParts * kPart,
    kSlabBlocks = RawTile::kSlabBytes / kBlock
  };
  static_assert(!kConvertsKv || (RawTile::kSlabBytes % kBlock == 0 && spec::kSwizzleBytes >= 32), "whole blocks");
  static_assert(!kConvertsKv || kBlock % (contract::kSwizzleRows * RawTile::row_bytes) == 0, "blocks begin alike");
  uint32_t from_[2], to_[2];  // the lane's places in two parts, after which both patterns repeat
  uint32_t next_;             // the warp's first block of the next tile: no warp always has most

 protected:
  const uint32_t warp_, lane_;

 public:
  /// `warp`: among the converting ones.
  __device__ __forceinline__ WidenedTiles(uint32_t warp, uint32_t lane) : next_(warp), warp_(warp), lane_(lane) {
#pragma unroll
    for (uint32_t part = 0; part < 2; ++part) {
      const uint32_t from = part * kPart + lane_ * kLaneBytes, row = from / RawTile::row_bytes;
      from_[part] = from ^ contract::swizzle_of_row(row, contract::raw_swizzle_bytes(spec::kSwizzleBytes)) * 16;
      to_[part] = 2 * from ^ contract::swizzle_of_row(row, spec::kSwizzleBytes) * 16;
    }
  }

  __device__ __forceinline__ void begin(uint32_t) const {}

  /// Writes this warp's share of the tile of K or of V at `from` to the slot at `to`. kCleans: only some are kept.
  template <bool kIsV, bool kCleans>
  __device__ __forceinline__ void write(uint32_t from, uint32_t to, const KeptRows& kept, uint32_t /*part*/) {
    constexpr uint32_t kBlocks = (kIsV ? kSlabsV : kSlabsQk) * kSlabBlocks;
    uint32_t block = next_;
#pragma unroll 1
    for (; block < kBlocks; block += contract::kConvertingWarps) {
      float bytes[kParts][2];
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        ptx::ld_shared_v2_f32(from + block * kBlock + part / 2 * (2 * kPart) + from_[part % 2], bytes[part]);
        if constexpr (kCleans) {
          const uint32_t at = block % kSlabBlocks * kBlock + part * kPart + lane_ * kLaneBytes;
          if (!kept.has(static_cast<int>(at / RawTile::row_bytes))) bytes[part][0] = bytes[part][1] = 0;
        }
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        ptx::Vector16 elements;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint32_t words[2];
          tile::convert_four<spec::kKvDType, computed(), spec::kArch>(__float_as_uint(bytes[part][i]), words);
          elements.word[2 * i] = words[0], elements.word[2 * i + 1] = words[1];
        }
        ptx::st_shared_v4(to + 2 * (block * kBlock + part / 2 * (2 * kPart)) + to_[part % 2], elements);
      }
    }
    next_ = block - kBlocks;
  }
};

/// Converts tiles of K, and those of V in columns. A lane reads a run of 16 keys and writes two pieces of 8: pairs of
/// bytes take turns between them. Eight lanes have the same run of eight elements, in rows that follow each other:
/// neither meets a bank conflict.
class WidenedColumns : public WidenedTiles {
  using Raw = ValueColumns::Tile;
  using Converted = ValueColumns::Converted;
  // A warp converts a block at a time: a run of 32 elements, or two runs of 16. Two reads are on their way before the
  // first write. Beside a third math warpgroup there are registers for one.
  enum : uint32_t {
    kRows = spec::kHeadDimV % 32 == 0 ? 32 : 16,
    kRuns = spec::kBlockN / Raw::kRun,
    kBlockRuns = 32 / kRows,
    kRowBlocks = spec::kHeadDimV / kRows,
    kBlocks = kRowBlocks * ((kRuns + kBlockRuns - 1) / kBlockRuns)
  };
  static_assert(!spec::kVColumns || (spec::kHeadDimV % 16 == 0 && spec::kBlockN % Raw::kRun == 0), "whole blocks");

 public:
  using WidenedTiles::WidenedTiles;

  template <bool kIsV, bool kCleans>
  __device__ __forceinline__ void write(uint32_t from, uint32_t to, const KeptRows& kept, uint32_t /*part*/) {
    if constexpr (kIsV) {
      // The lane's places are computed anew for every tile. Otherwise they would hold registers through the walk.
      const uint32_t lane = ptx::opaque(lane_), row = lane % kRows, run = lane / kRows;
      write_columns<kCleans>(from + Raw::place(row, run), to + Converted::place(row, 2 * run), run, kept);
    } else {
      WidenedTiles::write<false, kCleans>(from, to, kept, 0);
    }
  }

 private:
  /// `lane_run`: 1 in the lanes that have the second of two runs. `from` and `to` are the lane's places.
  template <bool kCleans>
  __device__ __forceinline__ void write_columns(uint32_t from, uint32_t to, uint32_t lane_run,
                                                const KeptRows& kept) const {
    constexpr int kAtOnce = spec::kMathWarpgroups < 3 ? 2 : 1;
#pragma unroll 1
    for (uint32_t first = warp_; first < kBlocks; first += kAtOnce * contract::kConvertingWarps) {
      ptx::Vector16 keys[kAtOnce];
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        const uint32_t block = first + n * contract::kConvertingWarps, run = first_run(block);
        if (!exists(block, lane_run)) break;
        keys[n] = ptx::ld_shared_v4(Raw::behind(from, first_row(block), run));
        if constexpr (kCleans)
          Raw::mask(keys[n], static_cast<int>((run + lane_run) * Raw::kRun), [&](int key) { return kept.has(key); });
      }
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        const uint32_t block = first + n * contract::kConvertingWarps;
        if (!exists(block, lane_run)) break;
        store(keys[n], Converted::behind(to, first_row(block), 2 * first_run(block)));
      }
    }
  }
  __device__ __forceinline__ static void store(const ptx::Vector16& keys, uint32_t at) {
    ptx::Vector16 pieces[2];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t pairs[2];
      tile::convert_four<spec::kKvDType, computed(), spec::kArch>(keys.word[w], pairs);
      pieces[0].word[w] = pairs[0], pieces[1].word[w] = pairs[1];
    }
    ptx::st_shared_v4(at, pieces[0]);
    ptx::st_shared_v4(at ^ contract::kPieceBytes, pieces[1]);
  }
  __device__ __forceinline__ static uint32_t first_row(uint32_t block) { return block % kRowBlocks * kRows; }
  __device__ __forceinline__ static uint32_t first_run(uint32_t block) { return block / kRowBlocks * kBlockRuns; }
  __device__ __forceinline__ static bool exists(uint32_t block, uint32_t lane_run) {
    return block < kBlocks && (kRuns % kBlockRuns == 0 || first_run(block) + lane_run < kRuns);
  }
};

/// Transposes tiles of V: [keys][depth] becomes [depth][keys], in slabs of keys, with rows of ones behind them.
///
/// A block is 16 elements of 32 keys. Let g be lane / 4, and c lane % 4. ldmatrix.trans moves pairs of elements. A lane
/// then has the elements 2g and 2g + 1 of four keys of 16: 2c, 2c + 1, 2c + 8 and 2c + 9. Two prmt sort them by
/// element, and stmatrix stores rows of one element. The order of keys and of rows is
///   keys of every 16   0 1 8 9  2 3 10 11  4 5 12 13  6 7 14 15: the four of a lane are those of its scores, which
///                      become an operand without an exchange
///   rows of every 16   the elements 0 8 2 10 4 12 6 14, then 1 9 3 11 5 13 7 15: after the product,
///                      mma::in_natural_order() renames registers
class TransposedTiles {
  enum : int { kKeys = 32, kKeyBlocks = RawTile::kRows / kKeys, kDepthBlocks = spec::kHeadDimV / 16 };
  // Of a transposed tile: bytes of a slab's row, pieces of one, and bytes of a slab.
  enum : int {
    kToBytes = contract::slab_width(kValueSwizzleBytes),
    kToPieces = kToBytes / contract::kPieceBytes,
    kToSlabBytes = kOutputColumns * kToBytes
  };
  static_assert(!kTransposesV || (RawTile::kRows % kKeys == 0 && spec::kHeadDimV % 16 == 0), "whole blocks");
  static_assert(!kTransposesV || spec::kSwizzleBytes >= 32, "16 keys are a piece");
  const uint32_t warp_, lane_;

 public:
  __device__ __forceinline__ TransposedTiles(uint32_t warp, uint32_t lane) : warp_(warp), lane_(lane) {}

  /// Writes the rows of ones of all slots at `slots`, which no tile overwrites.
  __device__ __forceinline__ void begin(uint32_t slots) const {
    constexpr uint32_t kOnes = 0x38383838, kBytes = contract::kSumRows * kToBytes;
#pragma unroll 1
    for (uint32_t slab = warp_; slab < spec::kNumKvStages * kLayout.value_slot / kToSlabBytes;
         slab += contract::kConvertingWarps)
      for (uint32_t at = lane_ * 16; at < kBytes; at += 32 * 16)
        ptx::st_shared_v4(slots + (slab + 1) * kToSlabBytes - kBytes + at, {{kOnes, kOnes, kOnes, kOnes}});
  }

  /// `from` has part `part` of the tile's keys.
  template <bool /*kIsV*/, bool kCleans>
  __device__ __forceinline__ void write(uint32_t from, uint32_t to, const KeptRows& kept, uint32_t part) const {
    // Of stmatrix, the lane's row of 16 and piece of two: matrices have even and odd elements of 16 keys, then of 16
    // more.
    const uint32_t to_row = lane_ / 8 % 2 * 8 + lane_ % 4 * 2 + lane_ / 4 % 2, to_keys = lane_ / 16;
    if constexpr (kByPieces) {
      // Four reads are on their way before the first write: a read may take as long as a product of the math warps.
      // Masks of rows leave registers for one. The swizzle changes bits of an address that nothing else has.
      constexpr int kPieces = RawTile::kParts, kReads = kPieces * kKeyBlocks, kAtOnce = kCleans ? 1 : kReads;
      constexpr uint32_t kPiece = contract::kPieceBytes, kKeyBytes = 2 * kPiece;
      uint32_t pairs[kAtOnce][4];
      const uint32_t rows = from + raw_offset(lane_, 0);
      const uint32_t columns = (to + offset(to_row, to_keys)) ^ part * (kKeyBlocks * kKeyBytes);
      const uint32_t first_piece = (warp_ + part) % contract::kConvertingWarps * kPieces;  // no warp always has most
#pragma unroll 1
      for (uint32_t piece = first_piece; piece < kDepthBlocks; piece += contract::kConvertingWarps * kPieces) {
        const uint32_t source = (rows ^ piece % kRowPieces * kPiece) + piece / kRowPieces * RawTile::kSlabBytes;
        const uint32_t target = columns + piece * (16 * kToBytes);
#pragma unroll
        for (int first = 0; first < kReads; first += kAtOnce) {
#pragma unroll
          for (int i = first; i < first + kAtOnce; ++i) {
            const int n = i % kKeyBlocks;
            read<kCleans>(pairs[i - first], (source ^ i / kKeyBlocks * kPiece) + n * (kKeys * kRowBytes),
                          static_cast<int>(part) * RawTile::kRows + n * kKeys, kept);
          }
#pragma unroll
          for (int i = first; i < first + kAtOnce; ++i)
            store(pairs[i - first], (target ^ i % kKeyBlocks * kKeyBytes) + i / kKeyBlocks * (16 * kToBytes));
        }
      }
    } else {
      uint32_t pairs[2][4];  // two reads are on their way before the first write
      constexpr uint32_t kBlocks = kKeyBlocks * kDepthBlocks;
#pragma unroll 1
      for (uint32_t first = warp_; first < kBlocks; first += 2 * contract::kConvertingWarps) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const uint32_t block = first + n * contract::kConvertingWarps, key = block / kDepthBlocks * kKeys;
          if (block >= kBlocks) break;
          read<kCleans>(pairs[n], from + raw_offset(key + lane_, block % kDepthBlocks), static_cast<int>(key), kept);
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const uint32_t block = first + n * contract::kConvertingWarps;
          if (block >= kBlocks) break;
          store(pairs[n], to + offset(block % kDepthBlocks * 16 + to_row, 2 * (block / kDepthBlocks) + to_keys));
        }
      }
    }
  }

 private:
  // Whether a warp takes every third 16 elements of all keys. Addresses then differ by constants, which takes registers
  // that other tiles, and a third math warpgroup, do not leave.
  enum : bool { kByPieces = spec::kMathWarpgroups < 3 && kRowPieces == 8 && (kKeyBlocks == 2 || kKeyBlocks == 4) };
  static_assert(!kTransposesV || RawTile::kParts == 1 || kByPieces, "parts by pieces");

  /// Reads a block whose first key is `key`.
  template <bool kCleans>
  __device__ __forceinline__ void read(uint32_t (&pairs)[4], uint32_t address, int key, const KeptRows& kept) const {
    ptx::ldmatrix_x4_trans(pairs, address);
    if constexpr (kCleans) {
#pragma unroll
      for (int m = 0; m < 4; ++m) pairs[m] &= mask_of(kept, key + m * 8 + static_cast<int>(lane_ % 4 * 2));
    }
  }
  __device__ __forceinline__ static void store(const uint32_t (&of)[4], uint32_t address) {
    const uint32_t words[4] = {ptx::prmt(of[0], of[1], 0x6420), ptx::prmt(of[0], of[1], 0x7531),
                               ptx::prmt(of[2], of[3], 0x6420), ptx::prmt(of[2], of[3], 0x7531)};
    ptx::stmatrix_x4(address, words);
  }
  /// Piece `piece` of key `key` in a raw tile; piece `piece` of keys of element `row` in a transposed one.
  __device__ __forceinline__ static uint32_t raw_offset(uint32_t key, uint32_t piece) {
    return place<spec::kSwizzleBytes>(key, piece, RawTile::kSlabBytes);
  }
  __device__ __forceinline__ static uint32_t offset(uint32_t row, uint32_t piece) {
    return place<kValueSwizzleBytes>(row, piece, kToSlabBytes);
  }
  template <int kSwizzle>
  __device__ __forceinline__ static uint32_t place(uint32_t row, uint32_t piece, uint32_t slab_bytes) {
    constexpr int kBytes = contract::slab_width(kSwizzle), kPieces = kBytes / contract::kPieceBytes;
    return piece / kPieces * slab_bytes + row * kBytes +
           (piece % kPieces ^ contract::swizzle_of_row(row, kSwizzle)) * 16;
  }
  /// The bits of a word with the pairs of keys `key` and `key` + 1 that are kept.
  __device__ __forceinline__ static uint32_t mask_of(const KeptRows& kept, int key) {
    return (kept.has(key) ? 0xffffu : 0u) | (kept.has(key + 1) ? 0xffff0000u : 0u);
  }
};

/// A lane of such a warp.
class OperandMaker {
  using Making = policy::Either<kTransposesV, TransposedTiles,
                                policy::Either<spec::kVColumns, WidenedColumns, WidenedTiles>::type>::type;

 public:
  /// `warp`: among those that make operands.
  __device__ __forceinline__ OperandMaker(const Shared& shared, uint32_t warp)
      : shared_(shared),
        lane_(threadIdx.x % 32),
        raw_(RawRing::consumer(shared.raw_barriers())),
        making_(warp, threadIdx.x % 32) {}

  __device__ __forceinline__ void run() {
    Producer rings(shared_.kv_barriers(), shared_.keys(), shared_.values());
    auto keys = rings.k();
    auto values = rings.v();
    ItemRing items = ItemRing::before_consumer();  // stands on the item
    int left = 0, tiles = 0;                       // key tiles of it
    // Values come as they are loaded: one key tile late, unless kValuesAtOnce. This holds for the whole list of steps,
    // across items.
    bool pending = false;
    KeptRows before{};
    making_.begin(shared_.values());
#pragma unroll 1
    for (;; pending = true) {
      if (left == 0) {
        items.step();
        shared_.gather_posted(items.index).wait(items);
        const policy::ItemRecord::Walk walk = item(items).walk();
        tiles = left = walk.end - walk.begin;  // < 0: there is no further item
      }
      if constexpr (kRestagesKeys)
        if (left > 0) make<false>(keys, {0, spec::kBlockN});
      if constexpr (!kValuesAtOnce)
        if (pending) make<true>(values, before);
      if (left < 0) break;
      before = {0, left == tiles ? item(items).template last_keys<kHidesInTiles>() : int{spec::kBlockN}};
      if constexpr (kHidesInTiles)
        if (left == 1) before.begin = item(items).hidden_keys();
      if constexpr (kValuesAtOnce) make<true>(values, before);
      --left;
    }
  }

 private:
  __device__ __forceinline__ policy::PostedItem item(const ItemRing& items) const {
    return {shared_.item(items.index)};
  }

  /// Makes the operand of the next raw tile, part by part.
  template <bool kIsV, class View>
  __device__ __forceinline__ void make(View& view, const KeptRows& kept) {
    view.template acquire<0>();
    const uint32_t to = view.get_smem();
#pragma unroll 1
    for (uint32_t part = 0; part < RawTile::kParts; ++part) {
      raw_.consumer_wait();
      const uint32_t from = shared_.raw() + raw_.state.index * raw_ring().slot;
      if (kept.begin == 0 && kept.end >= spec::kBlockN)
        making_.template write<kIsV, false>(from, to, kept, part);
      else
        making_.template write<kIsV, true>(from, to, kept, part);
      __syncwarp();  // other lanes have read the slot
      raw_.release(raw_.state.index, pipeline::WarpRelease<>{lane_});
      raw_.step();
    }
    pipeline::SignalledByWarp{lane_}(view.get_tile().full);
    view.commit_step();
  }

  const Shared shared_;
  const uint32_t lane_;
  RawRing raw_;
  Making making_;
};

}  // namespace
}  // namespace kernelwright
