// Hopper on one SM. attention_sm90: the loading thread and one to three math warpgroups, as in
// templates/kernels/attention/sm90/attention_sm90.cu. attention_decode_sm90: CTAs whose warps each fill a ring of their
// own.
#include <algorithm>
#include <vector>

#include "contract/attention_sm90.h"
#include "kernelwright/generator/attention/predicted_roles.h"

namespace kernelwright::detail {
namespace {

constexpr int kRows = 64;  // query rows of a warpgroup
constexpr int kRowsOfAWarp = 16;
constexpr double kStoreInstructions = 3;  // for each output value of a lane: scale, pack, through shared memory, store

class HopperTimeline {
 public:
  HopperTimeline(const AttentionSpec& spec, const SmRates& rates)
      : spec_(spec),
        machine_(rates.machine),
        rates_(rates),
        clocks_(step_clocks(spec, rates.machine, hopper_softmax(spec))),
        loader_(rates),
        queries_(spec.q_stages),
        keys_(spec.num_kv_stages),
        values_(spec.kv_ring == KvRing::kShared ? 1 : spec.num_kv_stages),
        ready_(static_cast<std::size_t>(spec.math_warpgroups), 0) {
    const double kv = bits_of(spec.kv) / 8.0;
    key_bytes_ = spec.block_n * spec.head_dim_qk * kv;
    value_bytes_ = spec.block_n * spec.head_dim_v * kv;
    key_boxes_ = copies_of(spec, spec.head_dim_qk);
    value_boxes_ = copies_of(spec, spec.head_dim_v);
    turns_ = spec.math_warpgroups > 1 && (spec.overlap == Overlap::kBoth || spec.overlap == Overlap::kPingPong);
    skips_ = spec.pack_gqa && spec.q_layout == QLayout::kRagged && spec.math_warpgroups > 1;
  }

  double run(const TimelineWork& work) {
    double skipped = 0;
    for (const TimelineItem& item : work.walk) {
      SteadySteps steps(item);
      for (int i = 0; i < steps.followed(); ++i) {
        step(item, i);
        steps.note(i, tensor_free_);
      }
      skipped += steps.skipped();
      before_ = item;
    }
    if (pending_) last_product();
    return *std::max_element(ready_.begin(), ready_.end()) + skipped;
  }

 private:
  SlotRing& value_ring() { return spec_.kv_ring == KvRing::kShared ? keys_ : values_; }
  bool works(const TimelineItem& item, std::size_t warpgroup) const {
    return !skips_ || item.rows > static_cast<int>(warpgroup) * kRows;
  }

  /// Key tile `i` of an item: S = Q K(i) and, behind it, O += P V of the step before, also across items.
  void step(const TimelineItem& item, int i) {
    const bool first = i == 0, crosses = first && pending_;
    double landed = 0;
    if (first) {
      previous_query_slot_ = query_slot_;
      query_slot_ = queries_.take();
      const double bytes = static_cast<double>(spec_.block_m) * spec_.head_dim_qk * bits_of(spec_.q) / 8;
      landed = loader_.load(queries_.free(query_slot_), bytes, 1, key_boxes_);
    }
    const std::size_t key_slot = keys_.take();
    landed = std::max(landed, loader_.load(keys_.free(key_slot), key_bytes_, rates_.missing, key_boxes_));
    std::size_t value_slot = 0;
    if (pending_) {
      value_slot = value_ring().take();
      landed =
          std::max(landed, loader_.load(value_ring().free(value_slot), value_bytes_, rates_.missing, value_boxes_));
    }
    double keys_read = 0, values_read = 0, stored = 0;
    for (std::size_t w = 0; w < ready_.size(); ++w) {
      const bool now = works(item, w), then = pending_ && works(crosses ? before_ : item, w);
      double at = std::max(ready_[w], landed) + machine_.barrier;
      if (turns_) at = std::max(at, turn_ + machine_.barrier);
      turn_ = at;
      const double start = std::max(tensor_free_, at);
      const double scored = start + (now ? clocks_.scores : 0), added = scored + (then ? clocks_.output : 0);
      if (now || then) tensor_free_ = added;
      const double scores_there = scored + machine_.mma_latency, output_there = added + machine_.mma_latency;
      keys_read = std::max(keys_read, scores_there);
      values_read = std::max(values_read, output_there);
      double done = at;
      if (now) {
        // Sinks are loaded when an item begins, and nothing hides that latency.
        const double fetched = first && spec_.sinks ? machine_.l2_latency : 0;
        const double before = clocks_.before + (i < item.masked ? clocks_.masked : 0) + fetched;
        const double begin = std::max(scores_there + before, at);
        special_free_ = std::max(special_free_, begin) + clocks_.exponentials;
        done = std::max(begin + clocks_.during, special_free_);
      }
      if (then) done = std::max(done, output_there);
      if (crosses) {
        if (then) done += store_clocks();
        stored = std::max(stored, done);
      }
      ready_[w] = done;
    }
    keys_.free(key_slot) = keys_read + machine_.barrier;
    if (pending_) value_ring().free(value_slot) = values_read + machine_.barrier;
    if (crosses && spec_.q_stages > 1) queries_.free(previous_query_slot_) = stored + machine_.barrier;
    // With one slot of Q, the item's last step says when the slot is free.
    if (spec_.q_stages == 1) queries_.free(query_slot_) = keys_read + machine_.barrier;
    pending_ = true;
  }

