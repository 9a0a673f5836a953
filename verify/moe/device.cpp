#include "kernelwright/verify/moe/device.h"

#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {

MoeDeviceCase::MoeDeviceCase(Device& device, const MoeCase& call, MoeKernel kernel) : OutputsCall(device, kernel) {
  const RouteCase& route = call.route;
  tensors_.tokens = call.tokens();
  tensors_.x_stride = call.x_stride;
  tensors_.residual_stride = call.residual_stride;
  tensors_.out_stride = call.out_stride;
  tensors_.logits_stride = route.logits_stride;
  tensors_.x = upload_some(call.x);
  if (call.problem.residual) tensors_.residual = upload_some(call.residual);
  if (route.problem.is_given()) {
    tensors_.ids = upload_some(route.ids);
    tensors_.weights = upload_some(route.weights);
  } else {
    tensors_.logits = upload_some(route.logits);
  }
  tensors_.bias = memory_.upload(route.bias);
  tensors_.local_ids = memory_.upload(route.local_ids);
  tensors_.gate_up = memory_.upload(call.gate_up);
  tensors_.gate_up_scale = memory_.upload(call.gate_up_scale);
  tensors_.gate_up_bias = memory_.upload(call.gate_up_bias);
  tensors_.down = memory_.upload(call.down);
  tensors_.down_scale = memory_.upload(call.down_scale);
  tensors_.down_bias = memory_.upload(call.down_bias);
  tensors_.workspace_bytes = kernel.workspace_bytes(call.tokens());
  tensors_.workspace = output(tensors_.workspace_bytes, nullptr);
  tensors_.out =
      output(static_cast<std::size_t>(call.tokens() * call.out_stride) * bytes_of(call.problem.dtype), &MoeOutput::out);
}

void MoeDeviceCase::take_tokens(const MoeCase& other) {
  copy(tensors_.x, other.x);
  copy(tensors_.residual, other.residual);
  copy(tensors_.logits, other.route.logits);
  if (other.route.problem.is_given()) copy(tensors_.ids, other.route.ids), copy(tensors_.weights, other.route.weights);
}

}  // namespace kernelwright
