// The part of k in a slot of a GEMM's ring, and its swizzle: what is planned, printed and refused, and where the parts
// of a slab lie (contract/shared_slab.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "contract/shared_slab.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/candidates.h"
#include "kernelwright/generator/gemm/planner.h"

namespace kernelwright::slab_test {
namespace {

using testing::HasSubstr;

GemmProblem problem(DType dtype = DType::kBf16, OperandLayout layout = OperandLayout::kNt) {
  GemmProblem of;
  of.n = of.k = 1024;
  of.dtype = {dtype, dtype, DType::kBf16, DType::kBf16};
  of.layout = layout;
  if (bits_of(dtype) == 8) of.scales = ScaleKind::kPerTensor;
  return of;
}

struct Served {
  Family family;
  Arch arch;
};
constexpr Served kFamilies[] = {
    {Family::kPortable, Arch::kSm89}, {Family::kHopper, Arch::kSm90a}, {Family::kBlackwell, Arch::kSm100a}};

GemmSchedule schedule(Family family, int block_k) {
  GemmSchedule of;
  of.family = family;
  if (block_k > 0) of.block_k = block_k;
  return of;
}

std::string refusal(const GemmProblem& of, const GemmSchedule& asked, Arch arch) {
  try {
    plan_gemm(of, asked, arch);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(GemmSlab, IsPlannedWithTheWidestSwizzleThatDividesIt) {
  for (const auto [family, arch] : kFamilies) {
    const auto planned = [&, family = family, arch = arch](const GemmProblem& of, int block_k) {
      return plan_gemm(of, schedule(family, block_k), arch).variants.back().spec;
    };
    EXPECT_EQ(planned(problem(), 0).slab_bytes, 128);
    EXPECT_EQ(planned(problem(), 0).swizzle, Swizzle::k128B);
    EXPECT_EQ(planned(problem(), 32).slab_bytes, 64);
    EXPECT_EQ(planned(problem(), 32).swizzle, Swizzle::k64B);
    EXPECT_EQ(planned(problem(DType::kBf16, OperandLayout::kNn), 16).swizzle, Swizzle::k32B);
    EXPECT_EQ(planned(problem(DType::kE4m3), 32).swizzle, Swizzle::k32B);
    EXPECT_EQ(planned(problem(DType::kBf16, OperandLayout::kTn), 16).swizzle, Swizzle::k128B) << "rows of m and n";
    GemmSpec deep = planned(problem(), 0), narrow = planned(problem(), 16);
    narrow.stages = deep.stages;
    narrow.block_m = deep.block_m, narrow.block_n = deep.block_n;
    EXPECT_LT(shared_bytes(narrow), shared_bytes(deep));
  }
}

TEST(GemmSlab, IsExplained) {
  for (const auto [family, arch] : kFamilies) {
    const GemmPlan plan = plan_gemm(problem(), schedule(family, 32), arch);
    const auto reason = [&](const char* field) {
      for (const Choice& choice : plan.choices)
        if (std::string_view(choice.field) == field) return choice.value + ": " + choice.reason;
      return std::string("nothing");
    };
    EXPECT_EQ(reason("block_k"), "32: the schedule says so");
    EXPECT_EQ(reason("swizzle"), "64B: the widest that divides 64 bytes of k: the fewest copies");
  }
}

TEST(GemmSlab, IsRefusedByFieldWithTheNearestThatWorks) {
  for (const auto [family, arch] : kFamilies) {
    const auto refused = [&, family = family, arch = arch](const GemmProblem& of, int block_k, Auto<Swizzle> swizzle) {
      GemmSchedule asked = schedule(family, block_k);
      asked.swizzle = swizzle;
      return refusal(of, asked, arch);
    };
    EXPECT_THAT(refused(problem(), 48, {}),
                HasSubstr("/schedule/block_k: 48 of \"bf16\" are not 32, 64 or 128 bytes of k; 32 would do"));
    EXPECT_THAT(refused(problem(DType::kE4m3), 256, {}), HasSubstr("; 128 would do"));
    EXPECT_THAT(refused(problem(), 32, Swizzle::k128B),
                HasSubstr("/schedule/swizzle: \"128B\" does not divide the 64 bytes of k that block_k 32 has; \"64B\" "
                          "would do"));
    EXPECT_EQ(refused(problem(), 32, Swizzle::kNone), "");
    EXPECT_EQ(refused(problem(DType::kBf16, OperandLayout::kTn), 32, Swizzle::k128B), "");
    GemmProblem blocks = problem(DType::kE4m3);
    blocks.scales = ScaleKind::kPerBlock;
    EXPECT_THAT(
        refused(blocks, 64, {}),
        HasSubstr("/schedule/block_k: 64 is not the 128 of \"e4m3\" that have scales of their own; 128 would do"));
  }
  GemmProblem scaled = problem(DType::kMxfp8);
  scaled.scales = ScaleKind::kPerBlock;
  GemmSchedule asked = schedule(Family::kBlackwell, 0);
  asked.swizzle = Swizzle::k64B;
  EXPECT_THAT(refusal(scaled, asked, Arch::kSm100a), HasSubstr("\"128B\" would do"));
  asked = schedule(Family::kHopper, 16);
  asked.cluster = ClusterShape{4, 1};
  asked.swap_ab = false;
  EXPECT_THAT(refusal(problem(DType::kBf16, OperandLayout::kNn), asked, Arch::kSm90a),
              HasSubstr("/schedule/block_k: 16: 4 CTAs load shares of k of layout \"nn\", whole groups of 8; 32 would "
                        "do"));
}

TEST(GemmSlab, HasNarrowerOnesAmongWhatTheTunerTries) {
  for (const auto [family, arch] : {kFamilies[0], kFamilies[1]}) {
    CandidateOptions all;
    all.most = 4096;
    all.within = 100;
    std::set<std::pair<int, Swizzle>> tried;
    const GemmCandidates candidates =
        enumerate_candidates(problem(), schedule(family, 0), arch, {{"m", 512, false}}, all);
    for (const GemmCandidate& candidate : candidates.kept) {
      const GemmSpec& spec = candidate.plan.variants.back().spec;
      tried.insert({spec.slab_bytes, spec.swizzle});
    }
    EXPECT_TRUE(tried.count({128, Swizzle::k128B}) && tried.count({64, Swizzle::k64B}) &&
                tried.count({128, Swizzle::k64B}));
  }
}

/// Every 16 bytes of a slab are in one place of one part, and a step of 32 bytes of k begins where its copy put it.
TEST(SharedSlab, HasEachPieceInOnePlace) {
  for (const int bytes : {32, 64, 128})
    for (const int swizzle : {0, 32, 64, 128})
      for (const bool mn_major : {false, true}) {
        const contract::SharedSlab slab{bytes, swizzle, 16, 64, mn_major};
        if (!mn_major && swizzle > bytes) continue;
        EXPECT_EQ(slab.parts() * slab.part_bytes(), 64 * bytes);
        EXPECT_EQ(slab.parts() * slab.width() * (mn_major ? slab.depth() : 64), 64 * bytes);
        for (int step = 0; step < slab.steps(); ++step) {
          // The place of element (row 0, k = 16 * step): in row 0 of a strip, or in row k of the first box.
          const int k = 16 * step;
          const int expected = mn_major ? k * slab.width()
                                        : k / slab.width_elements() * slab.part_bytes() + k % slab.width_elements() * 2;
          EXPECT_EQ(slab.step_offset(step), expected) << bytes << " " << swizzle << " " << mn_major;
        }
        EXPECT_EQ(slab.row_offset(64), mn_major ? 64 * bytes : 64 * slab.width());
      }
}

}  // namespace
}  // namespace kernelwright::slab_test
