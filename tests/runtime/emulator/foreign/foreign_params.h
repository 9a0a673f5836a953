/// What host and device share for the kernels beside this file: parameters, the same bytes on both sides, and variants.
/// These kernels have traits that the product's own kernels lack and that other people's kernels have.
#pragma once

#include "contract/integers.h"
#include "contract/tensor_map.h"

namespace kernelwright::test {

using contract::TensorMap;

// ---- streamk_sm80: D[m][n] = A[m][k] B[n][k]^T in bf16 ----

struct StreamkParams {
  const uint16_t *a, *b;
  uint16_t* d;
  float* parts;     // parts: [CTA][kStreamkTile * kStreamkTile]; chain: [tile][the same]
  uint32_t* flags;  // zeros. parts: one a CTA; chain: one a tile
  int32_t m, n, k;  // k is a multiple of 8
};

constexpr int kStreamkThreads = 128, kStreamkTile = 64, kStreamkBlockK = 32, kStreamkStages = 3;
constexpr uint32_t kStreamkSharedBytes = kStreamkStages * 2 * kStreamkTile * kStreamkBlockK * 2;

/// How the CTAs that share a tile add their sums, always in the order of k.
enum class StreamkFixup {
  kParts,  // each CTA stores its sum and sets a flag; the CTA with the first k adds them
  kChain,  // each CTA waits for the CTA with the k before, and adds its sum to the tile's; the last one stores D
};
struct StreamkVariant {
  StreamkFixup fixup;
  bool fences;  // fences beside relaxed accesses of flags, instead of st.release and ld.acquire
};

// ---- streamk_sm90: the same with TMA and wgmma. n is a multiple of 8 ----

struct StreamkHopperParams {
  TensorMap a, b, d;  // box {64, 128}, {64, 64} and {64, 64}
  float* parts;       // as above, of tiles of 128 by 64
  uint32_t* flags;    // zeros. One for each half of what streamk_sm80 has one for
  int32_t m, n, k;
};

constexpr int kStreamkHopperThreads = 384, kStreamkHopperStages = 3;
constexpr uint32_t kStreamkSlotBytes = (128 + 64) * 128, kStreamkStagingBytes = 64 * 128;
constexpr uint32_t kStreamkBarriersAt = kStreamkHopperStages * kStreamkSlotBytes + 2 * kStreamkStagingBytes;
constexpr uint32_t kStreamkHopperSharedBytes = kStreamkBarriersAt + 2 * kStreamkHopperStages * 8;

// ---- grouped_gemm_sm90: D[m][n] = A[m][k] B[n][k]^T in bf16, for each of several groups ----

struct GroupedProblem {
  uint64_t a, b, d;  // addresses; rows follow each other
  int32_t m, n, k;   // n and k are multiples of 8; m may be 0
};
struct GroupedParams {
  TensorMap a, b, d;  // templates: box {64, 128}, {64, 64} and {64, 64}. Address, dimensions and stride mean nothing
  const GroupedProblem* groups;
  TensorMap* maps;  // [CTA][kGroupedMaps], for the kernel to write: A, B, D of each consumer warpgroup
  int32_t num_groups;
};

constexpr int kGroupedThreads = 384, kGroupedStages = 3, kGroupedMaps = 4;
constexpr uint32_t kGroupedSlotBytes = (128 + 64) * 128, kGroupedStagingBytes = 64 * 128;
constexpr uint32_t kGroupedMapsAt = kGroupedStages * kGroupedSlotBytes + 2 * kGroupedStagingBytes;
constexpr uint32_t kGroupedBarriersAt = kGroupedMapsAt + kGroupedMaps * 128;
constexpr uint32_t kGroupedSharedBytes = kGroupedBarriersAt + 2 * kGroupedStages * 8;

enum class MapEdit {
  kShared,  // a warp copies the map to shared memory, edits the copy, and copies it back with tensormap.cp_fenceproxy
  kGlobal,  // a thread edits the map in global memory, and fences
};
struct GroupedVariant {
  MapEdit edit;
};

// ---- fmha_sm100: O = softmax(scale Q K^T) V for each of batch * heads, 64 wide, in bf16 ----

/// A CTA has 256 queries of one head: blockIdx.x counts those, y the heads.
struct FmhaParams {
  TensorMap q, o;  // [batch_heads][q_len][64], box {64, 128, 1}
  TensorMap k, v;  // [batch_heads][kv_len][64], box {64, 64, 1}
  int32_t kv_len;
  float scale_log2;  // scale * log2(e)
};

constexpr int kFmhaThreads = 512, kFmhaQueries = 128, kFmhaKeys = 64, kFmhaHeadDim = 64, kFmhaStages = 3;
constexpr uint32_t kFmhaTileBytes = kFmhaQueries * 128, kFmhaSlotBytes = kFmhaKeys * 128;
struct FmhaVariant {
  bool p_shared;  // P goes through shared memory, not through tensor memory
};

/// Two tiles of Q, the ring of K and V, two tiles of O, two of P, barriers, the address of the tensor memory.
constexpr uint32_t kFmhaRingAt = 2 * kFmhaTileBytes, kFmhaStagingAt = kFmhaRingAt + kFmhaStages * kFmhaSlotBytes,
                   kFmhaPAt = kFmhaStagingAt + 2 * kFmhaTileBytes, kFmhaBarriersAt = kFmhaPAt + 2 * kFmhaTileBytes;
constexpr uint32_t kFmhaBarriers = 2 * kFmhaStages + 8 * 2;
constexpr uint32_t kFmhaSharedBytes = kFmhaBarriersAt + kFmhaBarriers * 8 + 16;

}  // namespace kernelwright::test
