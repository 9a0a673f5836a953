#include "kernelwright/generator/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "kernelwright/generator/problem/arch.h"

namespace kernelwright::validate_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kPortableFields =
    "arch, family, block_m, block_n, block_k, warp_n, num_stages, staging, token_gen, num_warps, scheduler, swizzle, "
    "pack_gqa, splits, merge, rescale";

template <class KindConfig>
std::vector<std::string> texts(const KindConfig& config, std::optional<Arch> arch = std::nullopt) {
  std::vector<std::string> lines;
  for (const Violation& violation : validate(config, arch)) lines.push_back(violation.text());
  return lines;
}

AttentionConfig attention() {
  AttentionConfig config;
  config.name = "t";
  config.problem.heads = {8, 2};
  return config;
}

/// What is wrong with a valid attention config after `change`.
std::vector<std::string> changed(const std::function<void(AttentionConfig&)>& change,
                                 std::optional<Arch> arch = std::nullopt) {
  AttentionConfig config = attention();
  change(config);
  return texts(config, arch);
}

TEST(ValidateAttention, IsContentWithWhatThePortableFamilyHas) {
  for (const int head_dim : {64, 80, 96, 128, 192, 256})
    for (const MaskKind mask :
         {MaskKind::kNone, MaskKind::kCausal, MaskKind::kSlidingWindow, MaskKind::kChunked, MaskKind::kPadding})
      for (const auto& [arch, word] : EnumTable<Arch>::entries)
        EXPECT_THAT(changed(
                        [&](AttentionConfig& config) {
                          config.problem.head_dim = {head_dim, 128};
                          config.problem.mask.kind = mask;
                          if (mask == MaskKind::kChunked) config.problem.mask.chunk = 8192;
                          config.problem.kv_layout = {KvLayoutKind::kPaged, 1};
                        },
                        arch),
                    IsEmpty());
}

TEST(ValidateAttention, ChecksDtypesTogether) {
  EXPECT_THAT(
      changed([](auto& config) {
        config.problem.dtype = {DType::kF16, DType::kBf16, DType::kF16};
      }),
      ElementsAre("/problem/dtype/kv: \"bf16\" does not fit; with f16 queries, keys and values are f16, e4m3 or e5m2"));
  EXPECT_THAT(
      changed([](auto& config) { config.problem.dtype.out = DType::kE4m3; }),
      testing::Contains("/problem/dtype/out: \"e4m3\" does not fit; the output is no narrower than the queries: "
                        "f16, bf16 or f32"));
  EXPECT_THAT(changed([](auto& config) { config.problem.dtype.q = DType::kF32; }),
              testing::Contains("/problem/dtype/q: \"f32\" does not fit; queries are f16, bf16 or e4m3"));
  EXPECT_THAT(changed([](auto& config) {
                config.problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
              }),
              IsEmpty())
      << "hopper and blackwell have it";
  EXPECT_THAT(changed([](auto& config) {
                config.problem.dtype = {DType::kE4m3, DType::kE5m2, DType::kBf16};
              }),
              ElementsAre("/problem/dtype/q: \"e4m3\" is not built yet for the portable family; it has f16, bf16"));
  EXPECT_THAT(changed([](auto& config) {
                config.problem.dtype.kv = DType::kE5m2;
                config.problem.scales = ScaleKind::kPerHead;
              }),
              IsEmpty());
}

TEST(ValidateAttention, ChecksHeads) {
  EXPECT_THAT(
      changed([](auto& config) {
        config.problem.heads = {30, 8};
      }),
      ElementsAre("/problem/heads/q: 30 query heads do not share 8 key/value heads evenly; it takes a multiple of 8"));
  EXPECT_THAT(
      changed([](auto& config) {
        config.problem.head_dim = {112, 512};
        config.schedule.family = Family::kPortable;
      }),
      ElementsAre(
          "/problem/head_dim/qk: 112 is not built yet for the portable family; it has 64, 80, 96, 128, 192, 256",
          "/problem/head_dim/v: 512 is not built yet for the portable family; it has 64, 80, 96, 128, 192, 256"));
}

