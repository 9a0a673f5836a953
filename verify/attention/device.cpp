// Device memory of one call. A constructor that throws half-way frees what it has: owned_ holds everything from the
// start.
#include "kernelwright/verify/attention/device.h"

#include <algorithm>

#include "kernelwright/verify/formats/array_folder.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace {

constexpr std::size_t kGuardBytes = 1024;  // keeps the output's alignment
constexpr std::uint8_t kGuardByte = 0xa5;
constexpr std::uint8_t kNanByte = 0xff;  // NaN in every dtype

TensorStrides strides_of(const contract::Strides& strides) { return {strides.batch, strides.token, strides.head}; }

}  // namespace

DevicePtr DeviceCase::Guarded::data() const { return base + kGuardBytes; }

DevicePtr DeviceCase::upload(const void* data, std::size_t bytes) {
  if (!bytes) return 0;
  const DevicePtr address = device_.allocate(bytes);
  owned_.push_back(address);
  device_.copy_to_device(address, data, bytes);
  return address;
}

DevicePtr DeviceCase::upload(const HostTensor& tensor) {
  // A call without keys still needs an address, because a null pointer means an operand that was not given.
  if (tensor.buffer->empty()) {
    owned_.push_back(device_.allocate(256));
    return owned_.back();
  }
  DevicePtr& address = uploaded_[tensor.buffer.get()];
  if (!address) address = upload(tensor.buffer->data(), tensor.buffer->size());
  return address + tensor.offset_bytes;
}

DeviceCase::Guarded DeviceCase::guarded(std::size_t bytes) {
  Guarded memory{device_.allocate(bytes + 2 * kGuardBytes), bytes};
  owned_.push_back(memory.base);
  return memory;
}

DeviceCase::DeviceCase(Device& device, const AttentionCase& call, AttentionKernel kernel)
    : device_(device), call_(call), kernel_(kernel) {
  try {
    const AttentionProblem& problem = call.problem;
    own_stream_ = stream_ = device.create_stream();
    tensors_.q = upload(call.q);
    tensors_.k = upload(call.k);
    tensors_.v = upload(call.v);
    tensors_.q_offsets = upload(call.q_offsets);
    tensors_.kv_offsets = upload(call.kv_offsets);
    tensors_.kv_lengths = upload(call.kv_lengths);
    tensors_.page_table = upload(call.page_table);
    tensors_.page_table_stride = call.page_table_stride;
    if (problem.kv_layout.kind == KvLayoutKind::kPaged) tensors_.num_pages = call.num_pages();
    tensors_.sinks = upload(call.sinks);
    tensors_.alibi_slopes = upload(call.alibi_slopes);
    tensors_.k_scale = upload(call.k_scale);
    tensors_.v_scale = upload(call.v_scale);
    tensors_.q_scale = upload(call.q_scale);
    if (problem.scales == ScaleKind::kPerToken && call.k_scale.empty()) {  // without keys: an address all the same
      owned_.push_back(device_.allocate(256));
      tensors_.k_scale = owned_.back();
    }
    if (problem.rope.width > 0) {
      tensors_.q_rope = upload(call.q_rope);
      tensors_.k_rope = upload(call.k_rope);
      tensors_.q_rope_strides = strides_of(call.q_rope.strides);
      tensors_.k_rope_strides = strides_of(call.k_rope.strides);
    }
    const auto elements = [&](const ScoreArray& array, auto&& encoded, DevicePtr& address, TensorStrides& strides) {
      if (array.values.empty()) return;
      address = upload(encoded(array.values));
      strides = {array.batch_stride, array.query_stride, array.head_stride};
    };
    elements(
        call.mask, [](const auto& values) { return std::vector<std::uint8_t>(values.begin(), values.end()); },
        tensors_.mask, tensors_.mask_strides);
    elements(
        call.bias, [&](const auto& values) { return encode_all(problem.score_mod.dtype, values); }, tensors_.bias,
        tensors_.bias_strides);
    o_ = guarded(call.o_elems() * bytes_of(problem.dtype.out));
    tensors_.o = o_.data();
    if (problem.lse) {
      lse_ = guarded(call.lse_elems() * sizeof(float));
      tensors_.lse = lse_.data();
    }
    tensors_.batch = call.batch;
    tensors_.q_len = call.q_len;
    tensors_.kv_len = call.kv_len;
    tensors_.q_tokens = call.q_tokens;
    if (!call.kv_offsets.empty()) tensors_.kv_tokens = call.kv_offsets.back();
    tensors_.q_strides = strides_of(call.q.strides);
    tensors_.k_strides = strides_of(call.k.strides);
    tensors_.v_strides = strides_of(call.v.strides);
    tensors_.scale = call.scale;
    if (problem.score_mod.kind == ScoreModKind::kSoftcap) tensors_.softcap = call.softcap;
    if (problem.mask.kind == MaskKind::kSlidingWindow) tensors_.window = call.window;
    make_workspace();
  } catch (...) {
    for (const DevicePtr address : owned_) device_.free(address);
    if (own_stream_) device_.destroy_stream(own_stream_);
    throw;
  }
}

DeviceCase::~DeviceCase() {
  for (const DevicePtr address : owned_) device_.free(address);
  if (own_stream_) device_.destroy_stream(own_stream_);
}

void DeviceCase::make_workspace() {
  const std::uint64_t bytes = kernel_ ? kernel_.workspace_bytes(kernel_.extent(tensors_)) : 0;
  if (bytes <= tensors_.workspace_bytes) return;
  tensors_.workspace = device_.allocate(bytes);
  tensors_.workspace_bytes = bytes;
  owned_.push_back(tensors_.workspace);
}

void DeviceCase::use(AttentionKernel kernel) {
  kernel_ = kernel;
  make_workspace();
}

void DeviceCase::poison() {
  for (const Guarded& memory : {o_, lse_}) {
    if (!memory.base) continue;
    device_.fill(memory.base, kGuardByte, memory.bytes + 2 * kGuardBytes, stream_);
    if (memory.bytes) device_.fill(memory.data(), kNanByte, memory.bytes, stream_);
  }
  if (tensors_.workspace) device_.fill(tensors_.workspace, kNanByte, tensors_.workspace_bytes, stream_);
}

void DeviceCase::launch() { kernel_.launch(tensors_, stream_); }

void DeviceCase::wait() { device_.synchronize(stream_); }

AttentionOutput DeviceCase::download() {
  wait();
  AttentionOutput output;
  output.o.resize(o_.bytes);
  if (o_.bytes) device_.copy_to_host(output.o.data(), o_.data(), o_.bytes);
  output.lse.resize(lse_.bytes / sizeof(float));
  if (lse_.bytes) device_.copy_to_host(output.lse.data(), lse_.data(), lse_.bytes);
  return output;
}

bool DeviceCase::guards_are_intact() {
  wait();
  std::vector<std::uint8_t> guard(kGuardBytes);
  for (const Guarded& memory : {o_, lse_}) {
    if (!memory.base) continue;
    for (const DevicePtr at : {memory.base, memory.data() + memory.bytes}) {
      device_.copy_to_host(guard.data(), at, guard.size());
      if (std::any_of(guard.begin(), guard.end(), [](std::uint8_t byte) { return byte != kGuardByte; })) return false;
    }
  }
  return true;
}

}  // namespace kernelwright
