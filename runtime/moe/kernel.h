/// A whole layer of experts, ready to launch, and its arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernelwright/generator/problem/moe.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/gemm/kernel.h"
#include "kernelwright/runtime/moe_combine/kernel.h"
#include "kernelwright/runtime/route/kernel.h"
#include "kernelwright/runtime/row_op/kernel.h"
#include "kernelwright/runtime/slot/kernel_handle.h"

namespace kernelwright {

namespace detail {
struct MoeLayer;
}

/// What one launch reads and writes: device addresses; null where the problem has no such operand. Strides count
/// elements from one row to the next; 0 means that rows follow each other without a gap. Rows of x, residual and out
/// begin at multiples of 16 bytes, and so do weights.
///
/// Experts are those whose weights the layer has: all, or with route.local_experts those of this rank. `wide` is the
/// problem's `intermediate`. out may be x or the residual, with its stride. What is written overlaps nothing else.
struct MoeTensors {
  DevicePtr x = 0;          // [tokens, hidden] of dtype
  DevicePtr logits = 0;     // [tokens, route.experts] of route.dtype; aligned to 16 bytes; null where experts are given
  DevicePtr bias = 0;       // with route.bias: f32 [route.experts]
  DevicePtr local_ids = 0;  // with route.local_experts: int32 [route.experts]; below local_experts, each once, or -1
  /// int32 and f32 [tokens, top_k]; 16-byte aligned. Where experts are given, both are read, and needed. Otherwise they
  /// are written if they are not null.
  DevicePtr ids = 0, weights = 0;
  DevicePtr gate_up = 0;  // [experts, 2 wide, hidden]: 8 rows of gates, the 8 rows of ups of these, and so on
  DevicePtr gate_up_scale =
      0;  // scales per_block: f32 [experts, 2 ceil(wide / 128), hidden / 128], those of gates first
  DevicePtr gate_up_bias = 0;  // gates with a bias: [experts, 2 wide] of dtype, interleaved as the rows are
  DevicePtr down = 0;          // [experts, hidden, wide]
  DevicePtr down_scale = 0;    // scales per_block: f32 [experts, hidden / 128, wide / 128]
  DevicePtr down_bias = 0;     // with down_bias: [experts, hidden] of dtype
  DevicePtr residual = 0;      // with residual: [tokens, hidden] of dtype
  DevicePtr out = 0;           // [tokens, hidden] of dtype
  DevicePtr workspace = 0;     // MoeKernel::workspace_bytes() bytes, in any state; aligned to 256 bytes
  std::uint64_t workspace_bytes = 0;

  std::int64_t tokens = 0;  // 0 queues nothing
  std::int64_t x_stride = 0, logits_stride = 0, residual_stride = 0, out_stride = 0;
  std::optional<float> factor;  // of the weights, >= 0; absent: the problem's
  bool pdl = false;             // may begin before the kernel ahead of it in the stream has ended
};

/// The one list of the fields that the C ABI's struct has too, by the same names; see AttentionTensors.
template <class Other, class Field, class IfSet>
void visit_fields(MoeTensors& tensors, Other& other, Field&& field, IfSet&& if_set) {
  field(tensors.x, other.x);
  field(tensors.logits, other.logits);
  field(tensors.bias, other.bias);
  field(tensors.local_ids, other.local_ids);
  field(tensors.ids, other.ids);
  field(tensors.weights, other.weights);
  field(tensors.gate_up, other.gate_up);
  field(tensors.gate_up_scale, other.gate_up_scale);
  field(tensors.gate_up_bias, other.gate_up_bias);
  field(tensors.down, other.down);
  field(tensors.down_scale, other.down_scale);
  field(tensors.down_bias, other.down_bias);
  field(tensors.residual, other.residual);
  field(tensors.out, other.out);
  field(tensors.workspace, other.workspace);
  field(tensors.workspace_bytes, other.workspace_bytes);
  field(tensors.tokens, other.tokens);
  field(tensors.x_stride, other.x_stride);
  field(tensors.logits_stride, other.logits_stride);
  field(tensors.residual_stride, other.residual_stride);
  field(tensors.out_stride, other.out_stride);
  field(tensors.pdl, other.pdl);
  if_set(tensors.factor, other.factor);
}

/// A handle to the kernels of one MoeProblem: those of the choice, the two GEMMs and the sum, and with scales the two
/// that quantise. Engine::kernels() lists each. It is as cheap to copy as a KernelHandle, and valid as long.
class MoeKernel {
 public:
  MoeKernel() = default;
  explicit operator bool() const { return layer_ != nullptr; }

  /// Queues the layer on `stream`: four launches, five where many tokens are sorted, and two more with scales. Each may
  /// begin before the one ahead of it has ended, where the device can. It allocates nothing once the kernels are ready,
  /// and waits for nothing. All that routing decides stays on the device, so a captured graph replays with other
  /// tokens.
  ///
  /// If it throws anything but DeviceError, nothing is queued. It throws ConfigError that names every argument that
  /// does not fit. While one of the kernels is pending or has failed, it throws what AttentionKernel::launch() throws.
  void launch(const MoeTensors& tensors, Stream stream) const;

  /// Bytes of MoeTensors::workspace for any launch of at most `tokens` tokens. It needs no zeroing, and holds nothing
  /// between launches. So launches of one stream may share one; launches that may overlap need one each. Throws
  /// ConfigError for more tokens than a launch takes.
  std::uint64_t workspace_bytes(std::int64_t tokens) const;
  /// The most tokens of a launch.
  std::int64_t most_tokens() const;

  /// kFailed if one of the kernels has failed, else kPending until all are ready.
  KernelState state() const;
  /// Whether launch() queues a portable fallback for one of the kernels now.
  bool serves_fallback() const;
  /// "down: ...": why the first failed kernel failed; "" unless the state is kFailed.
  std::string error() const;
  /// Waits until no kernel is pending. If one has failed, throws the error that stopped it.
  void wait() const;

  const MoeProblem& problem() const;
  int device() const;

  /// The parts, each with its own plan, keys and binaries. quantize_x and quantize_rows are empty without scales.
  const RouteKernel& route() const;
  const RowOpKernel& quantize_x() const;
  const GemmKernel& gate_up() const;
  const RowOpKernel& quantize_rows() const;
  const GemmKernel& down() const;
  const MoeCombineKernel& combine() const;

  bool operator==(const MoeKernel&) const = default;

 private:
  friend class Engine;
  explicit MoeKernel(const detail::MoeLayer* layer) : layer_(layer) {}
  const detail::MoeLayer& layer() const;

  const detail::MoeLayer* layer_ = nullptr;
};

}  // namespace kernelwright
