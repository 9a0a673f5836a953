// The decode kernels on the emulator, with every check on: attention_decode_sm90 on the cases that all families share,
// and the kernels that merge the parts of split keys, for both families. Needs NVRTC and no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/generator/attention/planner.h"
#include "support/emulated_attention.h"

namespace kernelwright::decode_emulator_test {
namespace {

using test::expect_no_reports;
using test::expect_right;
using test::expect_same_bits;
using test::inputs_of;
using test::make_checking_engine;
using test::run_checked;

/// Keys times heads: the cost of a case here.
double keys_times_heads(const CudaCase& test) {
  const AttentionCase call = shape_only(test.problem, test.shape);
  double keys = 0;
  for (const int kv_len : call.kv_lens) keys += kv_len;
  return keys * test.problem.heads.kv * (test.problem.head_dim.qk + test.problem.head_dim.v);
}

CudaCase on_hopper(CudaCase test) {
  test = of_family(std::move(test), Family::kHopper);
  test.schedule.token_gen = true;
  return test;
}

/// One KV head of two: their number is a run-time parameter. Cases that change values name heads.
CudaCase with_one_kv_head(CudaCase test) {
  if (!test.change && test.problem.heads == Heads{8, 2}) test.problem.heads = {4, 1};
  return test;
}

/// Shared decode cases that are small enough, by their number: a test runs all of one, so that each kernel is made
/// once. bf16 alone: f16 differs in one instruction.
const std::map<std::string, std::vector<CudaCase>>& cases_by_number() {
  static const std::map<std::string, std::vector<CudaCase>> groups = [] {
    constexpr double kLargest = 6e6;
    constexpr std::string_view kOverFp8[] = {"c33", "c34", "c35", "c36", "keyscales"};
    std::map<std::string, std::vector<CudaCase>> made;
    for (const CudaCase& shared : all_cuda_cases()) {
      if (shared.problem.max_q_len == 0) continue;
      const std::string number = shared.name.substr(0, shared.name.find('_'));
      const bool fp8 = shared.problem.dtype.kv != shared.problem.dtype.q;
      // fp8 keys: the cases about values and scales, of queries in both types. fp8_decode_emulator_test.cpp has tiles
      // and masks.
      if (fp8 ? !std::ranges::count(kOverFp8, number) : shared.problem.dtype.q == DType::kF16) continue;
      const CudaCase test = on_hopper(shared);
      if (!is_taken(test, Arch::kSm90a) || keys_times_heads(test) > kLargest) continue;
      made[number].push_back(with_one_kv_head(test));
    }
    return made;
  }();
  return groups;
}

std::vector<std::string> numbers() {
  std::vector<std::string> names;
  for (const auto& [name, cases] : cases_by_number()) names.push_back(name);
  return names;
}

class NeedsNvrtc : public testing::Test {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

class HopperDecodeOnTheEmulator : public NeedsNvrtc, public testing::WithParamInterface<std::string> {};

TEST_P(HopperDecodeOnTheEmulator, IsRightHoweverItIsScheduled) {
  Engine few = make_checking_engine(3, emulator::Completion::kRandom, 5),
         many = make_checking_engine(132, emulator::Completion::kLazy, 0);
  for (CudaCase test : cases_by_number().at(GetParam())) {
    SCOPED_TRACE(test.name);
    // The planner would cut for the machine, and another number of parts rounds differently.
    if (test.schedule.splits.is_auto()) test.schedule.splits = 3;
    const AttentionCase call = inputs_of(test);
    const AttentionOutput output = run_checked(few, test, call);
    expect_same_bits(output, run_checked(many, test, call), "two machines differ");
    expect_right(call, output);
  }
}

INSTANTIATE_TEST_SUITE_P(, HopperDecodeOnTheEmulator, testing::ValuesIn(numbers()),
                         [](const auto& info) { return info.param; });

/// A list that had lost a number would go unnoticed.
TEST(HopperDecodeCases, HaveEveryNumberThatTheFamilyTakes) {
  for (const char* number : {"c02", "c07", "c12", "c13", "c14", "c16", "c18", "c19", "c20", "c21", "c25", "c33", "c34",
                             "c35", "c36", "c39", "prompt", "starts"})
    EXPECT_TRUE(cases_by_number().contains(number)) << number;
}

// ---- tiles of the decode form ----

class HopperDecodeTiles : public NeedsNvrtc {};

TEST_F(HopperDecodeTiles, AreRightOfEveryShape) {
  Engine engine = make_checking_engine(3, emulator::Completion::kRandom, 9);
  struct Tile {
    int num_warps, block_m, block_n, num_stages, head_dim, page;
  };
  for (const Tile& tile : {Tile{1, 16, 16, 2, 64, 0}, Tile{2, 16, 96, 3, 96, 24}, Tile{4, 32, 256, 2, 64, 8},
                           Tile{8, 16, 128, 3, 80, 16}, Tile{2, 32, 64, 6, 112, 64}, Tile{4, 16, 128, 2, 128, 8}}) {
    CudaCase test{fmt::format("warps{}_m{}_n{}_stages{}_d{}_page{}", tile.num_warps, tile.block_m, tile.block_n,
                              tile.num_stages, tile.head_dim, tile.page),
                  causal(decode(dims(default_problem(), tile.head_dim, tile.head_dim), 5)), lists({}, {300, 7, 64, 0})};
    test.shape.q_len = 5;
    if (tile.page) test.problem = paged(test.problem, tile.page);
    test = on_hopper(test);
    test.schedule.num_warps = tile.num_warps;
    test.schedule.block_m = tile.block_m;
    test.schedule.block_n = tile.block_n;
    test.schedule.num_stages = tile.num_stages;
    test.schedule.splits = 2;
    SCOPED_TRACE(test.name);
    const AttentionCase call = inputs_of(test);
    expect_right(call, run_checked(engine, test, call));
  }
}

// ---- merging ----

class DecodeMerge : public NeedsNvrtc, public testing::WithParamInterface<Family> {
 protected:
  static std::vector<CudaCase> cases() {
    AttentionProblem window = windowed(decode(with_sinks(heads(default_problem(), 8, 2)), 4), 60, 0);
    AttentionProblem uneven = causal(decode(default_problem(), 8));
    uneven.q_layout = QLayout::kRagged;
    return {{"empty_parts_of_a_window", window, shape_of(2, 3, 500)},
            {"ragged_queries", uneven, lists({3, 0, 8, 1}, {300, 64, 129, 0})},
            {"d64_without_lse",
             [] {
               AttentionProblem problem = decode(dims(heads(default_problem(), 16, 2), 64, 64));
               problem.lse = false;
               return problem;
             }(),
             shape_of(3, 1, 333)},
            {"d256", decode(dims(heads(default_problem(), 2, 2), 256, 256)), shape_of(1, 1, 200)}};
  }
  static CudaCase on_family(CudaCase test) {
    if (GetParam() == Family::kHopper) return on_hopper(std::move(test));
    return of_family(std::move(test), Family::kPortable);
  }
};

TEST_P(DecodeMerge, GivesTheSameBitsInTheKernelAndBehindIt) {
  Engine few = make_checking_engine(2, emulator::Completion::kRandom, 1),
         many = make_checking_engine(40, emulator::Completion::kRandom, 2);
  for (const CudaCase& shared : cases())
    for (const int parts : {3, 40}) {
      CudaCase inside = on_family(shared);
      inside.schedule.splits = parts;
      inside.schedule.merge = Merge::kInKernel;
      CudaCase behind = inside;
      behind.schedule.merge = Merge::kCombine;
      SCOPED_TRACE(fmt::format("{} in {} parts", inside.name, parts));
      const AttentionCase call = inputs_of(inside);
      const AttentionOutput output = run_checked(few, inside, call);
      expect_right(call, output);
      expect_same_bits(output, run_checked(many, inside, call), "the order in which CTAs arrive shows");
      expect_same_bits(output, run_checked(few, behind, call), "attention_combine differs");
    }
}

TEST_P(DecodeMerge, LeavesTheWorkspaceReadyForTheNextLaunch) {
  Engine engine = make_checking_engine(2, emulator::Completion::kRandom, 3);
  Device& device = engine.device(0);
  // The second kernel finds the first kernel's counters and parts where its own will be, and leftovers of others.
  CudaCase first = on_family(cases()[0]), second = on_family(cases()[1]);
  first.schedule.splits = 5;
  second.schedule.splits = 3;
  const AttentionCase calls[2] = {inputs_of(first), inputs_of(second)};
  const AttentionOutput expected[2] = {run_checked(engine, first, calls[0]), run_checked(engine, second, calls[1])};
  DeviceCase cases[2] = {{device, calls[0], engine.prepare(first.problem, first.schedule)},
                         {device, calls[1], engine.prepare(second.problem, second.schedule)}};
  const std::uint64_t bytes = std::max(cases[0].tensors().workspace_bytes, cases[1].tensors().workspace_bytes);
  const DevicePtr shared = device.allocate(bytes);
  device.fill(shared, 0x5a, bytes, nullptr);
  for (DeviceCase& on_device : cases) {
    on_device.tensors().workspace = shared;
    on_device.tensors().workspace_bytes = bytes;
  }
  for (int launch = 0; launch < 6; ++launch) {
    const int at = launch < 2 ? 0 : launch % 2;  // 0 0 0 1 0 1
    SCOPED_TRACE(launch);
    device.fill(cases[at].tensors().o, 0xff, expected[at].o.size(), cases[at].stream());
    cases[at].launch();
    expect_same_bits(cases[at].download(), expected[at], "the workspace's leftovers show");
  }
  expect_no_reports(engine);
  device.free(shared);
}

INSTANTIATE_TEST_SUITE_P(, DecodeMerge, testing::Values(Family::kPortable, Family::kHopper),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace kernelwright::decode_emulator_test
