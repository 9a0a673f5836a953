// What the recorded cases do not test: warps that disagree, work that is deferred, sums element by element.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/numbers/wgmma_block.h"
#include "kernelwright/runtime/emulator/ops/matrix/wgmma_operand.h"
#include "runtime/emulator/ptx_kernel.h"

namespace kernelwright::emulator {
namespace {

using test::run_ptx;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(WgmmaBlock, MultipliesInTheRegistersOfTheFragments) {
  std::mt19937 random(1);
  for (const std::uint32_t columns : {8u, 24u, 64u, 104u, 256u})
    for (const std::uint32_t depth : {8u, 16u, 32u})
      for (const bool mn_major : {false, true}) {
        std::vector<float> a(64 * depth), b(columns * depth), d(64 * columns), panel_a(64 * depth * 4),
            panel_b(b.size());
        for (auto* values : {&a, &b, &d})
          for (float& value : *values) value = static_cast<float>(random() % 15) - 7;
        // Register j of lane l of warp w: row 16w + l/4 + 8 (j/2 % 2), column 8 (j/4) + 2 (l % 4) + j % 2.
        const auto element = [&](std::uint32_t row, std::uint32_t column) -> float& {
          const std::uint32_t reg = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
          const std::uint32_t lane = row % 8 * 4 + column % 8 / 2;
          return d[(row / 16 * (columns / 2) + reg) * 32 + lane];
        };
        std::vector<float> expected;
        for (std::uint32_t row = 0; row < 64; ++row)
          for (std::uint32_t column = 0; column < columns; ++column) {
            float sum = element(row, column);
            for (std::uint32_t k = 0; k < depth; ++k)
              sum -= (mn_major ? a[k * 64 + row] : a[row * depth + k]) *
                     (mn_major ? b[k * columns + column] : b[column * depth + k]);
            expected.push_back(sum);
          }
        make_a_panel(a.data(), depth, mn_major, /*negate=*/true, panel_a.data());
        make_b_panel(b.data(), columns, depth, mn_major, panel_b.data());
        std::vector<float*> registers;
        for (std::size_t i = 0; i < d.size(); i += 32) registers.push_back(d.data() + i);
        multiply_fragments({registers.data(), panel_a.data(), panel_b.data(), columns, depth, true});
        for (std::uint32_t row = 0; row < 64; ++row)
          for (std::uint32_t column = 0; column < columns; ++column)
            ASSERT_EQ(element(row, column), expected[row * columns + column]) << columns << " " << depth << " " << row;
      }
}

TEST(WgmmaOperand, CoversEveryUnitOnceInItsPieces) {
  for (const Swizzle swizzle : {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B})
    for (const bool mn_major : {false, true}) {
      const OperandUnits units({2048, mn_major ? 4096u : 128u, mn_major ? 1024u : 256u, swizzle}, mn_major, 128);
      std::vector<int> touched(1 << 18);
      for (std::uint32_t part = 0; part < 4; ++part)
        visit_unit_pieces(units, part, 4, [&](std::uint32_t offset, std::uint32_t bytes) {
          for (std::uint32_t i = 0; i < bytes; ++i) ++touched[offset + i];
        });
      std::vector<int> expected(1 << 18);
      for (std::uint32_t row = 0; row < units.rows(); ++row)
        for (std::uint32_t column = 0; column < units.columns(); ++column)
          for (std::uint32_t i = 0; i < kUnitBytes; ++i) ++expected[units.address(row, column) + i];
      EXPECT_EQ(touched, expected);
    }
}

TEST(WgmmaOperand, RefusesABaseOffset) { EXPECT_THROW(decode_matrix_descriptor(std::uint64_t{1} << 49), Fault); }

const LaunchShape kWarpgroup = {.block = {128}, .dynamic_shared_bytes = 8192};

/// A and B are all ones (f16). `issue` is the code of each warp between the fence and the end. %rd10 is the descriptor.
std::string ones(const std::string& issue) {
  return R"(
    mov.u32 %r10, data; shl.b32 %r11, %r0, 4; add.u32 %r11, %r11, %r10; mov.u32 %r12, 0x3c003c00;
    st.shared.v4.b32 [%r11], {%r12, %r12, %r12, %r12}; st.shared.v4.b32 [%r11+2048], {%r12, %r12, %r12, %r12};
    fence.proxy.async.shared::cta; bar.sync 0;
    shr.u32 %r13, %r10, 4; cvt.u64.u32 %rd10, %r13; or.b64 %rd10, %rd10, 0x1000080000;
    mov.f32 %f0, 0f3F800000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
    setp.lt.u32 %p0, %r0, 96; setp.ge.u32 %p1, %r0, 0; wgmma.fence.sync.aligned;
  )" + issue +
         R"(
    mul.wide.u32 %rd2, %r0, 4; add.s64 %rd2, %rd2, %rd0; st.global.f32 [%rd2], %f3;
  )";
}
constexpr const char* kMma =
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd10, %rd10, 1, 1, 1, 0, 0;\n";
constexpr const char* kEnd = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n";

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST(Wgmma, GivesOneResultUnderEveryCompletionPolicy) {
  for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom}) {
    const auto run =
        run_ptx(ones(std::string(kMma) + kMma + kEnd), kWarpgroup, {.hazards = true, .completion = completion});
    EXPECT_THAT(run.report.fault, IsEmpty());
    for (const auto& hazard : run.report.hazards) ADD_FAILURE() << hazard.text();
    for (int thread = 0; thread < 128; ++thread) EXPECT_EQ(run.out[static_cast<std::size_t>(thread)], bits(33));
    EXPECT_EQ(run.report.statistics.mma_operations, 2u * 2 * 64 * 8 * 16);
  }
}

