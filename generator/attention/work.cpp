#include "kernelwright/generator/attention/work.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <utility>

#include "contract/attention_sm90.h"
#include "contract/key_range.h"
#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/problem/range_mask.h"

namespace kernelwright::detail {
namespace {

constexpr double kMostItems = 16384;  // items that are followed one by one; of more, every n-th pair of sequence and
                                      // head
constexpr double kItemTiles = 1.5;    // fixed cost of an item, in tiles, when items are dealt

/// The keys that a query sees. `start`: the sequence's first key.
struct Sight {
  const RangeMask& mask;
  int kv_len, diagonal, start;

  contract::KeyRange operator()(int query) const {
    return contract::key_range(mask.kind,
                               {mask.window.left, mask.window.right, std::max(mask.chunk, 1), mask.chunk_reach},
                               query + diagonal, kv_len, start);
  }
};

/// low: the first key that the rows see. start: the sequence's first key.
int origin_of(const AttentionSpec& spec, int low, int start) {
  const int box = spec.page_size > 0 ? contract::hopper_kv_box_rows(spec.block_n, spec.page_size) : 1;
  return contract::first_tile_key(contract::hides_low(spec.mask) || spec.kv_starts, std::max(spec.chunk, 1), box,
                                  spec.tiles_from_start ? start : low);
}

/// Sequences of equal lengths that follow each other.
struct Sequences {
  int q_len, kv_len, start;
  int count;
  Sight sight(const RangeMask& mask) const {
    return {mask, kv_len, kv_len - q_len, contract::first_key_of(start, kv_len)};
  }
};

/// The items of one head of a sequence, by query tile, before keys are split.
std::vector<TimelineItem> items_of(const AttentionSpec& spec, const RangeMask& mask, const Sequences& sequence) {
  std::vector<TimelineItem> items;
  const std::int64_t packed = spec.pack_gqa ? spec.group : 1, rows = sequence.q_len * packed;
  const Sight sight = sequence.sight(mask);
  for (std::int64_t row = 0; row < rows; row += spec.block_m) {
    const std::int64_t end = std::min<std::int64_t>(row + spec.block_m, rows);
    // A pair of CTAs walks the tiles that either of them sees.
    const std::int64_t both = std::int64_t{spec.block_m} * spec.cta_group, pair = row / both * both;
    const auto first = sight(static_cast<int>(pair / packed));
    const auto last = sight(static_cast<int>((std::min(pair + both, rows) - 1) / packed));
    const int origin = origin_of(spec, first.low, sight.start);
    TimelineItem item{0, 0, static_cast<int>(end - row)};
    if (last.high > first.low) {
      const int n = spec.block_n;
      const int begin = (first.low - origin) / n, stop = (last.high - origin + n - 1) / n;
      const int full_begin = (last.low - origin + n - 1) / n, full_end = (first.high - origin) / n;
      item.tiles = stop - begin;
      item.masked = item.tiles - std::clamp(std::min(full_end, stop) - std::max(full_begin, begin), 0, item.tiles);
    }
    items.push_back(item);
  }
  return items;
}

std::vector<Sequences> sequences_of(const AttentionShape& shape) {
  if (shape.q_lens.empty() && shape.kv_lens.empty() && shape.kv_starts.empty())
    return {{shape.q_len, shape.kv_len, 0, shape.batch}};
  std::vector<Sequences> sequences;
  const auto length = [](const std::vector<int>& lens, int i, int all) {
    return static_cast<std::size_t>(i) < lens.size() ? lens[static_cast<std::size_t>(i)] : all;
  };
  for (int i = 0; i < shape.batch; ++i) {
    const int q_len = length(shape.q_lens, i, shape.q_len), kv_len = length(shape.kv_lens, i, shape.kv_len);
    const int start = length(shape.kv_starts, i, 0);
    if (!sequences.empty() && sequences.back().q_len == q_len && sequences.back().kv_len == kv_len &&
        sequences.back().start == start)
      ++sequences.back().count;
    else
      sequences.push_back({q_len, kv_len, start, 1});
  }
  return sequences;
}

/// What a sequence sees: the sum of all queries' keys, and the keys that any query sees.
struct Seen {
  double together, any;
};
Seen seen_keys(const RangeMask& mask, const Sequences& sequence) {
  const int q_len = sequence.q_len;
  if (q_len <= 0) return {0, 0};
  constexpr int kLookedAt = 1 << 16;  // of more queries, every n-th
  const Sight sight = sequence.sight(mask);
  const int every = (q_len + kLookedAt - 1) / kLookedAt;
  double sum = 0, looked_at = 0;
  for (int query = 0; query < q_len; query += every, ++looked_at) {
    const auto [low, high] = sight(query);
    sum += high - low;
  }
  return {sum / looked_at * q_len, static_cast<double>(std::max(0, sight(q_len - 1).high - sight(0).low))};
}

/// The work of one head of a sequence.
struct Kind {
  std::vector<TimelineItem> items;
  double tiles = 0;
  Seen seen{};
};

/// Items in the order in which CTAs take them: templates/policy/item_walk.cuh.
std::vector<TimelineItem> in_order(const AttentionSpec& spec, const std::vector<const Kind*>& pairs,
                                   const AttentionLaunch& launch) {
  std::vector<TimelineItem> order;
  std::size_t most = 0;
  for (const Kind* pair : pairs) most = std::max(most, pair->items.size());
  const bool hopper = deals_items(spec);
  const bool by_length = spec.scheduler == Scheduler::kLongestFirst ||
                         (spec.scheduler == Scheduler::kQueued && spec.mask != MaskKind::kNone);
  std::size_t chunk = !by_length ? most : hopper ? static_cast<std::size_t>(std::max(1, launch.m_chunk)) : 1;
  if (chunk == 0) chunk = 1;
  for (std::size_t above = 0; above < most; above += chunk)
    for (const Kind* pair : pairs)
      for (std::size_t i = above; i < std::min(above + chunk, pair->items.size()); ++i)
        order.push_back(pair->items[pair->items.size() - 1 - i]);
  return order;
}

/// The items of the CTA that has most of them, of `takers` CTAs.
std::vector<TimelineItem> most_loaded(const AttentionSpec& spec, std::vector<TimelineItem> order, int takers) {
  const auto cost = [](const TimelineItem& item) { return item.tiles > 0 ? item.tiles + kItemTiles : 0; };
  std::vector<std::vector<std::size_t>> walks(static_cast<std::size_t>(takers));
  std::vector<double> load(walks.size(), 0);
  const bool dealt =
      deals_items(spec) && (spec.scheduler == Scheduler::kPersistent || spec.scheduler == Scheduler::kLongestFirst);
  using Free = std::pair<double, std::size_t>;
  std::priority_queue<Free, std::vector<Free>, std::greater<>> free;
  for (std::size_t taker = 0; taker < walks.size(); ++taker) free.push({0, taker});
  const bool laps = spec.q_layout == QLayout::kPadded || spec.scheduler == Scheduler::kLongestFirst;
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::size_t taker = i % walks.size();
    if (dealt && laps && i / walks.size() % 2 == 1) taker = walks.size() - 1 - taker;
    if (!dealt) {
      taker = free.top().second;
      free.pop();
    }
    walks[taker].push_back(i);
    load[taker] += cost(order[i]);
    if (!dealt) free.push({load[taker], taker});
  }
  const auto busiest = static_cast<std::size_t>(std::max_element(load.begin(), load.end()) - load.begin());
  std::vector<TimelineItem> walk;
  for (const std::size_t i : walks[busiest])
    if (order[i].tiles > 0) walk.push_back(order[i]);
  return walk;
}

/// Cuts the keys of items into parts, as TileList::take_part() does.
std::vector<TimelineItem> split(const std::vector<TimelineItem>& items, int parts) {
  if (parts <= 1) return items;
  std::vector<TimelineItem> result;
  for (const TimelineItem& item : items)
    for (int part = 0; part < parts; ++part) {
      TimelineItem piece = item;
      piece.tiles = item.tiles / parts + (part < item.tiles % parts ? 1 : 0);
      piece.masked = std::min(piece.masked, piece.tiles);
      result.push_back(piece);
    }
  return result;
}

}  // namespace

