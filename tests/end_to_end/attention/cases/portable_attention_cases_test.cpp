// Cases for the portable family: small ones, for errors that the stages of its KV buffer and the split of a tile's keys
// among warps could cause.
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <utility>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace {

AttentionProblem small(DType dtype = DType::kBf16, int depth = 64) {
  return heads(dims(default_problem(dtype), depth, depth), 2, 1);
}

struct Tile {
  int num_warps, block_m, block_n, warp_n, num_stages;
  Staging staging = Staging::kRegisters;
  bool token_gen = false;
};
AttentionSchedule tile(const Tile& made) {
  AttentionSchedule schedule;
  schedule.family = Family::kPortable;
  schedule.num_warps = made.num_warps;
  schedule.block_m = made.block_m;
  schedule.block_n = made.block_n;
  schedule.warp_n = made.warp_n;
  schedule.num_stages = made.num_stages;
  schedule.staging = made.staging;
  schedule.token_gen = made.token_gen;
  if (made.token_gen) schedule.splits = 2;
  return schedule;
}

AttentionShape queries(int q_len, std::vector<int> kv_lens) {
  AttentionShape shape = lists({}, std::move(kv_lens));
  shape.q_len = q_len;
  return shape;
}

/// With a rotary part, in 128 columns, that all heads share.
AttentionProblem in_parts(DType dtype, int width) { return rotary(heads(small(dtype, 128), 2, 2), width, dtype); }

/// Values that are not finite, at keys that some of 50 rows see of 120 keys and others do not, under a causal mask.
void spoil_values(AttentionCase& call) {
  const std::vector<float> row(static_cast<std::size_t>(call.problem.head_dim.v),
                               std::numeric_limits<float>::infinity());
  for (const int key : {75, 101}) encode_row(call.v.dtype, row, call.v_row(0, key, 0));
}

}  // namespace

std::vector<CudaCase> portable_cases() {
  constexpr DType bf16 = DType::kBf16, f16 = DType::kF16;
  constexpr Staging slots = Staging::kCpAsync, registers = Staging::kRegisters;
  // Fewer tiles than stages, as many, and more; keys that end inside of a tile.
  const AttentionShape uneven = queries(50, {150, 31, 64, 0}), some = lists({50, 0, 33, 70}, {150, 0, 33, 71});
  const AttentionShape tokens = queries(3, {700, 7, 0, 130});
  std::vector<CudaCase> cases{
      {"registers_2", small(bf16), uneven, tile({4, 64, 32, 32, 2})},
      {"registers_2_f16_causal_paged", causal(paged(small(f16), 16)), uneven, tile({4, 64, 32, 32, 2})},
      {"registers_2_window_ragged", windowed(ragged(small(bf16)), 40), some, tile({4, 64, 32, 32, 2})},
      {"registers_3_one_page_a_tile", causal(paged(small(f16), 32)), uneven, tile({2, 32, 32, 32, 3})},
      {"registers_2_d80_f32", causal(small(f16, 80)), uneven, tile({4, 64, 48, 48, 2})},
      {"registers_1", causal(small(bf16)), uneven, tile({4, 64, 32, 32, 1})},
      {"converted_2_ragged", causal(fp8(ragged(small(bf16)))), some, tile({4, 64, 32, 32, 2})},
      {"converted_3_paged", windowed(fp8(paged(small(f16), 5)), 60, 3), uneven, tile({2, 32, 32, 32, 3})},
      {"columns_2_ring", causal(with_sinks(small(bf16))), uneven, tile({4, 64, 64, 32, 2, slots})},
      {"columns_2_one_stage_d192", with_alibi(dims(small(f16), 192, 128)), uneven, tile({4, 32, 32, 16, 1, slots})},
      {"columns_4_registers_ragged", capped(windowed(ragged(small(bf16)), 90, 7), 20), some,
       tile({4, 16, 64, 16, 2, registers})},
      {"columns_2_converted_paged", causal(fp8(paged(small(bf16), 16))), uneven, tile({4, 32, 32, 16, 2})},
      {"columns_3_packed", causal(small(f16)), uneven, tile({6, 64, 96, 32, 1, slots})},
      {"columns_2_infinities", causal(small(bf16)), queries(50, {120}), tile({4, 64, 64, 32, 2, slots})},
      {"registers_2_infinities", causal(small(f16)), queries(50, {120}), tile({4, 64, 32, 32, 2})},
      {"rotary_ring_causal_ragged", causal(ragged(in_parts(bf16, 64))), some, tile({4, 64, 32, 32, 2, slots})},
      {"rotary_one_slot_paged", windowed(paged(in_parts(f16, 32), 5), 60, 3), uneven, tile({4, 64, 48, 48, 1, slots})},
      {"rotary_registers_2", with_alibi(in_parts(bf16, 16)), uneven, tile({4, 32, 32, 16, 2})},
      {"decode_registers_1", windowed(decode(paged(small(bf16), 16), 3), 200), tokens,
       tile({2, 16, 32, 16, 1, registers, true})},
      {"decode_registers_3", causal(decode(small(f16), 3)), tokens, tile({4, 16, 64, 16, 3, registers, true})},
      {"decode_converted_2", causal(decode(fp8(paged(small(bf16), 5)), 3)), tokens,
       tile({2, 16, 64, 32, 2, registers, true})},
  };
  for (CudaCase& test : cases) {
    if (test.name.find("f32") != std::string::npos) test.problem.dtype.out = DType::kF32;
    if (test.name.find("packed") != std::string::npos) test.schedule.pack_gqa = true;
    if (test.name.find("infinities") != std::string::npos) test.change = spoil_values;
    if (test.name.find("rotary") != std::string::npos) test.options.one_rope = true;
    test.name = "portable_" + test.name;
  }
  return cases;
}

namespace {

/// A case that is planned otherwise than its schedule says would test something else.
TEST(PortableAttentionCases, ArePlannedAsTheySay) {
  std::set<std::string> names;
  for (const CudaCase& test : portable_cases()) {
    EXPECT_TRUE(names.insert(test.name).second) << test.name;
    const AttentionSpec spec = plan_attention(test.problem, test.schedule, Arch::kSm80).main;
    EXPECT_EQ(spec.family, Family::kPortable) << test.name;
    EXPECT_EQ(spec.staging, test.schedule.staging.value()) << test.name;
    EXPECT_EQ(spec.warp_n, test.schedule.warp_n.value()) << test.name;
    EXPECT_EQ(spec.num_stages, test.schedule.num_stages.value()) << test.name;
  }
}

}  // namespace
}  // namespace kernelwright
