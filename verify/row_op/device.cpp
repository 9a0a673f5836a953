#include "kernelwright/verify/row_op/device.h"

namespace kernelwright {

RowOpDeviceCase::RowOpDeviceCase(Device& device, const RowOpCase& call, RowOpKernel kernel)
    : OutputsCall(device, kernel), call_(call) {
  tensors_.rows = call.rows;
  tensors_.x = upload_some(call.x);
  tensors_.x_stride = call.x_stride, tensors_.out_stride = call.out_stride;
  tensors_.scale_stride = call.scale_stride;
  tensors_.tensor_scale = call.tensor_scale;
  if (call.has_weights()) tensors_.weight = upload_some(call.weight);
  const DType in = call.problem.dtype.in, out = call.problem.dtype.out;
  tensors_.out = output(call.row_bytes(call.out_stride, out), &RowOpOutput::out);
  if (call.adds()) {
    tensors_.residual = upload_some(call.residual);
    tensors_.residual_out = output(call.row_bytes(call.residual_out_stride, in), &RowOpOutput::residual_out);
    tensors_.residual_stride = call.residual_stride, tensors_.residual_out_stride = call.residual_out_stride;
  }
  if (call.merges()) {
    tensors_.residual = upload_some(call.residual), tensors_.residual_stride = call.residual_stride;
    tensors_.lse = memory_.upload(call.lse), tensors_.residual_lse = memory_.upload(call.residual_lse);
    tensors_.lse_out = output(call.lse_bytes(), &RowOpOutput::lse_out);
    tensors_.lse_stride = call.lse_stride, tensors_.lse_head_stride = call.lse_head_stride;
  }
  if (call.problem.scales.kind == ScaleKind::kPerTensor)
    tensors_.scale = memory_.upload(&call.given_scale, sizeof call.given_scale);
  else if (call.has_atoms() || call.problem.scales.kind != ScaleKind::kNone)
    tensors_.scale = output(call.scale_bytes(), &RowOpOutput::scale);
}

void RowOpDeviceCase::work_in_place() {
  const RowOpProblem& problem = call_.problem;
  out_is_x_ = problem.dtype.in == problem.dtype.out && call_.x_stride == call_.out_stride;
  adds_in_place_ = call_.adds();
  if (out_is_x_) tensors_.x = tensors_.out;
  if (adds_in_place_) tensors_.residual = tensors_.residual_out;
}

void RowOpDeviceCase::put_inputs_back() {
  if (out_is_x_) copy(tensors_.x, call_.x);
  if (adds_in_place_) copy(tensors_.residual, call_.residual);
}

}  // namespace kernelwright
