// ldmatrix, stmatrix, movmatrix: element by element, by PTX's rules for which lane holds what.
#include <gtest/gtest.h>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::test {
namespace {

/// In registers lane 4r + t holds elements (r, 2t) and (r, 2t + 1) of a matrix.
std::uint16_t element_in(const Words& lanes, int row, int column) {
  return static_cast<std::uint16_t>(lanes[row * 4 + column / 2] >> (column % 2 * 16));
}

/// Rows lie in shared memory in a scrambled order, so that a row's address matters: row i of all 32 is at 16 * (i * 5 %
/// 32).
std::uint32_t place_of_row(int row) { return 16 * static_cast<std::uint32_t>(row * 5 % 32); }

std::uint16_t halfword(const Words& words, std::uint32_t byte) {
  return static_cast<std::uint16_t>(words[byte / 4] >> (byte % 4 * 8));
}

/// Fills 512 bytes of shared memory from input 0 to 3, 16 bytes a lane, and leaves a row's address in %r9.
const std::string kFill = R"(
shl.b32 %r1, %lane, 4; add.u32 %r1, %r1, %shared;
st.shared.v4.b32 [%r1], {%i0, %i1, %i2, %i3};
bar.warp.sync -1;
mul.lo.u32 %r2, %lane, 5; and.b32 %r2, %r2, 31; shl.b32 %r2, %r2, 4; add.u32 %r9, %r2, %shared;
)";

/// The 512 bytes as words, from the inputs: lane l wrote words 4l to 4l + 3.
Words shared_words(const std::vector<Words>& inputs) {
  Words words(128);
  for (int i = 0; i < 128; ++i) words[i] = inputs[i % 4][i / 4];
  return words;
}

std::vector<Words> four_inputs() { return {scrambled(32, 1), scrambled(32, 2), scrambled(32, 3), scrambled(32, 4)}; }

std::string list_of(const char* prefix, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i ? ", " : "") + std::string(prefix) + std::to_string(i);
  return text + "}";
}

TEST(EmulatorLdmatrix, PutsRowsWhereTheirLanesAre) {
  const std::vector<Words> inputs = four_inputs();
  const Words shared = shared_words(inputs);
  for (const bool hazards : {false, true})  // the checker takes another way to the rows
    for (const bool transpose : {false, true})
      for (const int count : {1, 2, 4}) {
        const std::string form =
            "ldmatrix.sync.aligned.m8n8.x" + std::to_string(count) + (transpose ? ".trans" : "") + ".shared.b16 ";
        const PtxResult result = run_clean({.statements = kFill + form + list_of("%o", count) + ", [%r9];",
                                            .inputs = inputs,
                                            .num_outputs = static_cast<std::size_t>(count),
                                            .options = {.hazards = hazards, .threads = 1}});
        for (int i = 0; i < count; ++i)
          for (int row = 0; row < 8; ++row)
            for (int column = 0; column < 8; ++column) {
              const std::uint16_t expected =
                  halfword(shared, place_of_row(i * 8 + row) + 2 * static_cast<std::uint32_t>(column));
              EXPECT_EQ(
                  transpose ? element_in(result.outputs[i], column, row) : element_in(result.outputs[i], row, column),
                  expected)
                  << form << i << " " << row << " " << column;
            }
      }
}

TEST(EmulatorLdmatrix, TakesGenericAddressesAndOverwritesItsOwnAddress) {
  const std::vector<Words> inputs = four_inputs();
  const PtxResult plain =
      run_clean({.statements = kFill + "ldmatrix.sync.aligned.m8n8.x2.shared::cta.b16 {%o0, %o1}, [%r9];",
                 .inputs = inputs,
                 .num_outputs = 2});
  const PtxResult generic = run_clean({.statements = kFill + "cvt.u64.u32 %rd1, %r9; cvta.shared.u64 %rd1, %rd1;"
                                                             "ldmatrix.sync.aligned.m8n8.x2.b16 {%o0, %o1}, [%rd1];",
                                       .inputs = inputs,
                                       .num_outputs = 2});
  const PtxResult own = run_clean(
      {.statements =
           kFill + "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r9, %r10}, [%r9]; mov.b32 %o0, %r9; mov.b32 %o1, %r10;",
       .inputs = inputs,
       .num_outputs = 2});
  EXPECT_EQ(plain.outputs, generic.outputs);
  EXPECT_EQ(plain.outputs, own.outputs);
}