TEST(Wgmma, LeavesRegistersAloneUntilTheyAreWaitedFor) {
  const std::string issue = std::string(kMma) +
                            "wgmma.commit_group.sync.aligned; mov.f32 %f9, %f3;"
                            "wgmma.wait_group.sync.aligned 0; mov.f32 %f3, %f9;\n";
  EXPECT_EQ(run_ptx(ones(issue), kWarpgroup, {.completion = Completion::kLazy}).out[0], bits(1));
  const auto checked = run_ptx(ones(issue), kWarpgroup, {.hazards = true, .completion = Completion::kLazy});
  ASSERT_FALSE(checked.report.hazards.empty());
  EXPECT_EQ(checked.report.hazards[0].kind, HazardKind::kRegister);
}

TEST(Wgmma, FaultsWhenItsWarpsDisagree) {
  const auto run = run_ptx(ones("@!%p0 add.s64 %rd10, %rd10, 16;\n" + std::string(kMma) + kEnd), kWarpgroup, {});
  EXPECT_THAT(run.report.fault, HasSubstr("with different descriptors of A"));
}

TEST(Wgmma, SaysWhichWarpIsMissing) {
  const auto run = run_ptx(ones("@!%p0 bra DONE;\n" + std::string(kMma) + kEnd + "DONE:\n"), kWarpgroup, {});
  EXPECT_THAT(run.report.fault, HasSubstr("warp 3 has issued 0"));
}

TEST(Wgmma, RefusesWhatItDoesNotModelByName) {
  const auto refusal = [](const std::string& body) -> std::string {
    try {
      run_ptx(body, kWarpgroup, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd0, %rd0, %r0, 0, "
                      "1, 1, 1, 0, 0;"),
              HasSubstr("sparse wgmma is not modelled"));
  EXPECT_THAT(
      refusal("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16 {%f0, %f1, %f2, %f3}, %rd0, %rd0, 1, 1, 1, 0, 0;"),
      HasSubstr("one type"));
  EXPECT_THAT(
      refusal("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd0, %rd0, 1, 1, 1, 0, 0;"),
      HasSubstr("not modelled"));
}

}  // namespace
}  // namespace kernelwright::emulator
