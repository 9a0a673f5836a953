#include "kernelwright/verify/route/device.h"

namespace kernelwright {

RouteDeviceCase::RouteDeviceCase(Device& device, const RouteCase& call, RouteKernel kernel)
    : OutputsCall(device, kernel) {
  tensors_.tokens = call.tokens;
  tensors_.logits_stride = call.logits_stride;
  if (!call.problem.is_given()) tensors_.logits = upload_some(call.logits);
  tensors_.bias = memory_.upload(call.bias);
  tensors_.local_ids = memory_.upload(call.local_ids);
  const auto pairs = static_cast<std::size_t>(call.pairs()), rows = static_cast<std::size_t>(call.sorted_rows());
  tensors_.ids = call.problem.is_given() ? memory_.upload(call.ids) : output(pairs, &RouteOutput::ids);
  tensors_.weights = call.problem.is_given() ? memory_.upload(call.weights) : output(pairs, &RouteOutput::weights);
  tensors_.workspace_bytes = kernel.workspace_bytes(call.tokens);
  tensors_.workspace = output(tensors_.workspace_bytes / sizeof(std::int32_t), nullptr);
  if (!call.problem.sort) return;
  tensors_.starts = output(static_cast<std::size_t>(call.buckets()) + 1, &RouteOutput::starts);
  tensors_.source_rows = output(rows, &RouteOutput::source_rows);
  tensors_.sorted_weights = output(rows, &RouteOutput::sorted_weights);
  tensors_.positions = output(pairs, &RouteOutput::positions);
}

}  // namespace kernelwright
