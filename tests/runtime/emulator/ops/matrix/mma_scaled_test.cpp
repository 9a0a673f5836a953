// mma.sync of 4- and 6-bit floats, and with block scaling: against matrices of numbers, multiplied in double. Fragments
// and scales are placed by the ISA's figures. No hardware has run these forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <ostream>

#include "kernelwright/runtime/emulator/numbers/number_formats.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::test::mma_scaled_test {
namespace {

/// scales: how many a row of A or a column of B has; 0 for kind::f8f6f4.
struct ScaledForm {
  const char *kind, *a, *b;
  int k, scales;
  int byte_a = 0, thread_a = 0, byte_b = 0, thread_b = 0;
  bool selectors_in_registers = false;
};
std::ostream& operator<<(std::ostream& out, const ScaledForm& form) {
  return out << form.kind << ' ' << form.a << ' ' << form.b << " {" << form.byte_a << ", " << form.thread_a << "} {"
             << form.byte_b << ", " << form.thread_b << '}';
}
bool is_nv(const ScaledForm& form) { return form.scales == 4; }

const emulator::NumberFormat& format_of(std::string_view type) {
  return type == "e4m3"   ? emulator::kE4m3
         : type == "e5m2" ? emulator::kE5m2
         : type == "e3m2" ? emulator::kE3m2
         : type == "e2m3" ? emulator::kE2m3
                          : emulator::kE2m1;
}
/// Numbers that every type has.
double a_value(int row, int k) { return ((row * 7 + k * 3) % 9 - 4) * 0.5; }
double b_value(int k, int column) { return ((k * 5 + column * 11) % 7 - 3) * 0.5; }
double c_value(int row, int column) { return row * 8 + column - 50; }
/// Powers of two, so that sums stay exact: 2^(x - 2) for x = 0 … 4.
int a_scale(int row, int block) { return (row * 3 + block * 2) % 5; }
int b_scale(int column, int block) { return (column * 2 + block * 3 + 1) % 5; }
std::uint32_t scale_code(const ScaledForm& form, int x) {
  return static_cast<std::uint32_t>(is_nv(form) ? (5 + x) << 3 : 125 + x);  // ue4m3: bias 7; ue8m0: 127
}

/// The bits of an element. In a byte, 6 bits lie at the bottom and 4 bits in the middle; the rest is not read.
std::uint32_t element(const ScaledForm& form, std::string_view type, double value) {
  const std::uint32_t code = emulator::encode_number(format_of(type), value, emulator::Rounding::kNearestEven);
  if (form.k == 64) return code;
  return type == "e2m1" ? code << 2 | 0xc3 : type == "e2m3" || type == "e3m2" ? code | 0xc0 : code;
}

std::vector<Words> inputs_of(const ScaledForm& form) {
  std::vector<Words> in(12, Words(32, 0));  // A: 0-3, B: 4-5, C: 6-9, scales of A and of B: 10, 11
  const int each = form.k / 8, bits = 32 / each;
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < form.k; ++k)
      in[row / 8 + k / (form.k / 2) * 2][row % 8 * 4 + k % (form.k / 2) / each] |=
          element(form, form.a, a_value(row, k)) << (k % each * bits);
  for (int column = 0; column < 8; ++column)
    for (int k = 0; k < form.k; ++k)
      in[4 + k / (form.k / 2)][column * 4 + k % (form.k / 2) / each] |= element(form, form.b, b_value(k, column))
                                                                        << (k % each * bits);
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column)
      in[6 + row / 8 * 2 + column % 2][row % 8 * 4 + column / 2] =
          std::bit_cast<std::uint32_t>(static_cast<float>(c_value(row, column)));
  for (std::size_t i : {10, 11}) in[i] = Words(32, 0xdededede);  // scales that no selector names
  const auto put = [&](Words& words, int lane, int byte, std::uint32_t code) {
    words[lane] = (words[lane] & ~(0xffu << 8 * byte)) | code << 8 * byte;
  };
  for (int block = 0; block < form.scales; ++block) {
    for (int row = 0; row < 16; ++row)  // the quad of the row; its first or second pair of threads
      put(in[10], row % 8 * 4 + 2 * form.thread_a + row / 8, form.byte_a + block,
          scale_code(form, a_scale(row, block)));
    for (int column = 0; column < 8; ++column)
      put(in[11], column * 4 + form.thread_b, form.byte_b + block, scale_code(form, b_scale(column, block)));
  }
  return in;
}

std::string opcode_of(const ScaledForm& form) {
  std::string text = "mma.sync.aligned.m16n8k" + std::to_string(form.k) + ".row.col.kind::" + form.kind;
  if (form.scales > 0) text += ".block_scale.scale_vec::" + std::to_string(form.scales) + "X";
  text += ".f32." + std::string(form.a) + "." + form.b + ".f32";
  return form.scales == 0 ? text : text + (is_nv(form) ? ".ue4m3" : ".ue8m0");
}

PtxResult run_scaled(const ScaledForm& form, const std::string& target = "sm_120a") {
  const auto pair = [](int byte, int thread) {
    return "{" + std::to_string(byte) + ", " + std::to_string(thread) + "}";
  };
  std::string text, a = pair(form.byte_a, form.thread_a), b = pair(form.byte_b, form.thread_b);
  if (form.selectors_in_registers) {
    const int values[] = {form.byte_a, form.thread_a, form.byte_b, form.thread_b};
    for (int i = 0; i < 4; ++i) text += "mov.u16 %h" + std::to_string(i) + ", " + std::to_string(values[i]) + ";\n";
    a = "{%h0, %h1}", b = "{%h2, %h3}";
  }
  text += opcode_of(form) + " {%o0, %o1, %o2, %o3}, {%i0, %i1, %i2, %i3}, {%i4, %i5}, {%i6, %i7, %i8, %i9}";
  if (form.scales > 0) text += ", %i10, " + a + ", %i11, " + b;
  return run_ptx({.statements = text + ";", .inputs = inputs_of(form), .num_outputs = 4, .target = target});
}

