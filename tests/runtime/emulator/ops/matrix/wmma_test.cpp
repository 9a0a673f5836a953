/// wmma.load, wmma.mma and wmma.store: whole matrices, row by row and column by column, against sums over their
/// elements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/numbers/number_formats.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::test {
namespace {

struct Case {
  std::string type, sums;  // of A and B; of C and D
  int m, n, k, registers_a, registers_b;
};

std::size_t bytes_of(const std::string& type) {
  return type == "s8" || type == "u8" ? 1 : type == "f16" || type == "bf16" ? 2 : 4;
}

void write(std::byte* to, const std::string& type, int value) {
  const auto number = static_cast<float>(value);
  const std::uint32_t bits = type == "f16"                     ? emulator::f32_to_f16(number)
                             : type == "bf16"                  ? emulator::f32_to_bf16(number)
                             : type == "f32" || type == "tf32" ? std::bit_cast<std::uint32_t>(number)
                                                               : static_cast<std::uint32_t>(value);
  std::memcpy(to, &bits, bytes_of(type));
}

std::string registers(const char* name, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "%" : ", %") + std::string(name) + std::to_string(i);
  return text + "}";
}

/// A matrix of small numbers, in memory with `stride` elements from one row (or column) to the next.
struct Stored {
  int rows, columns, stride;
  bool by_rows;
  std::size_t at;  // in %memory
  std::size_t place(int row, int column, std::size_t size) const {
    return at + static_cast<std::size_t>(by_rows ? row * stride + column : column * stride + row) * size;
  }
};
int value_of(int row, int column, int seed) { return (row * 7 + column * 3 + seed) % 7 - 2; }

class Wmma : public testing::TestWithParam<Case> {};

