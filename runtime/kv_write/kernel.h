/// A kernel that writes keys and values to a cache, ready to launch, and its arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernelwright/generator/kv_write/plan.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/launch/strides.h"
#include "kernelwright/runtime/slot/kernel_handle.h"

namespace kernelwright {

namespace detail {
struct KvWriteKind;
}

/// What one launch reads and writes: device addresses; null where the problem has no such operand. q, k, v, q_out,
/// k_cache, v_cache, the weights and cos_sin are aligned to 16 bytes, everything else to its element.
///   q, q_out          [tokens, q_heads, head_dim.qk]
///   k, v              [tokens, kv_heads, head_dim]
///   k_cache, v_cache  paged [num_pages, page_size, kv_heads, head_dim], padded [batch, kv_len, kv_heads, head_dim] or
///                     ragged [kv_tokens, kv_heads, head_dim], as attention reads them
/// q_out may be q itself. Strides may say otherwise: rows of q, k and v may be parts of one packed row. Pages may have
/// heads ahead of keys, and keys and values may lie side by side in one buffer.
///
/// Values in columns (problem.v_layout) are [num_pages, kv_heads, head_dim.v, page_size] without a stride of tokens,
/// and contract::column_of_key() has the order of keys.
///
/// Kernels do not trust buffers with memory. A token whose slot, sequence, position or page lies outside of the cache
/// is not written; its query is. A position outside of cos_sin is read as the nearest row.
struct KvWriteTensors {
  DevicePtr q = 0, k = 0, v = 0;
  DevicePtr q_out = 0, k_cache = 0, v_cache = 0;
  /// Elements of dtype.in, [head_dim.qk]. For a norm over all heads: [q_heads, head_dim.qk], [kv_heads, head_dim.qk].
  DevicePtr q_weight = 0, k_weight = 0;
  DevicePtr cos_sin = 0;        // [cos_sin_rows, rope.width] f32: rope_table() makes it
  DevicePtr positions = 0;      // [tokens], with sections [3, tokens]; position_bytes each
  DevicePtr slot_mapping = 0;   // index "slots": [tokens] i64; negative: the token's key and value are not written
  DevicePtr batch_indices = 0;  // index "positions": [tokens] i32, the sequence of each token; negative: as above
  DevicePtr page_table = 0;     // index "positions", paged: [batch, page_table_stride] i32
  /// f32. per_tensor [1] and per_head [heads] are given: what is written times its scale is the value. per_token is
  /// written, as attention reads it: q_scale [tokens, q_heads]; k_scale and v_scale as the caches without their last
  /// dimension, by strides. With scales.ue8m0 they are bytes.
  DevicePtr q_scale = 0, k_scale = 0, v_scale = 0;

  std::int64_t tokens = 0;     // 0 queues nothing
  int num_pages = 0;           // paged
  int batch = 0;               // rows of page_table, or sequences of a padded cache
  int kv_len = 0;              // padded: keys of a sequence
  std::int64_t kv_tokens = 0;  // ragged: rows of the cache
  int page_table_stride = 0;   // entries of one row of page_table
  int cos_sin_rows = 0;
  int position_bytes = 4;  // 4 or 8

  TensorStrides q_strides, k_strides, v_strides, q_out_strides;  // `batch` is not used
  TensorStrides k_cache_strides, v_cache_strides;
  /// Of scales per token, in scales; all zero: as the contiguous caches without their last dimension.
  TensorStrides k_scale_strides, v_scale_strides;
  std::optional<float> eps;  // of the norm, >= 0; absent: the problem's
  bool pdl = false;          // may begin before the kernel ahead of it in the stream has ended
};

/// The one list of the fields that the C ABI's struct has too, by the same names; see AttentionTensors.
template <class Other, class Field, class IfSet>
void visit_fields(KvWriteTensors& tensors, Other& other, Field&& field, IfSet&& if_set) {
  field(tensors.q, other.q);
  field(tensors.k, other.k);
  field(tensors.v, other.v);
  field(tensors.q_out, other.q_out);
  field(tensors.k_cache, other.k_cache);
  field(tensors.v_cache, other.v_cache);
  field(tensors.q_weight, other.q_weight);
  field(tensors.k_weight, other.k_weight);
  field(tensors.cos_sin, other.cos_sin);
  field(tensors.positions, other.positions);
  field(tensors.slot_mapping, other.slot_mapping);
  field(tensors.batch_indices, other.batch_indices);
  field(tensors.page_table, other.page_table);
  field(tensors.q_scale, other.q_scale);
  field(tensors.k_scale, other.k_scale);
  field(tensors.v_scale, other.v_scale);
  field(tensors.tokens, other.tokens);
  field(tensors.num_pages, other.num_pages);
  field(tensors.batch, other.batch);
  field(tensors.kv_len, other.kv_len);
  field(tensors.kv_tokens, other.kv_tokens);
  field(tensors.page_table_stride, other.page_table_stride);
  field(tensors.cos_sin_rows, other.cos_sin_rows);
  field(tensors.position_bytes, other.position_bytes);
  field(tensors.q_strides, other.q_strides);
  field(tensors.k_strides, other.k_strides);
  field(tensors.v_strides, other.v_strides);
  field(tensors.q_out_strides, other.q_out_strides);
  field(tensors.k_cache_strides, other.k_cache_strides);
  field(tensors.v_cache_strides, other.v_cache_strides);
  field(tensors.k_scale_strides, other.k_scale_strides);
  field(tensors.v_scale_strides, other.v_scale_strides);
  field(tensors.pdl, other.pdl);
  if_set(tensors.eps, other.eps);
}

/// A handle to the kernel of one KvWriteProblem.
class KvWriteKernel : public KernelHandle<detail::KvWriteKind, KvWriteProblem, KvWritePlan> {
 public:
  KvWriteKernel() = default;

  /// Queues one launch on `stream`. Bytes of the cache that belong to no token of the launch stay as they are. If two
  /// tokens have one slot, either may be the one that stays. Allocates nothing once the kernel is ready, and waits for
  /// nothing; legal while `stream` captures.
  ///
  /// If it throws, nothing is queued. It throws ConfigError that names every argument that does not fit, and
  /// DeviceError if the driver refuses. While the kernel is pending or has failed, it throws what
  /// AttentionKernel::launch() throws.
  void launch(const KvWriteTensors& tensors, Stream stream) const;

  /// Hex of the kernel's cache key.
  const std::string& key() const;
  /// The kernel's binary; null unless the state is kReady.
  std::shared_ptr<const Binary> binary() const;

 private:
  friend class Engine;
  using KernelHandle::KernelHandle;
};

}  // namespace kernelwright
