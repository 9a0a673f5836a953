/// What a launch refuses before anything is queued.
#include <array>
#include <limits>
#include <random>

#include "kernelwright/runtime/attention/arguments.h"
#include "runtime/attention/launch_fixture.h"

namespace kernelwright::test {
namespace {

using ::testing::HasSubstr;

TEST_F(LaunchTest, AMissingOrSmallWorkspaceIsRefusedWithItsSize) {
  const AttentionKernel kernel = engine.prepare(decode_problem(), four_parts());
  AttentionTensors tensors = decode_tensors();
  const std::uint64_t needed = kernel.workspace_bytes(kernel.extent(tensors));
  const std::string tail = " bytes are given and " + std::to_string(needed) +
                           " are needed to merge 4 parts of the keys; see AttentionKernel::workspace_bytes()";
  EXPECT_EQ(refusal(decode_problem(), tensors, four_parts()), "/tensors/workspace: 0" + tail);
  tensors.workspace = 0x80000;
  tensors.workspace_bytes = needed - 1;
  EXPECT_EQ(refusal(decode_problem(), tensors, four_parts()),
            "/tensors/workspace: " + std::to_string(needed - 1) + tail);
  tensors.workspace_bytes = needed + 8;
  tensors.workspace = 0x80008;
  EXPECT_EQ(refusal(decode_problem(), tensors, four_parts()),
            "/tensors/workspace: address 0x80008 is not a multiple of 16; give an aligned one");
}

TEST_F(LaunchTest, EveryArgumentThatDoesNotFitIsNamedAtOnce) {
  AttentionTensors tensors = some_tensors();
  tensors.q = 0;
  tensors.k = 0x20008;
  tensors.kv_len = -1;
  tensors.sinks = 0x90000;
  EXPECT_EQ(
      refusal(prefill_problem(), tensors),
      "/tensors/kv_len: -1 is negative\n"
      "/tensors/q: is null; give a device address\n"
      "/tensors/k: address 0x20008 is not a multiple of 16; give an aligned one\n"
      "/tensors/sinks: is given, and the problem does not have \"sinks\": true; leave it null, or prepare a problem "
      "that has");
}

struct BadArgument {
  const char* name;
  void (*edit)(AttentionTensors&);
  const char* message;
};
class EachBadArgument : public LaunchTest, public ::testing::WithParamInterface<BadArgument> {};

TEST_P(EachBadArgument, IsRefusedWithItsPlaceAndWhatWouldDo) {
  AttentionTensors tensors = some_tensors();
  GetParam().edit(tensors);
  EXPECT_EQ(refusal(prefill_problem(), tensors), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Attention, EachBadArgument,
    ::testing::Values(
        BadArgument{"batch", [](AttentionTensors& t) { t.batch = -2; }, "/tensors/batch: -2 is negative"},
        BadArgument{"q_len", [](AttentionTensors& t) { t.q_len = -1; }, "/tensors/q_len: -1 is negative"},
        BadArgument{"sm_budget", [](AttentionTensors& t) { t.sm_budget = -3; },
                    "/tensors/sm_budget: -3 is negative; 0 takes all SMs"},
        BadArgument{"v", [](AttentionTensors& t) { t.v = 0; }, "/tensors/v: is null; give a device address"},
        BadArgument{"o", [](AttentionTensors& t) { t.o += 2; },
                    "/tensors/o: address 0x40002 is not a multiple of 16; give an aligned one"},
        BadArgument{"unaligned_stride",
                    [](AttentionTensors& t) {
                      t.k_strides = {300 * 260, 260, 130};
                    },
                    "/tensors/k_strides: strides [batch 78000, token 260, head 130] are not multiples of 16 bytes, 8 "
                    "elements"},
        BadArgument{"narrow_stride",
                    [](AttentionTensors& t) {
                      t.q_strides = {100 * 512, 512, 64};
                    },
                    "/tensors/q_strides: strides [batch 51200, token 512, head 64] are below a head of 128 elements; "
                    "give 0 to broadcast, or at least a head"},
        BadArgument{"negative_stride",
                    [](AttentionTensors& t) {
                      t.v_strides = {76800, -256, 128};
                    },
                    "/tensors/v_strides: strides [batch 76800, token -256, head 128] are below a head of 128 elements; "
                    "give 0 to broadcast, or at least a head"},
        BadArgument{
            "overlapping_output",
            [](AttentionTensors& t) {
              t.o_strides = {0, 1024, 128};
            },
            "/tensors/o_strides: strides [batch 0, token 1024, head 128] are below a head of 128 elements; rows "
            "of the output must not overlap"},
        BadArgument{"lse", [](AttentionTensors& t) { t.lse = 0x90000; },
                    "/tensors/lse: is given, and the problem does not have \"lse\": true; leave it null, or prepare a "
                    "problem that has"},
        BadArgument{"window", [](AttentionTensors& t) { t.window = Window{}; },
                    "/tensors/window: is given, and the problem's mask is not sliding_window; leave it absent"},
        BadArgument{"softcap", [](AttentionTensors& t) { t.softcap = 30; },
                    "/tensors/softcap: is given, and the problem's score_mod is not softcap; leave it absent"},
        BadArgument{"scale", [](AttentionTensors& t) { t.scale = std::numeric_limits<float>::infinity(); },
                    "/tensors/scale: inf is not finite"},
        BadArgument{"nan_scale", [](AttentionTensors& t) { t.scale = std::numeric_limits<float>::quiet_NaN(); },
                    "/tensors/scale: nan is not finite"},
        BadArgument{"num_pages", [](AttentionTensors& t) { t.num_pages = 5; },
                    "/tensors/num_pages: is given, and the problem does not have paged keys; leave it 0"},
        BadArgument{"negative_num_pages", [](AttentionTensors& t) { t.num_pages = -1; },
                    "/tensors/num_pages: -1 is negative; give the pages that k and v have"},
        BadArgument{"lengths", [](AttentionTensors& t) { t.kv_lengths = 0x90002; },
                    "/tensors/kv_lengths: address 0x90002 is not a multiple of 4"},
        BadArgument{
            "starts", [](AttentionTensors& t) { t.kv_starts = 0x90000; },
            "/tensors/kv_starts: is given, and the problem does not have \"kv_starts\": true; leave it null, or "
            "prepare a problem that has"},
        BadArgument{"stride_that_wraps_to_nothing",  // 2^60 elements of 16 bits are 2^64 bits
                    [](AttentionTensors& t) {
                      t.q_strides = {std::int64_t{1} << 60, 1024, 128};
                    },
                    "/tensors/q_strides: strides [batch 1152921504606846976, token 1024, head 128] bring 2 x 100 x 8 "
                    "heads of bf16 at 0x10000 behind what 64-bit addresses reach, or to more than 72057594037927936 "
                    "bytes"},
        BadArgument{"stride_of_one_token",
                    [](AttentionTensors& t) {
                      t.k_strides = {300 * 256, std::int64_t{1} << 62, 128};
                      t.kv_len = 1;
                    },
                    "/tensors/k_strides: strides [batch 76800, token 4611686018427387904, head 128] bring 2 x 2 x 2 "
                    "heads of bf16 at 0x20000 behind what 64-bit addresses reach, or to more than 72057594037927936 "
                    "bytes"},
        BadArgument{"least_stride",  // less a head it would be a large one
                    [](AttentionTensors& t) {
                      t.v_strides = {std::numeric_limits<std::int64_t>::min(), 256, 128};
                    },
                    "/tensors/v_strides: strides [batch -9223372036854775808, token 256, head 128] are below a head of "
                    "128 elements; give 0 to broadcast, or at least a head"},
        BadArgument{"keys_that_no_memory_has",  // contiguous
                    [](AttentionTensors& t) {
                      t.batch = 1 << 22;
                      t.q_len = 1;
                      t.kv_len = 1 << 30;
                    },
                    "/tensors/k_strides: strides [batch 274877906944, token 256, head 128] bring 4194304 x 1073741824 "
                    "x 2 heads of bf16 at 0x20000 behind what 64-bit addresses reach, or to more than "
                    "72057594037927936 bytes\n"
                    "/tensors/v_strides: strides [batch 274877906944, token 256, head 128] bring 4194304 x 1073741824 "
                    "x 2 heads of bf16 at 0x30000 behind what 64-bit addresses reach, or to more than "
                    "72057594037927936 bytes"},
        BadArgument{"keys_that_kernels_cannot_count",  // to the end of a tile
                    [](AttentionTensors& t) { t.kv_len = std::numeric_limits<int>::max() - 5; },
                    "/tensors/kv_len: 2147483642 is more than 2^30 keys, to which kernels count in 32 bits; give the "
                    "longest sequence's"},
        BadArgument{"end_of_addresses", [](AttentionTensors& t) { t.o = ~DevicePtr{0} - 4095; },
                    "/tensors/o_strides: strides [batch 102400, token 1024, head 128] bring 2 x 100 x 8 heads of bf16 "
                    "at 0xfffffffffffff000 behind what 64-bit addresses reach, or to more than 72057594037927936 "
                    "bytes"},
        BadArgument{"rows_that_wrap",  // times 8 heads they are 2^65
                    [](AttentionTensors& t) {
                      t.batch = t.q_len = std::numeric_limits<int>::max();
                      t.kv_len = 0;
                    },
                    "/tensors/q_len: 2147483647 queries of 4 heads are more than 2^30 rows, to which kernels count in "
                    "32 bits; give the longest sequence's\n"
                    "/tensors/batch: 4611686014132420609 rows of 8 query heads are more than 2^31 - 1; launch fewer "
                    "sequences at a time\n"
                    "/tensors/q_strides: strides [batch 2199023254528, token 1024, head 128] bring 2147483647 x "
                    "2147483647 x 8 heads of bf16 at 0x10000 behind what 64-bit addresses reach, or to more than "
                    "72057594037927936 bytes\n"
                    "/tensors/o_strides: strides [batch 2199023254528, token 1024, head 128] bring 2147483647 x "
                    "2147483647 x 8 heads of bf16 at 0x40000 behind what 64-bit addresses reach, or to more than "
                    "72057594037927936 bytes"},
        BadArgument{"rows",
                    [](AttentionTensors& t) {
                      t.batch = 1 << 20;
                      t.q_len = 1 << 9;
                    },
                    "/tensors/batch: 536870912 rows of 8 query heads are more than 2^31 - 1; launch fewer sequences at "
                    "a time"}),
    [](const auto& info) { return info.param.name; });

TEST_F(LaunchTest, OperandsThatTheProblemHasMustBeGiven) {
  AttentionProblem problem = prefill_problem();
  problem.q_layout = QLayout::kRagged;
  problem.kv_layout.kind = KvLayoutKind::kRagged;
  problem.sinks = true;
  AttentionTensors tensors = some_tensors();
  tensors.q_tokens = 201;
  EXPECT_EQ(
      refusal(problem, tensors),
      "/tensors/q_tokens: 201 rows of ragged queries do not fit 2 sequences of at most 100; give q_offsets[batch], "
      "and the longest sequence as q_len, or zero_padding if rows are padding\n"
      "/tensors/q_offsets: is null, and the problem has ragged queries\n"
      "/tensors/kv_offsets: is null, and the problem has ragged keys\n"
      "/tensors/sinks: is null, and the problem has \"sinks\": true");
}

TEST_F(LaunchTest, AnyNumberOfRowsMayBePaddingThatBecomesZeros) {
  AttentionProblem problem = prefill_problem();
  problem.q_layout = QLayout::kRagged;
  AttentionTensors tensors = some_tensors();
  tensors.q_offsets = 0x70000;
  tensors.q_tokens = 201;  // of 2 sequences of at most 100
  EXPECT_THAT(refusal(problem, tensors), ::testing::HasSubstr("/tensors/q_tokens: 201 rows"));
  tensors.zero_padding = true;
  EXPECT_EQ(launched(problem, tensors).q_tokens, 201);
}

TEST_F(LaunchTest, ShortPageTablesAreRefused) {
  AttentionProblem problem = prefill_problem();
  problem.kv_layout = {KvLayoutKind::kPaged, 64};
  AttentionTensors tensors = some_tensors();
  tensors.page_table = 0x70000;
  tensors.page_table_stride = 4;
  EXPECT_EQ(refusal(problem, tensors),
            "/tensors/page_table_stride: 4 pages of 64 keys hold fewer than the 300 keys of the longest sequence");
}

TEST_F(LaunchTest, MoreQueriesThanTheProblemBoundsAreRefused) {
  AttentionTensors tensors = decode_tensors();
  tensors.q_len = 2;
  EXPECT_THAT(refusal(decode_problem(), tensors), HasSubstr("/tensors/q_len: 2 is above the problem's max_q_len of 1"));
}

TEST_F(LaunchTest, LengthsOfRaggedRowsAreBoundedBeforeTilesAreCounted) {
  AttentionProblem problem = prefill_problem();
  problem.q_layout = QLayout::kRagged;
  problem.kv_layout.kind = KvLayoutKind::kRagged;
  AttentionTensors tensors = some_tensors();
  tensors.q_offsets = tensors.kv_offsets = 0x70000;
  tensors.q_tokens = 5;
  tensors.batch = tensors.q_len = std::numeric_limits<int>::max();
  EXPECT_THAT(refusal(problem, tensors),
              HasSubstr("/tensors/q_len: 2147483647 sequences of up to 2147483647 queries, of 8 heads, are more tiles "
                        "than a launch has; give the longest sequence as q_len"));
  tensors.batch = 1 << 20;
  tensors.q_len = 1 << 17;  // 2^40 rows, and a tile has 128 at most
  EXPECT_EQ(refusal(problem, tensors),
            "/tensors/batch: 1048576 sequences of up to 131072 queries are more than 2^31 - 1 CTAs, and a launch has "
            "no more; launch fewer sequences at a time");
  tensors = some_tensors();
  tensors.q_offsets = tensors.kv_offsets = 0x70000;
  tensors.q_tokens = 5;
  tensors.q_tokens = std::numeric_limits<std::int64_t>::min();  // less one it would be the largest
  EXPECT_THAT(refusal(problem, tensors), HasSubstr("/tensors/q_tokens: -9223372036854775808 rows of ragged queries"));
  tensors.q_tokens = 5;
  tensors.kv_tokens = std::int64_t{1} << 62;
  EXPECT_THAT(refusal(problem, tensors), HasSubstr("/tensors/kv_tokens: 4611686018427387904 is more than 2^31 - 1, to "
                                                   "which kv_offsets count"));
}

TEST_F(LaunchTest, PagesEndWhereMemoryDoes) {
  AttentionProblem problem = prefill_problem();
  problem.kv_layout = {KvLayoutKind::kPaged, 64};
  AttentionTensors tensors = some_tensors();
  tensors.page_table = 0x70000;
  tensors.page_table_stride = 8;
  tensors.num_pages = std::numeric_limits<int>::max();
  launched(problem, tensors);  // of 32 KB each
  tensors.k_strides = {std::int64_t{1} << 30, 256, 128};
  EXPECT_EQ(
      refusal(problem, tensors),
      "/tensors/k_strides: strides [batch 1073741824, token 256, head 128] bring 2147483647 x 64 x 2 heads of bf16 "
      "at 0x20000 behind what 64-bit addresses reach, or to more than 72057594037927936 bytes");
}

TEST_F(LaunchTest, NoWorkspaceIsCountedForExtentsThatNoLaunchTakes) {
  const AttentionKernel kernel = engine.prepare(decode_problem(), four_parts());
  const auto refused = [&](AttentionExtent extent) {
    return message_of<ConfigError>([&] { kernel.workspace_bytes(extent); });
  };
  AttentionExtent extent = kernel.extent(decode_tensors());
  EXPECT_EQ(refused(extent), "nothing was thrown");
  extent.q_tokens = std::int64_t{1} << 60;
  EXPECT_EQ(refused(extent),
            "/extent/q_tokens: 1152921504606846976 rows of 8 query heads are more than 2^31 - 1, and "
            "no launch takes them");
  extent.q_tokens = 1;
  extent.batch = extent.q_len = std::numeric_limits<int>::max();
  EXPECT_EQ(refused(extent),
            "/extent/q_len: 2147483647 sequences of up to 2147483647 queries, of 8 heads, are more "
            "tiles than a launch has");
  extent = kernel.extent(decode_tensors());
  extent.kv_heads = std::numeric_limits<int>::max();
  EXPECT_THAT(refused(extent), HasSubstr("/extent/q_heads: 8 query heads of 2147483647 key heads"));
}

TEST_F(LaunchTest, AWorkspaceEndsWhereAddressesDo) {
  AttentionTensors tensors = decode_tensors();
  tensors.workspace = ~DevicePtr{0} - 15;
  tensors.workspace_bytes = std::numeric_limits<std::uint64_t>::max();
  tensors.lse = 0x90000;
  EXPECT_THAT(refusal(decode_problem(), tensors, four_parts()),
              HasSubstr("bytes at 0xfffffffffffffff0 end behind what 64-bit addresses reach"));
}

TEST_F(LaunchTest, RefusesTensorsOfMasksAndBiasesThatDoNotFit) {
  AttentionTensors tensors = open_tensors();
  tensors.mask = 0, tensors.bias = 0x80001;
  tensors.mask_strides = {299, 300, 30000};
  tensors.bias_strides = {30000, -300, std::int64_t{1} << 54};
  EXPECT_EQ(
      refusal(open_problem(), tensors),
      "/tensors/mask: is null, and the problem has mask \"tensor\"\n"
      "/tensors/mask_strides: batch stride 299 is below a row of 300 keys; give 0 for one row for all, or at least "
      "300\n"
      "/tensors/mask_strides: head stride 30000: the problem's tensor has one element there for all; give 0\n"
      "/tensors/bias: address 0x80001 is not a multiple of its elements' 2 bytes\n"
      "/tensors/bias_strides: batch stride 30000: the problem's tensor has one element there for all; give 0\n"
      "/tensors/bias_strides: token stride -300 is below a row of 300 keys; give 0 for one row for all, or at least "
      "300\n"
      "/tensors/bias_strides: strides [batch 30000, token -300, head 18014398509481984] bring rows of 300 keys at "
      "0x80001 to more than 72057594037927936 bytes");
  tensors = some_tensors();
  tensors.mask = 16, tensors.bias = 16;
  EXPECT_EQ(
      refusal(prefill_problem(), tensors),
      "/tensors/mask: is given, and the problem does not have mask \"tensor\"; leave it null, or prepare a problem "
      "that has\n"
      "/tensors/bias: is given, and the problem does not have score_mod \"tensor\"; leave it null, or prepare a "
      "problem that has");
}

// The hot path trusts surely_fine(); whatever it lets through must break no rule.
TEST(LaunchArguments, WhatPassesTheQuickTestBreaksNoRule) {
  std::mt19937 random(7);
  const auto any = [&](auto... values) {
    const auto list = std::array{static_cast<std::int64_t>(values)...};
    return list[random() % list.size()];
  };
  constexpr std::int64_t kFar = std::int64_t{1} << 58, kLeast = std::numeric_limits<std::int64_t>::min();
  int passed = 0, rotary = 0, refused = 0;
  for (int round = 0; round < 500'000; ++round) {
    AttentionSpec spec;
    spec.family = any(0, 0, 1) ? Family::kHopper : Family::kPortable;
    spec.q_layout = any(0, 0, 1) ? QLayout::kRagged : QLayout::kPadded;
    spec.kv_layout = static_cast<KvLayoutKind>(any(0, 0, 1, 2));
    spec.page_size = spec.kv_layout == KvLayoutKind::kPaged ? 64 : 0;
    spec.sinks = any(0, 0, 0, 1);
    spec.kv_starts = spec.kv_layout != KvLayoutKind::kRagged && any(0, 1);
    spec.lse = any(0, 1);
    spec.scales = any(0, 0, 0, 1) ? ScaleKind::kPerHead : ScaleKind::kNone;
    spec.mask = any(0, 1) ? MaskKind::kSlidingWindow : MaskKind::kNone;
    spec.score_mod = any(0, 1) ? ScoreModKind::kSoftcap : any(0, 0, 1) ? ScoreModKind::kTensor : ScoreModKind::kNone;
    spec.mask_tensor = any(0, 0, 0, 0, 0, 1);
    spec.rope_width = any(0, 0, 0, 0, 0, 1) ? 64 : 0;
    AttentionProblem problem;
    problem.heads = {8, 2};
    problem.max_q_len = static_cast<int>(any(0, 0, 0, 2));
    problem.mask.kind = spec.mask_tensor ? MaskKind::kTensor : MaskKind::kNone;
    for (ScoreTensor* shape : {&problem.mask.tensor, &problem.score_mod.tensor})
      *shape = {any(0, 1) != 0, any(0, 1) != 0, any(0, 1) != 0};
    const detail::LoadedAttention kernel = detail::describe(problem, {.main = spec}, {});

    AttentionTensors t;
    const auto address = [&] {
      return static_cast<DevicePtr>(any(16, 32, 64, 128, 256, 512, 1024, 2048, 0x1000, 0, 8));
    };
    const auto rarely = [&](bool taken) {
      return static_cast<DevicePtr>(taken ? any(4, 8, 12, 16, 20, 24, 28, 0, 2) : any(0, 0, 0, 0, 0, 0, 0, 0, 4));
    };
    t.q = address(), t.k = address(), t.v = address(), t.o = address();
    if (spec.rope_width > 0 || random() % 32 == 0) t.q_rope = address(), t.k_rope = address();
    t.lse = rarely(spec.lse), t.sinks = rarely(spec.sinks);
    t.q_offsets = rarely(spec.q_layout == QLayout::kRagged);
    t.kv_offsets = rarely(spec.kv_layout == KvLayoutKind::kRagged);
    t.kv_lengths = rarely(spec.kv_layout != KvLayoutKind::kRagged);
    t.kv_starts = rarely(spec.kv_starts);
    t.page_table = rarely(spec.kv_layout == KvLayoutKind::kPaged);
    t.k_scale = rarely(spec.scales != ScaleKind::kNone), t.v_scale = rarely(spec.scales != ScaleKind::kNone);
    t.mask = rarely(spec.mask_tensor), t.bias = rarely(spec.score_mod == ScoreModKind::kTensor);
    for (TensorStrides* strides : {&t.mask_strides, &t.bias_strides})
      if (any(0, 0, 0, 0, 1)) *strides = {any(4096, 0, -128, kFar), any(128, 0, -1, kFar << 4), any(256, 0, 1, kLeast)};
    t.batch = static_cast<int>(any(1, 2, 3, 4, 1 << 20, -1));
    t.q_len = static_cast<int>(any(1, 2, 2, 3, 1 << 10, -1));
    t.kv_len = static_cast<int>(any(64, 100, 128, 0, -1, 64, 100, 0x7fffffff));
    t.q_tokens = any(1, 1, 2, 3, 1 << 30, -1);
    t.kv_tokens = any(0, 0, 100, 100, -1);
    t.page_table_stride = static_cast<int>(any(1, 2, 2, 2, 0, -1));
    std::vector<TensorStrides*> operands{&t.q_strides, &t.k_strides, &t.v_strides, &t.o_strides};
    if (spec.rope_width > 0) operands.insert(operands.end(), {&t.q_rope_strides, &t.k_rope_strides});
    for (TensorStrides* strides : operands)
      if (any(0, 0, 0, 1))
        *strides = {any(4096, 0, 64, -128, kFar, kFar << 2, kLeast), any(1024, 128, 0, 1028, -128, kFar << 4),
                    any(128, 128, 256, 0, 132, kFar << 1)};
    if (any(0, 0, 0, 0, 1))
      t.scale = any(0, 1)   ? std::numeric_limits<float>::infinity()
                : any(0, 1) ? std::numeric_limits<float>::quiet_NaN()
                            : 1.f;
    if (any(0, 0, 0, 0, 1)) t.softcap = static_cast<float>(any(-1, 0, 30));
    t.num_pages = static_cast<int>(any(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, -1));
    if (any(0, 0, 0, 0, 1)) t.window = Window{.left = static_cast<int>(any(-2, -1, 7)), .right = 0};

    const detail::ResolvedStrides strides = detail::resolve_strides(kernel, t);
    const std::int64_t rows = spec.q_layout == QLayout::kRagged ? t.q_tokens : std::int64_t{t.batch} * t.q_len;
    if (!detail::surely_fine(kernel, t, strides, rows)) {
      ++refused;
      continue;
    }
    ++passed;
    if (spec.rope_width > 0) ++rotary;
    for (const Violation& broken : detail::broken_rules(kernel, t, strides))
      ADD_FAILURE() << broken.path << ": " << broken.message;
  }
  EXPECT_GT(passed, 1000);
  EXPECT_GT(rotary, 50);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace kernelwright::test
