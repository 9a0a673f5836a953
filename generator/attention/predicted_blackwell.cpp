// attention_sm100 on one SM: products, two softmax warpgroups, correction and loads, as in
// templates/kernels/attention/sm100/attention_sm100.cu.
#include <algorithm>
#include <optional>

#include "contract/attention_sm100.h"
#include "kernelwright/generator/attention/predicted_roles.h"

namespace kernelwright::detail {
namespace {

constexpr double kFirstPart = 0.75;       // of P, published before the rest
constexpr double kStoreInstructions = 3;  // instructions for each output value of a row
constexpr double kCtaInstructions = 600;  // of a new CTA: barriers, tensor memory and tensor maps

class BlackwellTimeline {
 public:
  BlackwellTimeline(const AttentionSpec& spec, const SmRates& rates)
      : spec_(spec),
        machine_(rates.machine),
        rates_(rates),
        clocks_(step_clocks(spec, rates.machine, blackwell_softmax(spec))),
        queued_(spec.scheduler == Scheduler::kQueued) {
    const double kv = bits_of(spec.kv) / 8.0;
    key_bytes_ = spec.block_n * spec.head_dim_qk * kv / spec.cta_group;
    value_bytes_ = spec.block_n * spec.head_dim_v * kv / spec.cta_group;
    boxes_ = copies_of(spec, spec.head_dim_qk);
    tensor_read_ = contract::kQueryTileRows * spec.block_n * 4.0 / machine_.tensor_bytes;
  }

  double run(const TimelineWork& work) {
    double now = 0;
    for (const TimelineItem& item : work.walk) {
      // Each item of a kernel without a queue begins with a new CTA.
      if (!keys_ || !queued_) start(now);
      now = run_item(item);
    }
    return now + skipped_;
  }

 private:
  void start(double now) {
    begin_ = now + kCtaInstructions * machine_.issue_clocks;
    loader_.emplace(rates_, begin_);
    query_loader_.emplace(rates_, begin_);
    keys_.emplace(spec_.num_kv_stages);
    values_.emplace(spec_.num_kv_stages);
    tensor_free_ = issue_ = special_free_ = corrected_ = begin_;
    for (int i = 0; i < 2; ++i) {
      accumulators_[i] = {begin_, begin_, begin_, begin_, begin_};
      queries_free_[i] = begin_;
    }
  }

  /// Returns the time when the item's output has been stored.
  double run_item(const TimelineItem& item) {
    Loader &loader = *loader_, &query_loader = queued_ ? *query_loader_ : loader;
    SlotRing& keys = *keys_;
    SlotRing& values = spec_.kv_ring == KvRing::kShared ? keys : *values_;
    const double q_bytes = contract::kQueryTileRows * spec_.head_dim_qk * bits_of(spec_.q) / 8.0;
    double queries[2] = {};
    for (int i = 0; i < spec_.num_q; ++i) queries[i] = query_loader.load(queries_free_[i], q_bytes, 1, boxes_);
    SteadySteps steps(item);
    const int followed = steps.followed();
    std::size_t value_slot = 0;
    double landed_value = 0;
    for (int n = 0; n <= followed; ++n) {
      double landed_key = 0;
      std::size_t key_slot = 0;
      const bool more = n < followed;
      const bool masked = n < item.masked;
      if (more) {
        key_slot = keys.take();
        landed_key = loader.load(std::max(begin_, keys.free(key_slot)), key_bytes_, rates_.missing, boxes_);
      }
      const auto take_value = [&] {
        value_slot = values.take();
        landed_value = loader.load(std::max(begin_, values.free(value_slot)), value_bytes_, rates_.missing, boxes_);
      };
      if (spec_.num_q == 2) {
        if (more) scores(0, n, std::max(landed_key, queries[0]), masked);
        if (n > 0) values.free(value_slot) = output(1, landed_value) + machine_.barrier;
        if (more) {
          keys.free(key_slot) = scores(1, n, std::max(landed_key, queries[1]), masked) + machine_.barrier;
          take_value();
          output(0, landed_value);
        }
      } else {
        if (more)
          keys.free(key_slot) = scores(n % 2, n / 2, std::max(landed_key, queries[0]), masked) + machine_.barrier;
        if (n > 0) {
          take_value();
          values.free(value_slot) = output((n - 1) % 2, landed_value) + machine_.barrier;
        }
      }
      if (more) steps.note(n, tensor_free_);
    }
    const double added = std::max(accumulators_[0].added, accumulators_[1].added);
    const double columns = spec_.head_dim_v * (spec_.num_q == 1 ? 1.5 : 1);  // one query tile: two outputs are merged
    const double stored = added + machine_.mma_latency + machine_.item_clocks +
                          contract::kQueryTileRows * spec_.head_dim_v * 4.0 * 2 / machine_.tensor_bytes +
                          columns * kStoreInstructions * machine_.stream_clocks;
    skipped_ += steps.skipped();
    for (int i = 0; i < 2; ++i) queries_free_[i] = accumulators_[i].softmax_free = stored;
    return stored;
  }