  /// The last item's last product, and its output.
  void last_product() {
    const std::size_t slot = value_ring().take();
    const double landed = loader_.load(value_ring().free(slot), value_bytes_, rates_.missing, value_boxes_);
    for (double& ready : ready_) {
      tensor_free_ = std::max(tensor_free_, std::max(ready, landed) + machine_.barrier) + clocks_.output;
      ready = tensor_free_ + machine_.mma_latency + store_clocks();
    }
  }

  double store_clocks() const {
    return machine_.item_clocks + spec_.head_dim_v / 2.0 * kStoreInstructions * machine_.stream_clocks;
  }

  const AttentionSpec& spec_;
  const MachineRates& machine_;
  const SmRates& rates_;
  const StepClocks clocks_;
  Loader loader_;
  SlotRing queries_, keys_, values_;
  std::vector<double> ready_;  // for each warpgroup, the time when its probabilities are packed
  double key_bytes_, value_bytes_;
  int key_boxes_, value_boxes_;
  bool turns_, skips_;
  std::size_t query_slot_ = 0, previous_query_slot_ = 0;
  TimelineItem before_;  // the item of the step before
  bool pending_ = false;
  double tensor_free_ = 0, special_free_ = 0, turn_ = 0;
};

/// attention_decode_sm90: a warp's instructions for its share of a tile. They are fragments from shared memory,
/// mma.sync, and the softmax between.
double instructions(const AttentionSpec& spec) {
  const double keys = static_cast<double>(spec.block_n) / spec.num_warps, rows = spec.block_m / 16.0;
  const double loads = keys / 16 * (spec.head_dim_qk / 16.0 + spec.head_dim_v / 16.0);
  const double products = rows * keys / 16 * (spec.head_dim_qk / 8.0 + spec.head_dim_v / 8.0);
  const double softmax = rows * (keys / 8 * 4 * 5 + 40);
  // fp8: a fragment's loads bring bytes of two steps. A word becomes two, and one of values is sorted before.
  if (bits_of(spec.kv) == 8)
    return loads / 2 + keys / 16 * (spec.head_dim_qk / 4.0 + spec.head_dim_v * 3 / 8.0) + products + softmax;
  return loads + products + softmax;
}

}  // namespace

SoftmaxForm hopper_softmax(const AttentionSpec& spec) {
  return {.parts = spec.math_warpgroups,
          .rows = kRows,
          .rows_of_a_warp = kRowsOfAWarp,
          .warps_of_a_scheduler = spec.math_warpgroups,
          .rescales = true};
}

double hopper_clocks(const AttentionSpec& spec, const TimelineWork& work, const SmRates& rates) {
  return HopperTimeline(spec, rates).run(work);
}

double decode_clocks(const AttentionSpec& spec, const TimelineWork& work, const SmRates& rates, int resident) {
  const MachineRates& machine = rates.machine;
  const auto ctas = static_cast<std::size_t>(std::max(1, resident));
  const double bytes = spec.block_n * (spec.head_dim_qk + spec.head_dim_v) * bits_of(spec.kv) / 8.0;
  const int box = contract::hopper_kv_box_rows(spec.block_n / spec.num_warps, spec.page_size);
  // A warp issues its own copies: two tensors, slab by slab.
  const int boxes = 2 * contract::slabs_of(spec.head_dim_qk, bits_of(spec.kv) / 8, bytes_of(spec.swizzle)) *
                    (spec.block_n / spec.num_warps / std::max(1, box));
  const double compute = instructions(spec) * machine.issue_clocks + 2 * machine.barrier;
  const double end = machine.item_clocks + spec.block_m * spec.head_dim_v * spec.num_warps / 32.0;
  std::vector<Loader> loaders(1, Loader(rates));
  struct Cta {
    SlotRing ring;
    double now = 0, issued = 0;
  };
  std::vector<Cta> held(ctas, Cta{SlotRing(spec.num_stages)});
  double skipped = 0;
  for (const TimelineItem& item : work.walk) {
    SteadySteps steps(item);
    for (int i = 0; i < steps.followed(); ++i) {
      for (Cta& cta : held) {
        const std::size_t slot = cta.ring.take();
        const double from = i < spec.num_stages ? std::max(cta.issued, cta.ring.free(slot)) : cta.ring.free(slot);
        const double landed = loaders[0].load(from + boxes * machine.copy_clocks, bytes, rates.missing, 0);
        cta.now = std::max(cta.now, landed) + compute;
        cta.ring.free(slot) = cta.now;
      }
      steps.note(i, held.front().now);
    }
    skipped += steps.skipped();
    for (Cta& cta : held) cta.issued = cta.now = cta.now + end;  // the next part's CTA starts where this one ends
  }
  double last = 0;
  for (const Cta& cta : held) last = std::max(last, cta.now);
  return last + skipped;
}

}  // namespace kernelwright::detail
