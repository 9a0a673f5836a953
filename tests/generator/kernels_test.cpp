// What is asked of a config of any kind.
#include "kernelwright/generator/kernels.h"

#include <gtest/gtest.h>

namespace kernelwright {
namespace {

TEST(IsFor, AsksForTheSchedulesArchitectureAndFamilyAlone) {
  GemmConfig config;  // without n and k: validate() refuses it everywhere
  ASSERT_FALSE(validate(config, Arch::kSm90a).empty());
  EXPECT_TRUE(is_for(config, Arch::kSm90a)) << "a schedule that leaves both open is for every architecture";
  config.schedule.arch = Arch::kSm80;
  EXPECT_TRUE(is_for(config, Arch::kSm80));
  EXPECT_FALSE(is_for(config, Arch::kSm90a)) << "a device of sm_90a runs its binaries, and is not sm_80";
  config.schedule.arch = {};
  config.schedule.family = Family::kHopper;
  EXPECT_TRUE(is_for(config, Arch::kSm90a));
  EXPECT_FALSE(is_for(config, Arch::kSm100a));
}

}  // namespace
}  // namespace kernelwright