AttentionExtent extent_of(const AttentionProblem& problem, const AttentionShape& shape) {
  AttentionExtent extent{.batch = shape.batch, .q_heads = problem.heads.q, .kv_heads = problem.heads.kv};
  extent.q_len = shape.q_lens.empty() ? shape.q_len : *std::max_element(shape.q_lens.begin(), shape.q_lens.end());
  extent.kv_len = shape.kv_lens.empty() ? shape.kv_len : *std::max_element(shape.kv_lens.begin(), shape.kv_lens.end());
  extent.q_tokens = std::int64_t{shape.batch} * extent.q_len;
  return extent;
}

TimelineWork timeline_work(const AttentionSpec& spec, const AttentionProblem& problem, const AttentionShape& shape,
                           const AttentionLaunch& launch, int sms, int at_once) {
  const RangeMask mask = range_mask(problem.mask);
  // Keys that hold their values are read once.
  const double kv_row = spec.kv_bytes();
  const int heads = spec.pack_gqa ? problem.heads.kv : problem.heads.q;
  TimelineWork work;
  std::map<std::array<int, 3>, Kind> kinds;
  std::vector<std::pair<const Kind*, std::int64_t>> runs;  // the number of heads of such sequences that follow each
                                                           // other
  for (const Sequences& alike : sequences_of(shape)) {
    const auto [found, is_new] = kinds.try_emplace({alike.q_len, alike.kv_len, alike.start});
    Kind& kind = found->second;
    if (is_new) {
      kind.items = split(items_of(spec, mask, alike), launch.num_splits);
      kind.seen = seen_keys(mask, alike);
      for (const TimelineItem& item : kind.items) kind.tiles += item.tiles;
    }
    const double count = alike.count, rows = count * alike.q_len * problem.heads.q;
    work.operations += count * kind.seen.together * 2 * (spec.head_dim_qk + spec.head_dim_v) * problem.heads.q;
    work.kv_bytes += count * kind.seen.any * kv_row * problem.heads.kv;
    work.q_bytes += rows * spec.head_dim_qk * bits_of(spec.q) / 8.0;
    work.o_bytes += rows * spec.head_dim_v * bits_of(spec.out) / 8.0;
    work.items += count * heads * static_cast<double>(kind.items.size());
    work.tiles += count * heads * kind.tiles;
    runs.emplace_back(&kind, std::int64_t{alike.count} * heads);
  }
  work.fetched_bytes = work.tiles * spec.block_n * kv_row;
  work.even_tiles = work.tiles / sms;
  const std::int64_t every = static_cast<std::int64_t>(work.items / kMostItems) + 1;
  std::vector<const Kind*> pairs;
  double followed = 0;
  std::int64_t left_over = 0;  // pairs to skip before the next one that is followed
  for (const auto& [kind, count] : runs) {
    std::int64_t at = left_over;
    for (; at < count; at += every) {
      pairs.push_back(kind);
      followed += kind->tiles;
    }
    left_over = at - count;
  }
  work.repeats = followed > 0 ? work.tiles / followed : 1;
  work.walk = most_loaded(spec, in_order(spec, pairs, launch), std::max(1, sms * at_once));
  for (const TimelineItem& item : work.walk) work.walk_tiles += item.tiles;
  return work;
}

}  // namespace kernelwright::detail
