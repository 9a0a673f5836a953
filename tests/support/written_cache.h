/// A cache that kv_write has written on a device, and attention over it where it lies: the tokens of one sequence,
/// whose queries are those of its last tokens.
#pragma once

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "support/emulated_kv_write.h"

namespace kernelwright::test {

/// Makes all tokens of `call` those of sequence 0, in order. It needs a paged cache with index "positions".
inline void make_one_sequence(KvWriteCase& call) {
  call.batch = 1;
  call.page_table_stride = static_cast<int>(call.page_table.size());
  std::iota(call.positions.begin(), call.positions.end(), 0);
  std::fill(call.batch_indices.begin(), call.batch_indices.end(), 0);
}

/// The attention of `problem` over what a launch of kv_write has written, for the last `q_len` tokens. Without the
/// written bytes it has the layout alone. Given scales join: that of queries, one for all, as a part of `scale`.
inline AttentionCase attention_over(const KvWriteCase& cache, const AttentionProblem& problem, int q_len,
                                    const KvWriteOutput* written = nullptr) {
  AttentionShape shape;
  shape.name = "written";
  shape.q_len = q_len;
  shape.kv_lens = {static_cast<int>(cache.tokens)};
  AttentionCase call = shape_only(problem, shape);
  const auto buffer = [](const std::vector<std::byte>& bytes) {
    return std::make_shared<std::vector<std::byte>>(bytes);
  };
  const auto strides = [](const HeadStrides& of) { return contract::Strides{of.batch, of.token, of.head}; };
  call.k.strides = strides(cache.k_cache.strides), call.v.strides = strides(cache.v_cache.strides);
  call.k.offset_bytes = cache.k_cache.offset, call.v.offset_bytes = cache.v_cache.offset;
  call.page_table = cache.page_table, call.page_table_stride = cache.page_table_stride;
  const auto skipped = static_cast<std::size_t>(cache.tokens - q_len) * static_cast<std::size_t>(problem.heads.q);
  if (problem.scales != ScaleKind::kPerToken) call.k_scale = cache.k_scale, call.v_scale = cache.v_scale;
  if (cache.problem.scales.q == ScaleKind::kPerTensor) call.scale *= cache.q_scale[0];
  call.q.buffer = call.k.buffer = call.v.buffer = buffer({});
  if (!written) return call;
  call.q.buffer = buffer(written->q_out);
  call.q.offset_bytes = skipped * static_cast<std::size_t>(problem.head_dim.qk) * bytes_of(problem.dtype.q);
  call.k.buffer = call.v.buffer = buffer(written->cache);
  const auto scales = [](const std::vector<std::byte>& bytes, std::size_t first) {
    std::vector<float> numbers(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return std::vector<float>(numbers.begin() + static_cast<std::ptrdiff_t>(first), numbers.end());
  };
  if (call.has_query_scales()) call.q_scale = scales(written->q_scale, skipped);
  if (problem.scales == ScaleKind::kPerToken) {
    call.k_scale = scales(written->k_scale, 0), call.v_scale = scales(written->v_scale, 0);
  }
  call.random_values = false;
  return call;
}

/// Points a call's operands at what `cache` writes.
inline void read_where_it_lies(DeviceCase& on_device, KvWriteDeviceCase& cache, const AttentionProblem& problem,
                               int q_len) {
  const KvWriteTensors& from = cache.tensors();
  AttentionTensors& to = on_device.tensors();
  const auto skipped = static_cast<DevicePtr>(from.tokens - q_len) * static_cast<DevicePtr>(problem.heads.q);
  to.q = from.q_out + skipped * static_cast<DevicePtr>(problem.head_dim.qk) * bytes_of(problem.dtype.q);
  to.k = from.k_cache, to.v = from.v_cache;
  to.num_pages = from.num_pages;
  if (problem.scales == ScaleKind::kNone) return;
  to.k_scale = from.k_scale, to.v_scale = from.v_scale;
  to.k_scale_strides = from.k_scale_strides, to.v_scale_strides = from.v_scale_strides;
  if (problem.scales == ScaleKind::kPerToken && is_fp8(problem.dtype.q))
    to.q_scale = from.q_scale + skipped * sizeof(float);
}

}  // namespace kernelwright::test
