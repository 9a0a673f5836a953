/// One attention kernel on one device, ready to be launched, and the tensors that a launch takes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/launch/strides.h"
#include "kernelwright/runtime/slot/kernel_handle.h"

namespace kernelwright {

struct AttentionPlan;  // generator/attention/planner.h

namespace detail {
struct AttentionKind;
}

/// What one attention launch reads and writes. Addresses are device addresses of the kernel's device; null where the
/// problem has no such operand. q, k, v and o are aligned to 16 bytes, everything else to its element.
///   q, o   [batch, q_len, q_heads, head_dim] or, ragged, [q_tokens, q_heads, head_dim]
///   k, v   [batch, kv_len, kv_heads, head_dim], ragged [tokens, kv_heads, head_dim], or paged
///          [pages, page_size, kv_heads, head_dim]; v in columns [pages, kv_heads, head_dim, page_size], without a
///          stride of tokens. With v_layout "key_prefix" v is k, or null. Latent keys with scales "per_block" are
///          records, [.., 1, 656] bytes: contract/attention_latent_record.h
/// The buffers must outlive the work that launch() queues.
///
/// Kernels do not trust the buffers with memory: no length, offset or page in a buffer makes a kernel leave the tensors
/// that are described here. A length is read as the nearest of [0, kv_len], a page as num_pages says. An offset that is
/// negative or past the end of the rows (q_tokens, kv_tokens) is read as the end. Of a sequence of ragged queries, at
/// most q_len are computed. EngineOptions::check_data tells which of them were wrong.
struct AttentionTensors {
  DevicePtr q = 0, k = 0, v = 0, o = 0;
  DevicePtr lse = 0;         // [batch, q_heads, q_len] or [q_tokens, q_heads] f32; needed if the problem has "lse"
  DevicePtr q_offsets = 0;   // [batch + 1] i32, ragged queries
  DevicePtr kv_offsets = 0;  // [batch + 1] i32, ragged keys
  /// [batch] i32, padded and paged keys: of each sequence, or with cache_length "prompt", which needs it, those ahead
  /// of the keys of its own queries. 0: every sequence has kv_len keys.
  DevicePtr kv_lengths = 0;
  DevicePtr page_table = 0;  // [batch, page_table_stride] i32, paged keys; see num_pages
  DevicePtr sinks = 0;       // [q_heads] f32
  /// f32. Scales "per_tensor": [1]; "per_head": [kv_heads]; per token or page: by k_scale_strides. Of latent keys
  /// v_scale is k_scale, or null. Records hold their scales, and have neither.
  DevicePtr k_scale = 0, v_scale = 0;
  /// See AttentionKernel::workspace_bytes(). Aligned to 16 bytes.
  DevicePtr workspace = 0;
  std::uint64_t workspace_bytes = 0;

  int batch = 1;
  int q_len = 1;   // queries of each sequence; of the longest one if ragged
  int kv_len = 1;  // keys of each sequence; with kv_lengths or kv_offsets: of the longest one (its queries' included),
                   // or a bound
  std::int64_t q_tokens = 0;  // rows of ragged queries; unused if padded
  /// Rows of ragged keys: of the tensors k and v, so that nothing behind them is read. 0: q_tokens, where kv_offsets is
  /// q_offsets itself; else kernels that read through tensor maps (attention_sm90) refuse it. Unused if not ragged.
  std::int64_t kv_tokens = 0;
  int page_table_stride = 0;  // entries of one row of page_table

  TensorStrides q_strides, k_strides, v_strides, o_strides;

  /// SMs that this launch takes at most, so that others are left to communication; 0: all. Persistent kernels keep to
  /// it (attention_sm90, but for "scheduler": "grid"); those that launch a CTA for each tile take no notice. The result
  /// is the same to the bit.
  int sm_budget = 0;

  /// Programmatic dependent launch: this launch may start while the kernel ahead of it in the stream ends, and waits
  /// for it (griddepcontrol.wait) before it touches memory. It reads and writes the same as without. The gain is small
  /// if the kernel ahead does not say when it is nearly done (griddepcontrol.launch_dependents). A kernel ahead that
  /// was itself launched so must have waited, in every CTA; the kernels of this library do. Refused below sm_90.
  bool pdl = false;