class EmulatorMmaScaled : public testing::TestWithParam<ScaledForm> {};

TEST_P(EmulatorMmaScaled, MultipliesAndScalesBlockByBlock) {
  const ScaledForm& form = GetParam();
  const PtxResult result = run_scaled(form);
  ASSERT_EQ(result.report.fault, "");
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      double expected = c_value(row, column);
      for (int k = 0; k < form.k; ++k) {
        const int block = form.scales == 0 ? 0 : k / (form.k / form.scales);
        const int power = form.scales == 0 ? 0 : a_scale(row, block) - 2 + b_scale(column, block) - 2;
        expected += std::ldexp(a_value(row, k) * b_value(k, column), power);
      }
      const std::uint32_t word = result.outputs[row / 8 * 2 + column % 2][row % 8 * 4 + column / 2];
      ASSERT_EQ(std::bit_cast<float>(word), expected) << form << " row " << row << " column " << column;
    }
}

std::vector<ScaledForm> all_forms() {
  std::vector<ScaledForm> forms;
  int i = 0;
  for (const char* a : {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"})
    for (const char* b : {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}) {
      ++i;
      forms.push_back({"f8f6f4", a, b, 32, 0});
      forms.push_back({"mxf8f6f4", a, b, 32, 1, i % 4, i % 2, i / 2 % 4, (i + 1) % 4, i % 3 == 0});
    }
  for (const int byte : {0, 2})
    for (const int thread : {0, 1, 2, 3})
      for (const char* kind : {"mxf4", "mxf4nvf4"})
        forms.push_back({kind, "e2m1", "e2m1", 64, 2, 2 - byte, thread / 2, byte, thread, thread == 1});
  for (const int thread : {0, 1, 2, 3}) forms.push_back({"mxf4nvf4", "e2m1", "e2m1", 64, 4, 0, thread % 2, 0, thread});
  return forms;
}
INSTANTIATE_TEST_SUITE_P(AllForms, EmulatorMmaScaled, testing::ValuesIn(all_forms()));

TEST(EmulatorMmaScaledForms, RefuseTargetsThatLackThem) {
  for (const char* target : {"sm_90a", "sm_100a", "sm_120"})
    for (const ScaledForm& form : {ScaledForm{"mxf4", "e2m1", "e2m1", 64, 2}, {"f8f6f4", "e2m1", "e2m1", 32, 0}})
      EXPECT_THAT([&] { run_scaled(form, target); },
                  testing::ThrowsMessage<emulator::PtxError>(testing::HasSubstr("needs sm_120a")));
}

TEST(EmulatorMmaScaledForms, RefuseSelectorsOutOfRange) {
  const auto refusal = [](ScaledForm form) -> std::string {
    try {
      return run_scaled(form).report.fault;
    } catch (const emulator::PtxError& error) {
      return error.what();
    }
  };
  const ScaledForm two{"mxf4", "e2m1", "e2m1", 64, 2}, four{"mxf4nvf4", "e2m1", "e2m1", 64, 4};
  ScaledForm wrong = two;
  wrong.byte_a = 1;
  EXPECT_THAT(refusal(wrong), testing::HasSubstr("takes no byte-id of 1 in operand 6"));
  wrong.selectors_in_registers = true;
  EXPECT_THAT(refusal(wrong), testing::HasSubstr("byte-id of A 1; it takes values below 4, multiples of 2"));
  wrong = two;
  wrong.thread_a = 2;
  EXPECT_THAT(refusal(wrong), testing::HasSubstr("takes no thread-id of 2 in operand 6"));
  wrong = four;
  wrong.byte_b = 2;
  EXPECT_THAT(refusal(wrong), testing::HasSubstr("takes no byte-id of 2 in operand 8"));
  wrong = four;
  wrong.thread_b = 4;
  EXPECT_THAT(refusal(wrong), testing::HasSubstr("takes no thread-id of 4 in operand 8"));
}

TEST(EmulatorMmaScaledForms, RefuseWhatPtxasRefuses) {
  const std::string operands = " {%r0, %r1, %r2, %r3}, {%r8, %r9, %r10, %r11}, {%r16, %r17}, {%r24, %r25, %r26, %r27}";
  const std::string scales = ", %r30, {0, 0}, %r31, {0, 0};";
  const std::string refused[] = {
      "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::2X.f32.e4m3.e4m3.f32.ue8m0" + operands + scales,
      "m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0" + operands + scales,
      "m16n8k64.row.col.kind::mxf4nvf4.block_scale.f32.e2m1.e2m1.f32.ue4m3" + operands + scales,
      "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0" + operands + scales,
      "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue4m3" + operands + scales,
      "m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m3.f32.ue8m0" + operands + scales,
      "m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0" + operands + ";",
      "m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0" + operands +
          ", %r30, 0, %r31, 0;",
      "m16n8k32.row.col.f32.e2m1.e3m2.f32" + operands + ";",
      "m16n8k16.row.col.kind::f8f6f4.f32.e4m3.e3m2.f32" + operands + ";"};
  for (const std::string& text : refused)
    EXPECT_THROW(run_ptx({.statements = "mma.sync.aligned." + text, .target = "sm_120a"}), emulator::PtxError) << text;
}

}  // namespace
}  // namespace kernelwright::test::mma_scaled_test