TEST(ValidateAttention, ChecksLayouts) {
  EXPECT_THAT(changed([](auto& config) { config.problem.kv_layout.kind = KvLayoutKind::kPaged; }),
              ElementsAre("/problem/kv_layout/page_size: is missing for kind \"paged\"; it takes 1 to 65536"));
  EXPECT_THAT(
      changed([](auto& config) { config.problem.kv_layout.page_size = 16; }),
      ElementsAre("/problem/kv_layout/page_size: 16 has no meaning for kind \"padded\"; leave it out, or make the "
                  "kind \"paged\""));
  EXPECT_THAT(
      changed([](auto& config) { config.problem.kv_layout.kind = KvLayoutKind::kRagged; }),
      ElementsAre("/problem/kv_offsets: false leaves ragged keys beside padded queries without offsets; set it to "
                  "true, or make q_layout \"ragged\""));
  EXPECT_THAT(
      changed([](auto& config) { config.problem.kv_offsets = true; }),
      ElementsAre("/problem/kv_offsets: true has no meaning for kv_layout \"padded\"; leave it out, or make the kind "
                  "\"ragged\""));
  EXPECT_THAT(changed([](auto& config) {
                config.problem.kv_layout.kind = KvLayoutKind::kRagged;
                config.problem.kv_offsets = config.problem.kv_starts = true;
              }),
              ElementsAre("/problem/kv_starts: true has no meaning for kv_layout \"ragged\", whose offsets say where "
                          "sequences begin; leave it out"));
}

TEST(ValidateAttention, ChecksStartsOfShapes) {
  const auto with_starts = [](bool problem_has_them, std::vector<int> starts) {
    return changed([&](auto& config) {
      config.problem.kv_starts = problem_has_them;
      AttentionShape shape;
      shape.name = "s", shape.batch = 2, shape.kv_lens = {3, 1}, shape.kv_starts = starts;
      config.shapes = {shape};
    });
  };
  EXPECT_THAT(with_starts(true, {0, 1}), ElementsAre());
  EXPECT_THAT(with_starts(true, {0}),
              ElementsAre("/shapes/0/kv_starts: has 1 starts for batch 2; it takes one for each sequence"));
  EXPECT_THAT(with_starts(true, {3, 2}),
              ElementsAre("/shapes/0/kv_starts/1: 2 is behind the sequence's keys; it takes at most 1"));
  EXPECT_THAT(
      with_starts(false, {0, 1}),
      ElementsAre("/shapes/0/kv_starts: has no meaning for a problem without kv_starts; leave it out, or set the "
                  "problem's to true"));
}

TEST(ValidateAttention, ChecksTheFieldsOfEachMask) {
  EXPECT_THAT(changed([](auto& config) { config.problem.mask.window.left = 3; }),
              ElementsAre("/problem/mask/window: has no meaning for kind \"none\"; leave it out, or make the kind "
                          "\"sliding_window\""));
  EXPECT_THAT(
      changed([](auto& config) { config.problem.mask.chunk = 3; }),
      ElementsAre(
          "/problem/mask/chunk: 3 has no meaning for kind \"none\"; leave it out, or make the kind \"chunked\""));
  EXPECT_THAT(
      changed([](auto& config) { config.problem.mask.kind = MaskKind::kChunked; }),
      ElementsAre("/problem/mask/chunk: is missing for kind \"chunked\"; it takes the keys of one chunk, 1 or more"));
  EXPECT_THAT(
      changed([](auto& config) { config.problem.mask.operands.resize(2); }),
      ElementsAre("/problem/mask/operands: has no meaning for kind \"none\"; leave it out, or make the kind \"and\" or "
                  "\"or\""));
  EXPECT_THAT(
      changed([](auto& config) {
        config.problem.mask.kind = MaskKind::kOr;
        config.problem.mask.operands.resize(2);
        config.problem.mask.operands[1].chunk = 5;
      }),
      testing::Contains("/problem/mask/operands/1/chunk: 5 has no meaning for kind \"none\"; leave it out, or make the "
                        "kind \"chunked\""));
}

TEST(ValidateAttention, ChecksTheRestOfTheProblem) {
  EXPECT_THAT(changed([](auto& config) { config.problem.score_mod.kind = ScoreModKind::kSoftcap; }),
              ElementsAre("/problem/score_mod/cap: is missing for kind \"softcap\"; it takes a number above 0"));
  EXPECT_THAT(changed([](auto& config) { config.problem.score_mod.cap = 30; }),
              ElementsAre("/problem/score_mod/cap: has no meaning for kind \"none\"; leave it out, or make the kind "
                          "\"softcap\""));
  EXPECT_THAT(
      changed([](auto& config) { config.problem.scales = ScaleKind::kPerTensor; }),
      ElementsAre("/problem/scales: \"per_tensor\" has no meaning for bf16 keys and values; leave it out, or make "
                  "dtype.kv e4m3 or e5m2"));
  EXPECT_THAT(changed([](auto& config) { config.problem.rope.width = 129; }),
              ElementsAre("/problem/rope/width: 129 does not fit; it takes an even number up to head_dim.qk, 128",
                          "/problem/rope/width: 129 is not built yet for the portable family; it has 0 and "
                          "multiples of 16 to 64"));
}

