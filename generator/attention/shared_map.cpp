#include "kernelwright/generator/attention/shared_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "contract/attention_portable.h"
#include "contract/attention_sm100.h"
#include "contract/attention_sm90.h"
#include "kernelwright/generator/attention/family.h"

namespace kernelwright {

namespace {

std::uint32_t bytes_between(std::int32_t begin, std::int32_t end) { return static_cast<std::uint32_t>(end - begin); }

/// Collects the regions of a kernel with rings of whole slabs, and their mbarriers.
class RingMap {
 public:
  RingMap(const AttentionSpec& spec, std::int32_t barriers) : spec_(spec), barriers_(barriers) {}

  void add(std::string name, std::int32_t begin, std::int32_t bytes, std::string use) {
    regions_.push_back({.name = std::move(name),
                        .offset = static_cast<std::uint32_t>(begin),
                        .bytes = static_cast<std::uint32_t>(bytes),
                        .use = std::move(use)});
  }
  void ring(const char* name, std::int32_t begin, int slots, std::int32_t slot, std::string use) {
    add(name, begin, slots * slot, fmt::format("{} slot{} of {}", slots, slots == 1 ? "" : "s", use));
    if (slots > 1) regions_.back().stage_bytes = static_cast<std::uint32_t>(slot);
  }
  void barriers(std::string name, std::int32_t first, int count) {
    add(std::move(name), barriers_ + first * contract::kBarrierBytes, count * contract::kBarrierBytes,
        fmt::format("{} mbarrier{}", count, count == 1 ? "" : "s"));
  }
  /// The `full` barrier of every slot, then the `empty` barrier of every slot.
  void pair(const std::string& of, std::int32_t full, int count) {
    barriers(of + " full", full, count);
    barriers(of + " empty", full + count, count);
  }
  /// `keys` of a tile of K, with the slabs of K and of V that this CTA has.
  template <class Layout>
  void keys_and_values(const Layout& map, int keys, int qk, int v) {
    const std::string v_tile = slabs(spec_.block_n, v);
    if (spec_.kv_ring == KvRing::kShared && keys == spec_.block_n)
      return ring("keys and values", map.keys, spec_.num_kv_stages, map.key_slot,
                  slabs(spec_.block_n, std::max(qk, v)) + ", K and V in turn");
    keys_and_values(map, slabs(keys, qk), v_tile);
  }
  /// Their tiles in words.
  template <class Layout>
  void keys_and_values(const Layout& map, const std::string& k_tile, const std::string& v_tile) {
    if (spec_.kv_ring == KvRing::kShared)
      return ring("keys and values", map.keys, spec_.num_kv_stages, map.key_slot,
                  fmt::format("{} of K and {} of V in turn", k_tile, v_tile));
    ring("keys", map.keys, spec_.num_kv_stages, map.key_slot, k_tile);
    ring("values", map.values, spec_.num_kv_stages, map.value_slot, v_tile);
  }
  template <class Barriers>
  void barriers_of_keys_and_values(const Barriers& indices) {
    const bool shared = spec_.kv_ring == KvRing::kShared;
    pair(shared ? "keys and values" : "keys", indices.key_full, spec_.num_kv_stages * spec_.num_qk_stages);
    if (!shared) pair("values", indices.value_full, spec_.num_kv_stages * spec_.num_mma_stages);
  }
  /// `count` slabs.
  std::string slabs(int rows, int count) const {
    const int bytes = contract::slab_width(bytes_of(spec_.swizzle));
    if (spec_.rope_width > 0) return fmt::format("[{}][{}][{} bytes]", count, rows, bytes);
    return fmt::format("[{}][{}][{}]", count, rows, bytes * 8 / bits_of(spec_.q));
  }
  std::vector<SharedRegion> regions() { return std::move(regions_); }

