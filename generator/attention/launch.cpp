#include "kernelwright/generator/attention/launch.h"

#include <algorithm>

#include "contract/attention_latent_sm90.h"
#include "contract/attention_params.h"
#include "contract/even_shares.h"
#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/generator/problem/arch.h"

namespace kernelwright {
namespace {

constexpr int kCombineThreads = 128;  // four rows to a CTA

/// The number of parts into which each sequence's keys are cut, so that all SMs end together. A part costs its tiles
/// and about two more (Q, the prologue of the ring, the merge of its warps). Merging the parts costs about two tiles,
/// or four in a second kernel. Candidates are the counts that just fill one, two or three waves of CTAs.
int choose_splits(std::int64_t items, std::int64_t tiles, std::int64_t slots, Merge merge) {
  const std::int64_t merging = merge == Merge::kInKernel ? 2 : 4;
  const auto cost = [&](std::int64_t splits) {
    return ceil_div(items * splits, slots) * (ceil_div(tiles, splits) + 2) + (splits > 1 ? merging : 0);
  };
  std::int64_t best = 1, least = cost(1);
  for (std::int64_t waves = 1; waves <= 3; ++waves) {
    const std::int64_t splits = std::clamp<std::int64_t>(floor_div(waves * slots, items), 1,
                                                         std::min<std::int64_t>(tiles, contract::kMaxSplits));
    // Fewer parts of the same length leave no part empty.
    const std::int64_t even = ceil_div(tiles, ceil_div(tiles, splits));
    if (even == best) continue;
    if (const std::int64_t candidate = cost(even); candidate < least) best = even, least = candidate;
  }
  return static_cast<int>(best);
}

/// Orders the query tiles that persistent CTAs take. Several CTAs should read the same keys at a time. A tile of 128
/// queries takes 64 KB of keys and values in about a microsecond. For all SMs together, that is more than twice what
/// the memory delivers.
void order_items(const AttentionSpec& spec, const AttentionExtent& extent, int num_sms, std::int64_t items,
                 AttentionLaunch& launch) {
  constexpr std::int64_t kReaders = 4;
  const std::int64_t cluster = spec.cluster_m, rounds = ceil_div(launch.num_m_blocks, cluster);
  std::int64_t chunk = rounds;
  const bool queued = spec.scheduler == Scheduler::kQueued;
  if (spec.scheduler == Scheduler::kLongestFirst || (queued && spec.mask != MaskKind::kNone)) {
    const std::int64_t kv_heads = std::int64_t{extent.kv_heads} * extent.batch;
    // With few KV heads, there are enough readers in any order.
    const std::int64_t readers = cluster * (spec.pack_gqa ? 1 : spec.group);  // that read a head's keys at a time
                                                                              // anyway
    chunk = kv_heads * kReaders <= num_sms ? 1 : ceil_div(kReaders, readers);
  }
  launch.m_chunk = static_cast<int>(std::clamp<std::int64_t>(chunk, 1, std::max<std::int64_t>(1, rounds)));
  launch.num_items = static_cast<int>(std::min<std::int64_t>(items, 0x7fffffff));
  launch.queued = queued;
  if (queued) launch.workspace_bytes = sizeof(std::uint64_t);
  // A CTA takes all registers of an SM. If there are more tiles than a grid can have, the driver must see the large
  // number and refuse it.
  launch.persistent = spec.scheduler != Scheduler::kGrid && items <= launch.num_items;
  const std::int64_t most = launch.persistent ? std::max<std::int64_t>(1, num_sms / cluster) : 0xffffffff / cluster;
  launch.main.grid[0] = static_cast<std::uint32_t>(std::min(items, most) * cluster);
  launch.main.cluster = static_cast<std::uint32_t>(cluster);
}

/// CTAs that share all key tiles evenly: teams that fill the machine, unless the pieces would be too small to be worth
/// it. Lengths lie on the device, where each CTA finds its piece.
void balance(const AttentionSpec& spec, std::int64_t pairs, std::int64_t tiles, int num_sms, AttentionLaunch& launch) {
  const std::int64_t m_blocks = std::max<std::int64_t>(1, launch.num_m_blocks);
  const std::int64_t most = ceil_div(pairs * (tiles + contract::kSequenceTiles), contract::kLeastShare);
  const std::int64_t ctas = std::clamp<std::int64_t>(most, 1, std::max<std::int64_t>(1, num_sms / m_blocks)) * m_blocks;
  launch.balanced = true;
  // Costs of all sequences together are counted in 31 bits. Where they would not fit, sequences stay whole.
  constexpr std::int64_t kMostTiles = std::int64_t{1} << 30;
  launch.num_splits = pairs > kMostTiles / (tiles + contract::kSequenceTiles) ? 1 : 2;
  launch.main.grid[0] = static_cast<std::uint32_t>(std::min<std::int64_t>(ctas, 0xffffffff));
  const auto rows = static_cast<std::uint64_t>(ctas) * contract::kLatentPartRows;
  launch.partial_lse_offset = rows * static_cast<std::uint64_t>(spec.head_dim_v) * 4;
  launch.merge_counters_offset = launch.partial_lse_offset + rows * 4;
  launch.workspace_bytes =
      launch.merge_counters_offset + static_cast<std::uint64_t>(ctas) * contract::kMeetingWords * 8;
}

}  // namespace

AttentionLaunch plan_launch(const AttentionSpec& spec, const AttentionExtent& extent, int num_sms,
                            int forced_splits) noexcept {
  const detail::AttentionFamily& family = detail::family_row(spec);
  AttentionLaunch launch;
  launch.main.block = spec.threads();
  launch.main.shared_bytes = family.shared_bytes(spec);
  const std::int64_t heads = spec.pack_gqa ? extent.kv_heads : extent.q_heads;
  const std::int64_t rows = static_cast<std::int64_t>(extent.q_len) * (spec.pack_gqa ? spec.group : 1);
  const std::int64_t pairs = heads * extent.batch;
  // The CTAs of a pair go together: the last CTA of a sequence may have no rows.
  // So do those of a cluster of latent attention: its tiles count as one.
  const std::int64_t sharers = spec.latent ? spec.cluster_m : 1;
  const std::int64_t m_blocks = ceil_div(rows, spec.block_m * spec.cta_group * sharers) * spec.cta_group;
  launch.num_m_blocks = static_cast<int>(m_blocks);

  if (spec.balanced) {
    balance(spec, pairs, std::max<std::int64_t>(1, ceil_div(extent.kv_len, spec.block_n)), num_sms, launch);
    return launch;
  }
  if (spec.cluster_n > 1) {
    launch.num_splits = spec.cluster_n;
    launch.main.cluster = static_cast<std::uint32_t>(spec.cluster_n);
  } else if (spec.splits_keys() && pairs * m_blocks > 0) {
    const ArchInfo& arch = arch_info(spec.arch);
    const std::int64_t ctas = std::max<std::int64_t>(
        1, std::min<std::int64_t>(
               floor_div(arch.shared_bytes_per_sm, launch.main.shared_bytes + arch.reserved_shared_bytes_per_cta),
               floor_div(arch.max_threads_per_sm, launch.main.block)));
    const std::int64_t tiles = std::max<std::int64_t>(1, ceil_div(extent.kv_len, spec.block_n));
    // A CTA with rings of bytes takes what an SM gets from memory. A second one hides its beginning and its end, and
    // parts for it would cost more than they give.
    const bool streams = spec.form() == AttentionForm::kHopperDecode && bits_of(spec.kv) == 8;
    const std::int64_t slots = std::max<std::int64_t>(1, (streams ? 1 : ctas) * num_sms / sharers);
    launch.num_splits = forced_splits > 0 ? std::min(forced_splits, contract::kMaxSplits)
                        : streams && pairs * m_blocks >= slots
                            ? 1
                            : choose_splits(pairs * m_blocks, tiles, slots, spec.merge);
  }

  // (sequence, head) pairs whose keys fit the L2 together. Heads of one KV head stay together.
  const std::int64_t shared_by = spec.pack_gqa ? 1 : spec.group;
  const std::int64_t kv_bytes = std::max<std::int64_t>(1, static_cast<std::int64_t>(extent.kv_len * spec.kv_bytes()));
  const std::int64_t section =
      std::max<std::int64_t>(1, floor_div(usual_machine(spec.arch).shared_keys_bytes, kv_bytes)) * shared_by;
  launch.head_section = static_cast<int>(std::clamp<std::int64_t>(section, 1, std::max<std::int64_t>(1, pairs)));
  // Tiles of equal length go pair after pair: CTAs that run at the same time then read the same keys.
  const bool alike =
      spec.scheduler == Scheduler::kGrid || (spec.scheduler == Scheduler::kQueued && spec.mask == MaskKind::kNone);
  if (family.alike_items_go_by_pair && alike) launch.head_section = 1;

  const std::int64_t items = pairs * m_blocks;
  if (detail::deals_items(spec)) {
    order_items(spec, extent, num_sms, pairs * ceil_div(m_blocks, spec.cluster_m), launch);
    return launch;
  }

  // If there are more tiles than a grid can have, the driver must see the large number and refuse it; it must not wrap
  // around.
  launch.main.grid[0] =
      static_cast<std::uint32_t>(std::min<std::int64_t>(items * launch.num_splits * sharers, 0xffffffff));
  if (sharers > 1) launch.main.cluster = static_cast<std::uint32_t>(sharers);
  if (spec.cta_group > 1) launch.main.cluster = static_cast<std::uint32_t>(spec.cta_group);
  if (launch.num_splits > 1 && spec.splits_keys()) {
    const std::int64_t output_rows = extent.q_tokens * extent.q_heads;
    launch.combine.block = kCombineThreads;
    const std::int64_t row_warps = spec.head_dim_v / contract::combined_columns(spec.head_dim_v);
    launch.combine.grid[0] = static_cast<std::uint32_t>(ceil_div(output_rows * row_warps, kCombineThreads / 32));
    launch.partial_lse_offset = static_cast<std::uint64_t>(launch.num_splits) * output_rows * spec.head_dim_v * 4;
    launch.workspace_bytes =
        launch.partial_lse_offset + static_cast<std::uint64_t>(launch.num_splits) * output_rows * 4 * spec.row_sums();
    if (spec.merge == Merge::kInKernel) {
      launch.merge_counters_offset = (launch.workspace_bytes + 7) / 8 * 8;
      launch.workspace_bytes = launch.merge_counters_offset + static_cast<std::uint64_t>(items * sharers) * 8;
    }
  }
  return launch;
}

}  // namespace kernelwright
