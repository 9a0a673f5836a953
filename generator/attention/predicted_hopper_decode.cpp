// attention_decode_sm90 on one SM: CTAs whose warps each fill a ring of their own.
#include <algorithm>
#include <vector>

#include "contract/attention_sm90.h"
#include "kernelwright/generator/attention/predicted_roles.h"

namespace kernelwright::detail {
namespace {

/// Instructions of a warp for its share of a tile: fragments from shared memory, mma.sync, and the softmax between.
double instructions(const AttentionSpec& spec) {
  const double keys = static_cast<double>(spec.block_n) / spec.num_warps, rows = spec.block_m / 16.0;
  const double loads = keys / 16 * (spec.head_dim_qk / 16.0 + spec.head_dim_v / 16.0);
  const double products = rows * keys / 16 * (spec.head_dim_qk / 8.0 + spec.head_dim_v / 8.0);
  const double softmax = rows * (keys / 8 * 4 * 5 + 40);
  return loads + products + softmax;
}

}  // namespace

double decode_clocks(const AttentionSpec& spec, const TimelineWork& work, const SmRates& rates, int resident) {
  const MachineRates& machine = rates.machine;
  const auto ctas = static_cast<std::size_t>(std::max(1, resident));
  const double bytes = spec.block_n * (spec.head_dim_qk + spec.head_dim_v) * bits_of(spec.kv) / 8.0;
  const int box = contract::hopper_kv_box_rows(spec.block_n / spec.num_warps, spec.page_size);
  // A warp issues its own: two tensors, slab by slab.
  const int boxes = 2 * contract::slabs_of(spec.head_dim_qk, 2, bytes_of(spec.swizzle)) *
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
