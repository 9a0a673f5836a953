// Triton moves a parameter's address through 32 bits: mov.b32, cvt.u64.u32, cvta.param.
#include <gtest/gtest.h>

#include "kernelwright/runtime/emulator/emulator.h"

namespace kernelwright::emulator::test {
namespace {

/// Stores the second word of the parameter `data` to `out`, by the address that `statements` leave in %rd1.
std::uint32_t word_by(const std::string& statements) {
  Emulator machine({.threads = 1});
  const auto module = machine.load(
      ".version 8.8\n.target sm_90a\n.address_size 64\n"
      ".visible .entry k(.param .u64 out, .param .align 64 .b8 data[128])\n{\n"
      ".reg .b32 %r<4>;\n.reg .b64 %rd<4>;\nld.param.b64 %rd0, [out];\n" +
      statements + "\nld.global.b32 %r3, [%rd1];\nst.global.b32 [%rd0], %r3;\nret;\n}\n");
  const std::uint64_t out = machine.memory().allocate(4);
  std::vector<std::uint32_t> parameters(48);
  std::memcpy(parameters.data(), &out, 8);
  parameters[17] = 4711;  // `data` begins at 64
  const LaunchReport report = machine.launch(*module, "k", {}, std::as_bytes(std::span(parameters)));
  EXPECT_EQ(report.fault, "");
  return report.completed ? *reinterpret_cast<const std::uint32_t*>(out) : 0;
}

TEST(ParameterAddresses, KeepTheirMeaningThroughThirtyTwoBits) {
  EXPECT_EQ(word_by("mov.b64 %rd2, data;\ncvta.param.u64 %rd1, %rd2;\nadd.s64 %rd1, %rd1, 4;"), 4711u);
  EXPECT_EQ(word_by("mov.b32 %r1, data;\ncvt.u64.u32 %rd2, %r1;\ncvta.param.u64 %rd1, %rd2;\nadd.s64 %rd1, %rd1, 4;"),
            4711u);
  EXPECT_EQ(word_by("mov.b32 %r1, data;\nadd.s32 %r1, %r1, 4;\ncvt.u64.u32 %rd2, %r1;\ncvta.param.u64 %rd1, %rd2;"),
            4711u);
}

}  // namespace
}  // namespace kernelwright::emulator::test