TEST(ValidateAttention, RefusesFieldsOfOtherFamiliesByName) {
  EXPECT_THAT(
      changed([](auto& config) {
        config.schedule.family = Family::kPortable;
        config.schedule.num_kv_stages = 2;
        config.schedule.cluster = ClusterShape{2, 1};
        config.schedule.block_m = 64;
        config.schedule.scheduler = Scheduler::kQueued;
      }),
      ElementsAre(
          std::string("/schedule/num_kv_stages: the portable family has no num_kv_stages; its fields are ") +
              kPortableFields,
          std::string("/schedule/cluster: the portable family has no cluster; its fields are ") + kPortableFields,
          "/schedule/scheduler: \"queued\" is not built yet for the portable family; it has longest_first"));
}

TEST(ValidateAttention, SaysWhereAFamilyRuns) {
  EXPECT_THAT(changed([](auto& config) { config.schedule.family = Family::kHopper; }, Arch::kSm80),
              ElementsAre("/schedule/family: hopper kernels do not run on sm_80; they run on sm_90a"));
  EXPECT_THAT(changed([](auto& config) { config.schedule.family = Family::kBlackwell; }, Arch::kSm100a), IsEmpty());
  EXPECT_THAT(changed([](auto& config) { config.schedule.family = Family::kBlackwell; }, Arch::kSm90a),
              ElementsAre("/schedule/family: blackwell kernels do not run on sm_90a; they run on sm_100a, sm_103a"));
  EXPECT_THAT(
      changed([](auto& config) {
        config.schedule.family = Family::kBlackwell;
        config.schedule.arch = Arch::kSm120a;
      }),
      testing::Contains("/schedule/family: blackwell kernels do not run on sm_120a; they run on sm_100a, sm_103a"));
  EXPECT_THAT(changed([](auto& config) { config.schedule.arch = Arch::kSm80; }, Arch::kSm90a),
              ElementsAre("/schedule/arch: the schedule is for sm_80 and sm_90a was asked for; \"auto\" takes either"));
}

TEST(ValidateAttention, HoldsStructsFilledByCodeToTheFieldsRules) {
  EXPECT_THAT(
      changed([](auto& config) {
        config.problem.heads = {0, -1};
        config.problem.dtype.kv = static_cast<DType>(77);
        config.problem.score_mod = {ScoreModKind::kSoftcap, std::numeric_limits<double>::quiet_NaN()};
        config.schedule.num_stages = 33;
        config.name = "a/b";
      }),
      testing::IsSupersetOf({"/problem/heads/q: 0 is outside [1, 4096]", "/problem/heads/kv: -1 is outside [1, 4096]",
                             "/problem/dtype/kv: 77 is no dtype; it takes one of f16, bf16, e4m3, e5m2, f32, mxfp8, "
                             "mxfp4, nvfp4, tf32",
                             "/problem/score_mod/cap: NaN is outside [0, 1e+06]",
                             "/schedule/num_stages: 33 is outside [1, 32]"}));
}

TEST(ValidateAttention, BoundsMasksThatCodeNests) {
  Mask mask;
  for (int i = 0; i < 1000; ++i) mask = Mask{.kind = MaskKind::kAnd, .operands = {std::move(mask), Mask{}}};
  EXPECT_THAT(changed([&](auto& config) { config.problem.mask = mask; }),
              testing::Contains(HasSubstr("masks nest at most 8 deep")));
}

TEST(ValidateAttention, ChecksShapes) {
  const auto shape = [](AttentionShape shape) { return [=](AttentionConfig& config) { config.shapes = {shape}; }; };
  EXPECT_THAT(changed(shape({.name = "a", .batch = 3, .kv_lens = {1, 2}})),
              ElementsAre("/shapes/0/kv_lens: has 2 lengths for batch 3; it takes one for each sequence"));
  EXPECT_THAT(
      changed(shape({.name = "a", .batch = 2, .q_lens = {1, 2}})),
      ElementsAre("/shapes/0/q_lens: has no meaning for q_layout \"padded\", where every sequence has q_len queries; "
                  "leave it out, or make q_layout \"ragged\""));
  EXPECT_THAT(changed([](auto& config) {
                config.shapes = {{.name = "a"}, {.name = "b"}, {.name = "a"}};
              }),
              ElementsAre("/shapes/2/name: \"a\" names an earlier shape too; each needs its own"));
  EXPECT_THAT(changed([](auto& config) {
                config.problem.max_q_len = 1;
                config.shapes = {{.name = "a", .q_len = 2}};
              }),
              ElementsAre("/shapes/0/q_len: 2 is above max_q_len; it takes at most 1"));
  EXPECT_THAT(
      changed([](auto& config) {
        config.problem.q_layout = QLayout::kRagged;
        config.problem.kv_layout.kind = KvLayoutKind::kRagged;
        config.shapes = {{.name = "a", .batch = 2, .q_lens = {1, 2}, .kv_lens = {1, 3}}, {.name = "b", .batch = 2}};
      }),
      ElementsAre("/shapes/0/kv_lens: differ from the queries', whose offsets the keys share; make them equal, or set "
                  "kv_offsets to true"));
}

