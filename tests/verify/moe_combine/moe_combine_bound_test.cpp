// The reference of sums over experts' rows against small numbers by hand, and the comparison: it passes what is right
// and finds each kind of fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "kernelwright/verify/device/device_memory.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/moe_combine/bound.h"
#include "kernelwright/verify/moe_combine/reference.h"

namespace kernelwright::moe_combine_bound_test {
namespace {

using testing::Each;
using testing::HasSubstr;

MoeCombineCase drawn(bool check) {
  MoeCombineProblem problem;
  problem.width = 64, problem.top_k = 4;
  problem.residual = true;
  return make_moe_combine_inputs(problem, {.name = "drawn", .tokens = 5, .check = check});
}

/// What a kernel without any fault writes.
MoeCombineOutput right_output(const MoeCombineCase& call) {
  MoeCombineOutput output;
  output.out.resize(static_cast<std::size_t>(call.tokens * call.out_stride) * 2, DeviceMemory::kGuardByte);
  for (std::int64_t token = 0; token < call.tokens; ++token) {
    const MoeCombineRow right = reference_row(call, token);
    encode_row(DType::kBf16, std::vector<float>(right.value.begin(), right.value.end()),
               output.out.data() + token * call.out_stride * 2);
  }
  return output;
}

TEST(VerifyMoeCombine, ReferenceAddsUpWhatIsThere) {
  MoeCombineCase call = drawn(false);
  call.problem.width = 8, call.problem.top_k = 3;
  call.tokens = 1, call.num_rows = 2;
  call.rows_stride = call.residual_stride = 8;
  std::vector<float> rows(8, 2.f);
  rows.resize(16, 5.f);
  encode_row(DType::kBf16, rows, call.rows.data());
  encode_row(DType::kBf16, std::vector<float>(8, 100.f), call.residual.data());
  call.positions = {1, 2, 0};
  call.weights = {3, 7, 0.5};
  EXPECT_THAT(reference_row(call, 0).value, Each(100 + 15 + 1));
  call.weights[0] = 0;
  EXPECT_THAT(reference_row(call, 0).value, Each(100 + 1));
}

TEST(VerifyMoeCombine, PassesWhatIsRightAndFindsEachFault) {
  const MoeCombineCase call = drawn(true);
  const MoeCombineOutput right = right_output(call);
  const MoeCombineVerdict verdict = verify(call, right);
  EXPECT_TRUE(verdict.passed) << verdict.text;
  EXPECT_EQ(verdict.elements, 5u * 64);
  struct Fault {
    const char* what;
    std::size_t byte;
    std::byte flip;
    const char* text;
  };
  const Fault faults[] = {
      {"two codes beside the right one", 6, std::byte{2}, "out[0, 3]"},
      {"a wrong sign", 192 + 25, std::byte{0x80}, "out[1, 12]"},
      {"a byte between rows", 130, std::byte{1}, "byte 130 of out is no row's"},
  };
  for (const Fault& fault : faults) {
    MoeCombineOutput output = right;
    output.out[fault.byte] ^= fault.flip;
    const MoeCombineVerdict found = verify(call, output);
    EXPECT_FALSE(found.passed) << fault.what;
    EXPECT_THAT(found.text, HasSubstr(fault.text)) << fault.what;
  }
}

TEST(VerifyMoeCombine, FindsARowThatIsLeftOutOrTakenForAnother) {
  const MoeCombineCase call = drawn(false);
  MoeCombineCase other = call;
  other.weights[2] = 0;
  EXPECT_FALSE(verify(call, right_output(other)).passed);
  other = call;
  std::swap(other.positions[0], other.positions[19]);
  EXPECT_FALSE(verify(call, right_output(other)).passed);
}

}  // namespace
}  // namespace kernelwright::moe_combine_bound_test
