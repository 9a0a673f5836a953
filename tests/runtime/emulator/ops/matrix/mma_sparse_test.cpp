// mma.sp: products of matrices that are written down in full, half of A's places being zero. Fragments and metadata are
// placed by the ISA's figures, which an H100 confirmed group by group.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <ostream>

#include "kernelwright/runtime/emulator/numbers/number_formats.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::test::mma_sparse_test {
namespace {

struct SparseForm {
  int k;
  const char *a, *b, *accumulator;
  int selector = 0;
  const char* spelling = "sp";
};
std::ostream& operator<<(std::ostream& out, const SparseForm& form) {
  return out << form.spelling << " k" << form.k << '.' << form.accumulator << '.' << form.a << '.' << form.b << '/'
             << form.selector;
}

int bits_of(std::string_view type) { return type == "tf32" ? 32 : type == "f16" || type == "bf16" ? 16 : 8; }

std::uint32_t code_of(std::string_view type, int value) {
  if (type == "s8" || type == "u8") return static_cast<std::uint32_t>(value) & 0xff;
  const emulator::NumberFormat& format = type == "f16"    ? emulator::kF16
                                         : type == "bf16" ? emulator::kBf16
                                         : type == "e4m3" ? emulator::kE4m3
                                         : type == "e5m2" ? emulator::kE5m2
                                                          : emulator::kF32;
  return emulator::encode_number(format, value, emulator::Rounding::kNearestEven);
}

/// Which places of a group are not zero: pairs of four, or one of two, another in each group.
std::vector<int> places_of(const SparseForm& form, int row, int group) {
  constexpr int kPairs[6][2] = {{0, 1}, {0, 2}, {1, 2}, {0, 3}, {1, 3}, {2, 3}};
  const int choice = (row * 5 + group * 7 + form.selector) % 6;
  if (std::string_view(form.a) == "tf32") return {choice % 2};
  return {kPairs[choice][0], kPairs[choice][1]};
}
int a_value(const SparseForm& form, int row, int k) {
  const int value = (row * 7 + k * 3) % 7 - 3;
  return form.a[0] == 'u' ? value + 3 : value == 0 ? 4 : value;
}
int b_value(const SparseForm& form, int k, int column) {
  const int value = (k * 5 + column * 11) % 9 - 4;
  return form.b[0] == 'u' ? value + 4 : value;
}
int c_value(int row, int column) { return row * 8 + column - 50; }

std::string registers(int first, int count, const char* prefix) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i ? ", %" : "%") + std::string(prefix) + std::to_string(first + i);
  return text + "}";
}

/// What the product's operands are: in matrices, and in registers.
struct Operands {
  std::vector<Words> inputs;             // A, B, C, metadata
  std::map<std::pair<int, int>, int> a;  // by row and k; what is missing is zero
  int num_a = 0, num_c = 4;
};

Operands operands_of(const SparseForm& form) {
  const int bits = bits_of(form.a), each = 32 / bits, group_size = bits == 32 ? 2 : 4;
  Operands made;
  made.num_a = form.k / (4 * each);  // B has as many
  made.num_c = std::string_view(form.accumulator) == "f16" ? 2 : 4;
  made.inputs.assign(static_cast<std::size_t>(2 * made.num_a + made.num_c + 1), Words(32, 0));
  Words& metadata = made.inputs.back();
  for (Words::value_type& word : metadata) word = 0x44444444;
  for (int row = 0; row < 16; ++row) {
    const int quad = row % 8 * 4, lower = row / 8;
    int packed = 0;  // column of the packed A
    for (int group = 0; group < form.k / group_size; ++group) {
      const std::vector<int> places = places_of(form, row, group);
      for (const int place : places) {
        const int k = group * group_size + place, value = a_value(form, row, k);
        made.a[{row, k}] = value;
        // Registers of A: 8 rows, 8 more, then further along k; a thread has `each` neighbours.
        const int part = packed / (4 * each) * 2 + lower, lane = quad + packed % (4 * each) / each;
        made.inputs[part][lane] |= code_of(form.a, value) << (packed % each * bits);
        ++packed;
      }
      const int nibble = places.size() == 1 ? (places[0] == 0 ? 0b0100 : 0b1110) : places[0] | places[1] << 2;
      int lane = 0, bit = 0;
      if (bits == 8) {  // a thread has a row's 32 columns
        lane = quad + lower + (form.k == 32 ? 2 * form.selector : group / 8 * 2);
        bit = group % 8 * 4;
      } else {  // a thread has four groups of both rows
        lane = quad + (form.k / group_size == 4 ? form.selector : 2 * form.selector + group / 4);
        bit = 16 * lower + group % 4 * 4;
      }
      metadata[lane] = (metadata[lane] & ~(15u << bit)) | static_cast<std::uint32_t>(nibble) << bit;
    }
  }
  for (int column = 0; column < 8; ++column)
    for (int k = 0; k < form.k; ++k)
      made.inputs[made.num_a + k / (4 * each)][column * 4 + k % (4 * each) / each] |=
          code_of(form.b, b_value(form, k, column)) << (k % each * bits);
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      const int lane = row % 8 * 4 + column / 2, i = row / 8 * 2 + column % 2, value = c_value(row, column);
      if (made.num_c == 2)
        made.inputs[2 * made.num_a + i / 2][lane] |= code_of("f16", value) << (i % 2 * 16);
      else
        made.inputs[2 * made.num_a + i][lane] =
            form.accumulator[0] == 's' ? static_cast<std::uint32_t>(value) : code_of("f32", value);
    }
  return made;
}

