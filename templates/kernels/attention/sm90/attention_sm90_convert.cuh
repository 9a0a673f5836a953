/// The warps of attention_sm90 that convert fp8 keys and values to the type of Q. TMA brings them as bytes to the slots
/// of a ring of their own. From there these warps write the operands of the products, to the slots where TMA writes
/// operands that need no conversion. The math warps do not know of it.
///
/// Both tiles lie in slabs of the same columns. A slab of bytes is half as wide and has half the swizzle, so it is the
/// converted slab at half its offsets. A lane reads 8 bytes and writes a piece of 16: neither meets a bank conflict.
#pragma once

#include "kernels/attention/sm90/attention_sm90_tiles.cuh"
#include "policy/item_record.cuh"
#include "ptx/memory.cuh"
#include "tile/byte_fragments.cuh"

namespace kernelwright {
namespace {

enum : int { kFirstConvertingWarp = 1 };

/// A lane of a converting warp.
class Converter {
 public:
  __device__ __forceinline__ Converter(const Shared& shared, uint32_t warp)
      : shared_(shared), warp_(warp), lane_(threadIdx.x % 32), raw_(RawRing::consumer(shared.raw_barriers())) {
#pragma unroll
    for (uint32_t part = 0; part < 2; ++part) {
      const uint32_t from = part * kPart + lane_ * kLaneBytes, row = from / RawTile::row_bytes;
      from_[part] = from ^ contract::swizzle_of_row(row, contract::raw_swizzle_bytes(spec::kSwizzleBytes)) * 16;
      to_[part] = 2 * from ^ contract::swizzle_of_row(row, spec::kSwizzleBytes) * 16;
    }
  }

  __device__ __forceinline__ void run() {
    Producer rings(shared_.kv_barriers(), shared_.keys(), shared_.values());
    auto keys = rings.k();
    auto values = rings.v();
    ItemRing items = ItemRing::before_consumer();  // stands on the item
    int left = 0, tiles = 0;                       // key tiles of it
    // Values come one key tile late, in the order of their use. This holds for the whole list of steps, across items.
    bool pending = false;
    Kept before{};
#pragma unroll 1
    for (;; pending = true) {
      if (left == 0) {
        items.step();
        shared_.gather_posted(items.index).wait(items);
        const policy::ItemRecord::Walk walk = item(items).walk();
        tiles = left = walk.end - walk.begin;  // < 0: there is no further item
      }
      if (left > 0) convert<kSlabsQk>(keys, {0, spec::kBlockN});
      if (pending) convert<kSlabsV>(values, before);
      if (left < 0) break;
      before = {0, left == tiles ? item(items).template last_keys<kHidesInTiles>() : int{spec::kBlockN}};
      if constexpr (kHidesInTiles)
        if (left == 1) before.begin = item(items).hidden_keys();
      --left;
    }
  }

 private:
  // A warp converts a block of a slab at a time. All reads of a block are on their way before the first write.
  enum : uint32_t {
    kLaneBytes = 8,
    kPart = 32 * kLaneBytes,
    kParts = RawTile::kSlabBytes % (4 * kPart) == 0 ? 4 : RawTile::kSlabBytes % (2 * kPart) == 0 ? 2 : 1,
    kBlock = kParts * kPart,
    kSlabBlocks = RawTile::kSlabBytes / kBlock
  };
  static_assert(!kConvertsKv || (RawTile::kSlabBytes % kBlock == 0 && spec::kSwizzleBytes >= 32), "whole blocks");
  static_assert(!kConvertsKv || kBlock % (contract::kSwizzleRows * RawTile::row_bytes) == 0, "blocks begin alike");

  /// Rows of a tile that are the sequence's. The others become zeros: their probability is 0, but 0 times the bytes
  /// there may be NaN.
  struct Kept {
    int begin, end;
  };
  __device__ __forceinline__ policy::PostedItem item(const ItemRing& items) const {
    return {shared_.item(items.index)};
  }

  /// Converts the next tile, of kSlabs slabs.
  template <int kSlabs, class View>
  __device__ __forceinline__ void convert(View& view, const Kept& kept) {
    view.template acquire<0>();
    raw_.consumer_wait();
    const uint32_t from = shared_.raw() + raw_.state.index * raw_ring().slot, to = view.get_smem();
    if (kept.begin == 0 && kept.end >= spec::kBlockN)
      convert_blocks<kSlabs, false>(from, to, kept);
    else
      convert_blocks<kSlabs, true>(from, to, kept);
    __syncwarp();  // other lanes have read the slot
    raw_.release(raw_.state.index, pipeline::WarpRelease<>{lane_});
    pipeline::SignalledByWarp{lane_}(view.get_tile().full);
    raw_.step();
    view.commit_step();
  }

  template <int kSlabs, bool kCleans>
  __device__ __forceinline__ void convert_blocks(uint32_t from, uint32_t to, const Kept& kept) const {
#pragma unroll 1
    for (uint32_t block = warp_; block < kSlabs * kSlabBlocks; block += contract::kConvertingWarps) {
      float bytes[kParts][2];
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        ptx::ld_shared_v2_f32(from + block * kBlock + part / 2 * (2 * kPart) + from_[part % 2], bytes[part]);
        if constexpr (kCleans) {
          const int row = static_cast<int>((block % kSlabBlocks * kBlock + part * kPart + lane_ * kLaneBytes) /
                                           RawTile::row_bytes);
          if (row < kept.begin || row >= kept.end) bytes[part][0] = bytes[part][1] = 0;
        }
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        ptx::Vector16 elements;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint32_t words[2];
          tile::convert_four<spec::kKvDType, spec::kQDType, spec::kArch>(__float_as_uint(bytes[part][i]), words);
          elements.word[2 * i] = words[0], elements.word[2 * i + 1] = words[1];
        }
        ptx::st_shared_v4(to + 2 * (block * kBlock + part / 2 * (2 * kPart)) + to_[part % 2], elements);
      }
    }
  }

  const Shared shared_;
  const uint32_t warp_, lane_;  // warp_: among the converting ones
  RawRing raw_;
  uint32_t from_[2], to_[2];  // the lane's places in two parts, after which both patterns repeat
};

}  // namespace
}  // namespace kernelwright
