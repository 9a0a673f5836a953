/// mma.sync and mma.sp of integers of 4 bits and of bits, against sums over the places that the ISA gives the elements.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::test {
namespace {

/// Element `place` of `bits` bits of a register; sign-extended for s4.
int element(std::uint32_t word, int place, int bits, bool is_signed) {
  const int value = static_cast<int>(word >> place * bits & ((1u << bits) - 1));
  return is_signed && value >> (bits - 1) != 0 ? value - (1 << bits) : value;
}

/// A of m16n8k(64 or 256): lane 4r + t has places 8t (or 32t) and on of row r in register 0, of row r + 8 in register
/// 1; registers 2 and 3 have the other half of k. B likewise, by columns.
struct Matrices {
  Words a[4], b[2];
  int bits;
  int of_a(int row, int k, bool is_signed) const {
    const int each = 32 / bits, half = k / (4 * each), rest = k % (4 * each);
    const auto lane = static_cast<std::size_t>(row % 8 * 4 + rest / each);
    return element(a[row / 8 + 2 * half][lane], rest % each, bits, is_signed);
  }
  int of_b(int column, int k, bool is_signed) const {
    const int each = 32 / bits, half = k / (4 * each), rest = k % (4 * each);
    return element(b[half][static_cast<std::size_t>(column * 4 + rest / each)], rest % each, bits, is_signed);
  }
};

/// D of one instruction: registers %o0 to %o3, with C zero. %r0 to %r3 are A, %r4 and %r5 B, %r10 to %r13 zero.
std::vector<Words> multiplied(const Matrices& in, const std::string& instruction) {
  std::string statements = "mov.b32 %r10, 0; mov.b32 %r11, 0; mov.b32 %r12, 0; mov.b32 %r13, 0;\n" + instruction;
  return run_clean({.statements = statements,
                    .inputs = {in.a[0], in.a[1], in.a[2], in.a[3], in.b[0], in.b[1]},
                    .num_outputs = 4})
      .outputs;
}

Matrices matrices(int bits) {
  Matrices made{.a = {}, .b = {}, .bits = bits};
  for (std::uint32_t i = 0; i < 4; ++i) made.a[i] = scrambled(32, 10 + i);
  for (std::uint32_t i = 0; i < 2; ++i) made.b[i] = scrambled(32, 20 + i);
  return made;
}

/// Lane 4r + t has columns 2t and 2t + 1 of row r in registers 0 and 1, of row r + 8 in registers 2 and 3.
std::int32_t of_d(const std::vector<Words>& d, int row, int column) {
  const std::size_t lane = static_cast<std::size_t>(row % 8 * 4 + column / 2);
  return static_cast<std::int32_t>(d[static_cast<std::size_t>(row / 8 * 2 + column % 2)][lane]);
}

TEST(MmaSubbyte, MultipliesIntegersOfFourBits) {
  const Matrices in = matrices(4);
  for (const bool signed_a : {false, true})
    for (const bool signed_b : {false, true}) {
      const std::string types = std::string(signed_a ? "s4" : "u4") + (signed_b ? ".s4" : ".u4");
      const auto d =
          multiplied(in, "mma.sync.aligned.m16n8k64.row.col.s32." + types +
                             ".s32 {%o0, %o1, %o2, %o3}, {%i0, %i1, %i2, %i3}, {%i4, %i5}, {%r10, %r11, %r12, %r13};");
      for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 8; ++column) {
          int sum = 0;
          for (int k = 0; k < 64; ++k) sum += in.of_a(row, k, signed_a) * in.of_b(column, k, signed_b);
          ASSERT_EQ(of_d(d, row, column), sum) << types << " " << row << " " << column;
        }
    }
}

TEST(MmaSubbyte, CountsBits) {
  const Matrices in = matrices(1);
  for (const bool exclusive : {false, true}) {
    const auto d =
        multiplied(in, std::string("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.") + (exclusive ? "xor" : "and") +
                           ".popc {%o0, %o1, %o2, %o3}, {%i0, %i1, %i2, %i3}, {%i4, %i5}, {%r10, %r11, %r12, %r13};");
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column) {
        int sum = 0;
        for (int k = 0; k < 256; ++k) {
          const int x = in.of_a(row, k, false), y = in.of_b(column, k, false);
          sum += exclusive ? x ^ y : x & y;
        }
        ASSERT_EQ(of_d(d, row, column), sum) << exclusive << " " << row << " " << column;
      }
  }
}

TEST(MmaSubbyte, SkipsPairsOfASparseMatrix) {
  // In each group of four pairs of A, the second and the last are there: 1101.
  const Matrices in = matrices(4);
  const auto d = multiplied(in,
                            "mov.b32 %r20, 0xdddddddd;\n"
                            "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32 {%o0, %o1, %o2, "
                            "%o3}, {%i0, %i1}, {%i4, %i5}, {%r10, %r11, %r12, %r13}, %r20, 0;");
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      int sum = 0;
      for (int i = 0; i < 32; ++i) {
        const int pair = i / 2, k = pair / 2 * 8 + (pair % 2 == 0 ? 2 : 6) + i % 2;
        sum += in.of_a(row, i, true) * in.of_b(column, k, false);
      }
      ASSERT_EQ(of_d(d, row, column), sum) << row << " " << column;
    }
}

TEST(MmaSubbyte, TakesSparseFloatsOfFewBitsForTheirTargetsAlone) {
  // A is 1 in its places 0 and 1 of four, B is 2: every sum is 64 / 2 * 2.
  const std::string body = R"(
mov.b32 %r0, 0x04040404; mov.b32 %r1, 0x40404040; mov.b32 %r2, 0x44444444; mov.f32 %f0, 0.0;
mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e2m1.e4m3.f32 {%f1, %f2, %f3, %f4},
  {%r0, %r0, %r0, %r0}, {%r1, %r1, %r1, %r1}, {%f0, %f0, %f0, %f0}, %r2, 0;
mov.b32 %o0, %f1;)";
  const std::string one = "0x08080808";  // e2m1 in bits 2 to 5
  std::string ones = body;
  ones.replace(ones.find("0x04040404"), 10, one);
  const PtxResult result = run_clean({.statements = ones, .num_outputs = 1, .target = "sm_120a"});
  EXPECT_EQ(result.outputs[0], Words(32, std::bit_cast<std::uint32_t>(64.0f)));
  EXPECT_THROW(run_ptx({.statements = ones, .num_outputs = 1, .target = "sm_100a"}), emulator::PtxError);
}

}  // namespace
}  // namespace kernelwright::test
