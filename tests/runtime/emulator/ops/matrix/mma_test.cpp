// mma.sync: fragments by PTX's own formulas, with sums of small integers, which every type holds exactly.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <ostream>

#include "kernelwright/runtime/emulator/numbers/number_formats.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::test {
namespace {

using emulator::NumberFormat;

struct MmaForm {
  int m, k;
  const char *a, *b, *accumulator;
  bool saturate = false;
};
std::ostream& operator<<(std::ostream& out, const MmaForm& form) {
  return out << 'm' << form.m << "n8k" << form.k << '.' << form.accumulator << '.' << form.a << '.' << form.b
             << (form.saturate ? ".satfinite" : "");
}

int bits_of(std::string_view type) {
  return type == "tf32" || type == "f32" || type == "s32" ? 32 : type == "f16" || type == "bf16" ? 16 : 8;
}

std::uint32_t code_of(std::string_view type, int value) {
  if (type == "s8" || type == "u8") return static_cast<std::uint32_t>(value) & 0xff;
  const NumberFormat& format = type == "f16"    ? emulator::kF16
                               : type == "bf16" ? emulator::kBf16
                               : type == "e4m3" ? emulator::kE4m3
                               : type == "e5m2" ? emulator::kE5m2
                                                : emulator::kF32;
  return emulator::encode_number(format, value, emulator::Rounding::kNearestEven);
}

/// Small integers that differ, including 0 and negative ones if the type has them; e5m2 has two bits of mantissa.
int a_at(const MmaForm& form, int row, int k) {
  const int value = (row * 7 + k * 3) % 9 - 4;
  return form.a[0] == 'u' ? value + 200 : value;
}
int b_at(const MmaForm& form, int k, int column) {
  const int value = (k * 5 + column * 11) % 9 - 4;
  return form.b[0] == 'u' ? value + 4 : value;
}
int c_at(int row, int column) { return row * 8 + column - 50; }

/// PTX ISA "Matrix fragments for mma": where element i of a lane's A, B or C fragment is in its matrix. `each` is how
/// many elements a 32-bit register holds.
struct At {
  int row, column;
};
At a_place(int lane, int i, int each) {
  const int part = i / each;  // registers go down 8 rows, then along k
  return {lane / 4 + part % 2 * 8, lane % 4 * each + i % each + part / 2 * 4 * each};
}
At a_place_8_rows(int lane, int i, int each) { return {lane / 4, lane % 4 * each + i % each}; }
At b_place(int lane, int i, int each) { return {lane % 4 * each + i % each + i / each * 4 * each, lane / 4}; }
At c_place(int lane, int i) { return {lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2}; }

std::string registers(int first, int count, const char* prefix) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i ? ", %" : "%") + std::string(prefix) + std::to_string(first + i);
  return text + "}";
}

class EmulatorMma : public testing::TestWithParam<MmaForm> {};

