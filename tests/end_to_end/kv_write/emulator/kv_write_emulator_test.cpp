// Kernels that write a cache, on the emulator with every check on, against the fp64 reference.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/kv_write/reference.h"
#include "kernelwright/verify/random.h"
#include "support/drawn_kv_write.h"
#include "support/emulated_kv_write.h"

namespace kernelwright {
namespace {

using test::expect_right;
using test::make_checking_engine;
using test::run_checked;
using test::small_kv_write;

class KvWriteOnTheEmulator : public test::OnTheEmulator<Arch> {
 protected:
  void expect_right_for(const KvWriteProblem& problem, int tokens = 17, KvWriteInputOptions options = {}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens");
    options.wrong_places = true;
    const KvWriteCase call = make_kv_write_inputs(problem, {.name = "drawn", .tokens = tokens, .check = true}, options);
    expect_right(call, run_checked(engine_, call));
  }
  Engine engine_ = make_checking_engine(4, emulator::Completion::kRandom, 1, GetParam());
};

KvWriteProblem rotating(RopeStyle style, int head_dim, int width, int begin) {
  KvWriteProblem problem = small_kv_write();
  problem.head_dim = {head_dim, head_dim};
  problem.rope = {.style = style, .width = width, .begin = begin};
  return problem;
}

TEST_P(KvWriteOnTheEmulator, WritesAnyNumberOfTokens) {
  KvWriteProblem problem = rotating(RopeStyle::kNeox, 64, 64, 0);
  problem.qk_norm.kind = NormKind::kRms;
  for (const int tokens : {0, 1, 2, 17}) expect_right_for(problem, tokens);
}

TEST_P(KvWriteOnTheEmulator, QuantisesWithScalesOfEachKind) {
  for (const DType dtype : {DType::kE4m3, DType::kE5m2})
    for (const ScaleKind kind : {ScaleKind::kNone, ScaleKind::kPerTensor, ScaleKind::kPerHead, ScaleKind::kPerToken}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::string(to_string(kind)));
      KvWriteProblem problem = rotating(RopeStyle::kGptj, 64, 32, 32);
      problem.dtype = {DType::kF16, dtype, dtype};
      problem.scales = {kind, kind, kind, kind == ScaleKind::kPerToken && dtype == DType::kE5m2};
      expect_right_for(problem);
    }
}

TEST_P(KvWriteOnTheEmulator, RotatesNormalisesAndTransformsHeadsOfEverySize) {
  for (const int head_dim : {64, 80, 96, 128, 192, 256}) {
    SCOPED_TRACE(head_dim);
    KvWriteProblem problem = rotating(RopeStyle::kNeox, head_dim, 32, head_dim - 64);
    problem.hadamard = true;
    problem.qk_norm = {.kind = NormKind::kRms, .weight_offset = 1, .before_rope = head_dim != 96, .v = head_dim == 256};
    expect_right_for(problem, 9);
  }
}

// The arithmetic of each: without conversions to fp8, with them and dependent launches, and Blackwell's.
INSTANTIATE_TEST_SUITE_P(Archs, KvWriteOnTheEmulator, testing::Values(Arch::kSm80, Arch::kSm90a, Arch::kSm100a),
                         [](const auto& info) { return std::string(to_string(info.param)); });

/// What no architecture changes.
class KvWrite : public test::OnTheEmulator<int> {
 protected:
  void expect_right_for(const KvWriteProblem& problem, int tokens = 17, KvWriteInputOptions options = {}) {
    options.wrong_places = true;
    const KvWriteCase call = make_kv_write_inputs(problem, {.name = "drawn", .tokens = tokens, .check = true}, options);
    expect_right(call, run_checked(engine_, call));
  }
  Engine engine_ = make_checking_engine(4, emulator::Completion::kRandom, 1);
};
INSTANTIATE_TEST_SUITE_P(, KvWrite, testing::Values(0));

TEST_P(KvWrite, TransformsHeadsThatLeaveLanesFree) {
  for (const auto& [qk, v] : {std::pair{64, 128}, {80, 80}, {192, 128}}) {
    SCOPED_TRACE(qk);
    KvWriteProblem problem = rotating(RopeStyle::kNeox, qk, 32, qk - 64);
    problem.head_dim.v = v;
    problem.hadamard = problem.hadamard_signs = true;
    problem.dtype = {DType::kBf16, DType::kE4m3, DType::kE4m3};
    problem.scales = {ScaleKind::kPerToken, ScaleKind::kPerToken, ScaleKind::kPerToken};
    expect_right_for(problem, 9);
  }
}

TEST_P(KvWrite, TurnsAnyPartOfAHead) {
  for (const RopeStyle style : {RopeStyle::kNeox, RopeStyle::kGptj})
    for (const auto& [width, begin] : {std::pair{32, 0}, {32, 64}, {64, 64}, {128, 0}}) {
      SCOPED_TRACE(std::string(to_string(style)) + " " + std::to_string(width) + " from " + std::to_string(begin));
      expect_right_for(rotating(style, 128, width, begin), 9);
    }
}

TEST_P(KvWrite, TurnsPairsByThreeStreamsOfPositions) {
  for (const RopeStyle style : {RopeStyle::kNeox, RopeStyle::kGptj})
    for (const bool interleaved : {false, true}) {
      KvWriteProblem problem = rotating(style, 128, 64, 0);
      problem.rope.sections = {11, 11, 10};
      problem.rope.interleaved = interleaved;
      expect_right_for(problem, 9, {.position_bytes = interleaved ? 8 : 4});
    }
}

TEST_P(KvWrite, NormalisesInEachWay) {
  for (const NormKind kind : {NormKind::kRms, NormKind::kRmsAllHeads, NormKind::kL2})
    for (const bool before_rope : {true, false}) {
      SCOPED_TRACE(std::string(to_string(kind)) + (before_rope ? " before" : " behind"));
      if (kind == NormKind::kRmsAllHeads && !before_rope) continue;
      KvWriteProblem problem = rotating(RopeStyle::kNeox, 64, 64, 0);
      problem.qk_norm = {.kind = kind,
                         .weight = kind != NormKind::kL2,
                         .weight_offset = kind == NormKind::kRmsAllHeads,
                         .before_rope = before_rope,
                         .eps = 1e-3,
                         .v = kind == NormKind::kL2};
      expect_right_for(problem, 9);
    }
}

TEST_P(KvWrite, LeavesAHeadOfZerosZero) {
  KvWriteProblem problem = small_kv_write();
  problem.qk_norm.kind = NormKind::kRms;
  problem.dtype.kv = DType::kE4m3;
  problem.scales.k = ScaleKind::kPerToken;
  KvWriteCase call = make_kv_write_inputs(problem, {.name = "zeros", .tokens = 2});
  std::fill(call.k.begin(), call.k.end(), std::byte{0});
  expect_right(call, run_checked(engine_, call));
}

TEST_P(KvWrite, ReadsPackedRowsAndWritesEveryLayoutOfACache) {
  KvWriteProblem problem = rotating(RopeStyle::kNeox, 64, 64, 0);
  for (const CacheOrder order :
       {CacheOrder::kNhd, CacheOrder::kHnd, CacheOrder::kPackedTokens, CacheOrder::kPackedHeads})
    for (const KvLayout layout : {KvLayout{KvLayoutKind::kPaged, 1},
                                  {KvLayoutKind::kPaged, 48},
                                  {KvLayoutKind::kRagged, 0},
                                  {KvLayoutKind::kPadded, 0}}) {
      if (layout.kind == KvLayoutKind::kRagged && (order == CacheOrder::kHnd || order == CacheOrder::kPackedHeads))
        continue;
      SCOPED_TRACE(testing::Message() << static_cast<int>(order) << ' ' << to_string(layout.kind));
      problem.kv_layout = layout;
      expect_right_for(problem, 17, {.order = order, .packed_rows = true});
    }
}

TEST_P(KvWrite, FindsPlacesBySequenceAndPosition) {
  KvWriteProblem problem = rotating(RopeStyle::kGptj, 64, 64, 0);
  problem.index = CacheIndex::kPositions;
  for (const KvLayout layout : {KvLayout{KvLayoutKind::kPaged, 4}, {KvLayoutKind::kPadded, 0}})
    for (const int position_bytes : {4, 8}) {
      problem.kv_layout = layout;
      expect_right_for(problem, 40, {.position_bytes = position_bytes});
    }
}

TEST_P(KvWrite, WritesKeysAndValuesAloneAndHeadsOfTwoSizes) {
  KvWriteProblem problem = rotating(RopeStyle::kNeox, 192, 64, 128);
  problem.head_dim.v = 128;
  problem.q_out = false;
  expect_right_for(problem, 9);
  problem.q_out = true;
  problem.dtype = {DType::kBf16, DType::kF16, DType::kF16};
  expect_right_for(problem, 9);
}

TEST_P(KvWrite, TakesAnySchedule) {
  const KvWriteProblem problem = rotating(RopeStyle::kNeox, 64, 64, 0);
  const KvWriteCase call = make_kv_write_inputs(problem, {.name = "drawn", .tokens = 13, .check = true});
  const KvWriteOutput usual = run_checked(engine_, call);
  for (const auto& [warps, heads] : {std::pair{1, 1}, {3, 2}, {8, 8}, {32, 3}}) {
    KvWriteSchedule schedule;
    schedule.num_warps = warps;
    schedule.heads_per_lane = heads;
    EXPECT_EQ(run_checked(engine_, call, schedule), usual) << warps << " warps, " << heads << " heads a lane";
  }
}

TEST_P(KvWrite, GivesTheSameBitsForFewAndForManyTokens) {
  KvWriteProblem problem = rotating(RopeStyle::kNeox, 256, 64, 0);
  problem.heads = {64, 16};
  const KvWriteCase call = make_kv_write_inputs(problem, {.name = "drawn", .tokens = 86, .check = true});
  const KvWriteSpec spec = plan_kv_write(problem, {}, Arch::kSm90a).spec;
  ASSERT_TRUE(has_few(spec, 85));
  ASSERT_FALSE(has_few(spec, 86));
  KvWriteSchedule one_head;
  one_head.heads_per_lane = 1;
  EXPECT_EQ(run_checked(engine_, call), run_checked(engine_, call, one_head));
}

TEST_P(KvWrite, RotatesQueriesInPlaceBehindAnotherKernel) {
  KvWriteProblem problem = rotating(RopeStyle::kNeox, 64, 64, 0);
  KvWriteCase call = make_kv_write_inputs(problem, {.name = "drawn", .tokens = 9, .check = true});
  const KvWriteOutput apart = run_checked(engine_, call);
  const std::int64_t row = std::int64_t{problem.heads.q} * 64;
  std::vector<std::byte> rows;  // without the gaps behind them
  for (std::int64_t token = 0; token < call.tokens; ++token) {
    const auto first = call.q.begin() + token * call.q_strides.token * 2;
    rows.insert(rows.end(), first, first + row * 2);
  }
  call.q = rows;
  call.q_strides.token = row;
  KvWriteDeviceCase on_device(engine_.device(0), call, engine_.prepare(problem));
  on_device.rotate_in_place();
  on_device.tensors().pdl = true;
  on_device.poison();
  on_device.launch();
  EXPECT_EQ(on_device.download(), apart);
  test::expect_no_reports(engine_);
}

/// The bits of one value, quantised as a key with `scale`.
class OneValue : public KvWriteOnTheEmulator {
 protected:
  std::uint32_t code_of(DType dtype, float value, float scale) {
    KvWriteProblem problem = small_kv_write();
    problem.dtype.in = DType::kF16;
    problem.dtype.q = DType::kF16;
    problem.dtype.kv = dtype;
    problem.scales.k = ScaleKind::kPerTensor;
    KvWriteCase call = make_kv_write_inputs(problem, {.name = "one", .tokens = 1});
    std::vector<float> values(64, value);
    encode_row(DType::kF16, values, call.k.data());
    call.k_scale = {scale};
    const KvWriteOutput output = run_checked(engine_, call);
    return static_cast<std::uint32_t>(output.cache[call.cache_byte(HeadsOf::kK, call.slot_of(0), 0)]);
  }
};
INSTANTIATE_TEST_SUITE_P(Archs, OneValue, testing::Values(Arch::kSm80, Arch::kSm90a),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(OneValue, SaturatesRoundsToEvenAndKeepsNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : {DType::kE4m3, DType::kE5m2}) {
    const float largest = static_cast<float>(float_format(dtype).largest) / 256;
    for (const float value : {largest, largest * 1.03125f, largest * 0.96875f, 2.5f, -2.5f, 2.75f, 0.f, -0.f,
                              100.f * largest, kInfinity, -kInfinity}) {
      const float rounded = round_to(DType::kF16, value);
      EXPECT_EQ(code_of(dtype, rounded, 1.f / 256), encode_float(dtype, rounded * 256))
          << to_string(dtype) << ' ' << value;
    }
    EXPECT_EQ(code_of(dtype, nan, 1.f) & 0x7f, 0x7fu);
  }
}

TEST_P(KvWrite, GivesAHeadWithAnInfinityAScaleThatIsNoNumber) {
  KvWriteProblem problem = small_kv_write();
  problem.dtype.kv = DType::kE4m3;
  problem.scales.k = problem.scales.v = ScaleKind::kPerToken;
  KvWriteCase call = make_kv_write_inputs(problem, {.name = "two", .tokens = 2});
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  encode_row(DType::kBf16, std::span(&infinity, 1), call.k.data() + 10);
  encode_row(DType::kBf16, std::span(&nan, 1), call.v.data() + 10);
  const KvWriteOutput output = run_checked(engine_, call);
  const auto scale = [&](const std::vector<std::byte>& scales, std::int64_t token, int head) {
    float value;
    std::memcpy(&value, scales.data() + static_cast<std::size_t>(call.slot_of(token) * 2 + head) * 4, 4);
    return value;
  };
  EXPECT_EQ(scale(output.k_scale, 0, 0), infinity);
  EXPECT_TRUE(std::isnan(scale(output.v_scale, 0, 0)));
  EXPECT_TRUE(std::isfinite(scale(output.k_scale, 0, 1)) && std::isfinite(scale(output.v_scale, 1, 0)));
}

TEST_P(KvWrite, ComputesAnyCombinationOfFields) {
  Random random(11);
  for (int number = 0; number < 24; ++number) {
    const test::DrawnKvWrite drawn = test::draw_kv_write(random, Arch::kSm90a);
    SCOPED_TRACE(write_config(KvWriteConfig{"drawn", drawn.problem, {}, {}}));
    expect_right_for(drawn.problem, 1 + static_cast<int>(random.below(20)), drawn.options);
  }
}

/// softmax(q K^T / 8) V of the last token's query over all keys of its sequence, from the reference's heads.
std::vector<double> attention_of_last(const KvWriteCase& call, int head) {
  const auto last = call.tokens - 1;
  const int of_keys = head / (call.problem.heads.q / call.problem.heads.kv);
  const KvWriteHead query = reference_head(call, HeadsOf::kQ, last, head);
  std::vector<double> out(64);
  double total = 0;
  for (std::int64_t token = 0; token < call.tokens; ++token) {
    const KvWriteHead key = reference_head(call, HeadsOf::kK, token, of_keys);
    double score = 0;
    for (std::size_t i = 0; i < 64; ++i) score += query.value[i] * key.value[i] / 8;
    const KvWriteHead value = reference_head(call, HeadsOf::kV, token, of_keys);
    for (std::size_t i = 0; i < 64; ++i) out[i] += std::exp(score) * value.value[i];
    total += std::exp(score);
  }
  for (double& element : out) element /= total;
  return out;
}

// What it writes is what attention reads: the same words of a config, tensors and scales.
TEST_P(KvWrite, WritesWhatAttentionReads) {
  for (const DType dtype : {DType::kBf16, DType::kE4m3}) {
    KvWriteProblem problem = rotating(RopeStyle::kNeox, 64, 64, 0);
    problem.index = CacheIndex::kPositions;
    problem.kv_layout = {KvLayoutKind::kPaged, 16};
    problem.qk_norm.kind = NormKind::kRms;
    problem.hadamard = dtype == DType::kE4m3;
    problem.dtype.kv = dtype;
    if (dtype == DType::kE4m3) problem.scales.k = problem.scales.v = ScaleKind::kPerHead;
    KvWriteCase call = make_kv_write_inputs(problem, {.name = "drawn", .tokens = 37});
    call.batch = 1;  // one sequence
    call.page_table_stride = static_cast<int>(call.page_table.size());
    std::iota(call.positions.begin(), call.positions.end(), 0);
    std::fill(call.batch_indices.begin(), call.batch_indices.end(), 0);
    KvWriteDeviceCase on_device(engine_.device(0), call, engine_.prepare(problem));
    on_device.poison();
    on_device.launch();
    expect_right(call, on_device.download());

    AttentionProblem attention;
    attention.dtype.kv = dtype;
    attention.head_dim = problem.head_dim;
    attention.heads = problem.heads;
    attention.kv_layout = problem.kv_layout;
    attention.max_q_len = 1;
    attention.scales = problem.scales.k;
    const KvWriteTensors& written = on_device.tensors();
    DeviceMemory memory(engine_.device(0));
    AttentionTensors tensors;
    tensors.q = written.q_out + static_cast<DevicePtr>(call.tokens - 1) * 4 * 64 * 2;
    tensors.k = written.k_cache, tensors.v = written.v_cache;
    tensors.k_strides = written.k_cache_strides, tensors.v_strides = written.v_cache_strides;
    tensors.k_scale = written.k_scale, tensors.v_scale = written.v_scale;
    tensors.page_table = written.page_table, tensors.page_table_stride = written.page_table_stride;
    tensors.num_pages = written.num_pages;
    tensors.kv_len = static_cast<int>(call.tokens);
    tensors.o = memory.allocate(4 * 64 * 2);
    const AttentionKernel kernel = engine_.prepare(attention);
    tensors.workspace_bytes = kernel.workspace_bytes(kernel.extent(tensors));
    tensors.workspace = memory.allocate_some(tensors.workspace_bytes);
    kernel.launch(tensors, on_device.stream());
    on_device.wait();
    test::expect_no_reports(engine_);
    std::vector<std::byte> bytes(4 * 64 * 2);
    engine_.device(0).copy_to_host(bytes.data(), tensors.o, bytes.size());
    const double tolerance = dtype == DType::kBf16 ? 0.02 : 0.1;  // of values around 1, over 37 keys
    for (int head = 0; head < 4; ++head) {
      const std::vector<double> wanted = attention_of_last(call, head);
      double found[64];
      decode_row(DType::kBf16, bytes.data() + head * 128, 64, found);
      for (std::size_t i = 0; i < 64; ++i) EXPECT_NEAR(found[i], wanted[i], tolerance) << to_string(dtype) << ' ' << i;
    }
  }
}

TEST_P(KvWrite, NamesEveryArgumentThatDoesNotFit) {
  KvWriteProblem problem = rotating(RopeStyle::kNeox, 64, 64, 0);
  problem.qk_norm.kind = NormKind::kRms;
  const KvWriteCase call = make_kv_write_inputs(problem, {.name = "drawn", .tokens = 3});
  const auto refusal = [&](const test::KvWriteChange& change) {
    return test::refusal_of_launch(engine_, call, change);
  };
  EXPECT_EQ(refusal([](KvWriteTensors& t) { t.tokens = -1; }), "/tensors/tokens: -1 is outside [0, 715827541]");
  EXPECT_EQ(refusal([](KvWriteTensors& t) { t.num_pages = 0; }),
            "/tensors/num_pages: 0 does not fit; it is the number of pages of the cache");
  EXPECT_EQ(refusal([](KvWriteTensors& t) { t.position_bytes = 2; }), "/tensors/position_bytes: 2 is neither 4 nor 8");
  EXPECT_EQ(refusal([](KvWriteTensors& t) { t.k_cache_strides.token = 8; }),
            "/tensors/k_cache_strides/token: 8 is less than 64, the elements of a head");
  EXPECT_EQ(refusal([](KvWriteTensors& t) { t.k_strides.token = 130; }),
            "/tensors/k_strides/token: 130 elements leave the 16-byte boundaries; it takes a multiple of 8");
  EXPECT_EQ(refusal([](KvWriteTensors& t) { t.eps = -1.f; }), "/tensors/eps: -1 is no finite number from 0 on");
  for (DevicePtr KvWriteTensors::*member :
       {&KvWriteTensors::q, &KvWriteTensors::k, &KvWriteTensors::v, &KvWriteTensors::q_out, &KvWriteTensors::k_cache,
        &KvWriteTensors::v_cache, &KvWriteTensors::q_weight, &KvWriteTensors::k_weight, &KvWriteTensors::cos_sin,
        &KvWriteTensors::positions, &KvWriteTensors::slot_mapping})
    EXPECT_NE(refusal([&](KvWriteTensors& t) { t.*member = 0; }), "");
}

}  // namespace
}  // namespace kernelwright
