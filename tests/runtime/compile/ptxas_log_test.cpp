#include "kernelwright/runtime/compile/ptxas_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kernelwright {
namespace {

TEST(PtxasLog, ReadsTheLogOfNvrtc13) {
  const PtxasReport report = read_ptxas_log(
      "ptxas info    : Overriding maximum register limit 256 for 'k' with  32 of maxrregcount option\n"
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
      "ptxas info    : Function properties for k\n"
      "ptxas         .     88 bytes stack frame, 92 bytes spill stores, 96 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 3 barriers, 88 bytes cumulative stack size, 1024 bytes smem\n"
      "ptxas info    : Compile time = 12.345 ms\n",
      "k");
  EXPECT_TRUE(report.found);
  EXPECT_EQ(report.usage, (ResourceUsage{168, 92, 96, 88, 1024, 3}));
  EXPECT_TRUE(report.warnings.empty());
}

TEST(PtxasLog, ReadsAnIndentedStackFrame) {  // in the form that ptxas prints
  const PtxasReport report = read_ptxas_log(
      "ptxas info    : Function properties for k\n"
      "    16 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads\n",
      "k");
  EXPECT_EQ(report.usage, (ResourceUsage{.spill_stores = 24, .spill_loads = 32, .stack = 16}));
}

TEST(PtxasLog, ReadsALineWithConstantBanksAndNoBarriers) {
  const PtxasReport report = read_ptxas_log(
      "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
      "ptxas info    : Used 8 registers, 356 bytes cmem[0]\n",
      "k");
  EXPECT_EQ(report.usage, (ResourceUsage{.registers = 8}));
}

TEST(PtxasLog, TakesTheNumbersOfTheEntryAlone) {
  const PtxasReport report = read_ptxas_log(
      "ptxas info    : Function properties for helper\n"
      "    512 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n"
      "ptxas info    : Compiling entry function 'k2' for 'sm_80'\n"
      "ptxas info    : Used 99 registers\n"
      "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
      "ptxas info    : Used 12 registers, used 1 barriers\n"
      "ptxas info    : Function properties for helper\n"
      "    512 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n",
      "k");
  EXPECT_EQ(report.usage, (ResourceUsage{.registers = 12, .barriers = 1}));
}

TEST(PtxasLog, KeepsEachWarningOnce) {
  const std::string serialised =
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
      "insufficient register resources for the wgmma pipeline in the function 'k'";
  const std::string spilled = "ptxas warning : Registers are spilled to local memory in function 'k'";
  const PtxasReport report = read_ptxas_log(
      serialised + "\n" + spilled + "\r\n" + spilled + "\nkernel.cu(3): warning #177-D: variable was declared\n", "k");
  EXPECT_THAT(report.warnings, ::testing::ElementsAre(serialised, spilled));
  EXPECT_FALSE(report.found);
}

TEST(PtxasLog, IgnoresNumbersThatAreNone) {
  const PtxasReport report = read_ptxas_log(
      "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
      "ptxas info    : Used many registers, used 99999999999999 barriers\n",
      "k");
  EXPECT_EQ(report.usage, ResourceUsage{});
}

TEST(FirstLines, CountsWhatItLeavesOut) {
  EXPECT_EQ(first_lines("a\n\nb\n  c\nd\n", 2), "a\nb\n... (2 more)");
  EXPECT_EQ(first_lines("a\nb", 2), "a\nb");
  EXPECT_EQ(first_lines("", 2), "");
}

}  // namespace
}  // namespace kernelwright
