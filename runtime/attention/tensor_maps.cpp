#include "kernelwright/runtime/attention/tensor_maps.h"

#include <algorithm>

#include "contract/attention_latent_sm90.h"
#include "contract/attention_sm100.h"
#include "contract/attention_sm90.h"

namespace kernelwright::detail {
namespace {

// Where the caller does not tell how many pages there are. A box lies within the page that the page table names; with
// num_pages, one that names none is filled with zeros.
constexpr std::int64_t kAnyNumberOfPages = std::int64_t{1} << 31;

struct Operand {
  DevicePtr address;
  DType dtype;
  int depth;
  std::int64_t tokens, heads, batches;
  const TensorStrides& strides;
  int box_rows;
  Swizzle swizzle;
};

TensorMapRequest request_for(const Operand& operand) {
  TensorMapRequest request{.address = operand.address, .dtype = operand.dtype, .rank = 4, .swizzle = operand.swizzle};
  const std::int64_t extents[3] = {operand.tokens, operand.heads, operand.batches};
  const std::int64_t strides[3] = {operand.strides.token, operand.strides.head, operand.strides.batch};
  const std::int64_t bytes = bits_of(operand.dtype) / 8;
  request.dims[0] = static_cast<std::uint64_t>(operand.depth);
  for (int i = 0; i < 3; ++i) {
    request.dims[i + 1] = static_cast<std::uint64_t>(std::max<std::int64_t>(1, extents[i]));
    // 0 where there is one element, or none: a tensor map has no such stride.
    const std::int64_t stride = strides[i] > 0 && extents[i] > 1 ? strides[i] : operand.depth;
    request.strides_bytes[i] = static_cast<std::uint64_t>(stride * bytes);
  }
  request.box[0] = static_cast<std::uint32_t>(contract::slab_width(bytes_of(operand.swizzle)) / bytes);
  request.box[1] = static_cast<std::uint32_t>(operand.box_rows);
  request.box[2] = request.box[3] = 1;
  return request;
}

/// Rows of a tile of packed heads are tokens x the heads of a group: (depth, head of the group, token, KV head, batch).
TensorMapRequest packed_queries(const Operand& operand, int group) {
  TensorMapRequest request = request_for(operand);
  const std::uint64_t tokens = request.dims[1], heads = request.dims[2], batches = request.dims[3];
  const std::uint64_t token = request.strides_bytes[0], head = request.strides_bytes[1],
                      batch = request.strides_bytes[2];
  const auto members = static_cast<std::uint64_t>(group);
  request.rank = 5;
  request.dims[1] = members;
  request.dims[2] = tokens;
  request.dims[3] = heads / members;
  request.dims[4] = batches;
  request.strides_bytes[0] = head;
  request.strides_bytes[1] = token;
  request.strides_bytes[2] = heads > members ? head * members : head;
  request.strides_bytes[3] = batch;
  request.box[1] = static_cast<std::uint32_t>(group);
  request.box[2] = static_cast<std::uint32_t>(operand.box_rows / group);
  request.box[3] = request.box[4] = 1;
  return request;
}

/// (key of a page, depth, head, page), for tiles of `keys` keys. A box has all of the depth.
TensorMapRequest columns_of_values(const AttentionSpec& spec, int keys, DevicePtr address, std::int64_t heads,
                                   std::int64_t pages, const TensorStrides& strides) {
  const int slab = contract::column_slab_bytes(keys, spec.page_size);
  const Swizzle swizzle = slab == 128  ? Swizzle::k128B
                          : slab == 64 ? Swizzle::k64B
                          : slab == 32 ? Swizzle::k32B
                                       : Swizzle::kNone;
  return request_for({address, spec.kv, spec.page_size, spec.head_dim_v, heads, pages,
                      TensorStrides{strides.batch, spec.page_size, strides.head}, spec.head_dim_v, swizzle});
}

/// The scales of records whose map is `keys`: the same memory, in boxes of the bytes of a key's scales.
TensorMapRequest scales_of_records(const TensorMapRequest& keys) {
  TensorMapRequest request = keys;
  request.swizzle = Swizzle::kNone;
  request.box[0] = contract::kLatentScaleBytes / contract::kLatentRows;
  return request;
}

}  // namespace

AttentionTensorMaps tensor_maps_of(const LoadedAttention& kernel, const AttentionTensors& tensors,
                                   const ResolvedStrides& strides) noexcept {
  const AttentionSpec& spec = kernel.spec;
  const bool ragged_q = spec.q_layout == QLayout::kRagged;
  const std::int64_t q_rows = ragged_q ? tensors.q_tokens : tensors.q_len;
  const std::int64_t q_batches = ragged_q ? 1 : tensors.batch;
  std::int64_t kv_rows = tensors.kv_len, kv_batches = tensors.batch;
  if (spec.kv_layout == KvLayoutKind::kRagged) kv_rows = kv_tokens_of(tensors), kv_batches = 1;
  if (spec.kv_layout == KvLayoutKind::kPaged)
    kv_rows = spec.page_size, kv_batches = tensors.num_pages > 0 ? tensors.num_pages : kAnyNumberOfPages;
  // What one warp loads of a tile, or one CTA of a cluster.
  const int tile_rows = spec.block_n / (spec.token_gen && !spec.latent ? spec.num_warps : spec.multicast);
  // A pair of CTAs shares K's rows, and V's columns.
  const int k_box_rows = contract::hopper_kv_box_rows(tile_rows / spec.cta_group, spec.page_size);
  const bool transposes = spec.form() == AttentionForm::kHopperPrefill && spec.q == spec.kv && bits_of(spec.kv) == 8;
  const int v_rows = transposes ? contract::raw_keys(std::max(spec.head_dim_qk, spec.head_dim_v), tile_rows,
                                                     bytes_of(spec.swizzle), false)
                                : tile_rows / spec.num_mma_stages;
  const int v_box_rows = contract::hopper_kv_box_rows(v_rows, spec.page_size);
  // Without keys k and v may be null, and a tensor map may not.
  const auto or_q = [&](DevicePtr address) { return address ? address : tensors.q; };

  AttentionTensorMaps maps;
  const int q_box_rows = spec.form() == AttentionForm::kBlackwellPrefill ? contract::kQueryTileRows : spec.block_m;
  const Operand queries{tensors.q, spec.q,    spec.plain_depth(), q_rows,      kernel.q_heads,
                        q_batches, strides.q, q_box_rows,         spec.swizzle};
  const auto request_for_queries = [&](const Operand& operand) {
    return spec.pack_gqa ? packed_queries(operand, spec.group) : request_for(operand);
  };
  maps.q = request_for_queries(queries);
  maps.gathers = !spec.token_gen && contract::hopper_gathers_kv(spec.page_size);
  if (maps.gathers) return maps;
  // A box of keys that warps convert has the columns of q's, of half the bytes.
  const bool converts = spec.form() == AttentionForm::kHopperPrefill && spec.kv != spec.q;
  const Swizzle kv_swizzle = converts ? half_of(spec.swizzle) : spec.swizzle;
  // Keys that products read as they are stored have slabs of their own.
  const int swizzle = bytes_of(spec.swizzle);
  const bool alike = spec.splits_q() && contract::swizzle_of_stored_keys(spec.head_dim_qk, swizzle) == swizzle;
  maps.k = request_for({or_q(tensors.k), spec.kv, spec.key_width(), kv_rows, kernel.kv_heads, kv_batches, strides.k,
                        k_box_rows, alike ? spec.swizzle : kv_swizzle});
  if (spec.has_records()) maps.k_scale = scales_of_records(maps.k);
  if (spec.latent) return maps;
  if (spec.v_columns)
    maps.v = columns_of_values(spec, tile_rows, or_q(tensors.v), kernel.kv_heads, kv_batches, strides.v);
  else
    maps.v = request_for({or_q(tensors.v), spec.kv, spec.head_dim_v, kv_rows, kernel.kv_heads, kv_batches, strides.v,
                          v_box_rows, kv_swizzle});
  if (spec.rope_width == 0) return maps;
  maps.q_rope = request_for_queries({tensors.q_rope, spec.rope, spec.rope_width, q_rows, kernel.q_heads, q_batches,
                                     strides.q_rope, q_box_rows, spec.swizzle});
  maps.one_rope = strides.k_rope.head == 0;
  maps.k_rope =
      request_for({or_q(tensors.k_rope), spec.rope, spec.rope_width, kv_rows, maps.one_rope ? 1 : kernel.kv_heads,
                   kv_batches, strides.k_rope, k_box_rows, spec.swizzle});
  return maps;
}

}  // namespace kernelwright::detail
