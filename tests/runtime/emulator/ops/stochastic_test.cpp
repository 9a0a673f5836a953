// cvt.rs: the bits below the last place plus random bits decide the rounding, so that the mean is the number itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/numbers/number_formats.h"
#include "runtime/emulator/ptx_kernel.h"

namespace kernelwright::emulator {
namespace {

using test::run_ptx;

/// The module of ptx_kernel.h for sm_100a: `convert` makes %r10 of %f0, %f1 and %r3, which are words 0 to 2 of the
/// thread's three.
std::vector<std::uint32_t> convert(const std::string& instruction, const std::vector<std::uint32_t>& in) {
  const std::string body =
      "mul.wide.u32 %rd2, %r0, 12; add.u64 %rd3, %rd1, %rd2; ld.global.b32 %f0, [%rd3]; ld.global.b32 %f1, [%rd3+4];\n"
      "ld.global.b32 %r3, [%rd3+8];\n" +
      instruction +
      " %r10, %f0, %f1, %r3;\nmul.wide.u32 %rd2, %r0, 4; add.u64 %rd2, %rd2, %rd0; st.global.b32 [%rd2], %r10;\n";
  const auto run = run_ptx(body, {.block = {static_cast<std::uint32_t>(in.size() / 3)}}, {.threads = 1}, in,
                           in.size() / 3, "sm_100a");
  EXPECT_EQ(run.report.fault, "");
  return run.out;
}

/// The definition in numbers: steps of the last place; the fraction rounds up if random / 2^bits carries.
std::uint32_t expected(const NumberFormat& format, float value, std::uint32_t random, int bits, bool finite) {
  if (std::isnan(value)) return format.nan_code;
  const std::uint32_t sign = std::signbit(value) ? 1u << (format.exponent_bits + format.mantissa_bits) : 0;
  const std::uint32_t top = finite ? format.max_code : format.max_code + 1;
  if (std::isinf(value)) return sign | top;
  const double magnitude = std::fabs(value);
  const int lowest = 1 - format.bias, exponent = magnitude == 0 ? lowest : std::max(std::ilogb(magnitude), lowest);
  const double steps = std::ldexp(magnitude, format.mantissa_bits - exponent);
  const double carried = std::floor(steps + std::ldexp(static_cast<double>(random), -bits));
  const double code = std::ldexp(static_cast<double>(exponent - lowest), format.mantissa_bits) + carried;
  return sign | (code > top ? top : static_cast<std::uint32_t>(code));
}

TEST(StochasticRounding, AddsTheRandomBitsBelowTheLastPlace) {
  std::vector<std::uint32_t> in;
  const float numbers[] = {1.0f,     -1.0f,   1.00049f, 3.14159f, -2.71828f, 65504.0f,  65519.9f,
                           70000.0f, 6.1e-5f, 5.0e-6f,  1e-7f,    6e-8f,     1e-30f,    0.0f,
                           -0.0f,    1e-40f,  3.3e38f,  -3.4e38f, INFINITY,  -INFINITY, NAN};
  std::uint32_t random = 12345;
  for (const float a : numbers)
    for (int i = 0; i < 16; ++i) {
      random = random * 1664525u + 1013904223u;
      in.insert(in.end(),
                {std::bit_cast<std::uint32_t>(a), std::bit_cast<std::uint32_t>(numbers[random % 21]), random});
    }
  for (const bool finite : {false, true}) {
    const std::string satfinite = finite ? ".satfinite" : "";
    const std::vector<std::uint32_t> halves = convert("cvt.rs" + satfinite + ".f16x2.f32", in),
                                     wide = convert("cvt.rs" + satfinite + ".bf16x2.f32", in);
    for (std::size_t i = 0; i < in.size() / 3; ++i) {
      const float a = std::bit_cast<float>(in[3 * i]), b = std::bit_cast<float>(in[3 * i + 1]);
      const std::uint32_t bits = in[3 * i + 2];
      EXPECT_EQ(halves[i],
                expected(kF16, a, bits >> 16 & 0x1fff, 13, finite) << 16 | expected(kF16, b, bits & 0x1fff, 13, finite))
          << a << " " << b << " " << bits;
      EXPECT_EQ(wide[i],
                expected(kBf16, a, bits >> 16, 16, finite) << 16 | expected(kBf16, b, bits & 0xffff, 16, finite))
          << a << " " << b << " " << bits;
    }
  }
  const std::vector<std::uint32_t> positive = convert("cvt.rs.relu.f16x2.f32", in);
  for (std::size_t i = 0; i < in.size() / 3; ++i) {
    if (std::bit_cast<float>(in[3 * i]) <= 0) {
      EXPECT_EQ(positive[i] >> 16, 0u);
    }
  }
}

TEST(StochasticRounding, RefusesWhatItDoesNotModel) {
  try {
    run_ptx("cvt.rs.satfinite.e4m3x4.f32 %r10, {%f0, %f1, %f0, %f1}, %r3;", {}, {}, {}, 1, "sm_100a");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("stochastic rounding to four"));
  }
}

}  // namespace
}  // namespace kernelwright::emulator
