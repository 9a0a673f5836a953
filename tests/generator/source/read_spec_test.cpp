// Every Spec's text is read back. These have every field that is part of a text only now and then.
// Texts that are no Spec's are refused.
#include "kernelwright/generator/source/read_spec.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernelwright/generator/source/specialize.h"

namespace kernelwright::read_spec_test {
namespace {

std::vector<Spec> specs() {
  AttentionSpec latent;
  latent.family = Family::kHopper, latent.arch = Arch::kSm90a;
  latent.latent = latent.balanced = latent.token_gen = true;
  latent.head_dim_qk = 576, latent.head_dim_v = 512;
  AttentionSpec rotary;
  rotary.rope_width = 64, rotary.exp2_emulated = 3, rotary.pv_promote = 0, rotary.kv_starts = rotary.v_columns = true;
  rotary.tiles_from_start = true;
  AttentionSpec narrow;
  narrow.pv_buffers = 2;
  AttentionSpec scored;
  scored.mask_tensor = true, scored.bias = DType::kF32, scored.score_mod = ScoreModKind::kTensor;
  AttentionSpec bias;  // the fields of open scores, without a mask tensor
  bias.score_mod = ScoreModKind::kTensor;
  AttentionSpec blackwell;
  blackwell.family = Family::kBlackwell, blackwell.arch = Arch::kSm100a, blackwell.exp2_emulated = 4;
  GemmSpec gemm;
  gemm.family = Family::kHopper, gemm.arch = Arch::kSm90a;
  gemm.clamped = gemm.gated = true, gemm.limit = 7.0f, gemm.steepness = 1.702f;
  gemm.quantizes = gemm.power_of_two = true, gemm.promotion = 1;
  GemmSpec placed;
  placed.groups = GroupKind::kRows, placed.scatter = placed.pointers = true;
  GemmSpec tcgen05;
  tcgen05.family = Family::kBlackwell, tcgen05.arch = Arch::kSm103a;
  GemmSpec grouped = tcgen05;
  grouped.groups = GroupKind::kMasked, grouped.bounds = GroupBounds::kCounts;
  grouped.gather = grouped.scatter = grouped.pointers = true;
  CombineSpec combine;
  combine.lse_apart = true;
  return {AttentionSpec{}, latent,      rotary,          narrow,           scored,        bias,           blackwell,
          GemmSpec{},      gemm,        tcgen05,         combine,          CombineSpec{}, QuantizeSpec{}, KvWriteSpec{},
          RowOpSpec{},     RouteSpec{}, RouteSortSpec{}, MoeCombineSpec{}, placed,        grouped};
}

TEST(ReadSpec, ReadsBackWhatSpecsWrite) {
  for (const Spec& spec : specs()) {
    SCOPED_TRACE(kernel_name(spec) + "\n" + canonical_text(spec));
    const std::optional<Spec> read = read_spec(kernel_name(spec), canonical_text(spec));
    ASSERT_TRUE(read);
    EXPECT_EQ(canonical_text(*read), canonical_text(spec));
    EXPECT_EQ(spec_header(*read), spec_header(spec));
  }
}

TEST(ReadSpec, RefusesCutTextsAndAnswersAnyByte) {
  for (const Spec& spec : specs()) {
    const std::string kernel = kernel_name(spec), text = canonical_text(spec);
    for (std::size_t i = 0; i < text.size(); ++i) {
      // A cut behind a line that may be absent leaves another Spec's text.
      const std::string cut = text.substr(0, i);
      if (const auto read = read_spec(kernel, cut)) EXPECT_EQ(canonical_text(*read), cut);
      std::string changed = text;
      changed[i] ^= 1;
      if (const auto read = read_spec(kernel, changed)) {
        EXPECT_EQ(canonical_text(*read), changed);
        specialize(*read);  // any Spec that is read has a source
      }
    }
  }
}

TEST(ReadSpec, RefusesWhatIsNoSpec) {
  const std::string text = canonical_text(QuantizeSpec{});
  EXPECT_FALSE(read_spec("quantize", ""));
  EXPECT_FALSE(read_spec("quantize", text + text));
  EXPECT_FALSE(read_spec("quantize", text + "more 1\n"));
  EXPECT_FALSE(read_spec("quantize", "from bf16\narch sm_80\nto mxfp8\n")) << "another order";
  EXPECT_FALSE(read_spec("row_op", text));
  EXPECT_FALSE(read_spec("../quantize", text));
  EXPECT_FALSE(read_spec("gemm_of_nobody", canonical_text(GemmSpec{})));
  EXPECT_FALSE(read_spec("gemm_sm100", canonical_text(GemmSpec{})));
  std::string huge = canonical_text(CombineSpec{});
  huge.replace(huge.find("128"), 3, "99999999999");
  EXPECT_FALSE(read_spec("attention_combine", huge));
}

TEST(ReadSpec, LeavesAUsersOwnSourcesAlone) {
  AttentionSpec spec;
  spec.mask_source = {.type = "MyMask", .text = "struct MyMask {};", .file = "", .field = "/problem/mask"};
  EXPECT_FALSE(read_spec(kernel_name(spec), canonical_text(spec)));
}

}  // namespace
}  // namespace kernelwright::read_spec_test