TEST(EmulatorLdmatrix, ARowThatIsMisalignedOrOutsideIsAFault) {
  for (const char* what : {"add.u32 %r9, %r9, 8;", "add.u32 %r9, %r9, 4096;"}) {
    const PtxResult result =
        run_ptx({.statements = kFill + what + "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%o0, %o1, %o2, %o3}, [%r9];",
                 .inputs = four_inputs(),
                 .num_outputs = 4});
    EXPECT_NE(result.report.fault, "") << what;
  }
}

TEST(EmulatorLdmatrix, IgnoresTheAddressesOfLanesWhoseRowsItDoesNotRead) {
  run_clean({.statements = kFill + "setp.ge.u32 %p0, %lane, 8; @%p0 mov.b32 %r9, 3;"
                                   "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%o0}, [%r9];",
             .inputs = four_inputs(),
             .num_outputs = 1});
}

TEST(EmulatorLdmatrix, ShapesOfLaterArchitecturesAreRefused) {
  EXPECT_THROW(run_ptx({.statements = "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%o0, %o1}, [%shared];"}),
               emulator::PtxError);
}

TEST(EmulatorLdmatrix, AWarpWithLanesThatHaveExitedIsAFault) {
  const PtxResult result = run_ptx({.statements = kFill + "setp.eq.u32 %p0, %lane, 7; @%p0 exit;"
                                                          "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%o0}, [%r9];",
                                    .inputs = four_inputs(),
                                    .num_outputs = 1});
  EXPECT_NE(result.report.fault.find("32 lanes"), std::string::npos) << result.report.fault;
}

TEST(EmulatorStmatrix, PutsWhatLanesHoldIntoRows) {
  const std::vector<Words> inputs = four_inputs();
  for (const bool hazards : {false, true})
    for (const bool transpose : {false, true})
      for (const int count : {1, 2, 4}) {
        const std::string form = "stmatrix.sync.aligned.m8n8.x" + std::to_string(count) + (transpose ? ".trans" : "") +
                                 ".shared.b16 [%r9], ";
        const PtxResult result =
            run_clean({.statements = kFill + "bar.warp.sync -1;\n" + form + list_of("%i", count) +
                                     ";\nbar.warp.sync -1;\nld.shared.v4.b32 {%o0, %o1, %o2, %o3}, [%r1];",
                       .inputs = inputs,
                       .num_outputs = 4,
                       .options = {.hazards = hazards, .threads = 1}});
        const Words before = shared_words(inputs), after = shared_words(result.outputs);
        for (int i = 0; i < 4; ++i)
          for (int row = 0; row < 8; ++row)
            for (int column = 0; column < 8; ++column) {
              const std::uint32_t byte = place_of_row(i * 8 + row) + 2 * static_cast<std::uint32_t>(column);
              const std::uint16_t expected = i >= count  ? halfword(before, byte)
                                             : transpose ? element_in(inputs[i], column, row)
                                                         : element_in(inputs[i], row, column);
              EXPECT_EQ(halfword(after, byte), expected) << form << i << " " << row << " " << column;
            }
      }
}

TEST(EmulatorMovmatrix, TransposesARegister) {
  const Words values = scrambled(32);
  const PtxResult result = run_clean({.statements = "movmatrix.sync.aligned.m8n8.trans.b16 %o0, %i0;\n"
                                                    "mov.b32 %o1, %i0; movmatrix.sync.aligned.m8n8.trans.b16 %o1, %o1;",
                                      .inputs = {values},
                                      .num_outputs = 2});
  for (int row = 0; row < 8; ++row)
    for (int column = 0; column < 8; ++column) {
      EXPECT_EQ(element_in(result.outputs[0], row, column), element_in(values, column, row));
      EXPECT_EQ(element_in(result.outputs[1], row, column), element_in(values, column, row));
    }
}

}  // namespace
}  // namespace kernelwright::test
