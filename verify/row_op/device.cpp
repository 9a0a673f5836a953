#include "kernelwright/verify/row_op/device.h"

namespace kernelwright {

DevicePtr RowOpDeviceCase::output(std::size_t bytes, std::vector<std::byte> RowOpOutput::*to) {
  results_.push_back({memory_.allocate_guarded(bytes), to});
  return results_.back().memory.data();
}

RowOpDeviceCase::RowOpDeviceCase(Device& device, const RowOpCase& call, RowOpKernel kernel)
    : call_(call), kernel_(kernel), memory_(device) {
  const auto upload = [&](const std::vector<std::byte>& values) {
    const DevicePtr address = memory_.allocate_some(values.size());
    if (!values.empty()) device.copy_to_device(address, values.data(), values.size());
    return address;
  };
  tensors_.rows = call.rows;
  tensors_.x = upload(call.x);
  tensors_.x_stride = call.x_stride, tensors_.out_stride = call.out_stride;
  tensors_.scale_stride = call.scale_stride;
  tensors_.tensor_scale = call.tensor_scale;
  if (call.has_weights()) tensors_.weight = upload(call.weight);
  const DType in = call.problem.dtype.in, out = call.problem.dtype.out;
  tensors_.out = output(call.row_bytes(call.out_stride, out), &RowOpOutput::out);
  if (call.adds()) {
    tensors_.residual = upload(call.residual);
    tensors_.residual_out = output(call.row_bytes(call.residual_out_stride, in), &RowOpOutput::residual_out);
    tensors_.residual_stride = call.residual_stride, tensors_.residual_out_stride = call.residual_out_stride;
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

void RowOpDeviceCase::poison() {
  wait();
  for (const Result& result : results_) {
    memory_.renew_guards(result.memory);
    device().fill(result.memory.data(), static_cast<std::uint8_t>(DeviceMemory::kGuardByte), result.memory.bytes,
                  stream());
  }
  wait();
  if (out_is_x_ && !call_.x.empty()) device().copy_to_device(tensors_.x, call_.x.data(), call_.x.size());
  if (adds_in_place_ && !call_.residual.empty())
    device().copy_to_device(tensors_.residual, call_.residual.data(), call_.residual.size());
}

RowOpOutput RowOpDeviceCase::download() {
  wait();
  RowOpOutput output;
  for (const Result& result : results_) {
    std::vector<std::byte>& bytes = output.*result.bytes;
    bytes.resize(result.memory.bytes);
    if (!bytes.empty()) device().copy_to_host(bytes.data(), result.memory.data(), bytes.size());
  }
  return output;
}

bool RowOpDeviceCase::guards_are_intact() {
  wait();
  for (const Result& result : results_)
    if (!memory_.guards_are_intact(result.memory)) return false;
  return true;
}

}  // namespace kernelwright
