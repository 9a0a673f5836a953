// The reference of steps over rows against small numbers by hand, and the comparison: it passes what is right and finds
// each kind of fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <span>

#include "contract/block_scales.h"
#include "kernelwright/verify/device/device_memory.h"
#include "kernelwright/verify/formats/block_formats.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/row_op/bound.h"
#include "kernelwright/verify/row_op/reference.h"

namespace kernelwright::row_op_bound_test {
namespace {

using testing::HasSubstr;

RowOpProblem quantised() {
  RowOpProblem problem;
  problem.width = 256;
  problem.input = RowInput::kAdd;
  problem.norm.kind = NormKind::kRms;
  problem.dtype.out = DType::kE4m3;
  problem.scales.kind = ScaleKind::kPerBlock;
  return problem;
}

/// What a kernel without any fault writes, of e4m3 with scales per block, or of mxfp8.
RowOpOutput right_output(const RowOpCase& call) {
  RowOpOutput output;
  const DType in = call.problem.dtype.in, out = call.problem.dtype.out;
  output.out.resize(call.row_bytes(call.out_stride, out), DeviceMemory::kGuardByte);
  output.scale.resize(call.scale_bytes(), call.has_atoms() ? std::byte{0} : DeviceMemory::kGuardByte);
  if (call.adds()) output.residual_out.resize(call.row_bytes(call.residual_out_stride, in), DeviceMemory::kGuardByte);
  for (std::int64_t row = 0; row < call.rows; ++row) {
    const RowOpRow right = reference_row(call, row);
    if (call.adds()) encode_row(in, right.sum, output.residual_out.data() + row * call.residual_out_stride * 2);
    const std::size_t group = call.has_atoms() ? 32 : 128;
    for (std::size_t first = 0; first < right.value.size(); first += group) {
      std::vector<float> values(right.value.begin() + static_cast<std::ptrdiff_t>(first),
                                right.value.begin() + static_cast<std::ptrdiff_t>(first + group));
      std::byte* const to = output.out.data() + static_cast<std::size_t>(row * call.out_stride) + first;
      if (call.has_atoms()) {
        const int atoms = contract::scale_atoms_of_row(call.problem.width, 32);
        output.scale[static_cast<std::size_t>(
            contract::block_scale_offset(atoms, row, static_cast<std::int32_t>(first / 32)))] =
            static_cast<std::byte>(quantize_block(out, values, to));
        continue;
      }
      float largest = 0;
      for (const float value : values) largest = std::max(largest, std::fabs(value));
      const float scale = largest / 448;
      for (float& value : values) value /= scale;
      encode_row(out, values, to);
      const auto block = static_cast<std::int64_t>(first / 128);
      std::memcpy(output.scale.data() + (block * call.scale_stride + row) * 4, &scale, 4);
    }
  }
  return output;
}

struct Fault {
  const char* what;
  std::function<void(RowOpOutput&)> make;
  const char* text;
};

TEST(VerifyRowOp, PassesWhatIsRightAndFindsEachFault) {
  const RowOpCase call = make_row_op_inputs(quantised(), {.name = "drawn", .rows = 5, .check = true});
  const RowOpOutput right = right_output(call);
  const RowOpVerdict verdict = verify(call, right);
  EXPECT_TRUE(verdict.passed) << verdict.text;
  EXPECT_EQ(verdict.elements, 5u * 256);
  const Fault faults[] = {
      {"a code beside the right one", [](RowOpOutput& o) { o.out[3] ^= std::byte{1}; }, "out[0, 3]"},
      {"a wrong sign", [](RowOpOutput& o) { o.out[300] ^= std::byte{0x80}; }, "out[1, 12]"},
      {"a NaN", [](RowOpOutput& o) { o.out[0] = std::byte{0x7f}; }, "out[0, 0]: nan"},
      {"a sum that is off by a bit", [](RowOpOutput& o) { o.residual_out[4] ^= std::byte{1}; }, "residual_out[0, 2]"},
      {"a scale that is off", [](RowOpOutput& o) { o.scale[2] ^= std::byte{0x10}; }, "scale [0, block 0]"},
      {"a byte between rows", [](RowOpOutput& o) { o.out[260] = std::byte{0}; }, "byte 260 of out is no row's"},
      {"a scale that no row has", [](RowOpOutput& o) { o.scale[7 * 4] = std::byte{0}; }, "byte 28 of scale"},
  };
  for (const Fault& fault : faults) {
    RowOpOutput output = right;
    fault.make(output);
    const RowOpVerdict found = verify(call, output);
    EXPECT_FALSE(found.passed) << fault.what;
    EXPECT_THAT(found.text, HasSubstr(fault.text)) << fault.what;
  }
}

TEST(VerifyRowOp, FindsFaultsOfBlockScaledRows) {
  RowOpProblem problem = quantised();
  problem.width = 96;
  problem.dtype.out = DType::kMxfp8;
  const RowOpCase call = make_row_op_inputs(problem, {.name = "drawn", .rows = 3});
  const RowOpOutput right = right_output(call);
  EXPECT_TRUE(verify(call, right).passed) << verify(call, right).text;
  RowOpOutput output = right;
  output.scale[3] = std::byte{127};  // a fourth scale, of elements past the end
  EXPECT_THAT(verify(call, output).text, HasSubstr("scale [0, 3] is past the end"));
  output = right;
  output.scale[0] = static_cast<std::byte>(static_cast<int>(right.scale[0]) + 1);
  EXPECT_THAT(verify(call, output).text, HasSubstr("scale [0, block 0]: byte"));
}

TEST(ReferenceRow, IsTheDefinition) {
  RowOpProblem problem;
  problem.width = 8;
  problem.dtype.in = DType::kF32;
  problem.input = RowInput::kGateUp;
  const auto value_of = [&](std::size_t gate_at, std::size_t up_at, float gate, float up) {
    RowOpCase call = make_row_op_inputs(problem, {.name = "one", .rows = 1});
    std::memset(call.x.data(), 0, call.x.size());
    std::memcpy(call.x.data() + gate_at * 4, &gate, 4);
    std::memcpy(call.x.data() + up_at * 4, &up, 4);
    return reference_row(call, 0).value[1];
  };
  EXPECT_DOUBLE_EQ(value_of(1, 9, 2, 3), 2 / (1 + std::exp(-2)) * 3);
  problem.gate.pairs = 1;
  EXPECT_DOUBLE_EQ(value_of(2, 3, 2, 3), 2 / (1 + std::exp(-2)) * 3);
  problem.gate.pairs = 8;
  problem.gate.clamped = true;
  EXPECT_NEAR(value_of(1, 9, 9, -8), 7 / (1 + std::exp(-1.702 * 7)) * (-7 + 1), 1e-6);
  problem.gate = {.activation = Activation::kGelu};
  EXPECT_DOUBLE_EQ(value_of(1, 9, -1, 1), -0.15865525393145707);
}

TEST(ReferenceRow, NormalisesTheRoundedSum) {
  RowOpProblem problem;
  problem.width = 8;
  problem.input = RowInput::kAdd;
  problem.norm = {.kind = NormKind::kRms, .weight = false, .eps = 0};
  RowOpCase call = make_row_op_inputs(problem, {.name = "one", .rows = 1});
  const std::vector<float> x(8, 256.f), residual(8, 1.f);
  encode_row(DType::kBf16, x, call.x.data());
  encode_row(DType::kBf16, residual, call.residual.data());
  const RowOpRow row = reference_row(call, 0);
  EXPECT_EQ(row.sum[0], 256.f) << "257 is no bf16";
  EXPECT_DOUBLE_EQ(row.value[0], 1);
}

}  // namespace
}  // namespace kernelwright::row_op_bound_test