TEST_P(Wmma, MultipliesWholeMatrices) {
  const Case& test = GetParam();
  const std::string shape = "m" + std::to_string(test.m) + "n" + std::to_string(test.n) + "k" + std::to_string(test.k);
  const int offset = test.type == "u8" ? 2 : 0;  // no number is negative
  for (const bool a_rows : {true, false})
    for (const bool b_rows : {true, false}) {
      const bool d_rows = a_rows == b_rows;
      const Stored a{test.m, test.k, 40, a_rows, 0}, b{test.k, test.n, 40, b_rows, 8192},
          c{test.m, test.n, 36, true, 16384}, d{test.m, test.n, 36, d_rows, 24576};
      std::vector<std::byte> memory(32768);
      for (int row = 0; row < 32; ++row)
        for (int column = 0; column < 32; ++column) {
          const std::size_t size = bytes_of(test.type), sum = bytes_of(test.sums);
          if (row < a.rows && column < a.columns)
            write(&memory[a.place(row, column, size)], test.type, value_of(row, column, 1) + offset);
          if (row < b.rows && column < b.columns)
            write(&memory[b.place(row, column, size)], test.type, value_of(row, column, 5) + offset);
          if (row < c.rows && column < c.columns)
            write(&memory[c.place(row, column, sum)], test.sums, 10 * row + column);
        }
      const auto name = [](bool by_rows) { return std::string(by_rows ? "row" : "col"); };
      const std::string load = ".sync.aligned.",
                        types = test.type == "f16" ? test.sums + "." + test.sums
                                                   : test.sums + "." + test.type + "." + test.type + "." + test.sums;
      const int of_c = test.sums == "f16" ? 4 : 8;
      const std::string at = ".global.";
      const PtxResult result = run_clean(
          {.statements = ".reg .b32 %a<8>, %b<8>, %c<8>;\nadd.u64 %rd1, %memory, 8192; add.u64 %rd2, %memory, 16384;\n"
                         "wmma.load.a" +
                         load + name(a_rows) + "." + shape + at + test.type + " " + registers("a", test.registers_a) +
                         ", [%memory], 40;\nmov.b32 %r1, 40;\n" + "wmma.load.b" + load + name(b_rows) + "." + shape +
                         "." + test.type + " " + registers("b", test.registers_b) + ", [%rd1], %r1;\nwmma.load.c" +
                         load + "row." + shape + at + test.sums + " " + registers("c", of_c) +
                         ", [%rd2], 36;\nwmma.mma" + load + name(a_rows) + "." + name(b_rows) + "." + shape + "." +
                         types + " " + registers("c", of_c) + ", " + registers("a", test.registers_a) + ", " +
                         registers("b", test.registers_b) + ", " + registers("c", of_c) + ";\nwmma.store.d" + load +
                         name(d_rows) + "." + shape + at + test.sums + " [%memory+24576], " + registers("c", of_c) +
                         ", 36;",
           .memory = memory});
      for (int row = 0; row < test.m; ++row)
        for (int column = 0; column < test.n; ++column) {
          int sum = 10 * row + column;
          for (int k = 0; k < test.k; ++k) sum += (value_of(row, k, 1) + offset) * (value_of(k, column, 5) + offset);
          std::byte expected[4] = {};
          write(expected, test.sums, sum);
          ASSERT_EQ(
              std::memcmp(&result.memory[d.place(row, column, bytes_of(test.sums))], expected, bytes_of(test.sums)), 0)
              << shape << types << " " << row << " " << column;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, Wmma,
                         testing::Values(Case{"f16", "f32", 16, 16, 16, 8, 8}, Case{"f16", "f16", 32, 8, 16, 8, 8},
                                         Case{"f16", "f32", 8, 32, 16, 8, 8}, Case{"bf16", "f32", 16, 16, 16, 4, 4},
                                         Case{"bf16", "f32", 32, 8, 16, 8, 2}, Case{"bf16", "f32", 8, 32, 16, 2, 8},
                                         Case{"s8", "s32", 16, 16, 16, 2, 2}, Case{"u8", "s32", 32, 8, 16, 4, 1},
                                         Case{"s8", "s32", 8, 32, 16, 1, 4}, Case{"tf32", "f32", 16, 16, 8, 4, 4}));

TEST(WmmaLoad, CopiesFragmentsOfF16ToAllEightRegisters) {
  const PtxResult result = run_clean({.statements = R"(
.reg .b32 %a<8>;
wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%a0, %a1, %a2, %a3, %a4, %a5, %a6, %a7}, [%memory];
mov.b32 %o0, %a1; mov.b32 %o1, %a5;)",
                                      .num_outputs = 2,
                                      .memory = bytes_of_words(scrambled(128))});
  EXPECT_EQ(result.outputs[0], result.outputs[1]);
}

TEST(WmmaLoad, NamesWhatIsWrong) {
  constexpr std::size_t kBytes = 1 << 20;  // apart from the heap, so that no other memory is nearer to what lies past it
  const auto fault = [](const std::string& address, const std::string& stride) {
    return run_ptx({.statements = ".reg .b32 %c<8>;\nmul.wide.u32 %rd1, %lane, 4; add.u64 %rd1, %rd1, %memory;\n"
                                  "wmma.load.c.sync.aligned.row.m16n16k16.global.f32 "
                                  "{%c0, %c1, %c2, %c3, %c4, %c5, %c6, %c7}, [" +
                                  address + "], " + stride + ";",
                    .memory = std::vector<std::byte>(kBytes)})
        .report.fault;
  };
  EXPECT_EQ(fault("%memory", "16"), "");
  EXPECT_THAT(fault("%rd1", "16"), testing::HasSubstr("wmma.load with addresses or strides that differ"));
  EXPECT_THAT(fault("%memory", "%lane"), testing::HasSubstr("wmma.load with addresses or strides that differ"));
  EXPECT_THAT(fault("%memory", "17500"), testing::HasSubstr("is 1424 bytes past the end of"));
  EXPECT_THROW(run_ptx({.statements = "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1, %r2}, [%memory];"}),
               emulator::PtxError);
}

}  // namespace
}  // namespace kernelwright::test
