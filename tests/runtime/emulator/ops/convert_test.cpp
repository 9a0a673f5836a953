// cvt in spellings that ptxas takes beside the ISA's: without a rounding between f16 and bf16, and with one where a
// bf16 becomes wider.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::test {
namespace {

/// The value of a 16-bit float with so many exponent and mantissa bits.
double value_of(std::uint32_t code, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
  const int exponent = static_cast<int>(code >> mantissa_bits) & top;
  const double fraction = code & ((1u << mantissa_bits) - 1), sign = code & 0x8000 ? -1 : 1;
  if (exponent == top) return fraction != 0 ? NAN : sign * INFINITY;
  const double whole = exponent == 0 ? fraction : fraction + std::ldexp(1.0, mantissa_bits);
  return sign * std::ldexp(whole, std::max(exponent, 1) - bias - mantissa_bits);
}

/// The nearest code, a tie to the even one. NaN is 0x7fff.
std::uint32_t nearest(double value, int exponent_bits, int mantissa_bits) {
  if (std::isnan(value)) return 0x7fff;
  const std::uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  const std::uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  // Codes of positive numbers are in the order of their values; infinity stands one step above the largest.
  std::uint32_t low = 0, high = infinity;
  const auto at = [&](std::uint32_t code) {
    return code == infinity ? std::ldexp(1.0, 1 << (exponent_bits - 1)) : value_of(code, exponent_bits, mantissa_bits);
  };
  if (magnitude >= at(infinity)) return sign | infinity;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (at(middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - at(low), above = at(high) - magnitude;
  return sign | (below < above || (below == above && low % 2 == 0) ? low : high);
}

/// Runs `instruction` on all 65536 codes, 32 at each iteration of the loop: %h0 to %h1 and %r1.
PtxResult on_all_codes(const std::string& instruction) {
  PtxRun run{.statements =
                 "mul.wide.u32 %rd0, %r0, 4;\nadd.u64 %rd0, %rd0, %memory;\nmov.u32 %r2, %r0;\n"
                 "AGAIN:\ncvt.u16.u32 %h0, %r2;\nmov.b32 %r1, 0;\n" +
                 instruction +
                 "\nst.global.b32 [%rd0], %r1;\nadd.u64 %rd0, %rd0, 1024;\nadd.u32 %r2, %r2, 256;\n"
                 "setp.lt.u32 %p0, %r2, 65536;\n@%p0 bra AGAIN;",
             .threads = 256};
  run.memory.resize(65536 * 4);
  return run_clean(run);
}

TEST(EmulatorConvert, BetweenF16AndBf16NoRoundingMeansTheNearest) {
  const PtxResult to_f16 = on_all_codes("cvt.f16.bf16 %h1, %h0;\nmov.b32 %r1, {%h1, %h2};\nand.b32 %r1, %r1, 65535;");
  const PtxResult to_bf16 = on_all_codes("cvt.bf16.f16 %h1, %h0;\nmov.b32 %r1, {%h1, %h2};\nand.b32 %r1, %r1, 65535;");
  for (std::uint32_t code = 0; code < 65536; ++code) {
    ASSERT_EQ(to_f16.at<std::uint32_t>(code * 4), nearest(value_of(code, 8, 7), 5, 10)) << code;
    ASSERT_EQ(to_bf16.at<std::uint32_t>(code * 4), nearest(value_of(code, 5, 10), 8, 7)) << code;
  }
}

TEST(EmulatorConvert, ABf16BecomesWiderExactlyWithAnyRounding) {
  for (const std::string rounding : {"rn", "rz", "rm", "rp"}) {
    const PtxResult single = on_all_codes("cvt." + rounding + ".f32.bf16 %f0, %h0;\nmov.b32 %r1, %f0;");
    const PtxResult wide =
        on_all_codes("cvt." + rounding + ".f64.bf16 %d0, %h0;\ncvt.rz.f32.f64 %f0, %d0;\n" + "mov.b32 %r1, %f0;");
    for (std::uint32_t code = 0; code < 65536; ++code) {
      const double value = value_of(code, 8, 7);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(single.at<float>(code * 4)) && std::isnan(wide.at<float>(code * 4))) << code;
        continue;
      }
      ASSERT_EQ(std::bit_cast<std::uint32_t>(static_cast<float>(value)), single.at<std::uint32_t>(code * 4)) << code;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(static_cast<float>(value)), wide.at<std::uint32_t>(code * 4)) << code;
    }
  }
}

TEST(EmulatorConvert, RefusesWhatPtxasRefuses) {
  for (const char* statement :
       {"cvt.f16.f32 %h0, %f0;", "cvt.bf16.f32 %h0, %f0;", "cvt.f32.f64 %f0, %d0;", "cvt.f32.s32 %f0, %r0;",
        "cvt.rn.f32.f16 %f0, %h0;", "cvt.rn.f16.f16 %h0, %h1;", "cvt.rni.f16.bf16 %h0, %h1;",
        "cvt.sat.f16.bf16 %h0, %h1;", "cvt.rn.sat.bf16.f32 %h0, %f0;", "cvt.rzi.sat.u32.bf16 %r0, %h0;",
        "cvt.ftz.bf16.f16 %h0, %h1;"})
    EXPECT_THROW(run_ptx({.statements = statement}), emulator::PtxError) << statement;
}

}  // namespace
}  // namespace kernelwright::test
