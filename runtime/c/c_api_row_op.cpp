/// The C ABI of steps over rows.
#include "kernelwright/runtime/c/c_api_guard.h"

namespace kernelwright {
namespace {

constexpr std::size_t kRowOpTensors1 = KERNELWRIGHT_END_OF(kernelwright_row_op_tensors, constant_weight);

}  // namespace

RowOpTensors tensors_of(const kernelwright_row_op_tensors* given) {
  const auto c = read_struct(&not_null(given, "row_op_tensors"), "row_op_tensors", kRowOpTensors1);
  auto tensors = read_fields<RowOpTensors>(c, "row_op_tensors");
  if (tensors.tensor_scale == 0) tensors.tensor_scale = 1;  // left out
  return tensors;
}

const char* use_of(const RowOpKernel&) { return "takes steps over rows; kernelwright_launch_row_op() launches it"; }

}  // namespace kernelwright

using namespace kernelwright;

kernelwright_status kernelwright_launch_row_op(const kernelwright_kernel* kernel,
                                               const kernelwright_row_op_tensors* tensors, void* stream) {
  return guarded([&] { kernel_of<RowOpKernel>(kernel).launch(tensors_of(tensors), static_cast<Stream>(stream)); });
}
