#include "kernelwright/verify/attention/device.h"

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/verify/formats/array_folder.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace {

TensorStrides strides_of(const contract::Strides& strides) { return {strides.batch, strides.token, strides.head}; }

}  // namespace

DevicePtr DeviceCase::upload(const HostTensor& tensor) {
  if (tensor.buffer->empty()) return memory_.allocate_some();
  DevicePtr& address = uploaded_[tensor.buffer.get()];
  if (!address) address = memory_.upload(*tensor.buffer);
  return address + tensor.offset_bytes;
}

DeviceCase::DeviceCase(Device& device, const AttentionCase& call, AttentionKernel kernel)
    : DeviceCall(device, call, kernel) {
  const AttentionProblem& problem = call.problem;
  tensors_.q = upload(call.q);
  tensors_.k = upload(call.k);
  if (!problem.is_latent()) tensors_.v = upload(call.v);
  tensors_.q_offsets = memory_.upload(call.q_offsets);
  tensors_.kv_offsets = memory_.upload(call.kv_offsets);
  tensors_.kv_lengths = memory_.upload(call.kv_lengths);
  tensors_.kv_starts = memory_.upload(call.kv_starts);
  tensors_.page_table = memory_.upload(call.page_table);
  tensors_.page_table_stride = call.page_table_stride;
  if (problem.kv_layout.kind == KvLayoutKind::kPaged) tensors_.num_pages = call.num_pages();
  tensors_.sinks = memory_.upload(call.sinks);
  tensors_.alibi_slopes = memory_.upload(call.alibi_slopes);
  tensors_.k_scale = memory_.upload(call.k_scale);
  if (!problem.is_latent()) tensors_.v_scale = memory_.upload(call.v_scale);
  tensors_.q_scale = memory_.upload(call.q_scale);
  if (call.has_key_scales()) {
    tensors_.k_scale_strides = tensors_.v_scale_strides = strides_of(call.key_scale_strides);
    if (call.k_scale.empty()) tensors_.k_scale = memory_.allocate_some(), tensors_.v_scale = memory_.allocate_some();
  }
  if (problem.rope.width > 0) {
    tensors_.q_rope = upload(call.q_rope);
    tensors_.k_rope = upload(call.k_rope);
    tensors_.q_rope_strides = strides_of(call.q_rope.strides);
    tensors_.k_rope_strides = strides_of(call.k_rope.strides);
  }
  const auto elements = [&](const ScoreArray& array, auto&& encoded, DevicePtr& address, TensorStrides& strides) {
    if (array.values.empty()) return;
    address = memory_.upload(encoded(array.values));
    strides = {array.batch_stride, array.query_stride, array.head_stride};
  };
  elements(
      call.mask, [](const auto& values) { return std::vector<std::uint8_t>(values.begin(), values.end()); },
      tensors_.mask, tensors_.mask_strides);
  elements(
      call.bias, [&](const auto& values) { return encode_all(problem.score_mod.dtype, values); }, tensors_.bias,
      tensors_.bias_strides);
  o_ = memory_.allocate_guarded(call.o_elems() * bytes_of(problem.dtype.out));
  tensors_.o = o_.data();
  if (problem.lse) {
    lse_ = memory_.allocate_guarded(call.lse_elems() * sizeof(float));
    tensors_.lse = lse_.data();
  }
  tensors_.batch = call.batch;
  tensors_.q_len = call.q_len;
  tensors_.kv_len = call.kv_len;
  tensors_.q_tokens = call.q_tokens;
  if (!call.kv_offsets.empty()) tensors_.kv_tokens = call.kv_offsets.back();
  tensors_.q_strides = strides_of(call.q.strides);
  tensors_.k_strides = strides_of(call.k.strides);
  if (!problem.is_latent()) tensors_.v_strides = strides_of(call.v.strides);
  tensors_.scale = call.scale;
  if (problem.score_mod.kind == ScoreModKind::kSoftcap) tensors_.softcap = call.softcap;
  if (problem.mask.kind == MaskKind::kSlidingWindow) tensors_.window = call.window;
  grow_workspace();
}

void DeviceCase::poison() {
  for (const DeviceMemory::Guarded& output : {o_, lse_}) {
    if (!output.base) continue;
    memory_.renew_guards(output);
    if (output.bytes) device().fill(output.data(), DeviceMemory::kNanByte, output.bytes, stream());
  }
  poison_workspace();
}

AttentionOutput DeviceCase::download() {
  wait();
  AttentionOutput output;
  output.of_terms = kernel_.plan().main.splits_q();
  output.o.resize(o_.bytes);
  if (o_.bytes) device().copy_to_host(output.o.data(), o_.data(), o_.bytes);
  output.lse.resize(lse_.bytes / sizeof(float));
  if (lse_.bytes) device().copy_to_host(output.lse.data(), lse_.data(), lse_.bytes);
  return output;
}

bool DeviceCase::guards_are_intact() {
  wait();
  return memory_.guards_are_intact(o_) && (!lse_.base || memory_.guards_are_intact(lse_));
}

}  // namespace kernelwright
