// Masks and biases that are tensors, in every form of attention. They must match the fp64 reference, cause no report of
// the emulator, and give the same bits under every schedule. Elements that no query may read are NaN or show a key; one
// row of eight of a mask hides all keys. Also kernels with a deliberate mistake there, each of which must be found.
// Needs NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "kernelwright/generator/attention/planner.h"
#include "support/cuda_engine.h"
#include "support/emulated_attention.h"
#include "support/kernel_faults.h"

namespace kernelwright {
namespace {

using test::change, test::drop;

using namespace test;
using testing::MatchesRegex;

Mask tensor_mask(ScoreTensor shape) {
  Mask mask;
  mask.kind = MaskKind::kTensor;
  mask.tensor = shape;
  return mask;
}

Mask with_range(MaskKind kind, Window window, int chunk, const Mask& open) {
  Mask range, both;
  range.kind = kind, range.window = window, range.chunk = chunk;
  both.kind = MaskKind::kAnd;
  both.operands = {range, open};
  return both;
}

ScoreMod tensor_bias(ScoreTensor shape, DType dtype) {
  ScoreMod mod;
  mod.kind = ScoreModKind::kTensor;
  mod.tensor = shape, mod.dtype = dtype;
  return mod;
}

struct OpenCase : CudaCase {
  const char* kernel;
  Arch arch = Arch::kSm90a;
};

/// Each form of attention once, with another dtype, layout, range beside the mask and shape of both tensors.
const std::vector<OpenCase>& open_cases() {
  static const std::vector<OpenCase> cases = [] {
    std::vector<OpenCase> made;
    const auto add = [&](const char* name, const char* kernel, Family family, Arch arch) -> OpenCase& {
      OpenCase& one = made.emplace_back();
      one.name = name, one.kernel = kernel, one.arch = arch;
      one.problem.head_dim = {64, 64};
      one.problem.heads = {4, 2};
      one.problem.lse = true;
      one.schedule.family = family;
      one.options.padding_tokens = 3;  // of both tensors' rows, too
      one.shape.batch = 2;
      return one;
    };
    OpenCase& prefill = add("portable_prefill", "attention_portable", Family::kPortable, Arch::kSm90a);
    prefill.problem.mask = with_range(MaskKind::kCausal, {}, 0, tensor_mask({.batch = false}));
    prefill.problem.score_mod = tensor_bias({.q = false}, DType::kF32);
    prefill.schedule.block_n = 64, prefill.schedule.warp_n = 32;  // two warps share a row's keys
    prefill.shape.q_len = 37, prefill.shape.kv_len = 75;

    OpenCase& decode = add("portable_decode", "attention_decode_portable", Family::kPortable, Arch::kSm90a);
    decode.problem.dtype = {DType::kF16, DType::kF16, DType::kF16};
    decode.problem.kv_layout = {KvLayoutKind::kPaged, 16};
    decode.problem.mask = tensor_mask({.heads = false});
    decode.problem.score_mod = tensor_bias({.batch = false}, DType::kBf16);
    decode.problem.max_q_len = 4;
    decode.schedule.splits = 2;
    decode.shape.q_len = 3, decode.shape.kv_lens = {150, 81};

    OpenCase& hopper = add("hopper_prefill", "attention_sm90", Family::kHopper, Arch::kSm90a);
    hopper.problem.q_layout = QLayout::kRagged;
    hopper.problem.kv_layout.kind = KvLayoutKind::kRagged;
    hopper.problem.kv_offsets = true;
    // The window begins behind key 0, from which keys of both tensors count.
    hopper.problem.mask = with_range(MaskKind::kSlidingWindow, {60, 0}, 0, tensor_mask({}));
    hopper.problem.score_mod = tensor_bias({}, DType::kBf16);
    hopper.schedule.block_n = 48;
    hopper.shape.q_lens = {70, 9}, hopper.shape.kv_lens = {190, 33};

    OpenCase& gathered = add("hopper_decode", "attention_decode_sm90", Family::kHopper, Arch::kSm90a);
    gathered.problem.mask = with_range(MaskKind::kChunked, {}, 48, tensor_mask({.batch = false, .q = false}));
    gathered.problem.score_mod = tensor_bias({.heads = false}, DType::kF16);
    gathered.problem.max_q_len = 2;
    gathered.schedule.token_gen = true;
    gathered.schedule.splits = 3;
    gathered.shape.q_len = 2, gathered.shape.kv_lens = {130, 90};

    OpenCase& blackwell = add("blackwell_prefill", "attention_sm100", Family::kBlackwell, Arch::kSm100a);
    blackwell.problem.mask = with_range(MaskKind::kSlidingWindow, {40, 5}, 0, tensor_mask({.heads = false}));
    blackwell.problem.score_mod = tensor_bias({.batch = false}, DType::kF16);
    blackwell.problem.scales = ScaleKind::kNone;
    blackwell.schedule.block_n = 64;
    blackwell.shape.q_len = 50, blackwell.shape.kv_len = 160;
    return made;
  }();
  return cases;
}

const OpenCase& open_case(const std::string& name) {
  return *std::find_if(open_cases().begin(), open_cases().end(), [&](const auto& one) { return one.name == name; });
}

class OpenScoresOnTheEmulator : public OnTheEmulator<OpenCase> {};

TEST_P(OpenScoresOnTheEmulator, AreRightHoweverTheyAreScheduled) {
  const OpenCase& test = GetParam();
  ASSERT_EQ(kernel_name(plan_attention(test.problem, test.schedule, test.arch).main), test.kernel);
  Engine few = make_checking_engine(3, emulator::Completion::kRandom, 5, test.arch),
         many = make_checking_engine(132, emulator::Completion::kLazy, 0, test.arch);
  const AttentionCase call = inputs_of(test);
  const AttentionOutput output = run_checked(few, test, call);
  expect_right(call, output);
  expect_same_bits(output, run_checked(many, test, call), "two machines differ");
  const auto unseen = std::count(output.lse.begin(), output.lse.end(), -INFINITY);
  EXPECT_GE(unseen, 1) << "no row had all of its keys hidden";
}

// Some masks add the lowest number of a dtype. Times log2 e that would be -inf, and a row of such scores would be NaN.
TEST_P(OpenScoresOnTheEmulator, AreAMeanWhereEveryKeyHasTheLowestBias) {
  OpenCase test = GetParam();
  test.problem.score_mod.dtype = DType::kBf16;
  Engine engine = make_checking_engine(3, emulator::Completion::kRandom, 5, test.arch);
  AttentionCase call = inputs_of(test);
  constexpr float kLowest = -0x1.fep127f;  // of bf16
  for (std::size_t i = 0; i < call.bias.values.size(); ++i)
    if (i % 2 == 0 || i < call.bias.values.size() / 2) call.bias.values[i] = kLowest;
  const AttentionOutput output = run_checked(engine, test, call);
  expect_right(call, output);
  EXPECT_GE(std::count(output.lse.begin(), output.lse.end(), -0x1p127f), 1) << "no row had the lowest bias alone";
}

INSTANTIATE_TEST_SUITE_P(, OpenScoresOnTheEmulator, testing::ValuesIn(open_cases()),
                         [](const auto& info) { return info.param.name; });

// ---- sources ----

constexpr const char* kSources = R"(
#include "policy/place.cuh"
namespace mine {
/// A window of which every third key is left out, another one for each head and sequence.
struct Dilated {
  static __device__ bool visible(const kernelwright::Place& at) {
    return (at.diagonal() - at.key + at.head + at.batch) % 3 != 0;
  }
};
/// Depends on all that a place has.
struct Tilted {
  __device__ float apply(float score, const kernelwright::Place& at) const {
    return score * (at.head % 2 == 0 ? 0.5f : 1.f) + 0.0625f * (at.query % 5) + 0.03125f * (at.key % 7) -
           0.125f * at.batch + 0.25f * (at.kv_len - at.q_len > 100 ? 1 : 0);
  }
};
}  // namespace mine
)";

/// The forms above with sources in place of their tensors.
OpenCase with_sources(OpenCase test) {
  Mask source;
  source.kind = MaskKind::kSource;
  source.source = {"policies.cuh", "mine::Dilated", kSources, {}};
  Mask& mask = test.problem.mask;
  (mask.kind == MaskKind::kAnd ? mask.operands[1] : mask) = source;
  test.problem.score_mod = {};
  test.problem.score_mod.kind = ScoreModKind::kSource;
  // A header of its own: both are included.
  test.problem.score_mod.source = {"policies.cuh", "mine::Tilted", "", {}};
  test.problem.score_mod.source.text =
      "namespace other {" + std::string(kSources).substr(std::string(kSources).find("namespace mine")) + "}\n";
  test.problem.score_mod.source.text = "#include \"policy/place.cuh\"\n" + test.problem.score_mod.source.text;
  test.problem.score_mod.source.type = "other::mine::Tilted";
  return test;
}

AttentionCase inputs_with_references(const OpenCase& test) {
  AttentionCase call = inputs_of(test);
  EXPECT_EQ(call.unchecked.find("is a source without a \"reference\"") != std::string::npos, true) << call.unchecked;
  call.unchecked.clear();
  call.shows = [](const ScorePlace& at) {
    return (at.query + at.kv_len - at.q_len - at.key + at.head + at.sequence) % 3 != 0;
  };
  call.modifies = [](double score, const ScorePlace& at) {
    return score * (at.head % 2 == 0 ? 0.5 : 1) + at.query % 5 / 16. + at.key % 7 / 32. - at.sequence / 8. +
           (at.kv_len - at.q_len > 100 ? 0.25 : 0);
  };
  return call;
}

class SourcePoliciesOnTheEmulator : public OnTheEmulator<OpenCase> {};

TEST_P(SourcePoliciesOnTheEmulator, AreAskedForTheirPlaces) {
  const OpenCase test = with_sources(GetParam());
  Engine engine = make_checking_engine(3, emulator::Completion::kRandom, 5, test.arch);
  const AttentionCase call = inputs_with_references(test);
  const AttentionOutput output = run_checked(engine, test, call);
  expect_right(call, output);
  // The source's answer matters: with another answer the result is not right.
  AttentionCase other = call;
  other.shows = [](const ScorePlace&) { return true; };
  EXPECT_FALSE(verdict_of(other, output).passed);
  other = call;
  other.modifies = [](double score, const ScorePlace&) { return score; };
  EXPECT_FALSE(verdict_of(other, output).passed);
}

INSTANTIATE_TEST_SUITE_P(, SourcePoliciesOnTheEmulator, testing::ValuesIn(open_cases()),
                         [](const auto& info) { return info.param.name; });

/// The forms that this machine's GPU has, with tensors and with sources.
TEST(OpenScoresOnCuda, AreRightAndRepeatTheirBits) {
  CudaEngine& cuda = CudaEngine::get();
  if (!cuda.engine) GTEST_SKIP() << "no GPU: " << cuda.missing;
  Device& device = cuda.engine->device(0);
  for (const OpenCase& test : open_cases()) {
    if (test.arch != *device.info().arch) continue;
    for (const bool sources : {false, true}) {
      SCOPED_TRACE(test.name + (sources ? " with sources" : " with tensors"));
      const OpenCase asked = sources ? with_sources(test) : test;
      const AttentionCase call = sources ? inputs_with_references(asked) : inputs_of(asked);
      const auto launched = launch_twice(device, call, cuda.engine->prepare(asked.problem, asked.schedule));
      EXPECT_TRUE(launched.repeats) << "two launches differ";
      EXPECT_TRUE(launched.guards_intact) << "memory beside an output was written";
      expect_right(call, launched.output);
    }
  }
}

using SourcePolicies = OnTheEmulator<int>;

TEST_F(SourcePolicies, ThatAreNotCheckedHaveNotPassed) {
  const OpenCase test = with_sources(open_case("portable_decode"));
  const AttentionCase call = inputs_of(test);
  const Verdict verdict = verify(call, {});
  EXPECT_FALSE(verdict.passed);
  EXPECT_EQ(verdict.text,
            "not checked: /problem/mask is a source without a \"reference\"; /problem/score_mod is a source without a "
            "\"reference\"");
}

TEST_F(SourcePolicies, NameTheFieldOfAReferenceThatIsNotThere) {
  const auto refusal = [](const PolicyReference& reference) {
    OpenCase test = with_sources(open_case("portable_decode"));
    test.problem.mask.source.reference = reference;
    try {
      inputs_of(test);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(refusal({.array = "/nowhere/a.npy"}), testing::StartsWith("/problem/mask/reference/array: "));
  EXPECT_THAT(refusal({.library = "/nowhere/a.so", .symbol = "f"}),
              testing::StartsWith("/problem/mask/reference/library: cannot be loaded: "));
}

TEST_F(SourcePolicies, AreRefusedWithTheirFieldTheirFileAndTheCompilersFirstLine) {
  OpenCase test = with_sources(open_case("portable_decode"));
  Engine engine = make_checking_engine(3, emulator::Completion::kEager, 0, test.arch);
  const auto refusal = [&](const std::string& text, const std::string& type) {
    AttentionProblem problem = test.problem;
    problem.score_mod = {};
    problem.mask.source.text = text, problem.mask.source.type = type;
    try {
      engine.prepare(problem, test.schedule);
    } catch (const CompileError& error) {
      return std::string(error.what()).substr(0, std::string(error.what()).find('\n'));
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(
      refusal("struct A {\n  bool visible(int) const { return true; }\n};\n", "A"),
      MatchesRegex("/problem/mask/file: \"policies.cuh\" does not compile as A: policy/open_scores.cuh.[0-9]+.: "
                   "error: static assertion failed with \"the mask's type has no member bool visible.const "
                   "kernelwright::Place&. const that T.. can be asked\""));
  EXPECT_EQ(refusal("struct A {\n  bool visible(const kernelwright::Place& p) const { return p.clef > 0; }\n};\n", "A"),
            "/problem/mask/file: \"policies.cuh\" does not compile as A: policies.cuh(2): error: class "
            "\"kernelwright::Place\" has no member \"clef\"");
  EXPECT_THAT(
      refusal("struct A {};\n", "B"),
      MatchesRegex("/problem/mask/file: \"policies.cuh\" does not compile as B: spec.h.[0-9]+.: error: the global "
                   "scope has no \"B\""));
  // Text that a header leaves open, or defines, affects the text after the header.
  for (const char* text : {"namespace a { struct A {};\n", "struct A {}\n", "struct A {};\n#define value 3\n"})
    EXPECT_THAT(refusal(text, "A"), testing::StartsWith("/problem/mask/file: ")) << text;
  EXPECT_THAT(refusal("struct A {};\n#define value 3\n", "A"),
              testing::StartsWith("/problem/mask/file: the kernel around \"policies.cuh\" does not compile: "));
}

struct OpenFault {
  const char* name;
  const char* on;  // an open case
  TemplateEdit edit;
  bool always;
};

const OpenFault kFaults[] = {
    {"a_byte_of_the_mask_is_read_as_its_opposite", "portable_decode",
     change("OpenRow::operator()", "mask_", "[key] =", "[key] !"), true},
    {"keys_behind_the_sequence_are_read", "hopper_prefill",
     change("OpenRow::operator()", "keys_", "key >= keys_.high", "false"), true},
    {"rows_that_are_not_there_are_read", "portable_prefill",
     change("OpenRow::OpenRow", "OpenRow", "is_there ? keys.high : keys.low", "keys.high"), true},
    {"keys_count_from_the_first_tile", "blackwell_prefill",
     change("SoftmaxThread::open", "scores origin", "origin +", ""), true},
    {"keys_count_from_the_first_tile_of_hopper", "hopper_prefill",
     change("open_scores", "origin kBlockN", "first +", ""), false},
    {"every_item_is_of_the_first_sequence", "hopper_prefill",
     change("describe", "offset", "kOpen ? work.coord.batch :", ""), false},
    {"batches_share_their_elements", "portable_decode",
     change("OpenRow::offset", "batch", "place.batch * strides.batch +", ""), false},
    {"heads_share_their_elements", "hopper_decode",
     change("OpenRow::offset", "batch", "+ place.head * strides.head", ""), false},
    {"queries_share_their_elements", "blackwell_prefill",
     change("OpenRow::offset", "batch", "+ place.query * strides.token", ""), false},
    {"the_bias_is_left_out", "hopper_decode", drop("OpenRow::operator()", "value_of bias_"), false},
    {"the_bias_is_scaled", "portable_prefill",
     change("OpenRow::operator()", "value_of bias_", "value_of(bias_[key])", "value_of(bias_[key]) * 1.02f"), false},
    {"every_fragment_is_of_the_first_columns", "portable_decode",
     change("open_keys", "open key", "+ Fragment::column(i)", ""), false},
};

/// A few of each kind; all of them with KERNELWRIGHT_ALL_FAULTS=1.
std::vector<OpenFault> faults() {
  std::vector<OpenFault> chosen;
  for (const OpenFault& fault : kFaults)
    if (fault.always || std::getenv("KERNELWRIGHT_ALL_FAULTS")) chosen.push_back(fault);
  return chosen;
}

class FaultyOpenScores : public OnTheEmulator<OpenFault> {};

TEST_P(FaultyOpenScores, AreFound) {
  const OpenFault& fault = GetParam();
  const OpenCase& test = open_case(fault.on);
  const Findings findings = run_with_edits(test.kernel, test, {fault.edit}, test.arch);
  EXPECT_FALSE(findings.found.empty());
  EXPECT_FALSE(findings.found.contains("refused")) << findings.text;
}

INSTANTIATE_TEST_SUITE_P(, FaultyOpenScores, testing::ValuesIn(faults()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kernelwright
