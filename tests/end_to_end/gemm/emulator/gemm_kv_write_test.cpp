// GEMMs whose columns are queries, keys and values, and that write the cache, on the emulator, with every check on.
// Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/gemm/validate.h"
#include "support/checked_gemm.h"
#include "support/emulated_kv_write.h"
#include "support/gemm_kv_chain.h"

namespace kernelwright::gemm_kv_write_test {
namespace {

using test::gemm_problem;
using test::schedule_of;
using test::Tile;
using testing::AllOf;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::string text_of(const std::vector<Violation>& violations) {
  std::string text;
  for (const Violation& violation : violations) text += violation.path + ": " + violation.message + "\n";
  return text;
}

constexpr Tile kFewRows{"portable_16", Family::kPortable, 16, 128, 0};
constexpr Tile kPortable{"portable_128", Family::kPortable, 128, 128, 0};
constexpr Tile kTwoHeads{"two_heads", Family::kHopper, 128, 256, 2};
constexpr Tile kPingPong{"ping_pong", Family::kHopper, 64, 128, 2, Roles::kPingPong};
constexpr Tile kSwapped{"swapped", Family::kHopper, 128, 24, 2, Roles::kCooperative, true};
constexpr Tile kSwappedTurns{"swapped_turns", Family::kHopper, 128, 64, 2, Roles::kPingPong, true};
constexpr Tile kPair{"pair", Family::kHopper, 64, 128, 1, Roles::kCooperative, false, 2};

/// 3 query heads over 1 key/value head, so that a tile of two heads has queries and keys.
KvWriteProblem cache_of(int head_dim, DType kv = DType::kBf16) {
  KvWriteProblem problem;
  problem.dtype.kv = kv;
  problem.head_dim = {head_dim, head_dim};
  problem.heads = {3, 1};
  problem.kv_layout = {KvLayoutKind::kPaged, 4};
  problem.rope = {.style = RopeStyle::kNeox, .width = head_dim};
  return problem;
}
GemmProblem problem_of(const KvWriteProblem& cache, const char* epilogue = "acc", DType operands = DType::kBf16,
                       ScaleKind scales = ScaleKind::kNone) {
  GemmProblem problem =
      gemm_problem(operands, cache.dtype.q, static_cast<int>(row_columns(cache)), 72, epilogue, scales);
  if (is_fp8(operands)) problem.k = 144;
  problem.kv_write = cache;
  return problem;
}

class GemmKvWrite : public test::CheckedGemm {
 protected:
  GemmCase make(const GemmProblem& problem, int m, const KvWriteInputOptions& kv = {}) {
    GemmInputOptions options{.seed = 5, .padding = 8};
    options.kv = kv;
    return make_gemm_inputs(problem, {"", m, true}, options);
  }

  /// What a GEMM by the same tile and kv_write behind it make. Their rows lie packed.
  std::pair<std::vector<std::byte>, KvWriteOutput> chain_of(const GemmCase& call, const GemmSchedule& schedule) {
    GemmSchedule tile = schedule;  // portable tiles of any size make the same bits, and those of 256 columns hold heads
    if (tile.family.value() == Family::kPortable) tile.block_n = 128;
    KvWriteOutput output = test::run_checked(engine_, test::steps_of(call, run(test::product_of(call), tile).d));
    std::vector<std::byte> queries = std::move(output.q_out);
    output.q_out.clear();
    return {std::move(queries), std::move(output)};
  }