TEST_P(EmulatorMma, MultipliesFragmentsAsPtxLaysThemOut) {
  const MmaForm& form = GetParam();
  const int each = 32 / bits_of(form.a), halves = form.m / 8;
  const int num_a = form.m * form.k / 32 / each, num_b = form.k * 8 / 32 / each;
  const bool f16 = std::string_view(form.accumulator) == "f16";
  const int c_each = f16 ? 2 : 1, num_c = 2 * halves / c_each;
  std::vector<Words> inputs(num_a + num_b + num_c, Words(32));
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < num_a * each; ++i) {
      const At at = halves == 1 ? a_place_8_rows(lane, i, each) : a_place(lane, i, each);
      inputs[i / each][lane] |= code_of(form.a, a_at(form, at.row, at.column)) << (i % each * bits_of(form.a));
    }
    for (int i = 0; i < num_b * each; ++i) {
      const At at = b_place(lane, i, each);
      inputs[num_a + i / each][lane] |= code_of(form.b, b_at(form, at.row, at.column)) << (i % each * bits_of(form.b));
    }
    for (int i = 0; i < num_c * c_each; ++i) {
      const At at = c_place(lane, i);
      const int value = c_at(at.row, at.column);
      const std::uint32_t code =
          form.accumulator[0] == 's' ? static_cast<std::uint32_t>(value) : code_of(form.accumulator, value);
      inputs[num_a + num_b + i / c_each][lane] |= code << (i % c_each * 16);
    }
  }
  const std::string opcode = "mma.sync.aligned.m" + std::to_string(form.m) + "n8k" + std::to_string(form.k) +
                             ".row.col" + (form.saturate ? ".satfinite." : ".") + form.accumulator + "." + form.a +
                             "." + form.b + "." + form.accumulator + " ";
  const PtxResult result =
      run_clean({.statements = opcode + registers(0, num_c, "o") + ", " + registers(0, num_a, "i") + ", " +
                               registers(num_a, num_b, "i") + ", " + registers(num_a + num_b, num_c, "i") + ";",
                 .inputs = inputs,
                 .num_outputs = static_cast<std::size_t>(num_c)});
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < num_c * c_each; ++i) {
      const At at = c_place(lane, i);
      int expected = c_at(at.row, at.column);
      for (int k = 0; k < form.k; ++k) expected += a_at(form, at.row, k) * b_at(form, k, at.column);
      const std::uint32_t word = result.outputs[i / c_each][lane];
      const double found = form.accumulator[0] == 's' ? static_cast<std::int32_t>(word)
                           : f16 ? emulator::f16_to_f32(static_cast<std::uint16_t>(word >> (i % 2 * 16)))
                                 : std::bit_cast<float>(word);
      ASSERT_EQ(found, expected) << opcode << "lane " << lane << " element " << i;
    }
}

std::vector<MmaForm> all_forms() {
  std::vector<MmaForm> forms = {{16, 4, "tf32", "tf32", "f32"}, {16, 8, "tf32", "tf32", "f32"},
                                {16, 8, "bf16", "bf16", "f32"}, {16, 16, "bf16", "bf16", "f32"},
                                {16, 8, "f16", "f16", "f32"},   {16, 16, "f16", "f16", "f32"},
                                {16, 8, "f16", "f16", "f16"},   {16, 16, "f16", "f16", "f16"}};
  for (const int k : {16, 32})
    for (const char* accumulator : {"f32", "f16"})
      for (const char* a : {"e4m3", "e5m2"})
        for (const char* b : {"e4m3", "e5m2"}) forms.push_back({16, k, a, b, accumulator});
  for (const char* a : {"s8", "u8"})
    for (const char* b : {"s8", "u8"}) {
      forms.push_back({8, 16, a, b, "s32"});
      for (const int k : {16, 32}) {
        forms.push_back({16, k, a, b, "s32"});
        forms.push_back({16, k, a, b, "s32", true});
      }
    }
  return forms;
}
INSTANTIATE_TEST_SUITE_P(AllForms, EmulatorMma, testing::ValuesIn(all_forms()));

/// One register each of A and B, equal in all lanes; C in four.
Words run_k8(const std::string& types, std::uint32_t a, std::uint32_t b, std::uint32_t c, int num_c,
             const std::string& shape = "m16n8k8", int num_a = 2, int num_b = 1) {
  std::string text = "mma.sync.aligned." + shape + ".row.col." + types + " " + registers(0, num_c, "o") + ", {";
  for (int i = 0; i < num_a; ++i) text += i ? ", %i0" : "%i0";
  text += "}, {";
  for (int i = 0; i < num_b; ++i) text += i ? ", %i1" : "%i1";
  text += "}, {";
  for (int i = 0; i < num_c; ++i) text += i ? ", %i2" : "%i2";
  const PtxResult result =
      run_clean({.statements = text + "};", .inputs = {Words(32, a), Words(32, b), Words(32, c)}, .num_outputs = 1});
  return result.outputs[0];
}

