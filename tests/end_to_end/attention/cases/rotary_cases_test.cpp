// Cases for attention_sm90 with a rotary part in tensors of its own: where its slabs begin, whose boxes bring them, and
// which heads share it.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/generator/attention/planner.h"

namespace kernelwright {
std::vector<CudaCase> rotary_cases() {
  std::vector<CudaCase> cases;
  const auto add = [&](const char* name, AttentionProblem problem, AttentionShape shape,
                       const std::function<void(AttentionSchedule&)>& change = {}) -> CudaCase& {
    AttentionSchedule schedule;
    schedule.family = Family::kHopper;
    if (change) change(schedule);
    cases.push_back({std::string("sm90_rotary_") + name, std::move(problem), std::move(shape), schedule});
    return cases.back();
  };
  const AttentionProblem two = heads(default_problem(), 2, 2), halves = heads(default_problem(DType::kF16), 2, 2);
  AttentionShape several = lists({}, {333, 40, 0, 129});
  several.q_len = 150;
  // DeepSeek's prefill, on the planner's tile: keys and values are views of what one projection leaves.
  add("mla", causal(ragged(rotary(dims(two, 192, 128), 64))), lists({130, 1, 0, 66}, {333, 65, 9, 66})).options = {
      .interleave_kv = true, .one_rope = true};
  add("mla_paged", windowed(paged(rotary(dims(halves, 192, 128), 64, DType::kF16), 16), 200, 3), several,
      [](AttentionSchedule& schedule) {
        schedule.block_n = 48;
        schedule.kv_ring = KvRing::kSplit, schedule.num_qk_stages = 3, schedule.q_stages = 1;
      })
      .options.one_rope = true;
  add("packed", causal(ragged(rotary(dims(heads(two, 8, 2), 96, 64), 32))),
      lists({1, 1, 0, 90, 1, 33}, {200, 1, 60, 300, 0, 33}), [](AttentionSchedule& schedule) {
        schedule.pack_gqa = true;
        schedule.math_warpgroups = 2, schedule.block_n = 48;
      });
  add("cluster_64B", capped(rotary(dims(two, 96, 64), 32), 20), several, [](AttentionSchedule& schedule) {
    schedule.swizzle = Swizzle::k64B;
    schedule.cluster = ClusterShape{2, 1}, schedule.block_n = 64;
  });
  // The plain part fills its slab with zeros, and so does the rotary one.
  add("16_behind_40", causal(with_sinks(left_padded(rotary(dims(two, 56, 24), 16)))), several,
      [](AttentionSchedule& schedule) {
        schedule.block_n = 80;
        schedule.kv_ring = KvRing::kShared, schedule.num_mma_stages = 1;
      });
  add("8_behind_24", with_alibi(rotary(dims(halves, 32, 16), 8, DType::kF16)), several,
      [](AttentionSchedule& schedule) { schedule.swizzle = Swizzle::kNone, schedule.block_n = 48; });
  return cases;
}

namespace rotary_cases_test {
namespace {

TEST(RotaryCases, RunOnHopperUnderNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const CudaCase& test : rotary_cases()) {
    EXPECT_TRUE(names.insert(test.name).second) << test.name;
    ASSERT_TRUE(is_taken(test, Arch::kSm90a)) << test.name;
    const AttentionSpec spec = plan_attention(test.problem, test.schedule, Arch::kSm90a).main;
    EXPECT_EQ(spec.family, Family::kHopper) << test.name;
    EXPECT_EQ(spec.rope_width, test.problem.rope.width) << test.name;
  }
}

}  // namespace
}  // namespace rotary_cases_test
}  // namespace kernelwright