  /// S = Q K, and its softmax. Returns the time when the product has ended.
  double scores(int i, int n, double landed, bool masked) {
    Accumulator& one = accumulators_[i];
    issue_ = std::max(issue_, landed + machine_.barrier);
    tensor_free_ = std::max(tensor_free_, issue_) + clocks_.scores;
    const double there = tensor_free_ + machine_.mma_latency + machine_.barrier;
    double now = std::max(there, one.softmax_free) + tensor_read_ + clocks_.before + (masked ? clocks_.masked : 0);
    // The correction needs this step's factor, and the product of the step before.
    if (n > 0)
      corrected_ = std::max({corrected_, now + machine_.barrier, one.added + machine_.mma_latency}) + machine_.barrier;
    one.corrected = corrected_ + machine_.barrier;
    const double begin = now;
    special_free_ = std::max(special_free_, begin) + clocks_.exponentials;
    const double end = std::max(begin + clocks_.during, special_free_);
    one.first = begin + (end - begin) * kFirstPart + tensor_read_ / 2 * kFirstPart + machine_.barrier;
    one.rest = end + tensor_read_ / 2 + machine_.barrier;
    one.softmax_free = one.rest;
    return tensor_free_;
  }

  /// O += P V in two parts. Returns the time when it has ended.
  double output(int i, double landed) {
    Accumulator& one = accumulators_[i];
    issue_ = std::max({issue_, landed + machine_.barrier, one.first, one.corrected});
    tensor_free_ = std::max(tensor_free_, issue_) + clocks_.output * kFirstPart;
    issue_ = std::max(issue_, one.rest);
    tensor_free_ = std::max(tensor_free_, issue_) + clocks_.output * (1 - kFirstPart);
    one.added = tensor_free_;
    return tensor_free_;
  }

  struct Accumulator {
    double softmax_free, first, rest, corrected, added;
  };
  const AttentionSpec& spec_;
  const MachineRates& machine_;
  const SmRates& rates_;
  const StepClocks clocks_;
  double key_bytes_, value_bytes_, tensor_read_;
  int boxes_;
  const bool queued_;
  std::optional<Loader> loader_, query_loader_;
  std::optional<SlotRing> keys_, values_;
  double begin_ = 0, skipped_ = 0, queries_free_[2] = {};
  Accumulator accumulators_[2] = {};
  double tensor_free_ = 0, issue_ = 0, special_free_ = 0, corrected_ = 0;
};

}  // namespace

SoftmaxForm blackwell_softmax(const AttentionSpec& spec) {
  return {.parts = spec.num_q,
          .rows = contract::kQueryTileRows,
          .rows_of_a_warp = 32,
          .warps_of_a_scheduler = 2,
          .warps_in_turn = spec.num_q == 1 ? 2.0 : 1.0};
}

double blackwell_clocks(const AttentionSpec& spec, const TimelineWork& work, const SmRates& rates) {
  return BlackwellTimeline(spec, rates).run(work);
}

}  // namespace kernelwright::detail