TEST(EmulatorMmaValues, EveryCodeOfTheNarrowFloatsHasItsValue) {
  // A is one code in column 0 of each row; B is 1 in row 0: D is the code's value. k32 has four codes a register.
  for (const auto& [name, format, one] :
       {std::tuple{"e4m3", emulator::kE4m3, 0x38u}, std::tuple{"e5m2", emulator::kE5m2, 0x3cu}}) {
    for (std::uint32_t first = 0; first < 256; first += 8) {
      Words a(32, 0), b(32, 0), zero(32, 0);
      for (std::uint32_t row = 0; row < 8; ++row) a[row * 4] = first + row;
      for (std::uint32_t column = 0; column < 8; ++column) b[column * 4] = one;
      const PtxResult result =
          run_clean({.statements = std::string("mma.sync.aligned.m16n8k32.row.col.f32.") + name + "." + name +
                                   ".f32 {%o0, %o1, %o2, %o3}, {%i0, %i2, %i2, %i2}, {%i1, %i2}, {%i2, %i2, %i2, %i2};",
                     .inputs = {a, b, zero},
                     .num_outputs = 4});
      for (std::uint32_t row = 0; row < 8; ++row) {
        const double expected = emulator::decode_number(format, first + row);
        const std::uint32_t found = result.outputs[0][row * 4];
        if (std::isnan(expected))
          EXPECT_EQ(found, 0x7fffffffu) << name << " " << first + row;
        else if (std::isinf(expected))  // 0 x inf does not arise: the other products are 0 x 0
          EXPECT_EQ(std::bit_cast<float>(found), expected) << name << " " << first + row;
        else
          EXPECT_EQ(std::bit_cast<float>(found), expected) << name << " " << first + row;
      }
    }
  }
}

TEST(EmulatorMmaValues, F16AndBf16SpecialsKeepTheirMeaning) {
  const std::uint32_t one = 0x3c00;  // in the low half: the high half of k is 0
  for (const std::uint32_t code : {0x0001u, 0x03ffu, 0x0400u, 0x7bffu, 0x8001u, 0x7c00u, 0xfc00u})
    EXPECT_EQ(std::bit_cast<float>(run_k8("f32.f16.f16.f32", code, one, 0, 4)[0]),
              4 * emulator::f16_to_f32(static_cast<std::uint16_t>(code)))
        << code;
  EXPECT_EQ(run_k8("f32.f16.f16.f32", 0x7e00, one, 0, 4)[0], 0x7fffffffu);
  EXPECT_EQ(run_k8("f32.bf16.bf16.f32", 0x7f80, 0, 0, 4)[0], 0x7fffffffu);  // inf x 0
  EXPECT_EQ(run_k8("f16.f16.f16.f16", 0x7bff, one, 0, 2)[0], 0x7c007c00u);  // 4 x 65504
  EXPECT_EQ(run_k8("f16.f16.f16.f16", 0x7e00, one, 0, 2)[0], 0x7fff7fffu);
}

TEST(EmulatorMmaValues, Tf32IgnoresItsLowBits) {
  const std::uint32_t one = std::bit_cast<std::uint32_t>(1.0f);
  EXPECT_EQ(std::bit_cast<float>(run_k8("f32.tf32.tf32.f32", one | 0x1fff, one | 0xfff, 0, 4, "m16n8k4")[0]), 4.0f);
}

TEST(EmulatorMmaValues, IntegersWrapOrStopAsTheFormSays) {
  const std::uint32_t ones = 0x01010101, high = 0x7ffffff8u;
  EXPECT_EQ(run_k8("s32.s8.s8.s32", ones, ones, high, 4, "m16n8k16")[0], high + 16);
  EXPECT_EQ(run_k8("satfinite.s32.s8.s8.s32", ones, ones, high, 4, "m16n8k16")[0], 0x7fffffffu);
  EXPECT_EQ(run_k8("satfinite.s32.s8.s8.s32", ~0u, ones, 0x80000001u, 4, "m16n8k16")[0], 0x80000000u);
  EXPECT_EQ(run_k8("s32.u8.u8.s32", ~0u, ~0u, 0, 4, "m16n8k32", 4, 2)[0], 32u * 255 * 255);
}

TEST(EmulatorMmaValues, DestinationsMayBeSources) {
  const std::vector<Words> inputs = {Words(32, 0x3c003c00), Words(32, 0x3c003c00)};  // ones
  const PtxResult result = run_clean({.statements = R"(
mov.b32 %r0, %i0; mov.b32 %r1, %i0; mov.b32 %r2, %i0; mov.b32 %r3, %i0; mov.b32 %r4, %i1; mov.b32 %r5, %i1;
mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r0, %r4}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r0, %r4};
mov.b32 %o0, %r0; mov.b32 %o1, %r4;)",
                                      .inputs = inputs,
                                      .num_outputs = 2});
  EXPECT_EQ(result.outputs[0], Words(32, 0x4c404c40));  // 17
  EXPECT_EQ(result.outputs[1], Words(32, 0x4c404c40));
}