  std::optional<float> scale;    // of Q K^T, a finite number; absent: 1 / sqrt(head_dim.qk)
  std::optional<float> softcap;  // absent: the problem's
  /// [q_heads] f32, for score_mod alibi; 0: the geometric series, 2^(-8 (head + 1) / q_heads) where q_heads is a power
  /// of two (docs/config.md).
  DevicePtr alibi_slopes = 0;
  std::optional<Window> window;  // absent: the problem's. Kind sliding_window alone

  /// A head's rotary part, where the problem has one: as q and k, with rope.width for head_dim, which theirs then
  /// lacks. A k_rope whose head stride alone is 0 is one for all KV heads.
  DevicePtr q_rope = 0, k_rope = 0;
  TensorStrides q_rope_strides, k_rope_strides;
  /// Scales "per_token" with e4m3 queries: f32, as q without its last dimension, contiguous.
  DevicePtr q_scale = 0;

  /// Pages that k and v have, paged keys. Give it. An entry of page_table that is negative or too large then stands for
  /// a page of zeros, keys and values both. 0: not known, and every entry that is not negative counts as a page; a
  /// wrong one makes the kernel read memory that is not its own.
  int num_pages = 0;

  /// Rows of ragged o and lse that belong to no sequence: those ahead of q_offsets[0] and from q_offsets[batch] on.
  /// Batches that are padded to the size of a graph have such rows. True: the launch makes them zeros, and their LSE
  /// -inf, and q_tokens may be any number. False: it does not write them, and q_tokens is at most batch * q_len.
  bool zero_padding = false;

  /// Mask "tensor", alone or in an "and": [batch or 1, q_heads or 1, q_len or 1, kv_len] bytes as the problem says, of
  /// which 0 hides a key. Queries count from their sequence's first, ragged or not. Of all three strides, `token` is
  /// that of a query, keys are contiguous, and a dimension that is one for all has 0. All zero: contiguous. A key from
  /// kv_len on has no element and is hidden.
  DevicePtr mask = 0;
  TensorStrides mask_strides;
  /// Score modifier "tensor": as mask, of the problem's score_mod.dtype, whose elements join the scaled scores. -inf
  /// hides a key.
  DevicePtr bias = 0;
  TensorStrides bias_strides;

  /// [batch] i32, for a problem with "kv_starts": the first key of each sequence. Keys before it do not exist for any
  /// query, and their memory may hold anything. They count all the same: kv_len and kv_lengths include them, and
  /// diagonals, windows, chunks and ALiBi stay where they are. A start is read as the nearest of 0 and the sequence's
  /// keys. 0: every sequence begins with its key 0.
  DevicePtr kv_starts = 0;

