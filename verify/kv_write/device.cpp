#include "kernelwright/verify/kv_write/device.h"

#include "kernelwright/generator/error.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace {

TensorStrides as_tensor(const HeadStrides& strides) { return {strides.batch, strides.token, strides.head}; }

}  // namespace

KvWriteDeviceCase::KvWriteDeviceCase(Device& device, const KvWriteCase& call, KvWriteKernel kernel)
    : OutputsCall(device, kernel), call_(call) {
  const KvWriteProblem& problem = call.problem;
  const std::size_t in_bytes = bytes_of(problem.dtype.in);
  tensors_.tokens = call.tokens;
  if (call.packed_rows) {
    const DevicePtr rows = upload_some(call.q);
    const auto q_row = static_cast<std::size_t>(problem.heads.q * problem.head_dim.qk);
    tensors_.q = rows;
    tensors_.k = rows + q_row * in_bytes;
    tensors_.v = tensors_.k + static_cast<std::size_t>(problem.heads.kv * problem.head_dim.qk) * in_bytes;
  } else {
    tensors_.q = upload_some(call.q), tensors_.k = upload_some(call.k), tensors_.v = upload_some(call.v);
  }
  tensors_.q_strides = as_tensor(call.q_strides);
  tensors_.k_strides = as_tensor(call.k_strides);
  tensors_.v_strides = as_tensor(call.v_strides);
  tensors_.q_weight = upload_some(call.q_weight), tensors_.k_weight = upload_some(call.k_weight);
  tensors_.cos_sin = upload_some(call.cos_sin);
  tensors_.cos_sin_rows = call.cos_sin_rows;
  upload_places();
  if (problem.q_out)
    tensors_.q_out =
        output(static_cast<std::size_t>(call.tokens) * static_cast<std::size_t>(problem.heads.q * problem.head_dim.qk) *
                   bytes_of(problem.dtype.q),
               &KvWriteOutput::q_out);
  const DevicePtr cache = output(call.cache_bytes, &KvWriteOutput::cache);
  tensors_.k_cache = cache + call.k_cache.offset;
  tensors_.v_cache = cache + call.v_cache.offset;
  tensors_.k_cache_strides = as_tensor(call.k_cache.strides);
  tensors_.v_cache_strides = as_tensor(call.v_cache.strides);
  allocate_scales();
}

void KvWriteDeviceCase::upload_places() {
  tensors_.num_pages = call_.num_pages, tensors_.batch = call_.batch, tensors_.kv_len = call_.kv_len;
  tensors_.kv_tokens = call_.kv_tokens, tensors_.page_table_stride = call_.page_table_stride;
  tensors_.position_bytes = call_.position_bytes;
  tensors_.slot_mapping = memory_.allocate_some(call_.slot_mapping.size() * 8);
  tensors_.positions = memory_.allocate_some(call_.positions.size() * 8);
  tensors_.batch_indices = memory_.allocate_some(call_.batch_indices.size() * 4);
  tensors_.page_table = memory_.allocate_some(call_.page_table.size() * 4);
  copy(tensors_.slot_mapping, call_.slot_mapping);
  copy(tensors_.batch_indices, call_.batch_indices);
  copy(tensors_.page_table, call_.page_table);
  if (call_.position_bytes == 8)
    copy(tensors_.positions, call_.positions);
  else
    copy(tensors_.positions, std::vector<std::int32_t>(call_.positions.begin(), call_.positions.end()));
}

void KvWriteDeviceCase::allocate_scales() {
  const auto scale = [&](HeadsOf of, const std::vector<float>& given, DevicePtr& address,
                         std::vector<std::byte> KvWriteOutput::*made) {
    const std::int64_t rows = of == HeadsOf::kQ ? call_.tokens : call_.slots();
    if (call_.scales(of) == ScaleKind::kPerToken)
      address = output(static_cast<std::size_t>(rows * call_.heads(of)) * call_.scale_bytes(), made);
    else if (!given.empty())
      address = memory_.upload(given);
  };
  scale(HeadsOf::kQ, call_.q_scale, tensors_.q_scale, &KvWriteOutput::q_scale);
  scale(HeadsOf::kK, call_.k_scale, tensors_.k_scale, &KvWriteOutput::k_scale);
  scale(HeadsOf::kV, call_.v_scale, tensors_.v_scale, &KvWriteOutput::v_scale);
}

void KvWriteDeviceCase::rotate_in_place() {
  const std::int64_t row = std::int64_t{call_.problem.heads.q} * call_.problem.head_dim.qk;
  if (call_.problem.dtype.q != call_.problem.dtype.in || call_.q_strides.token != row)
    throw Error("KvWriteDeviceCase::rotate_in_place: q_out can be q where they agree in dtype and strides");
  in_place_ = true;
  tensors_.q = tensors_.q_out;
}

void KvWriteDeviceCase::put_inputs_back() {
  if (in_place_) copy(tensors_.q_out, call_.q);
}

}  // namespace kernelwright
