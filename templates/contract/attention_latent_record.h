/// How a latent key of 8-bit elements lies in memory, in one place for the host and the kernels.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

constexpr int32_t kLatentScaleBlock = 128;  // latents of a record that share a scale

/// Bytes of a key. Without scales of its own, a key has its elements alone. A record has scales: first the latents, 8
/// bits each; then an f32 scale for each kLatentScaleBlock of them; then the other elements, of the queries' 16 bits.
/// With 512 latents of 576 elements a record has 656 bytes, as FlashMLA and vLLM (fp8_ds_mla) have it.
struct LatentKey {
  int32_t scales;  // offset of the scales; 0: the key has none
  int32_t rest;    // offset of the elements behind the latents
  int32_t bytes;
};

/// `depth` elements, whose first `latents` are the value.
constexpr LatentKey latent_key(int32_t depth, int32_t latents, bool has_scales) {
  if (!has_scales) return {0, latents, depth};
  const int32_t rest = latents + latents / kLatentScaleBlock * 4;
  return {latents, rest, rest + (depth - latents) * 2};
}
static_assert(latent_key(576, 512, true).bytes == 656);

}  // namespace kernelwright::contract