 private:
  const AttentionSpec& spec_;
  std::int32_t barriers_;  // offset of mbarrier 0
  std::vector<SharedRegion> regions_;
};

// An element takes `bytes`: 16 bits, except where fp8 is staged as it lies. A region is rounded up to its alignment
// after its last stage.
SharedRegion ring(std::string name, std::int32_t begin, std::int32_t end, int slots, int tokens, int depth,
                  int bytes = 2) {
  return {.name = std::move(name),
          .offset = static_cast<std::uint32_t>(begin),
          .bytes = bytes_between(begin, end),
          .stage_bytes = slots > 1 ? static_cast<std::uint32_t>(tokens * depth * bytes) : 0,
          .use = fmt::format("{} stage{} of [{}][{}]", slots, slots == 1 ? "" : "s", tokens, depth)};
}

SharedRegion region(std::string name, std::int32_t begin, std::int32_t end, std::string use) {
  return {.name = std::move(name),
          .offset = static_cast<std::uint32_t>(begin),
          .bytes = bytes_between(begin, end),
          .use = std::move(use)};
}

/// The map of a decode form. `qk` and `v`: columns of a tile in shared memory, of `kv_bytes` each.
std::vector<SharedRegion> decode_map(const AttentionSpec& spec, const contract::DecodeLayout& map, int qk, int v,
                                     int kv_bytes = 2) {
  const int slots = spec.kv_slots();
  std::vector<SharedRegion> regions{
      region("queries", map.queries, map.rings, fmt::format("[{}][{}]", spec.block_m, qk))};
  const int warp_keys = spec.block_n / spec.num_warps;
  for (int warp = 0; warp < spec.num_warps; ++warp) {
    const std::int32_t base = map.rings + warp * map.ring_bytes;
    regions.push_back(
        ring(fmt::format("keys, warp {}", warp), base, base + map.ring_values, slots, warp_keys, qk, kv_bytes));
    regions.push_back(ring(fmt::format("values, warp {}", warp), base + map.ring_values, base + map.ring_bytes, slots,
                           warp_keys, v, kv_bytes));
  }
  regions.push_back(region("statistics", map.statistics, map.partials, "over the rings, once keys are walked"));
  regions.push_back(region("partial outputs", map.partials, map.partials + spec.num_warps * spec.block_m * v * 4,
                           fmt::format("[{}][{}][{}] f32, over the rings", spec.num_warps, spec.block_m, v)));
  return regions;
}

}  // namespace

std::vector<SharedRegion> detail::portable_map(const AttentionSpec& spec) {
  const int slots = spec.kv_slots(), qk = spec.head_dim_qk, v = spec.head_dim_v;
  if (spec.token_gen) return decode_map(spec, portable_decode_layout_of(spec), qk, v);
  const contract::AttentionLayout map =
      contract::prefill_layout(spec.block_m, spec.block_n, qk, v, slots, spec.num_warps_n());
  const std::int32_t values_end = map.values + contract::align_up(slots * spec.block_n * v * 2, 1024);
  std::vector<SharedRegion> regions{
      region("queries", map.queries, map.keys, fmt::format("[{}][{}]; later the output", spec.block_m, qk)),
      ring("keys", map.keys, map.values, slots, spec.block_n, qk),
      ring("values", map.values, values_end, slots, spec.block_n, v)};
  if (spec.num_warps_n() > 1) {
    regions.push_back(region("statistics", map.statistics, map.partials,
                             fmt::format("[{}][maximum, sum][{}] f32, over keys and values, once keys are walked",
                                         spec.num_warps_n(), spec.block_m)));
    regions.push_back(region("partial outputs", map.partials, map.partials + spec.block_m * v * 4,
                             fmt::format("[{}][{}] f32, over keys and values", spec.block_m, v)));
  }
  return regions;
}

std::vector<SharedRegion> detail::hopper_map(const AttentionSpec& spec) {
  const contract::HopperShape shape = detail::hopper_shape_of(spec);
  const contract::HopperLayout layout = contract::hopper_layout(shape);
  const contract::HopperBarriers barriers = contract::hopper_barriers(shape);
  RingMap map(spec, layout.barriers);
  const int width = contract::slab_width(shape.swizzle_bytes), qk = shape.qk_row() / width, v = shape.v_row() / width;
  map.ring("queries", layout.queries, spec.q_stages, layout.query_slot, map.slabs(spec.block_m, qk));
  const auto columns = [&](int slab, int bytes) {  // V as [depth][keys]
    return fmt::format("[{}][{}][{}]", shape.keys_row() / shape.q_bytes * bytes / slab, spec.head_dim_v, slab / bytes);
  };
  const int key_slab = contract::slab_width(shape.key_swizzle());
  const std::string k_tile = shape.splits_q ? fmt::format("[{}][{}][{}] {}", shape.key_row() / key_slab, spec.block_n,
                                                          key_slab, to_string(spec.kv))
                                            : map.slabs(spec.block_n, qk);
  if (shape.narrow()) {
    map.ring("keys", layout.keys, spec.num_kv_stages, layout.key_slot, k_tile);
    map.ring(shape.transposes() ? "values, transposed" : "values, in columns", layout.values, spec.num_kv_stages,
             layout.value_slot,
             columns(shape.column_slab > 0 ? shape.column_slab
                                           : contract::transposed_swizzle_bytes(spec.block_n, shape.swizzle_bytes),
                     1));
  } else if (spec.v_columns) {
    map.keys_and_values(layout, k_tile, columns(contract::converted_slab_bytes(spec.block_n), 2) + ", columns");
  } else if (shape.splits_q) {
    map.keys_and_values(layout, k_tile, map.slabs(spec.block_n, v));
  } else {
    map.keys_and_values(layout, spec.block_n, qk, v);
  }
  map.pair("queries", barriers.query_full, spec.q_stages);
  map.barriers_of_keys_and_values(barriers);
  if (shape.told() > 0) map.barriers("items told", barriers.gather_posted, shape.told());
  map.ring("items", layout.items, spec.q_stages + 2, contract::kItemBytes,
           "what the loading warp tells of a work item");
  if (shape.gathers)
    map.ring("gathers", layout.gathers, shape.told(), contract::kGatherBytes, "what it tells who copies keys");
  if (shape.keeps_halves)
    map.add("halves of sums", layout.halves, layout.total - layout.halves,
            fmt::format("[{}][{}] bf16, of runs before", spec.block_m, spec.head_dim_v + contract::kSumRows));
  if (shape.restages()) {
    const contract::HopperRawRing raw = contract::hopper_raw_ring(shape);
    const auto raw_tile = [&](int slabs) { return fmt::format("[{}][{}][{}]", slabs, spec.block_n, width / 2); };
    map.add("as they came full, empty", raw.full, 2 * raw.slots * contract::kBarrierBytes,
            fmt::format("{} mbarriers", 2 * raw.slots));
    map.ring(
        shape.converts_keys() ? "keys and values as they came" : "values as they came", raw.tiles, raw.slots, raw.slot,
        shape.transposes() ? map.slabs(raw.keys, v)
        : shape.splits_q
            ? fmt::format("{} {}", spec.v_columns ? columns(shape.column_slab, 1) : raw_tile(v), to_string(spec.kv))
        : spec.v_columns ? fmt::format("{} of K and {} of V in turn, {}", raw_tile(qk), columns(shape.column_slab, 1),
                                       to_string(spec.kv))
                         : fmt::format("{} {}, K and V in turn", raw_tile(std::max(qk, v)), to_string(spec.kv)));
  }
  return map.regions();
}

std::vector<SharedRegion> detail::hopper_decode_map(const AttentionSpec& spec) {
  const contract::HopperDecodeLayout map = detail::hopper_decode_layout_of(spec);
  const int kv_bytes = bits_of(spec.kv) / 8;
  std::vector<SharedRegion> regions =
      decode_map(spec, map, contract::decode_columns(spec.head_dim_qk, kv_bytes, bytes_of(spec.swizzle)),
                 contract::decode_columns(spec.head_dim_v, kv_bytes, bytes_of(spec.swizzle)), kv_bytes);
  const int factors = kv_bytes == 1 && bits_of(spec.q) == 16 ? contract::query_factors(map, spec.block_m) : map.total;
  regions.push_back(region("barriers", map.barriers, factors,
                           fmt::format("[{}][{}][2] mbarriers: keys, values", spec.num_warps, spec.num_stages)));
  if (map.total > factors)
    regions.push_back(region("query factors", factors, map.total,
                             fmt::format("[{}] f32: what normalised rows were divided by", spec.block_m)));
  return regions;
}

std::vector<SharedRegion> detail::blackwell_map(const AttentionSpec& spec) {
  const contract::BlackwellShape shape = detail::blackwell_shape_of(spec);
  const contract::BlackwellLayout layout = contract::blackwell_layout(shape);
  const contract::BlackwellBarriers barriers = contract::blackwell_barriers(shape);
  RingMap map(spec, layout.barriers);
  map.ring("queries", layout.queries, spec.num_q, layout.query_slot,
           map.slabs(contract::kQueryTileRows, contract::qk_slabs(shape)) + ", later the output");
  map.keys_and_values(layout, contract::blackwell_keys(shape), contract::qk_slabs(shape), contract::v_slabs(shape));
  map.add("factors", layout.factors, layout.published - layout.factors,
          fmt::format("[{}][{}] f32: what correction multiplies the rows of an output with", contract::kScoreTiles,
                      contract::kQueryTileRows));
  if (shape.parts > 1)
    map.add("published", layout.published, layout.gather_rows - layout.published,
            fmt::format("[maximum, sum][{}] f32: what the others of the cluster read", contract::kQueryTileRows));
  if (shape.gathers)
    map.add("rows to gather", layout.gather_rows, layout.items - layout.gather_rows,
            fmt::format("[3][{}] addresses: a tile of K, two of V", spec.block_n));
  if (shape.queued)
    map.ring("items", layout.items, contract::kBlackwellItemSlots,
             (layout.key_scales - layout.items) / contract::kBlackwellItemSlots, "which item is the CTA's next");
  if (shape.token_scales)
    map.ring("key scales", layout.key_scales, contract::kScaleSlots, contract::kKeyNumbers * spec.block_n * 4,
             fmt::format("[factor, shift, weight][{}] f32", spec.block_n));
  struct Named {
    const char* name;
    std::int32_t first;
  };
  for (const auto& [name, first] : {Named{"query full", barriers.query_full},
                                    {"score full", barriers.score_full},
                                    {"probability ready", barriers.probability_ready},
                                    {"probability rest", barriers.probability_rest},
                                    {"factor full", barriers.factor_full},
                                    {"output full", barriers.output_full}})
    map.barriers(name, first, contract::kScoreTiles);
  map.barriers("values landed", barriers.values_landed, 1);
  map.barriers("values clean", barriers.values_clean, 1);
  if (shape.token_scales) map.pair("key scales", barriers.scale_full, contract::kScaleSlots);
  map.barriers_of_keys_and_values(barriers);
  if (shape.queued) {
    map.barriers("query empty", barriers.query_empty, contract::kScoreTiles);
    map.pair("items", barriers.item_full, contract::kBlackwellItemSlots);
  }
  map.add("tensor memory's address", layout.tensor_address, 4, "what tcgen05.alloc wrote");
  if (spec.split_keys && spec.merge == Merge::kInKernel)
    map.add("arrived last", layout.arrived_last, 4, "whether this CTA merges the parts");
  return map.regions();
}

TensorMemoryMap detail::blackwell_tensor_memory(const AttentionSpec& spec) {
  TensorMemoryMap map;
  const contract::BlackwellColumns columns = contract::blackwell_columns(detail::blackwell_shape_of(spec));
  map.used = columns.used;
  map.allocated = columns.allocated;
  const int v = contract::output_columns(spec.head_dim_v);
  for (int i = 0; i < contract::kScoreTiles; ++i) {
    map.regions.push_back({fmt::format("S{}", i), columns.scores[i], spec.block_n,
                           fmt::format("scores, [{}][{}] f32", contract::kQueryTileRows, spec.block_n)});
    map.regions.push_back({fmt::format("P{}", i), columns.scores[i], spec.block_n * bits_of(spec.q) / 32,
                           fmt::format("probabilities, [{}][{}] {}, over S{}", contract::kQueryTileRows, spec.block_n,
                                       to_string(spec.q), i)});
  }
  for (int i = 0; i < contract::kScoreTiles; ++i)
    map.regions.push_back({fmt::format("O{}", i), columns.outputs[i], v,
                           fmt::format("output, [{}][{}] f32", contract::kQueryTileRows, v)});
  return map;
}

}  // namespace kernelwright
