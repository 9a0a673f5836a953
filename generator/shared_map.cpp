#include "kernelwright/generator/shared_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "contract/attention_layout.h"
#include "contract/hopper_attention.h"
#include "kernelwright/generator/families.h"

namespace kernelwright {

namespace {

std::uint32_t bytes_between(std::int32_t begin, std::int32_t end) { return static_cast<std::uint32_t>(end - begin); }

std::vector<SharedRegion> hopper_map(const AttentionSpec& spec) {
  const contract::HopperLayout map = detail::hopper_layout_of(spec);
  const bool shared_ring = spec.kv_ring == KvRing::kShared;
  const bool gathers = contract::hopper_gathers_kv(spec.page_size);
  const contract::HopperBarriers barriers =
      contract::hopper_barriers(spec.q_stages, spec.num_kv_stages, spec.num_qk_stages, shared_ring, gathers);
  const int qk = contract::padded_depth(spec.head_dim_qk), v = contract::padded_depth(spec.head_dim_v);
  std::vector<SharedRegion> regions;
  const auto ring = [&](const char* name, std::int32_t begin, int slots, std::int32_t slot, std::string use) {
    regions.push_back({.name = name,
                       .offset = static_cast<std::uint32_t>(begin),
                       .bytes = static_cast<std::uint32_t>(slots * slot),
                       .stage_bytes = slots > 1 ? static_cast<std::uint32_t>(slot) : 0,
                       .use = fmt::format("{} slot{} of {}", slots, slots == 1 ? "" : "s", use)});
  };
  const auto slabs = [](int rows, int depth) { return fmt::format("[{}][{}][64]", depth / 64, rows); };
  ring("queries", map.queries, spec.q_stages, map.query_slot, slabs(spec.block_m, qk));
  if (shared_ring) {
    ring("keys and values", map.keys, spec.num_kv_stages, map.key_slot,
         slabs(spec.block_n, std::max(qk, v)) + ", K and V in turn");
  } else {
    ring("keys", map.keys, spec.num_kv_stages, map.key_slot, slabs(spec.block_n, qk));
    ring("values", map.values, spec.num_kv_stages, map.value_slot, slabs(spec.block_n, v));
  }
  const auto add = [&](const char* name, std::int32_t begin, std::int32_t count, std::string use) {
    regions.push_back({.name = name,
                       .offset = static_cast<std::uint32_t>(begin),
                       .bytes = static_cast<std::uint32_t>(count),
                       .use = std::move(use)});
  };
  const auto pair = [&](const std::string& of, std::int32_t full, std::int32_t count) {
    const std::int32_t begin = map.barriers + full * contract::kBarrierBytes, bytes = count * contract::kBarrierBytes;
    add((of + " full").c_str(), begin, bytes, fmt::format("{} mbarriers", count));
    add((of + " empty").c_str(), begin + bytes, bytes, fmt::format("{} mbarriers", count));
  };
  pair("queries", barriers.query_full, spec.q_stages);
  pair(shared_ring ? "keys and values" : "keys", barriers.key_full, spec.num_kv_stages * spec.num_qk_stages);
  if (!shared_ring) pair("values", barriers.value_full, spec.num_kv_stages);
  if (gathers)
    add("items told", map.barriers + barriers.gather_posted * contract::kBarrierBytes,
        (spec.q_stages + 2) * contract::kBarrierBytes, fmt::format("{} mbarriers", spec.q_stages + 2));
  ring("items", map.items, spec.q_stages + 2, contract::kItemBytes, "what the loading warp tells of a work item");
  if (gathers) ring("gathers", map.gathers, spec.q_stages + 2, contract::kGatherBytes, "what it tells who copies keys");
  return regions;
}

// Operands are staged as 16 bits each, and a region is rounded up to its alignment after its last stage.
SharedRegion ring(std::string name, std::int32_t begin, std::int32_t end, int slots, int tokens, int depth) {
  return {.name = std::move(name),
          .offset = static_cast<std::uint32_t>(begin),
          .bytes = bytes_between(begin, end),
          .stage_bytes = slots > 1 ? static_cast<std::uint32_t>(tokens * depth * 2) : 0,
          .use = fmt::format("{} stage{} of [{}][{}]", slots, slots == 1 ? "" : "s", tokens, depth)};
}

SharedRegion region(std::string name, std::int32_t begin, std::int32_t end, std::string use) {
  return {.name = std::move(name),
          .offset = static_cast<std::uint32_t>(begin),
          .bytes = bytes_between(begin, end),
          .use = std::move(use)};
}

/// The decode forms'. `qk` and `v`: columns of a tile in shared memory.
std::vector<SharedRegion> decode_map(const AttentionSpec& spec, const contract::DecodeLayout& map, int qk, int v) {
  const int slots = spec.register_staged ? 1 : spec.num_stages;
  std::vector<SharedRegion> regions{
      region("queries", map.queries, map.rings, fmt::format("[{}][{}]", spec.block_m, qk))};
  const int warp_keys = spec.block_n / spec.num_warps;
  for (int warp = 0; warp < spec.num_warps; ++warp) {
    const std::int32_t base = map.rings + warp * map.ring_bytes;
    regions.push_back(ring(fmt::format("keys, warp {}", warp), base, base + map.ring_values, slots, warp_keys, qk));
    regions.push_back(
        ring(fmt::format("values, warp {}", warp), base + map.ring_values, base + map.ring_bytes, slots, warp_keys, v));
  }
  regions.push_back(region("statistics", map.statistics, map.partials, "over the rings, once keys are walked"));
  regions.push_back(region("partial outputs", map.partials, map.partials + spec.num_warps * spec.block_m * v * 4,
                           fmt::format("[{}][{}][{}] f32, over the rings", spec.num_warps, spec.block_m, v)));
  return regions;
}

std::vector<SharedRegion> hopper_decode_map(const AttentionSpec& spec) {
  const contract::HopperDecodeLayout map = detail::hopper_decode_layout_of(spec);
  std::vector<SharedRegion> regions =
      decode_map(spec, map, contract::padded_depth(spec.head_dim_qk), contract::padded_depth(spec.head_dim_v));
  regions.push_back(region("barriers", map.barriers, map.total,
                           fmt::format("[{}][{}][2] mbarriers: keys, values", spec.num_warps, spec.num_stages)));
  return regions;
}

}  // namespace

std::vector<SharedRegion> shared_map(const AttentionSpec& spec) {
  if (spec.has_warpgroups()) return hopper_map(spec);
  if (spec.family == Family::kHopper) return hopper_decode_map(spec);
  const int slots = spec.register_staged ? 1 : spec.num_stages, qk = spec.head_dim_qk, v = spec.head_dim_v;
  if (!spec.token_gen) {
    const contract::AttentionLayout map = contract::prefill_layout(spec.block_m, spec.block_n, qk, v, slots);
    return {region("queries", map.queries, map.keys, fmt::format("[{}][{}]; later the output", spec.block_m, qk)),
            ring("keys", map.keys, map.values, slots, spec.block_n, qk),
            ring("values", map.values, map.total, slots, spec.block_n, v)};
  }
  return decode_map(spec, contract::decode_layout(spec.block_m, spec.block_n, spec.num_warps, qk, v, slots), qk, v);
}

}  // namespace kernelwright
