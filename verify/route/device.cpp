#include "kernelwright/verify/route/device.h"

namespace kernelwright {

DevicePtr RouteDeviceCase::output(std::size_t words, std::vector<std::int32_t> RouteOutput::*to) {
  results_.push_back({memory_.allocate_guarded(words * sizeof(std::int32_t)), to});
  return results_.back().memory.data();
}

RouteDeviceCase::RouteDeviceCase(Device& device, const RouteCase& call, RouteKernel kernel)
    : kernel_(kernel), memory_(device) {
  tensors_.tokens = call.tokens;
  tensors_.logits_stride = call.logits_stride;
  tensors_.logits = memory_.allocate_some(call.logits.size());
  take_logits(call);
  tensors_.bias = memory_.upload(call.bias);
  tensors_.local_ids = memory_.upload(call.local_ids);
  const auto pairs = static_cast<std::size_t>(call.pairs()), rows = static_cast<std::size_t>(call.sorted_rows());
  tensors_.ids = output(pairs, &RouteOutput::ids);
  tensors_.weights = output(pairs, &RouteOutput::weights);
  tensors_.workspace_bytes = kernel.workspace_bytes(call.tokens);
  tensors_.workspace = output(tensors_.workspace_bytes / sizeof(std::int32_t), nullptr);
  if (!call.problem.sort) return;
  tensors_.starts = output(static_cast<std::size_t>(call.buckets()) + 1, &RouteOutput::starts);
  tensors_.source_rows = output(rows, &RouteOutput::source_rows);
  tensors_.sorted_weights = output(rows, &RouteOutput::sorted_weights);
  tensors_.positions = output(pairs, &RouteOutput::positions);
}

void RouteDeviceCase::take_logits(const RouteCase& other) {
  if (!other.logits.empty()) device().copy_to_device(tensors_.logits, other.logits.data(), other.logits.size());
}

void RouteDeviceCase::poison() {
  wait();
  for (const Result& result : results_) {
    memory_.renew_guards(result.memory);
    device().fill(result.memory.data(), static_cast<std::uint8_t>(DeviceMemory::kGuardByte), result.memory.bytes,
                  stream());
  }
  wait();
}

RouteOutput RouteDeviceCase::download() {
  wait();
  RouteOutput output;
  for (const Result& result : results_) {
    if (!result.words) continue;
    std::vector<std::int32_t>& words = output.*result.words;
    words.resize(result.memory.bytes / sizeof(std::int32_t));
    if (!words.empty()) device().copy_to_host(words.data(), result.memory.data(), result.memory.bytes);
  }
  return output;
}

bool RouteDeviceCase::guards_are_intact() {
  wait();
  for (const Result& result : results_)
    if (!memory_.guards_are_intact(result.memory)) return false;
  return true;
}

}  // namespace kernelwright