GemmConfig gemm() {
  GemmConfig config;
  config.name = "t";
  config.problem.n = 4096;
  config.problem.k = 4096;
  return config;
}

TEST(ValidateGemm, IsContentOnEveryArchitecture) {
  for (const ArchInfo& arch : all_archs()) EXPECT_THAT(texts(gemm(), arch.arch), IsEmpty()) << arch.name;
}

TEST(ValidateGemm, Fp8NeedsAnArchitectureThatHasIt) {
  GemmConfig config = gemm();
  config.problem.dtype = {DType::kE4m3, DType::kE5m2, DType::kE4m3};
  EXPECT_THAT(texts(config, Arch::kSm89), IsEmpty());
  EXPECT_THAT(texts(config), IsEmpty()) << "no architecture is known yet";
  EXPECT_THAT(
      texts(config, Arch::kSm86),
      ElementsAre("/problem/dtype/a: \"e4m3\" operands have no product on sm_86; sm_89, sm_90a, sm_100a, sm_103a, "
                  "sm_120a have one; sm_89, sm_90a, sm_100a, sm_103a and sm_120a take this problem",
                  "/problem/dtype/d: sm_86 does not round to \"e4m3\"; sm_89, sm_90a, sm_100a, sm_103a, sm_120a do"));
}

TEST(ValidateGemm, PortableNamesWhatItLacks) {
  GemmConfig config = gemm();
  config.schedule.family = Family::kPortable;
  config.schedule.block_m = 96;
  config.schedule.block_n = 256;
  config.schedule.split_k = 2;
  EXPECT_THAT(
      texts(config, Arch::kSm80),
      ElementsAre("/schedule/split_k: the portable family has no split_k; its fields are arch, family, block_m, "
                  "block_n, block_k, stages, swizzle, raster",
                  "/schedule/block_m: 96 is not built yet for the portable family; it has 16, 32, 64, 128",
                  "/schedule/block_n: 256 is not built yet for the portable family; it has 32, 64, 128"));
  config.schedule = {};
  config.problem.layout = OperandLayout::kTn;
  config.problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  EXPECT_THAT(texts(config, Arch::kSm120a),
              ElementsAre("/problem/layout: \"tn\" is not built yet for the portable family; it has nt"));
}

TEST(ValidateGemm, ChecksFieldsTogether) {
  GemmConfig config = gemm();
  config.problem.n = 100;
  config.problem.k = 12;
  config.problem.dtype = {DType::kBf16, DType::kF16, DType::kMxfp4, DType::kE4m3};
  config.problem.scales = ScaleKind::kPerHead;
  config.problem.epilogue = "";
  config.problem.fast_accumulation = true;
  config.schedule.arch = Arch::kSm90a;
  config.schedule.family = Family::kBlackwell;
  EXPECT_THAT(
      texts(config),
      ElementsAre(
          "/problem/k: 12 leaves rows of a, bf16, off their 16-byte boundaries; it takes a multiple of 8",
          "/problem/epilogue: \"\": the end where acc, alpha or an activation would do; it takes activation(alpha * "
          "acc + bias) + beta * c, or a part of it that has acc, or activation(gate) * up",
          "/problem/dtype/b: \"f16\" does not go with a's \"bf16\"; it takes bf16",
          "/problem/dtype/c: \"e4m3\" does not fit; bias and c are f16, bf16 or f32",
          "/problem/dtype/d: \"mxfp4\" does not fit; the result is f16, bf16, f32, e4m3 or e5m2, or the "
          "epilogue quantises to mxfp4",
          "/problem/scales: \"per_head\" has no meaning for a GEMM; it takes none, per_tensor, per_block or per_token",
          "/problem/fast_accumulation: true has no meaning for bf16 operands, whose sums are f32; leave it out",
          "/schedule/family: blackwell kernels do not run on sm_90a; they run on sm_100a, sm_103a",
          "/problem/n: 100 leaves rows of d, mxfp4, off their 16-byte boundaries; it takes a multiple of 32"));
}