PtxResult run_sparse(const SparseForm& form, const Operands& operands, const std::string& target = "sm_90a") {
  const std::string opcode = "mma." + std::string(form.spelling) + ".sync.aligned.m16n8k" + std::to_string(form.k) +
                             ".row.col." + form.accumulator + "." + form.a + "." + form.b + "." + form.accumulator;
  const int n = operands.num_a, c = operands.num_c;
  return run_ptx({.statements = opcode + " " + registers(0, c, "o") + ", " + registers(0, n, "i") + ", " +
                                registers(n, n, "i") + ", " + registers(2 * n, c, "i") + ", %i" +
                                std::to_string(2 * n + c) + ", " + std::to_string(form.selector) + ";",
                  .inputs = operands.inputs,
                  .num_outputs = static_cast<std::size_t>(c),
                  .target = target});
}

class EmulatorMmaSparse : public testing::TestWithParam<SparseForm> {};

TEST_P(EmulatorMmaSparse, MultipliesWhatTheMetadataSays) {
  const SparseForm& form = GetParam();
  const Operands operands = operands_of(form);
  const PtxResult result = run_sparse(form, operands);
  ASSERT_EQ(result.report.fault, "");
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      int expected = c_value(row, column);
      for (const auto& [at, value] : operands.a)
        if (at.first == row) expected += value * b_value(form, at.second, column);
      const int lane = row % 8 * 4 + column / 2, i = row / 8 * 2 + column % 2;
      double found = 0;
      if (operands.num_c == 2) {
        found = emulator::f16_to_f32(static_cast<std::uint16_t>(result.outputs[i / 2][lane] >> (i % 2 * 16)));
      } else {
        const std::uint32_t word = result.outputs[i][lane];
        found = form.accumulator[0] == 's' ? static_cast<std::int32_t>(word) : std::bit_cast<float>(word);
      }
      ASSERT_EQ(found, expected) << form << " row " << row << " column " << column;
    }
}

std::vector<SparseForm> all_forms() {
  std::vector<SparseForm> forms;
  for (const char* spelling : {"sp", "sp::ordered_metadata"}) {
    for (const int selector : {0, 1, 2, 3})
      for (const SparseForm& form : {SparseForm{16, "f16", "f16", "f32"}, SparseForm{16, "f16", "f16", "f16"},
                                     SparseForm{16, "bf16", "bf16", "f32"}, SparseForm{8, "tf32", "tf32", "f32"}})
        forms.push_back({form.k, form.a, form.b, form.accumulator, selector, spelling});
    for (const int selector : {0, 1})
      for (const SparseForm& form :
           {SparseForm{32, "f16", "f16", "f32"}, SparseForm{32, "f16", "f16", "f16"},
            SparseForm{32, "bf16", "bf16", "f32"}, SparseForm{16, "tf32", "tf32", "f32"},
            SparseForm{32, "s8", "s8", "s32"}, SparseForm{32, "u8", "s8", "s32"}, SparseForm{32, "s8", "u8", "s32"}})
        forms.push_back({form.k, form.a, form.b, form.accumulator, selector, spelling});
    for (const char* a : {"e4m3", "e5m2"})
      for (const char* b : {"e4m3", "e5m2"}) forms.push_back({64, a, b, "f32", 0, spelling});
    for (const char* a : {"s8", "u8"})
      for (const char* b : {"s8", "u8"}) forms.push_back({64, a, b, "s32", 0, spelling});
  }
  return forms;
}
INSTANTIATE_TEST_SUITE_P(AllForms, EmulatorMmaSparse, testing::ValuesIn(all_forms()));

