// What steps over rows write is what a GEMM reads: elements, and scales as its scale_a or its atoms, in one memory.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "support/emulated_gemm.h"
#include "support/emulated_row_op.h"

namespace kernelwright::row_op_operand_test {
namespace {

class RowOpOperand : public test::OnTheEmulator<std::pair<DType, Arch>> {};
INSTANTIATE_TEST_SUITE_P(, RowOpOperand,
                         testing::Values(std::pair(DType::kE4m3, Arch::kSm90a), std::pair(DType::kMxfp8, Arch::kSm100a),
                                         std::pair(DType::kNvfp4, Arch::kSm100a)),
                         [](const auto& info) { return std::string(to_string(info.param.first)); });

TEST_P(RowOpOperand, IsReadByAGemm) {
  const auto [dtype, arch] = GetParam();
  Engine engine = test::make_checking_engine(4, emulator::Completion::kRandom, 1, arch);
  RowOpProblem rows = test::normed_rows(256);
  rows.dtype.out = dtype;
  rows.scales.kind = ScaleKind::kPerBlock;
  RowOpCase row_call = make_row_op_inputs(rows, {.name = "drawn", .rows = 5});
  row_call.tensor_scale = 1;
  RowOpDeviceCase on_device(engine.device(0), row_call, engine.prepare(rows));
  on_device.poison();
  on_device.launch();
  const RowOpOutput written = on_device.download();
  test::expect_right(row_call, written);

  GemmProblem problem;
  problem.n = 128, problem.k = 256;
  problem.dtype.a = problem.dtype.b = dtype;
  problem.dtype.d = DType::kBf16;
  problem.scales = ScaleKind::kPerBlock;
  GemmCase call = make_gemm_inputs(problem, {.name = "drawn", .m = 5});
  call.a.bytes = written.out, call.a.stride = 256;  // for the reference
  if (is_fp8(dtype)) {
    call.scale_a.resize(written.scale.size() / 4);
    std::memcpy(call.scale_a.data(), written.scale.data(), written.scale.size());
    call.scale_a_stride = row_call.scale_stride;
  } else {
    call.a.scales = written.scale;
  }
  GemmDeviceCase product(engine.device(0), call, engine.prepare(problem));
  product.tensors().a = on_device.tensors().out, product.tensors().a_stride = 256;
  product.tensors().scale_a = on_device.tensors().scale;
  product.tensors().scale_a_stride = on_device.tensors().scale_stride;
  product.poison();
  product.launch();
  test::expect_right(call, product.download());
  test::expect_no_reports(engine);
}

}  // namespace
}  // namespace kernelwright::row_op_operand_test