TEST(ValidateGemm, LayoutsSayWhichRowsLieOnBoundaries) {
  GemmConfig config = gemm();
  config.problem.layout = OperandLayout::kTn;  // a [k, m], b [k, n]: k is no row of either
  config.problem.k = 12;
  EXPECT_THAT(texts(config, Arch::kSm90a), IsEmpty());
  config.problem.n = 100;
  EXPECT_THAT(
      texts(config),
      ElementsAre("/problem/n: 100 leaves rows of b, bf16, off their 16-byte boundaries; it takes a multiple of 8"));
  config.problem.layout = OperandLayout::kNt;
  config.problem.k = 8;
  EXPECT_THAT(texts(config, Arch::kSm90a), IsEmpty()) << "portable stores elements";
  config.schedule.family = Family::kHopper;
  EXPECT_THAT(texts(config, Arch::kSm90a),
              ElementsAre("/problem/n: 100 leaves rows of d, bf16, off their 16-byte boundaries; it takes a multiple "
                          "of 8; the portable family takes this problem"));
}

TEST(ValidateGemm, AsksForScalesWhereTheFormatHasThem) {
  GemmConfig config = gemm();
  config.problem.dtype = {DType::kNvfp4, DType::kNvfp4, DType::kBf16};
  EXPECT_THAT(texts(config), ElementsAre("/problem/scales: \"none\" does not fit nvfp4 operands; they take per_block"));
  config.problem.scales = ScaleKind::kPerBlock;
  EXPECT_THAT(texts(config), IsEmpty());
  config.problem.dtype = {};
  EXPECT_THAT(texts(config),
              ElementsAre("/problem/scales: \"per_block\" has no meaning for bf16 operands; leave it out, or "
                          "make them e4m3 or e5m2"));
  config.problem.dtype = {DType::kE4m3, DType::kE5m2, DType::kBf16};
  EXPECT_THAT(texts(config), IsEmpty());
}

TEST(ValidateGemm, BlockScaledOperandsLieInOneWay) {
  GemmConfig config = gemm();
  config.problem.scales = ScaleKind::kPerBlock;
  for (const DType format : {DType::kMxfp8, DType::kMxfp4, DType::kNvfp4}) {
    const std::string word(to_string(format));
    config.problem.dtype = {format, format, DType::kBf16};
    config.problem.k = 96;
    config.problem.layout = OperandLayout::kNt;
    EXPECT_THAT(texts(config), IsEmpty()) << word;
    config.problem.k = 48;
    config.problem.layout = OperandLayout::kTn;
    EXPECT_THAT(
        texts(config),
        ElementsAre("/problem/k: 48 is no whole number of blocks of " + word + "; it takes a multiple of 32",
                    "/problem/layout: \"tn\" does not fit " + word + " operands, whose k is innermost; they take nt"));
    config.problem.dtype.b = DType::kE4m3;
    EXPECT_THAT(texts(config),
                Contains("/problem/dtype/b: \"e4m3\" does not go with a's \"" + word + "\"; it takes " + word));
  }
}

TEST(ValidateGemm, Tf32OperandsAreBothThat) {
  GemmConfig config = gemm();
  config.problem.dtype = {DType::kTf32, DType::kTf32, DType::kF32};
  EXPECT_THAT(texts(config), IsEmpty());
  config.problem.layout = OperandLayout::kNn;
  config.problem.scales = ScaleKind::kPerTensor;
  EXPECT_THAT(texts(config),
              ElementsAre("/problem/layout: \"nn\" does not fit tf32 operands, whose k is innermost; they take nt",
                          "/problem/scales: \"per_tensor\" has no meaning for tf32 operands; leave it out, or make "
                          "them e4m3 or e5m2"));
  config.problem = gemm().problem;
  config.problem.dtype = {DType::kF32, DType::kF32, DType::kTf32};
  EXPECT_THAT(
      texts(config),
      ElementsAre("/problem/dtype/a: \"f32\" does not fit; operands are f16, bf16, e4m3, e5m2, mxfp8, mxfp4, nvfp4 or "
                  "tf32",
                  "/problem/dtype/d: \"tf32\" does not fit; the result is f16, bf16, f32, e4m3 or e5m2"));
}

}  // namespace
}  // namespace kernelwright::validate_test
