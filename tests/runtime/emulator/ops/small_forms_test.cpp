/// Forms that few kernels have: memory-mapped and uniform accesses, cache lines, st.bulk, masked bulk copies, products
/// that skip what is outside of a tensor, video instructions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::test {
namespace {

TEST(SmallForms, AccessMemoryAsOrdinaryOnesDo) {
  const PtxResult result = run_clean({.statements = R"(
mul.wide.u32 %rd1, %lane, 16; add.u64 %rd1, %rd1, %memory;
st.mmio.relaxed.sys.global.u32 [%rd1], %lane;
ld.mmio.relaxed.sys.global.u32 %o0, [%rd1];
ldu.global.v4.u32 {%o1, %r1, %r2, %r3}, [%rd1];
applypriority.global.L2::evict_normal [%memory], 128;
discard.L2 [%memory], 128;
fence.release.sync_restrict::shared::cta.cluster;
fence.acquire.sync_restrict::shared::cluster.cluster;
isspacep.param::entry %p0, %memory; selp.u32 %o2, 1, 0, %p0;)",
                                      .num_outputs = 3,
                                      .memory = std::vector<std::byte>(1024)});
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(result.outputs[0][lane], lane);
    EXPECT_EQ(result.outputs[1][lane], lane);
  }
}

TEST(SmallForms, FillSharedMemory) {
  const std::string fill = R"(
mul.wide.u32 %rd1, %lane, 4; cvt.u32.u64 %r2, %rd1; add.u32 %r2, %r2, %shared;
mov.b32 %r3, 0xffffffff; st.shared.b32 [%r2], %r3;
bar.warp.sync -1;
setp.eq.u32 %p0, %lane, 0;
@%p0 st.bulk.weak.shared::cta [%shared+8], SIZE, 0;
cvt.u64.u32 %rd2, %shared; cvta.shared.u64 %rd2, %rd2;
@%p0 st.bulk [%rd2+64], 8, 0;
bar.warp.sync -1;
ld.shared.b32 %o0, [%r2];)";
  const auto with = [&](const std::string& size) {
    std::string text = fill;
    text.replace(text.find("SIZE"), 4, size);
    return PtxRun{.statements = text, .num_outputs = 1, .target = "sm_100a"};
  };
  const PtxResult result = run_clean(with("40"));
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    EXPECT_EQ(result.outputs[0][lane] == 0, (lane >= 2 && lane < 12) || lane == 16 || lane == 17) << lane;
  EXPECT_THAT(run_ptx(with("12")).report.fault, testing::HasSubstr("the size of st.bulk"));
  EXPECT_THAT(run_ptx(with("4096")).report.fault, testing::HasSubstr("outside the CTA's"));
  PtxRun older = with("40");
  older.target = "sm_90a";
  EXPECT_THROW(run_ptx(older), emulator::PtxError);
}

TEST(SmallForms, CopyTheBytesOfAMask) {
  for (const bool hinted : {false, true}) {
    const std::string hint = hinted ? ".L2::cache_hint" : "", policy = hinted ? "%rd5, " : "";
    const PtxResult result = run_clean({.statements = R"(
createpolicy.fractional.L2::evict_first.b64 %rd5;
shl.b32 %r2, %lane, 2; add.u32 %r2, %r2, %shared;
mul.lo.u32 %r3, %lane, 0x01010101; add.u32 %r3, %r3, 0x01010101; st.shared.b32 [%r2], %r3;
fence.proxy.async.shared::cta;
bar.warp.sync -1;
setp.eq.u32 %p0, %lane, 0;
mov.b16 %h0, 0x8013;
@%p0 cp.async.bulk.global.shared::cta.bulk_group)" + hint +
                                                      ".cp_mask [%memory], [%shared], 32, " + policy +
                                                      R"(%h0;
@%p0 cp.async.bulk.commit_group;
@%p0 cp.async.bulk.wait_group 0;)",
                                        .memory = std::vector<std::byte>(64, std::byte{0xee}),
                                        .target = "sm_100a"});
    for (std::size_t at = 0; at < 64; ++at) {
      const bool copied = at < 32 && (0x8013 >> at % 16 & 1) != 0;
      EXPECT_EQ(result.memory[at], static_cast<std::byte>(copied ? at / 4 + 1 : 0xee)) << at << " " << hinted;
    }
  }
}