  /// Right, and the bits of the chain.
  void expect_chain(const GemmProblem& problem, int m, const GemmSchedule& schedule,
                    const KvWriteInputOptions& kv = {}) {
    const GemmCase call = make(problem, m, kv);
    const GemmOutput output = run(call, schedule);
    test::expect_right(call, output);
    const auto [queries, cache] = chain_of(call, schedule);
    EXPECT_EQ(output.d, queries);
    EXPECT_EQ(output.kv, cache);
  }
  void expect_chain(const KvWriteProblem& cache, const Tile& tile, int m = 75, const KvWriteInputOptions& kv = {}) {
    SCOPED_TRACE(tile.name);
    expect_chain(problem_of(cache), m, schedule_of(tile), kv);
  }
};

TEST_F(GemmKvWrite, HasTheBitsOfTheChainInEachKernel) {
  KvWriteProblem cache = cache_of(128, DType::kE4m3);
  cache.scales.k = cache.scales.v = ScaleKind::kPerHead;
  for (const Tile& tile : {kFewRows, kPortable, kTwoHeads, kPingPong, kPair, kSwapped, kSwappedTurns})
    expect_chain(cache, tile);
}

TEST_F(GemmKvWrite, TakesHeadsOfEachSize) {
  for (const int head_dim : {64, 256})
    for (const Tile& of : {kFewRows, kPair, kSwapped}) {
      Tile tile = of;
      (tile.swap_ab ? tile.block_m : tile.block_n) = head_dim;
      if (head_dim == 64) tile.warpgroups = 1;
      if (head_dim == 256 && tile.warpgroups == 1) tile.block_m = 128, tile.warpgroups = 2;
      GemmSchedule schedule = schedule_of(tile);
      if (head_dim == 256) schedule.stages = 3;
      expect_chain(problem_of(cache_of(head_dim)), 37, schedule);
    }
}

TEST_F(GemmKvWrite, TurnsPairsAndAPartOfAHead) {
  KvWriteProblem cache = cache_of(128);
  cache.rope = {.style = RopeStyle::kGptj, .width = 64, .begin = 32};
  for (const Tile& tile : {kFewRows, kPair}) expect_chain(cache, tile, 37);
  cache.rope = {.style = RopeStyle::kNeox, .width = 32};
  for (const Tile& tile : {kFewRows, kPair}) expect_chain(cache, tile, 37);
  cache.rope = {.style = RopeStyle::kNeox, .width = 128, .sections = {16, 24, 24}, .interleaved = false};
  expect_chain(cache, kPair, 37);
}

TEST_F(GemmKvWrite, TakesEachLayoutOfTheCache) {
  const KvWriteProblem cache = cache_of(64);
  Tile tile = kPair;
  tile.block_n = 64;
  for (const CacheOrder order : {CacheOrder::kHnd, CacheOrder::kPackedTokens, CacheOrder::kPackedHeads})
    expect_chain(cache, tile, 21, {.order = order, .position_bytes = 8});
  KvWriteProblem by_position = cache;
  by_position.index = CacheIndex::kPositions;
  expect_chain(by_position, tile, 21);
  by_position.kv_layout = {KvLayoutKind::kPadded, 0};
  expect_chain(by_position, tile, 21);
}

TEST_F(GemmKvWrite, TakesTheOtherStepsOfAHead) {
  KvWriteProblem cache = cache_of(128, DType::kE5m2);
  cache.kv_layout.page_size = 16;
  cache.qk_norm.kind = NormKind::kRms;
  cache.scales.k = cache.scales.v = ScaleKind::kPerToken;
  for (const Tile& tile : {kFewRows, kPair, kSwapped}) expect_chain(cache, tile, 37);
  cache.qk_norm.before_rope = false, cache.hadamard = true, cache.v_layout = VLayout::kColumns;
  cache.dtype.q = DType::kE4m3, cache.scales.q = ScaleKind::kPerToken;
  expect_chain(cache, kPair, 37);
}

TEST_F(GemmKvWrite, TakesTheEpilogueAndScalesOfTheProduct) {
  KvWriteProblem cache = cache_of(128, DType::kF16);
  cache.dtype.in = cache.dtype.q = DType::kF16;
  for (const Tile& tile : {kPortable, kPingPong}) {
    SCOPED_TRACE(tile.name);
    expect_chain(problem_of(cache, "rstd * acc + bias", DType::kF16), 75, schedule_of(tile));
  }
  expect_chain(problem_of(cache, "silu(alpha * acc + bias)", DType::kF16), 37, schedule_of(kSwapped));
  for (const ScaleKind scales : {ScaleKind::kPerToken, ScaleKind::kPerBlock})
    expect_chain(problem_of(cache_of(128), "acc", DType::kE4m3, scales), 37, schedule_of(kPair));
  expect_chain(problem_of(cache_of(64), "acc", DType::kE4m3, ScaleKind::kPerBlock), 37, schedule_of(kFewRows));
}

TEST_F(GemmKvWrite, PartsOfK) {
  GemmProblem problem = problem_of(cache_of(128));
  problem.k = 328;
  GemmSchedule schedule = schedule_of(kPair);
  schedule.cluster = ClusterShape{1, 1}, schedule.split_k = 2;
  expect_chain(problem, 70, schedule);  // bands of rows
  schedule.block_n = 256;
  expect_chain(problem, 70, schedule);  // bands of heads
  schedule.block_n = 128, schedule.split_k = 3, schedule.split_mode = SplitMode::kTurnstile;
  expect_chain(problem, 70, schedule);
  schedule = schedule_of(kSwapped);
  schedule.block_n = 16, schedule.split_k = 2;
  expect_chain(problem, 19, schedule);  // bands of tokens
}

TEST_F(GemmKvWrite, OnBlackwell) {
  Engine engine = test::make_checking_engine(4, emulator::Completion::kRandom, 7, Arch::kSm100a);
  GemmSchedule schedule;
  schedule.family = Family::kBlackwell;
  schedule.block_n = 128, schedule.stages = 2, schedule.scheduler = Scheduler::kPersistent;
  const auto right = [&](const KvWriteProblem& cache, const char* epilogue) {
    const GemmCase call = make(problem_of(cache, epilogue), 203);
    test::expect_right(call, test::run_checked(engine, call, schedule));
  };
  KvWriteProblem cache = cache_of(128, DType::kE4m3);
  cache.scales.k = cache.scales.v = ScaleKind::kPerHead;
  right(cache, "acc");
  schedule.split_k = 2;
  right(cache, "rstd * acc + bias");
  schedule.swap_ab = true, schedule.block_n = 32;
  right(cache, "acc + bias");
  schedule.swap_ab = {}, schedule.block_n = 128;
  schedule.split_k = {}, schedule.cta_group = 2;
  cache = cache_of(64), cache.dtype.q = DType::kE4m3, cache.scales.q = ScaleKind::kPerToken;
  cache.qk_norm.kind = NormKind::kRms;
  right(cache, "acc");
  schedule.swap_ab = true, schedule.block_n = 64;
  right(cache, "acc");
}

TEST_F(GemmKvWrite, SkipsTokensWithoutAPlaceAndTellsOfThem) {
  for (const Tile& tile : {kFewRows, kPair}) {
    SCOPED_TRACE(tile.name);
    GemmCase call = make(problem_of(cache_of(128)), 9);
    call.kv->slot_mapping[2] = call.kv->slots();
    call.kv->positions[4] = 1 << 20;
    call.kv->cos_sin_rows = 64;
    GemmDeviceCase on_device(engine_.device(0), call, engine_.prepare(call.problem, schedule_of(tile)));
    on_device.poison();
    on_device.launch();
    test::expect_right(call, on_device.download());
    EXPECT_TRUE(on_device.guards_are_intact());
    std::vector<std::string> told;
    for (const auto& [name, report] : dynamic_cast<EmulatorBackend&>(engine_.backend()).take_reports())
      told.push_back(name + ": " + report.text());
    const std::string name = tile.family == Family::kHopper ? "gemm_sm90_kv" : "gemm_portable_kv";
    EXPECT_THAT(told,
                UnorderedElementsAre(
                    AllOf(HasSubstr(name), HasSubstr("slot_mapping[2] is 64, and the cache has slots 0 to 63; the "
                                                     "token is not written")),
                    HasSubstr("positions[4] is 1048576, and cos_sin has 64 rows; it is read as row 63")));
  }
}

TEST_F(GemmKvWrite, RefusesArguments) {
  Engine engine = test::make_checking_engine(4, emulator::Completion::kEager, 1, Arch::kSm80);  // of few kernels
  const GemmCase call = make(problem_of(cache_of(128)), 9);
  const auto refused = [&](const std::function<void(KvWriteTensors&)>& change) {
    KvWriteTensors changed;
    return test::refusal_of_launch(engine, call, [&](GemmTensors& tensors) {
      changed = *tensors.kv_write;
      change(changed);
      tensors.kv_write = &changed;
    });
  };
  EXPECT_EQ(refused([](KvWriteTensors&) {}), "");
  EXPECT_THAT(refused([](KvWriteTensors& t) { t.k_cache = 0; }), HasSubstr("/tensors/kv_write/k_cache: is null"));
  EXPECT_THAT(refused([](KvWriteTensors& t) { t.slot_mapping += 4; }), HasSubstr("/tensors/kv_write/slot_mapping: "));
  EXPECT_THAT(refused([](KvWriteTensors& t) { t.q = 0x1000, t.tokens = 8; }),
              AllOf(HasSubstr("/tensors/kv_write/q: is given, and the product has these rows"),
                    HasSubstr("/tensors/kv_write/tokens: 8 are not the rows of a, m = 9")));
  EXPECT_THAT(refused([](KvWriteTensors& t) { t.q_out_strides.token = 512; }),
              HasSubstr("/tensors/kv_write/q_out_strides: is given, and d_stride says where queries lie"));
  EXPECT_THAT(refused([](KvWriteTensors& t) { t.v_cache = t.k_cache; }),
              HasSubstr("/tensors/kv_write/v_cache: is k_cache, so that values would lie where keys do"));
  // The cache would lose keys to queries, or the product its operands to keys.
  const auto overlapping = [&](DevicePtr GemmTensors::*operand) {
    KvWriteTensors changed;
    return test::refusal_of_launch(engine, call, [&](GemmTensors& tensors) {
      changed = *tensors.kv_write;
      changed.k_cache = tensors.*operand;
      tensors.kv_write = &changed;
    });
  };
  EXPECT_THAT(overlapping(&GemmTensors::a), HasSubstr("/tensors/kv_write/k_cache: overlaps a, which the product uses"));
  EXPECT_THAT(overlapping(&GemmTensors::b), HasSubstr("/tensors/kv_write/k_cache: overlaps b, which the product uses"));
  EXPECT_THAT(overlapping(&GemmTensors::d), HasSubstr("/tensors/kv_write/k_cache: overlaps d, which the product uses"));
  EXPECT_THAT(test::refusal_of_launch(engine, call, [](GemmTensors& t) { t.kv_write = nullptr; }),
              HasSubstr("/tensors/kv_write: is null, and the problem writes a cache"));
  EXPECT_THAT(test::refusal_of_launch(engine, call, [](GemmTensors& t) { t.d_stride = 388; }),
              HasSubstr("/tensors/d_stride: 388 elements of bf16 put rows off their 16-byte boundaries"));
  const KvWriteTensors other;
  const GemmCase plain = make_gemm_inputs(gemm_problem(DType::kBf16, DType::kBf16, 64, 72), {"", 9, true});
  EXPECT_THAT(test::refusal_of_launch(engine, plain, [&](GemmTensors& t) { t.kv_write = &other; }),
              HasSubstr("/tensors/kv_write: is given, and the problem has no kv_write"));
}

TEST_F(GemmKvWrite, RefusesProblemsAndTiles) {
  const GemmProblem fine = problem_of(cache_of(128));
  GemmProblem problem = fine;
  problem.n = 512, problem.epilogue = "acc + c", problem.dtype.d = DType::kF16;
  EXPECT_THAT(refusal(problem),
              AllOf(HasSubstr("/problem/n: 512 columns are not those of 3 queries of 128 elements, 1 keys and as many "
                              "values of 128; it takes 640"),
                    HasSubstr("/problem/epilogue: \"acc + c\" has c, which does not go with kv_write"),
                    HasSubstr("/problem/dtype/d: \"f16\" is not what queries are written as; it takes bf16")));
  problem = fine, problem.groups = {GroupKind::kRows, 2}, problem.kv_write->rope.width = 100;
  EXPECT_THAT(refusal(problem), AllOf(HasSubstr("/problem/groups/kind: \"rows\" does not go with kv_write"),
                                      HasSubstr("/problem/kv_write/rope/width: 100 does not fit")));
  problem = problem_of(cache_of(80));
  EXPECT_THAT(refusal(problem),
              HasSubstr("/problem/kv_write/head_dim/qk: 80 is not built yet for the hopper family; it "
                        "has 64, 128, 256"));
  problem = problem_of(cache_of(256), "acc", DType::kE4m3, ScaleKind::kPerBlock);
  GemmSchedule portable;
  portable.family = Family::kPortable;
  EXPECT_THAT(refusal(problem, portable),
              HasSubstr("/problem/kv_write/head_dim/qk: 256 is not built yet for the portable "
                        "family; it has 64, 128"));
  problem = problem_of(cache_of(64), "acc", DType::kE4m3, ScaleKind::kPerBlock), portable.block_n = 256;
  EXPECT_THAT(refusal(problem, portable),
              HasSubstr("/schedule/block_n: 256 columns have more than one scale of blocks; "
                        "128 would do"));
  problem = fine, problem.kv_write->qk_norm.kind = NormKind::kRmsAllHeads;
  EXPECT_THAT(refusal(problem), HasSubstr("/problem/kv_write/qk_norm/kind: \"rms_all_heads\" is not built yet"));

  GemmSchedule schedule = schedule_of(kPair);
  schedule.block_n = 256;
  EXPECT_THAT(refusal(problem_of(cache_of(256)), schedule),
              HasSubstr("/schedule/block_n: 256 columns of 64 rows take 128 registers a thread, too many for 1 math "
                        "warpgroup; more of them would do"));
  schedule.block_n = 192;
  EXPECT_THAT(refusal(fine, schedule),
              HasSubstr("/schedule/block_n: 192 columns hold a part of a head of 128; 256 would "
                        "do"));
  schedule = schedule_of(kPair), schedule.swap_ab = true;
  EXPECT_THAT(refusal(fine, schedule),
              HasSubstr("/schedule/block_m: 64 rows of a swapped tile hold a part of a head of "
                        "128; 128 would do"));
  schedule = schedule_of(kSwappedTurns), schedule.store_stages = 1;
  EXPECT_THAT(refusal(fine, schedule), HasSubstr("/schedule/store_stages: 1 have no room for the heads of 64 tokens; 2 "
                                                 "would do"));
  schedule = schedule_of(kSwapped), schedule.split_k = 2;
  EXPECT_THAT(refusal(fine, schedule), HasSubstr("/schedule/split_k: 2 parts finish bands of whole eights of a swapped "
                                                 "tile's columns, and 24 columns have none; block_n 32 would do"));
  schedule = schedule_of(kPair), schedule.store_stages = 1;
  EXPECT_THAT(refusal(fine, schedule),
              HasSubstr("/schedule/store_stages: 1 have no room for a head of 128; 2 would do"));
  schedule = {}, schedule.family = Family::kBlackwell;
  GemmProblem wide = problem_of(cache_of(256));
  EXPECT_THAT(
      text_of(validate({"", wide, schedule, {}}, Arch::kSm100a)),
      HasSubstr("/problem/kv_write/head_dim/qk: 256 is not built yet for the blackwell family; it has 64, 128"));
  EXPECT_EQ(plan_gemm(wide, {}, Arch::kSm100a).variants[0].spec.family, Family::kPortable);
}

}  // namespace
}  // namespace kernelwright::gemm_kv_write_test