TEST(EmulatorMmaSparseValues, AnEmptyPlaceTimesInfinityIsNothing) {
  const SparseForm form{16, "f16", "f16", "f32"};
  Operands operands = operands_of(form);
  // Row 0, group 0 has places 0 and 1 (0100), so that column 0 of B does not use k = 3, which becomes infinite.
  ASSERT_EQ(operands.a.count({0, 3}), 0u);
  operands.inputs[2][1] = (operands.inputs[2][1] & 0xffff) | 0x7c000000;
  const PtxResult result = run_sparse(form, operands);
  ASSERT_EQ(result.report.fault, "");
  EXPECT_TRUE(std::isfinite(std::bit_cast<float>(result.outputs[0][0])));
  int users = 0;
  for (int row = 0; row < 8; ++row) {
    const bool uses = operands.a.count({row, 3}) != 0;
    users += uses;
    EXPECT_EQ(std::isfinite(std::bit_cast<float>(result.outputs[0][row * 4])), !uses) << row;
  }
  EXPECT_GT(users, 0);
}

TEST(EmulatorMmaSparseValues, MetadataThatMeansNothingIsAFault) {
  const auto fault = [](const SparseForm& form, std::uint32_t word) {
    Operands operands = operands_of(form);
    operands.inputs.back()[4] = word;
    return run_sparse(form, operands).report.fault;
  };
  const SparseForm half{16, "f16", "f16", "f32"}, ordered{16, "f16", "f16", "f32", 0, "sp::ordered_metadata"};
  EXPECT_THAT(fault(half, 0x44444544), testing::HasSubstr("0101 for group 2 of row 1: both elements have one place"));
  EXPECT_THAT(fault(half, 0x44044444), testing::HasSubstr("0000 for group 1 of row 9"));
  EXPECT_EQ(fault(half, 0x44444144), "");  // places 1 and 0: out of order
  EXPECT_THAT(fault(ordered, 0x44444144), testing::HasSubstr("needs them in order"));
  EXPECT_THAT(fault({8, "tf32", "tf32", "f32"}, 0x44444944), testing::HasSubstr("tf32 takes 0100 and 1110"));
}

TEST(EmulatorMmaSparseValues, FormsThatPtxasRefusesAreRefused) {
  const std::string a2 = "{%r8, %r9}", b2 = "{%r16, %r17}", d4 = "{%r0, %r1, %r2, %r3}",
                    c4 = "{%r24, %r25, %r26, %r27}";
  const std::string a4 = "{%r8, %r9, %r10, %r11}", b4 = "{%r16, %r17, %r18, %r19}";
  const std::string begin = "mma.sp.sync.aligned.", small = d4 + ", " + a2 + ", " + b2 + ", " + c4 + ", %r30, ",
                    large = d4 + ", " + a4 + ", " + b4 + ", " + c4 + ", %r30, ";
  const std::string refused[] = {
      "m16n8k16.row.col.f32.f16.f16.f32 " + small + "4;",
      "m16n8k16.row.col.f32.f16.f16.f32 " + small + "%r31;",
      "m16n8k16.row.col.f32.f16.bf16.f32 " + small + "0;",
      "m16n8k16.row.col.f32.f16.f16.f32 " + large + "0;",
      "m16n8k16.row.row.f32.f16.f16.f32 " + small + "0;",
      "m16n8k32.row.col.f32.bf16.bf16.f32 " + large + "2;",
      "m16n8k64.row.col.s32.s8.s8.s32 " + large + "1;",
      "m16n8k64.row.col.f16.e4m3.e4m3.f16 {%r0, %r1}, " + a4 + ", " + b4 + ", {%r24, %r25}, %r30, 0;",
      "m16n8k32.row.col.f32.e4m3.e4m3.f32 " + small + "0;"};
  for (const std::string& text : refused)
    EXPECT_THROW(run_ptx({.statements = begin + text}), emulator::PtxError) << text;
  EXPECT_NO_THROW(run_ptx({.statements = begin + "m16n8k16.row.col.f32.f16.f16.f32 " + small + "3;"}));
}

}  // namespace
}  // namespace kernelwright::test::mma_sparse_test
