// Which kernel quantises, what is refused, and how many CTAs a launch has.
#include "kernelwright/generator/quantize/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernelwright/generator/error.h"
#include "support/expect_message.h"

namespace kernelwright {
namespace {

TEST(PlanQuantize, HasASpecOfTheFormatsAndTheArchitecture) {
  const QuantizeSpec spec = plan_quantize({DType::kF16, DType::kMxfp4}, Arch::kSm89).spec;
  EXPECT_EQ(spec, (QuantizeSpec{Arch::kSm89, DType::kF16, DType::kMxfp4}));
  EXPECT_EQ(kernel_name(spec), "quantize");
  EXPECT_EQ(canonical_text(spec), "arch sm_89\nfrom f16\nto mxfp4\n");
}

TEST(PlanQuantize, NamesEveryDtypeThatDoesNotFit) {
  EXPECT_THROW_MESSAGE(plan_quantize({DType::kE4m3, DType::kMxfp8}, Arch::kSm80), ConfigError,
                       "/problem/from: \"e4m3\" does not fit; it takes f16, bf16 or f32");
  try {
    plan_quantize({DType::kTf32, DType::kE4m3}, Arch::kSm80);
    FAIL() << "nothing was said";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.violations().size(), 2u);
    EXPECT_THAT(error.what(),
                testing::HasSubstr("/problem/to: \"e4m3\" has no scales; it takes mxfp8, mxfp4 or nvfp4"));
  }
}

TEST(PlanQuantizeLaunch, CoversWholeAtomsOfRows) {
  const QuantizeSpec spec;
  const LaunchPlan few = plan_launch(spec, 1, 32), many = plan_launch(spec, 129, 8192);
  EXPECT_EQ(few.grid[0], 16u) << "128 rows, 8 a CTA";
  EXPECT_EQ(few.grid[1], 1u);
  EXPECT_EQ(few.block, 256u);
  EXPECT_EQ(many.grid[0], 32u);
  EXPECT_EQ(many.grid[1], 32u);
  EXPECT_EQ(plan_launch(spec, 1, 1 << 24).grid[1], 65535u) << "a CTA goes on where the grid ends";
}

}  // namespace
}  // namespace kernelwright
