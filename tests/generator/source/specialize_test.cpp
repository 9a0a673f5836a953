#include "kernelwright/generator/source/specialize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "support/paths.h"

namespace kernelwright {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

AttentionSpec prefill() {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.mask = MaskKind::kCausal;
  spec.min_ctas = 2;
  return spec;
}

AttentionSpec decode() {
  AttentionSpec spec;
  spec.arch = Arch::kSm80;
  spec.q = spec.out = DType::kF16;
  spec.kv = DType::kE4m3;
  spec.scales = ScaleKind::kPerHead;
  spec.group = 4;
  spec.kv_layout = KvLayoutKind::kPaged;
  spec.page_size = 16;
  spec.token_gen = spec.pack_gqa = true;
  spec.staging = Staging::kRegisters;
  spec.block_m = 16;
  spec.merge = Merge::kInKernel;
  return spec;
}

AttentionSpec hopper() {
  AttentionSpec spec;
  spec.family = Family::kHopper;
  spec.arch = Arch::kSm90a;
  spec.mask = MaskKind::kCausal;
  spec.block_n = 128;
  spec.q_stages = 2;
  spec.scheduler = Scheduler::kLongestFirst;
  return spec;
}

AttentionSpec hopper_decode() {
  AttentionSpec spec;
  spec.family = Family::kHopper;
  spec.arch = Arch::kSm90a;
  spec.group = 4;
  spec.token_gen = spec.pack_gqa = true;
  spec.block_m = 16;
  spec.num_stages = 4;
  spec.merge = Merge::kInKernel;
  return spec;
}

AttentionSpec blackwell() {
  AttentionSpec spec;
  spec.family = Family::kBlackwell;
  spec.arch = Arch::kSm100a;
  spec.mask = MaskKind::kCausal;
  spec.block_m = 256;
  spec.block_n = 128;
  spec.num_kv_stages = 5;
  spec.kv_ring = KvRing::kShared;
  spec.exp2_emulated = 3;
  spec.scheduler = Scheduler::kLongestFirst;
  return spec;
}

GemmSpec portable_gemm() {
  GemmSpec spec;
  spec.bias = true;
  spec.activation = Activation::kGelu;
  spec.num_warps = 8;
  return spec;
}

GemmSpec blackwell_gemm() {
  GemmSpec spec;
  spec.family = Family::kBlackwell;
  spec.arch = Arch::kSm100a;
  spec.block_n = 256;
  spec.stages = 6;
  spec.cluster_m = spec.cta_group = 2;
  spec.scheduler = Scheduler::kQueued;
  spec.clc_depth = 2;
  return spec;
}

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Compares with the stored text, so that a diff shows what a change emits. KERNELWRIGHT_UPDATE_GOLDEN=1 writes the
/// file anew.
void expect_golden(const Spec& spec, const std::string& name) {
  const std::filesystem::path path = test::source_dir() / "tests" / "golden" / name;
  if (std::getenv("KERNELWRIGHT_UPDATE_GOLDEN")) std::ofstream(path) << spec_header(spec);
  EXPECT_EQ(spec_header(spec), file_text(path)) << path;
}

TEST(SpecHeader, OfAPrefillIsAsShipped) { expect_golden(prefill(), "attention_portable.spec.h"); }
TEST(SpecHeader, OfADecodeIsAsShipped) { expect_golden(decode(), "attention_decode_portable.spec.h"); }
TEST(SpecHeader, OfAHopperPrefillIsAsShipped) { expect_golden(hopper(), "attention_sm90.spec.h"); }
TEST(SpecHeader, OfAHopperDecodeIsAsShipped) { expect_golden(hopper_decode(), "attention_decode_sm90.spec.h"); }
TEST(SpecHeader, OfABlackwellPrefillIsAsShipped) { expect_golden(blackwell(), "attention_sm100.spec.h"); }
TEST(SpecHeader, OfAPortableGemmIsAsShipped) { expect_golden(portable_gemm(), "gemm_portable.spec.h"); }
TEST(SpecHeader, OfABlackwellGemmIsAsShipped) { expect_golden(blackwell_gemm(), "gemm_sm100.spec.h"); }
TEST(SpecHeader, OfACombineIsAsShipped) {
  expect_golden(CombineSpec{Arch::kSm100a, DType::kBf16, 128, true}, "attention_combine.spec.h");
}

TEST(SpecHeader, OfAQuantiserIsAsShipped) {
  expect_golden(QuantizeSpec{Arch::kSm100a, DType::kF32, DType::kNvfp4}, "quantize.spec.h");
}

TEST(SpecHeader, OfACacheWriterIsAsShipped) {
  KvWriteSpec write;
  write.arch = Arch::kSm90a;
  write.kv = DType::kE4m3;
  write.q_heads = 32, write.kv_heads = 8;
  write.norm = NormKind::kRms, write.norm_weight = true;
  write.rope = RopeStyle::kNeox, write.rope_width = 128;
  write.k_scales = write.v_scales = ScaleKind::kPerHead;
  expect_golden(write, "kv_write.spec.h");
}

TEST(SpecHeader, OfARowOpIsAsShipped) {
  RowOpSpec rows;
  rows.arch = Arch::kSm90a;
  rows.out = DType::kE4m3;
  rows.width = 7168, rows.adds = true;
  rows.norm = NormKind::kRms, rows.norm_weight = true;
  rows.scales = ScaleKind::kPerBlock, rows.scale_columns = true;
  rows.vector = 16, rows.threads_per_row = 448;
  expect_golden(rows, "row_op.spec.h");
}

TEST(SpecHeader, OfAChoiceOfExpertsIsAsShipped) {
  RouteSpec route;
  route.arch = Arch::kSm90a;
  route.experts = route.buckets = 256, route.top_k = 8;
  route.softmax = false, route.sigmoid = route.biased = route.renormalized = true;
  route.groups = 8, route.picked_groups = 4;
  route.bounded = route.short_counts = true;
  expect_golden(route, "route.spec.h");
  RouteSortSpec sort;
  static_cast<RouteSortFields&>(sort) = route;
  sort.arch = route.arch;
  expect_golden(sort, "route_sort.spec.h");
  MoeCombineSpec sums;
  sums.arch = Arch::kSm90a;
  sums.width = 7168, sums.top_k = 8;
  sums.adds = true;
  expect_golden(sums, "moe_combine.spec.h");
}

TEST(CanonicalText, HasALineForEveryField) {
  for (AttentionSpec spec : {prefill(), decode(), hopper(), hopper_decode(), blackwell()}) {
    int fields = 0;
    const std::string text = "\n" + canonical_text(spec);
    visit_fields(spec, [&](const char* name, auto&, const auto&, const char*) {
      ++fields;
      EXPECT_THAT(text, HasSubstr("\n" + std::string(name) + " "));
    });
    EXPECT_EQ(std::count(text.begin() + 1, text.end(), '\n'), fields);
  }
}

TEST(CanonicalText, HasNoFieldOfAnotherFamily) {
  EXPECT_THAT(canonical_text(prefill()), Not(HasSubstr("math_warpgroups")));
  EXPECT_THAT(canonical_text(hopper()), Not(HasSubstr("num_warps")));
  EXPECT_THAT(canonical_text(hopper()), Not(HasSubstr("exp2_emulated")));
  EXPECT_THAT(canonical_text(blackwell()), Not(HasSubstr("math_warpgroups")));
  AttentionSpec same = hopper();
  same.num_warps = 8;
  EXPECT_EQ(canonical_text(same), canonical_text(hopper()));
}

/// Every field of a Spec reaches its name, its text and its header: none can be compiled in and yet be missing from the
/// key.
TEST(Specialize, TellsApartSpecsThatDifferInAnyField) {
  const auto tells_apart = [](const auto& start) {
    const SourceUnit original = specialize(start);
    auto probe = start;
    visit_fields(probe, [&](const char* name, auto& value, const auto&, const char*) {
      const auto kept = value;
      using T = std::decay_t<decltype(value)>;
      if constexpr (std::is_same_v<T, int> || std::is_same_v<T, float>)
        value += 16;
      else if constexpr (std::is_same_v<T, bool>)
        value = !value;
      else if constexpr (std::is_same_v<T, SpecSource>)
        value = {value.type + "Other", value.text, "", ""};
      else
        value =
            value == EnumTable<T>::entries[0].first ? EnumTable<T>::entries[1].first : EnumTable<T>::entries[0].first;
      const SourceUnit changed = specialize(probe);
      EXPECT_NE(changed.entry, original.entry) << name;
      EXPECT_NE(changed.spec_text, original.spec_text) << name;
      EXPECT_NE(changed.spec_header, original.spec_header) << name;
      value = kept;
    });
  };
  AttentionSpec open = prefill();
  open.mask_tensor = true;
  for (const AttentionSpec& start : {prefill(), hopper(), blackwell(), open}) tells_apart(start);
  for (const GemmSpec& start : {portable_gemm(), blackwell_gemm()}) tells_apart(start);
}

TEST(Specialize, NamesTheEntryByTheSpecAlone) {
  EXPECT_EQ(specialize(prefill()).entry, specialize(prefill()).entry);
  EXPECT_THAT(specialize(prefill()).spec_header,
              HasSubstr("#define KERNELWRIGHT_ENTRY " + specialize(prefill()).entry));
  EXPECT_TRUE(specialize(decode()).entry.starts_with("attention_decode_portable_"));
  EXPECT_TRUE(specialize(hopper_decode()).entry.starts_with("attention_decode_sm90_"));
}

TEST(Specialize, HasEveryHeaderThatATemplateIncludes) {
  for (const Spec& spec : {Spec(prefill()), Spec(decode()), Spec(hopper()), Spec(hopper_decode()), Spec(blackwell()),
                           Spec(portable_gemm()), Spec(blackwell_gemm()), Spec(CombineSpec{}), Spec(QuantizeSpec{})}) {
    const SourceUnit unit = specialize(spec);
    std::vector<std::string> known = {"spec.h"};
    for (const TemplateFile& file : unit.headers) known.push_back(file.path);
    for (const TemplateFile& file : unit.headers) {
      std::istringstream lines{std::string(file.text)};
      for (std::string line; std::getline(lines, line);) {
        // The contract's integers take <cstdint> on the host alone.
        if (file.path != "contract/integers.h") {
          EXPECT_FALSE(line.starts_with("#include <")) << file.path << ": " << line;
        }
        if (line.starts_with("#include \"")) {
          EXPECT_THAT(known, ::testing::Contains(line.substr(10, line.size() - 11))) << file.path;
        }
      }
    }
  }
}

TEST(Specialize, HasTheDigestOfEachTemplateFromTheBuild) {
  for (const Spec& spec :
       {Spec(prefill()), Spec(decode()), Spec(hopper()), Spec(hopper_decode()), Spec(blackwell()), Spec(CombineSpec{})})
    for (const TemplateFile& file : specialize(spec).headers) EXPECT_EQ(file.digest, sha256(file.text)) << file.path;
}

TEST(Specialize, GivesPtxasOneOptionEach) {
  for (const std::string& option : specialize(prefill()).options)
    if (option.starts_with("--ptxas-options")) {
      EXPECT_THAT(option, Not(HasSubstr(","))) << option;
    }
}

TEST(Specialize, LetsPtxasUseRegistersFreelyInGroupsWithScalesOfBlocks) {
  GemmSpec spec;
  spec.family = Family::kHopper;
  spec.scales = ScaleKind::kPerBlock;
  spec.groups = GroupKind::kRows;
  const auto is_free = [](const GemmSpec& given) {
    return std::ranges::count(specialize(given).options, "--ptxas-options=--register-usage-level=10") > 0;
  };
  EXPECT_TRUE(is_free(spec));
  const auto without = [&](auto change) {
    GemmSpec other = spec;
    change(other);
    return !is_free(other);
  };
  EXPECT_TRUE(without([](GemmSpec& other) { other.groups = GroupKind::kNone; }));
  EXPECT_TRUE(without([](GemmSpec& other) { other.groups = GroupKind::kBatch; }));
  EXPECT_TRUE(without([](GemmSpec& other) { other.scales = ScaleKind::kPerToken; }));
  EXPECT_TRUE(without([](GemmSpec& other) { other.swap_ab = true; }));
  EXPECT_TRUE(without([](GemmSpec& other) { other.gather = true; }));
  EXPECT_TRUE(without([](GemmSpec& other) { other.family = Family::kBlackwell; }));
}

TEST(Flattened, StandsWithoutIncludes) {
  const std::string text = specialize(decode()).flattened();
  EXPECT_THAT(text, Not(HasSubstr("#include \"")));
  EXPECT_THAT(text, HasSubstr("#define KERNELWRIGHT_ENTRY"));
  EXPECT_LT(text.find("struct AttentionParams"), text.find("__grid_constant__"));
}

/// spec.h names an enumerator by its word: "sliding_window" is kSlidingWindow. The lists of contract/words.h must do
/// so, too.
template <Enum E>
void expect_names_follow_words() {
  const std::string lists(template_closure("contract/words.h").files[0].text);
  for (const auto& [entry, word] : EnumTable<E>::entries) {
    std::string name = "k";
    bool upper = true;
    for (const char c : word) {
      if (c != '_') name += upper ? static_cast<char>(std::toupper(c)) : c;
      upper = c == '_';
    }
    EXPECT_THAT(lists, HasSubstr("X(" + name + ", \"" + std::string(word) + "\"")) << EnumTable<E>::type;
  }
}

TEST(Words, AreWhatEnumeratorsAreNamedAfter) {
#define EXPECT_NAMES(Type, name, LIST) expect_names_follow_words<Type>();
  KERNELWRIGHT_SHARED_ENUMS(EXPECT_NAMES)
#undef EXPECT_NAMES
}

TEST(Words, HaveTheBitsThatTheFormatsDefine) {
  EXPECT_EQ(bits_of(DType::kTf32), 32);
  EXPECT_EQ(bits_of(DType::kBf16), 16);
  EXPECT_EQ(bits_of(DType::kE5m2), 8);
  EXPECT_EQ(bits_of(DType::kMxfp8), 8);
  EXPECT_EQ(bits_of(DType::kNvfp4), 4);
  EXPECT_EQ(scale_vector(DType::kMxfp4), 32);
  EXPECT_EQ(scale_vector(DType::kNvfp4), 16);
  EXPECT_EQ(scale_vector(DType::kF32), 0);
  EXPECT_TRUE(is_fp8(DType::kE4m3));
  EXPECT_FALSE(is_fp8(DType::kMxfp8)) << "its scales belong to it";
}

}  // namespace
}  // namespace kernelwright
