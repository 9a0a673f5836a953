/// ldmatrix and stmatrix of 8-bit elements, and of 4 and 6 bits that become bytes, against strides of threads and
/// registers that are written down apart from the emulator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::test {
namespace {

/// Lane l copies 16 bytes of its inputs to row l of shared memory, at %shared + 16 * l; %r2 is that row's address.
constexpr const char* kFillBytes =
    "shl.b32 %r2, %lane, 4; add.u32 %r2, %r2, %shared;\nst.shared.v4.b32 [%r2], {%i0, %i1, %i2, %i3};\n"
    "bar.warp.sync -1;\n";

struct Rows {
  std::vector<Words> words;
  std::uint8_t byte(std::uint32_t row, std::uint32_t column) const {
    return static_cast<std::uint8_t>(words[column / 4][row] >> 8 * (column % 4));
  }
  /// Element i of `bits` bits of a row, elements one after another.
  std::uint32_t element(std::uint32_t row, std::uint32_t i, std::uint32_t bits) const {
    std::uint32_t value = 0;
    for (std::uint32_t bit = 0; bit < bits; ++bit) {
      const std::uint32_t at = i * bits + bit;
      value |= (byte(row, at / 8) >> at % 8 & 1u) << bit;
    }
    return value;
  }
};
Rows random_rows() { return {{scrambled(32, 1), scrambled(32, 2), scrambled(32, 3), scrambled(32, 4)}}; }

PtxRun run_of(const Rows& rows, const std::string& statements, std::size_t outputs) {
  return {.statements = kFillBytes + statements, .inputs = rows.words, .num_outputs = outputs, .target = "sm_100a"};
}
std::uint32_t byte_of(const PtxResult& result, std::uint32_t reg, std::uint32_t lane, std::uint32_t byte) {
  return result.outputs[reg][lane] >> 8 * byte & 255;
}

/// In a numbering of all bytes by bits: where a row of 16 bytes begins, and where a register's byte is.
std::uint32_t bit_of_row(std::uint32_t row) {
  return row % 2 * 128 + row / 2 % 2 * 1024 + row / 4 % 4 * 256 + row / 16 * 2048;
}
std::uint32_t bit_of_register(std::uint32_t reg, std::uint32_t lane, std::uint32_t byte) {
  return reg * 1024 + lane % 4 * 256 + lane / 4 * 8 + byte % 2 * 128 + byte / 2 * 64;
}

TEST(MatrixBytes, LoadTransposed) {
  const Rows rows = random_rows();
  for (const auto& [type, bits] :
       {std::pair(".b8", 8u), std::pair(".b8x16.b4x16_p64", 4u), std::pair(".b8x16.b6x16_p32", 6u)}) {
    const PtxResult result = run_clean(
        run_of(rows,
               std::string("ldmatrix.sync.aligned.m16n16.x2.trans.shared") + type + " {%o0, %o1, %o2, %o3}, [%r2];\n" +
                   "ldmatrix.sync.aligned.m16n16.x1.trans.shared::cta" + type + " {%o4, %o5}, [%r2];",
               6));
    std::vector<std::uint32_t> expected(4096 / 8);
    for (std::uint32_t row = 0; row < 32; ++row)
      for (std::uint32_t column = 0; column < 16; ++column)
        expected[bit_of_row(row) / 8 + column] = rows.element(row, column, bits) << (bits == 4 ? 2 : 0);
    for (std::uint32_t lane = 0; lane < 32; ++lane)
      for (std::uint32_t byte = 0; byte < 4; ++byte)
        for (std::uint32_t reg = 0; reg < 6; ++reg)
          ASSERT_EQ(byte_of(result, reg, lane, byte), expected[bit_of_register(reg % 4, lane, byte) / 8])
              << type << " " << reg << " " << lane << " " << byte;
  }
}

TEST(MatrixBytes, LoadAndSpreadNarrowElements) {
  const Rows rows = random_rows();
  for (const auto& [type, bits] : {std::pair("b4x16_p64", 4u), std::pair("b6x16_p32", 6u)}) {
    const PtxResult result = run_clean(run_of(
        rows, std::string("ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.") + type + " {%o0, %o1, %o2, %o3}, [%r2];", 4));
    for (std::uint32_t lane = 0; lane < 32; ++lane)
      for (std::uint32_t i = 0; i < 16; ++i)
        ASSERT_EQ(byte_of(result, i / 4, lane, i % 4), rows.element(i / 4 * 8 + lane / 4, lane % 4 * 4 + i % 4, bits)
                                                           << (bits == 4 ? 2 : 0));
  }
}

TEST(MatrixBytes, StoreTransposed) {
  const Rows rows = random_rows();
  const PtxResult result =
      run_clean(run_of(rows,
                       "stmatrix.sync.aligned.m16n8.x4.trans.shared.b8 [%r2], {%i0, %i1, %i2, %i3};\n"
                       "bar.warp.sync -1;\nld.shared.v4.b32 {%o0, %o1, %o2, %o3}, [%r2];",
                       4));
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    for (std::uint32_t reg = 0; reg < 4; ++reg)
      for (std::uint32_t byte = 0; byte < 4; ++byte) {
        // Row n of a matrix of 16 rows m and 8 columns n, as mma.sync places sums: n = 2t and 2t + 1, m = r and r + 8.
        const std::uint32_t row = reg * 8 + lane % 4 * 2 + byte % 2, column = lane / 4 + byte / 2 * 8;
        ASSERT_EQ(byte_of(result, column / 4, row, column % 4), rows.words[reg][lane] >> 8 * byte & 255);
      }
}

TEST(MatrixBytes, NeedTheirTargetsAndRegisters) {
  const Rows rows = random_rows();
  PtxRun older = run_of(rows, "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r3, %r4}, [%r2];", 0);
  older.target = "sm_90a";
  EXPECT_THROW(run_ptx(older), emulator::PtxError);
  EXPECT_THROW(run_ptx(run_of(rows, "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r3}, [%r2];", 0)),
               emulator::PtxError);
}

TEST(MatrixBytes, ConvertToAndFromBf16) {
  const PtxResult result = run_clean({.statements = R"(
mov.b16 %h0, 0xb838; cvt.rn.bf16x2.e4m3x2 %o0, %h0;
cvt.rn.relu.bf16x2.e4m3x2 %o1, %h0;
mov.b16 %h1, 0x0072; cvt.rn.bf16x2.e2m1x2 %o2, %h1;
cvt.rn.satfinite.e4m3x2.bf16x2 %h2, %o0; cvt.u32.u16 %o3, %h2;)",
                                      .num_outputs = 4,
                                      .target = "sm_100a"});
  EXPECT_EQ(result.outputs[0], Words(32, 0xbf803f80));
  EXPECT_EQ(result.outputs[1], Words(32, 0x00003f80));
  EXPECT_EQ(result.outputs[2], Words(32, 0x40c03f80));  // 6 and 1
  EXPECT_EQ(result.outputs[3], Words(32, 0xb838));
}

}  // namespace
}  // namespace kernelwright::test
