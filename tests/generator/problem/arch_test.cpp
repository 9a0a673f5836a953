#include "kernelwright/generator/problem/arch.h"

#include <gtest/gtest.h>

namespace kernelwright {
namespace {

TEST(Arch, HasOneRowForEachWord) {
  ASSERT_EQ(all_archs().size(), EnumTable<Arch>::entries.size());
  for (const auto& [arch, word] : EnumTable<Arch>::entries) {
    EXPECT_EQ(arch_info(arch).arch, arch);
    EXPECT_EQ(arch_info(arch).name, word);
  }
}

TEST(Arch, LeavesRoomForTheSystemsShareOfSharedMemory) {
  for (const ArchInfo& row : all_archs())
    EXPECT_EQ(row.shared_bytes_per_cta + row.reserved_shared_bytes_per_cta, row.shared_bytes_per_sm) << row.name;
}

TEST(Arch, GivesSharedMemoryAsTheCudaGuideDoes) {  // KiB of one CTA: appendix "Compute Capabilities"
  EXPECT_EQ(arch_info(Arch::kSm80).shared_bytes_per_cta, 166912);
  EXPECT_EQ(arch_info(Arch::kSm86).shared_bytes_per_cta, 101376);
  EXPECT_EQ(arch_info(Arch::kSm89).shared_bytes_per_cta, 101376);
  EXPECT_EQ(arch_info(Arch::kSm90a).shared_bytes_per_cta, 232448);
  EXPECT_EQ(arch_info(Arch::kSm100a).shared_bytes_per_cta, 232448);
  EXPECT_EQ(arch_info(Arch::kSm103a).shared_bytes_per_cta, 232448);
  EXPECT_EQ(arch_info(Arch::kSm120a).shared_bytes_per_cta, 101376);
}

TEST(Arch, IsFoundByComputeCapability) {
  for (const ArchInfo& row : all_archs()) EXPECT_EQ(arch_for_compute_capability(row.major, row.minor), row.arch);
  EXPECT_EQ(arch_for_compute_capability(8, 7), Arch::kSm80);
}

TEST(Arch, IsNoneForADeviceThatRunsNoneOfOurBinaries) {
  for (const auto& [major, minor] : {std::pair{7, 5}, {10, 1}, {11, 0}, {12, 1}, {13, 0}, {0, 0}, {-1, 9}})
    EXPECT_EQ(arch_for_compute_capability(major, minor), std::nullopt) << major << "." << minor;
}

TEST(Arch, GivesEachMatrixUnitToItsOwnArchs) {
  for (const ArchInfo& row : all_archs()) {
    EXPECT_EQ(row.wgmma, row.arch == Arch::kSm90a) << row.name;
    EXPECT_EQ(row.tcgen05, row.tensor_memory_columns == 512) << row.name;
    EXPECT_EQ(row.tma, row.major >= 9) << row.name;
    EXPECT_EQ(row.fp8_cvt, row.major > 8 || row.minor == 9) << row.name;
    EXPECT_TRUE(row.mma_sync && row.cp_async) << row.name;
    EXPECT_TRUE(family_exists_on(Family::kPortable, row.arch)) << row.name;
    EXPECT_EQ(family_exists_on(Family::kHopper, row.arch), row.wgmma) << row.name;
    EXPECT_EQ(family_exists_on(Family::kBlackwell, row.arch), row.tcgen05) << row.name;
  }
}

}  // namespace
}  // namespace kernelwright
