/// Vectors of registers, decimal numbers, and initial values that are addresses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <string>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/ptx_kernel.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::test::move_test {
namespace {

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST(Vectors, AreRegistersWithComponents) {
  const PtxResult result = run_clean({.statements = R"(
.reg .v4 .b32 v, w;
.reg .v2 .b64 u;
mul.wide.u32 %rd1, %lane, 16; add.u64 %rd1, %rd1, %memory;
mov.v4.b32 v, {%lane, 1, 2, 3};
mov.v4.b32 {w.x, w.y, w.z, w.w}, {v.w, v.z, v.g, v.r};
st.global.v4.b32 [%rd1], w;
ld.global.v2.b64 u, [%rd1];
mov.b64 {%o0, %o1}, u.x;
mov.b64 {%o2, %o3}, u.y;)",
                                      .num_outputs = 4});
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(result.outputs[i][lane], i == 3 ? lane : 3 - i);
}

TEST(Vectors, ExchangeTheirComponents) {
  const PtxResult result = run_clean({.statements = R"(
mov.b32 %o0, 1; add.u32 %o1, %lane, 2;
mov.v2.b32 {%o0, %o1}, {%o1, %o0};
mov.v2.b16 {%h0, %h1}, {5, 6}; mov.b32 %o2, {%h1, %h0};)",
                                      .num_outputs = 3});
  for (std::uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(result.outputs[0][lane], lane + 2);
  EXPECT_EQ(result.outputs[1], Words(32, 1));
  EXPECT_EQ(result.outputs[2], Words(32, 0x50006));
  for (const char* statement : {"mov.v2.b32 {%r1, %r2}, {1, 2, 3};", ".reg .v2 .b32 v; mov.b64 %rd1, v;"})
    EXPECT_THROW(run_ptx({.statements = statement}), emulator::PtxError) << statement;
}

TEST(DecimalNumbers, TakeTheTypeOfTheirInstruction) {
  const PtxResult result = run_clean({.statements = R"(
mov.f32 %f0, 0.1; mov.b32 %o0, %f0;
mov.f64 %d0, -2.5e-3; cvt.rn.f32.f64 %f1, %d0; mov.b32 %o1, %f1;
fma.rn.f32 %f2, %f0, 1e1, -3.0; mov.b32 %o2, %f2;
mov.v2.f32 {%f3, %f4}, {1.5, -0.5}; mov.b32 %o3, %f4;
createpolicy.fractional.L2::evict_first.b64 %rd0, 1.0;)",
                                      .num_outputs = 4});
  EXPECT_EQ(result.outputs[0], Words(32, bits(0.1f)));
  EXPECT_EQ(result.outputs[1], Words(32, bits(-2.5e-3f)));
  EXPECT_EQ(result.outputs[2], Words(32, bits(-2.0f)));
  EXPECT_EQ(result.outputs[3], Words(32, bits(-0.5f)));
  for (const char* statement :
       {"mov.b32 %r1, 1.0;", "add.u32 %r1, %r1, 1e3;", "mov.f32 %f1, 1e;", "mov.f32 %f1, 1e999;"})
    EXPECT_THROW(run_ptx({.statements = statement}), emulator::PtxError) << statement;
}

TEST(InitialValues, MayBeAddressesOfVariables) {
  const std::string text = module_of(R"(
.global .align 8 .b32 table[4] = {10, 11, 12, 13};
.const .b32 constant = 20;
.global .u64 pointers[4] = {table, table+4, generic(table)+8, generic(constant)};
.global .align 8 .u8 bytes[8] = {0xff(table), 0xff00(table), 0xff0000(table), 0xff000000(table), 0xff00000000(table),
  0xff0000000000(table), 0xff000000000000(table), 0xff00000000000000(generic(table))};
.global .align 16 .b128 wide[2] = {5, -6};
.global .f32 third = 0.333333333;
.visible .entry k(.param .u64 out) {
  .reg .b64 %rd<8>; .reg .b32 %r<8>;
  ld.param.u64 %rd0, [out];
  ld.global.u64 %rd1, [pointers]; ld.global.u32 %r0, [%rd1]; st.global.u32 [%rd0], %r0;
  ld.global.u64 %rd1, [pointers+8]; ld.global.u32 %r0, [%rd1]; st.global.u32 [%rd0+4], %r0;
  ld.global.u64 %rd1, [pointers+16]; ld.u32 %r0, [%rd1]; st.global.u32 [%rd0+8], %r0;
  ld.global.u64 %rd1, [pointers+24]; ld.u32 %r0, [%rd1]; st.global.u32 [%rd0+12], %r0;
  ld.global.u64 %rd1, [bytes]; ld.global.u32 %r0, [%rd1+12]; st.global.u32 [%rd0+16], %r0;
  ld.global.u32 %r0, [third]; st.global.u32 [%rd0+20], %r0;
  ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [wide]; st.global.v2.u32 [%rd0+24], {%r0, %r3};
  ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [wide+16]; st.global.v2.u32 [%rd0+32], {%r0, %r3};
  ret;
})");
  emulator::Emulator machine({.threads = 1});
  const auto module = machine.load(text);
  const std::uint64_t out = machine.memory().allocate(40);
  const auto report = machine.launch(*module, "k", {}, std::as_bytes(std::span(&out, 1)));
  ASSERT_EQ(report.fault, "");
  Words found(10);
  std::memcpy(found.data(), reinterpret_cast<const void*>(out), 40);
  EXPECT_EQ(found, (Words{10, 11, 12, 20, 13, bits(0.333333333f), 5, 0, 0xfffffffa, 0xffffffff}));
}

}  // namespace
}  // namespace kernelwright::test::move_test