TEST(SmallForms, MultiplyWhatIsOutsideToZero) {
  const PtxResult result = run_clean({.statements = R"(
mov.b32 %r1, 0x7ff73c00; mov.b32 %r2, 0x40004000; mov.b32 %r3, 0xc4004400;
fma.rn.oob.f16x2 %o0, %r1, %r2, %r3;
fma.rn.oob.relu.f16x2 %o1, %r2, %r2, %r3;
fma.rn.f16x2 %o2, %r1, %r2, %r3;
mov.b16 %h0, 0xfff7; mov.b16 %h1, 0x4000;
fma.rn.oob.bf16 %h2, %h1, %h0, %h1; cvt.u32.u16 %o3, %h2;)",
                                      .num_outputs = 4});
  EXPECT_EQ(result.outputs[0], Words(32, 0x00004600));  // 6, and zero for the product of the NaN
  EXPECT_EQ(result.outputs[1], Words(32, 0x00004800));  // 8, and 4 - 4
  EXPECT_EQ(result.outputs[2], Words(32, 0x7fff4600));
  EXPECT_EQ(result.outputs[3], Words(32, 0));
}

std::int64_t clamped(std::int64_t value, std::int64_t low, std::int64_t high) {
  return std::min(std::max(value, low), high);
}

TEST(VideoInstructions, ComputeOnWordsAndLanes) {
  const Words a = scrambled(32, 1), b = scrambled(32, 2), c = scrambled(32, 3);
  const PtxResult result = run_clean({.statements = R"(
vadd.s32.s32.u32.sat %o0, %i0, %i1;
vsub.u32.u32.u32.add %o1, %i0, %i1, %i2;
vabsdiff4.u32.u32.u32.add %o2, %i0, %i1, %i2;
vadd2.s32.s32.s32.sat %o3, %i0, %i1, %i2;
vset4.u32.s32.gt %o4, %i0, %i1, %i2;
vshr.s32.s32.u32.clamp %o5, %i0, %i2;
vshl.u32.u32.u32.wrap.add %o6, %i0, %i2, %i1;
vmin4.s32.s32.s32 %o7, %i0, %i1, %i2;)",
                                      .inputs = {a, b, c},
                                      .num_outputs = 8});
  const auto expect = [&](std::size_t output, std::size_t lane, std::uint32_t value) {
    EXPECT_EQ(result.outputs[output][lane], value) << output << " " << lane;
  };
  for (std::size_t lane = 0; lane < 32; ++lane) {
    const std::uint32_t x = a[lane], y = b[lane], z = c[lane];
    const std::int64_t signed_x = static_cast<std::int32_t>(x);
    expect(0, lane, static_cast<std::uint32_t>(clamped(signed_x + y, INT32_MIN, INT32_MAX)));
    expect(1, lane, x - y + z);
    std::uint32_t differences = z, halves = 0, greater = 0, least = 0;
    for (int i = 0; i < 4; ++i) {
      const int p = x >> 8 * i & 255, q = y >> 8 * i & 255;
      differences += static_cast<std::uint32_t>(std::abs(p - q));
      const int signed_q = static_cast<std::int8_t>(q), signed_p = static_cast<std::int8_t>(p);
      greater |= (p > signed_q ? 1u : 0u) << 8 * i;
      least |= static_cast<std::uint32_t>(std::min(signed_p, signed_q) & 255) << 8 * i;
    }
    for (int i = 0; i < 2; ++i) {
      const int sum = static_cast<std::int16_t>(x >> 16 * i) + static_cast<std::int16_t>(y >> 16 * i);
      halves |= static_cast<std::uint32_t>(clamped(sum, -32768, 32767) & 0xffff) << 16 * i;
    }
    expect(2, lane, differences);
    expect(3, lane, halves);
    expect(4, lane, greater);
    expect(5, lane, static_cast<std::uint32_t>(signed_x >> std::min(z, 32u)));
    expect(6, lane, (x << (z & 31)) + y);
    expect(7, lane, least);
  }
}

}  // namespace
}  // namespace kernelwright::test
