/// The payload of a slot of a GEMM's input ring (tile_pipeline.cuh): the places of its tiles, and their bytes. A
/// payload knows no barrier.
///
/// A TilePayload is trivially copyable and has
///     num_tiles             constant: tiles of each kind that shared memory holds
///     bytes_per_tile        constant: bytes that TMA brings for one of them, all kinds together
///     get_tile(int) const   the tiles with one number, 0 to num_tiles - 1: TilesOf, or a struct of its own
#pragma once

#include "contract/integers.h"

namespace kernelwright::pipeline {

/// Which members of a TilePayload a type has. InputTilePipeline says in words which one is missing.
template <class T>
class TilePayload {
  template <class P, int = P::num_tiles>
  static constexpr bool names_tiles(int) {
    return true;
  }
  template <class P>
  static constexpr bool names_tiles(...) {
    return false;
  }
  template <class P, uint32_t = P::bytes_per_tile>
  static constexpr bool names_bytes(int) {
    return true;
  }
  template <class P>
  static constexpr bool names_bytes(...) {
    return false;
  }
  template <class P, class = decltype(static_cast<const P*>(nullptr)->get_tile(0))>
  static constexpr bool names_tile(int) {
    return true;
  }
  template <class P>
  static constexpr bool names_tile(...) {
    return false;
  }

 public:
  static constexpr bool is_trivially_copyable() { return __is_trivially_copyable(T); }
  static constexpr bool has_num_tiles() { return names_tiles<T>(0); }
  static constexpr bool has_bytes_per_tile() { return names_bytes<T>(0); }
  static constexpr bool has_get_tile() { return names_tile<T>(0); }

  /// True for types without a constant: one message is enough.
  template <int kTiles>
  static constexpr bool has_tiles() {
    if constexpr (has_num_tiles())
      return T::num_tiles == kTiles;
    else
      return true;
  }
  static constexpr uint32_t bytes_per_tile() {
    if constexpr (has_bytes_per_tile())
      return T::bytes_per_tile;
    else
      return 0;
  }
};

/// The tiles of a payload with one number. An address is computed when it is asked for.
template <class Payload>
struct TilesOf {
  Payload payload;
  int number;

  __device__ __forceinline__ uint32_t a() const { return payload.a(number); }
  __device__ __forceinline__ uint32_t b() const { return payload.b(number); }
  __device__ __forceinline__ uint32_t scales() const { return payload.scales(number); }
  __device__ __forceinline__ uint32_t scales_a() const { return payload.scales_a(number); }
  __device__ __forceinline__ uint32_t scales_b() const { return payload.scales_b(number); }
};

/// Tiles of A and of B. The tiles of each kind lie together, so that both stay aligned to their swizzle's pattern.
template <uint32_t kABytes, uint32_t kBBytes, int kTiles>
struct StandardTilePayload {
  static constexpr int num_tiles = kTiles;
  static constexpr uint32_t a_bytes = kABytes, b_bytes = kBBytes, bytes_per_tile = kABytes + kBBytes;
  uint32_t a_base, b_base;

  __device__ __forceinline__ uint32_t a(int tile) const { return a_base + static_cast<uint32_t>(tile) * kABytes; }
  __device__ __forceinline__ uint32_t b(int tile) const { return b_base + static_cast<uint32_t>(tile) * kBBytes; }
  __device__ __forceinline__ TilesOf<StandardTilePayload> get_tile(int tile) const { return {*this, tile}; }
};

/// As above, with kScales f32 for each tile. From one tile's scales to the next are kPitch bytes.
template <uint32_t kABytes, uint32_t kBBytes, int kScales, uint32_t kPitch, int kTiles>
struct ScaledTilePayload : StandardTilePayload<kABytes, kBBytes, kTiles> {
  static constexpr uint32_t bytes_per_tile = kABytes + kBBytes + kScales * 4;
  static_assert(kScales * 4 <= kPitch && kPitch % 128 == 0, "room for the scales, aligned for TMA");
  uint32_t scales_base;

  __device__ __forceinline__ uint32_t scales(int tile) const {
    return scales_base + static_cast<uint32_t>(tile) * kPitch;
  }
  __device__ __forceinline__ TilesOf<ScaledTilePayload> get_tile(int tile) const { return {*this, tile}; }
};

/// As StandardTilePayload, with atoms of 8-bit scales of both operands. They are kept as tcgen05.cp copies them to
/// tensor memory: 512 bytes for 128 rows. kCopiedBytes: the scale bytes of a tile that TMA brings; threads write the
/// others.
template <uint32_t kABytes, uint32_t kBBytes, uint32_t kScaleABytes, uint32_t kScaleBBytes, uint32_t kCopiedBytes,
          int kTiles>
struct BlockScaledTilePayload : StandardTilePayload<kABytes, kBBytes, kTiles> {
  static constexpr uint32_t bytes_per_tile = kABytes + kBBytes + kCopiedBytes;
  static_assert(kScaleABytes % 512 == 0 && kScaleBBytes % 512 == 0, "whole atoms");
  uint32_t scales_a_base, scales_b_base;

  __device__ __forceinline__ uint32_t scales_a(int tile) const {
    return scales_a_base + static_cast<uint32_t>(tile) * kScaleABytes;
  }
  __device__ __forceinline__ uint32_t scales_b(int tile) const {
    return scales_b_base + static_cast<uint32_t>(tile) * kScaleBBytes;
  }
  __device__ __forceinline__ TilesOf<BlockScaledTilePayload> get_tile(int tile) const { return {*this, tile}; }
};

}  // namespace kernelwright::pipeline