  /// Of scales "per_token", as k and v without their last dimension, and "per_page", [pages, kv_heads], whose `token`
  /// is 0. Elements, each 0 or more. `batch` is the stride of a page or a sequence. All zero: contiguous.
  TensorStrides k_scale_strides, v_scale_strides;
};

/// The one list of the fields that the C ABI's struct has too, by the same names. `field` takes a field of `tensors`
/// and that of `other`. `if_set` takes those that the C struct gives only where a bit of its `overrides` is set, in
/// the order of these bits, the lowest bit first.
template <class Other, class Field, class IfSet>
void visit_fields(AttentionTensors& tensors, Other& other, Field&& field, IfSet&& if_set) {
  field(tensors.q, other.q);
  field(tensors.k, other.k);
  field(tensors.v, other.v);
  field(tensors.o, other.o);
  field(tensors.lse, other.lse);
  field(tensors.q_offsets, other.q_offsets);
  field(tensors.kv_offsets, other.kv_offsets);
  field(tensors.kv_lengths, other.kv_lengths);
  field(tensors.page_table, other.page_table);
  field(tensors.sinks, other.sinks);
  field(tensors.k_scale, other.k_scale);
  field(tensors.v_scale, other.v_scale);
  field(tensors.workspace, other.workspace);
  field(tensors.workspace_bytes, other.workspace_bytes);
  field(tensors.batch, other.batch);
  field(tensors.q_len, other.q_len);
  field(tensors.kv_len, other.kv_len);
  field(tensors.q_tokens, other.q_tokens);
  field(tensors.kv_tokens, other.kv_tokens);
  field(tensors.page_table_stride, other.page_table_stride);
  field(tensors.q_strides, other.q_strides);
  field(tensors.k_strides, other.k_strides);
  field(tensors.v_strides, other.v_strides);
  field(tensors.o_strides, other.o_strides);
  field(tensors.sm_budget, other.sm_budget);
  field(tensors.pdl, other.pdl);
  field(tensors.alibi_slopes, other.alibi_slopes);
  field(tensors.q_rope, other.q_rope);
  field(tensors.k_rope, other.k_rope);
  field(tensors.q_rope_strides, other.q_rope_strides);
  field(tensors.k_rope_strides, other.k_rope_strides);
  field(tensors.q_scale, other.q_scale);
  field(tensors.num_pages, other.num_pages);
  field(tensors.zero_padding, other.zero_padding);
  field(tensors.mask, other.mask);
  field(tensors.mask_strides, other.mask_strides);
  field(tensors.bias, other.bias);
  field(tensors.bias_strides, other.bias_strides);
  field(tensors.kv_starts, other.kv_starts);
  field(tensors.k_scale_strides, other.k_scale_strides);
  field(tensors.v_scale_strides, other.v_scale_strides);
  if_set(tensors.scale, other.scale);
  if_set(tensors.softcap, other.softcap);
  if_set(tensors.window, other.window_left, other.window_right);
}

/// A handle to the kernel of one attention problem.
class AttentionKernel : public KernelHandle<detail::AttentionKind, AttentionProblem, AttentionPlan> {
 public:
  AttentionKernel() = default;

  /// Queues the attention of `tensors` on `stream`. It is one launch, or two if a second launch merges split keys; that
  /// one starts as the first drains. Allocates nothing once a kernel serves, and waits for nothing (tensor maps are
  /// looked up under a lock that is held for moments); legal while `stream` captures. A call with no queries queues
  /// nothing. `stream` belongs to the kernel's device.
  ///
  /// If it throws, nothing is queued. It throws ConfigError that names every argument that does not fit, and
  /// DeviceError if the driver refuses. (If the driver refuses the second of two launches, the first one is queued and
  /// o is not written.) While the kernel is pending and no fallback serves, it waits (OnMiss::kBlock, kFallback) or
  /// throws NotReadyError (kError, or `stream` is capturing). If the kernel has failed and no fallback serves, it
  /// throws the error that stopped it.
  void launch(const AttentionTensors& tensors, Stream stream) const;

  /// Bytes of AttentionTensors::workspace that a launch of this extent takes. It is 0 for many prefills, and 8 for
  /// those with a queue of tiles, which run without it, too. Needs no zeroing before any launch, and holds nothing
  /// between launches. So all kernels of one stream may share one buffer as large as the largest answer. Launches that
  /// may overlap (two streams, two branches of a graph) need one each. The answer grows with batch, q_len and kv_len
  /// but not monotonically: ask for the extents that will be launched. It covers the fallback as well, so that it holds
  /// before and after promotion. Waits if nothing serves yet, as launch(). Throws ConfigError for an extent of more
  /// rows than any launch takes.
  std::uint64_t workspace_bytes(const AttentionExtent& extent) const;

  /// The extent that `tensors` asks for: the argument of workspace_bytes().
  AttentionExtent extent(const AttentionTensors& tensors) const;

  /// Hex of the cache key of the main kernel.
  const std::string& key() const;
  /// The main kernel and the merging one (null if there is none); both null unless the state is kReady.
  std::shared_ptr<const Binary> binary() const;
  std::shared_ptr<const Binary> combine_binary() const;

 private:
  friend class Engine;
  using KernelHandle::KernelHandle;
};

}  // namespace kernelwright