TEST(EmulatorMmaValues, DoublesMultiplyInEveryShape) {
  for (const auto& [m, k] : {std::pair{8, 4}, std::pair{16, 4}, std::pair{16, 8}, std::pair{16, 16}}) {
    const int num_a = m * k / 32, num_b = k / 4, num_c = m / 4;
    // a[row][k] = 1 + row + k / 64, b[k][column] = column - k / 32: exact, and different everywhere.
    std::string text = "cvt.rn.f64.u32 %d30, %lane; shr.u32 %r1, %lane, 2; and.b32 %r2, %lane, 3;\n";
    const auto fill = [&](const std::string& target, const std::string& x, const std::string& k_index, bool is_a) {
      text += "cvt.rn.f64.u32 %d31, " + x + "; cvt.rn.f64.u32 %d30, " + k_index + ";\n";
      text += is_a ? "fma.rn.f64 " + target + ", %d30, 0d3f90000000000000, %d31; add.rn.f64 " + target + ", " + target +
                         ", 0d3ff0000000000000;\n"
                   : "fma.rn.f64 " + target + ", %d30, 0dbfa0000000000000, %d31;\n";
    };
    for (int i = 0; i < num_a; ++i) {
      const At at = m == 8 ? a_place_8_rows(0, i, 1) : a_place(0, i, 1);
      text +=
          "add.u32 %r3, %r1, " + std::to_string(at.row) + "; add.u32 %r4, %r2, " + std::to_string(at.column) + ";\n";
      fill("%d" + std::to_string(i), "%r3", "%r4", true);
    }
    for (int i = 0; i < num_b; ++i) {
      text += "add.u32 %r4, %r2, " + std::to_string(4 * i) + ";\n";
      fill("%d" + std::to_string(8 + i), "%r1", "%r4", false);
    }
    for (int i = 0; i < num_c; ++i) text += "mov.f64 %d" + std::to_string(16 + i) + ", 0d4059000000000000;\n";  // 100
    text += "mma.sync.aligned.m" + std::to_string(m) + "n8k" + std::to_string(k) + ".row.col.f64.f64.f64.f64 " +
            registers(16, num_c, "d") + ", " + registers(0, num_a, "d") + ", " + registers(8, num_b, "d") + ", " +
            registers(16, num_c, "d") + ";\n";
    for (int i = 0; i < num_c; ++i)
      text += "mov.b64 {%o" + std::to_string(2 * i) + ", %o" + std::to_string(2 * i + 1) + "}, %d" +
              std::to_string(16 + i) + ";\n";
    const PtxResult result = run_clean({.statements = text, .num_outputs = static_cast<std::size_t>(2 * num_c)});
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < num_c; ++i) {
        const At at = c_place(lane, i);
        double expected = 100;
        for (int step = 0; step < k; ++step) expected += (1 + at.row + step / 64.0) * (at.column - step / 32.0);
        const std::uint64_t bits =
            result.outputs[2 * i][lane] | static_cast<std::uint64_t>(result.outputs[2 * i + 1][lane]) << 32;
        EXPECT_EQ(std::bit_cast<double>(bits), expected) << m << " " << k << " lane " << lane << " element " << i;
      }
  }
}

TEST(EmulatorMmaRefusals, FormsThatAreNotModelledAreRefusedByName) {
  const std::string operands = " {%o0, %o1, %o2, %o3}, {%i0, %i1}, {%i2}, {%o0, %o1, %o2, %o3};";
  for (const char* form :
       {"mma.sync.aligned.m16n8k32.row.col.s32.s4.f16.s32", "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.or.popc",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f16"})
    EXPECT_THROW(run_ptx({.statements = form + operands}), emulator::PtxError) << form;
}

TEST(EmulatorMmaRefusals, AWrongNumberOfRegistersIsRefused) {
  EXPECT_THROW(run_ptx({.statements = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%o0, %o1, %o2, %o3}, "
                                      "{%i0, %i1}, {%i2}, {%o0, %o1, %o2, %o3};"}),
               emulator::PtxError);
}

}  // namespace
}  // namespace kernelwright::test
