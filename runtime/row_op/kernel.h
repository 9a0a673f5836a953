/// A kernel that takes steps over rows, ready to launch, and its arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernelwright/generator/row_op/plan.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/slot/kernel_handle.h"

namespace kernelwright {

namespace detail {
struct RowOpKind;
}

/// What one launch reads and writes: device addresses; null where the problem has no such operand. Strides count
/// elements from one row to the next; 0 means that rows follow each other without a gap. Rows begin at multiples of 16
/// bytes; rows of out at multiples of 16 bytes, or of what eight elements fill if that is less.
///
/// out may be x, with its dtype and stride, but where gates and ups take turns. residual_out may be residual. What is
/// written overlaps nothing else.
struct RowOpTensors {
  DevicePtr x = 0;             // [rows, width], with input "gate_up" [rows, 2 width], of dtype.in
  DevicePtr residual = 0;      // input "add" or "merge": [rows, width] of dtype.in
  DevicePtr residual_out = 0;  // input "add": likewise; the sum, rounded to dtype.in, which the norm sees
  DevicePtr weight = 0;        // of the norm: [width] of dtype.in
  DevicePtr out = 0;           // [rows, width] of dtype.out
  /// per_tensor: f32 [1], given: what is written times its scale is the value. per_token: f32 [rows], written.
  /// per_block: f32 [width / 128, rows] (columns) or [rows, width / 128] (rows), written. mxfp8, mxfp4 and nvfp4:
  /// row_op_scale_bytes() bytes in the order of contract/block_scales.h, written.
  DevicePtr scale = 0;
  /// input "merge": f32 [rows, heads], natural logarithms of sums of exponentials, of x, of residual and of both; -inf
  /// where a row saw no key, whose elements do not count. The last one is written.
  DevicePtr lse = 0, residual_lse = 0, lse_out = 0;

  std::int64_t rows = 0;  // 0 queues nothing
  std::int64_t x_stride = 0, residual_stride = 0, residual_out_stride = 0, out_stride = 0;
  /// per_block: from one row of the scales to the next. 0: rows rounded up to 4 (columns), or width / 128 (rows).
  std::int64_t scale_stride = 0;
  /// Of all three LSEs: from one row to the next, 0: heads; and from one head to the next, 0: 1. Either may be the
  /// larger: some libraries write [heads, rows].
  std::int64_t lse_stride = 0, lse_head_stride = 0;
  std::optional<float> eps;                     // of the norm, >= 0; absent: the problem's
  std::optional<float> gate_alpha, gate_limit;  // of clamped gates, >= 0; absent: the problem's
  float tensor_scale = 1;  // mxfp8, mxfp4, nvfp4: value / tensor_scale is quantised; a GEMM's alpha has to undo it. > 0
  bool pdl = false;        // may begin before the kernel ahead of it in the stream has ended
  /// With pdl: no kernel ahead that may still run writes weight. It is loaded before that one has ended.
  bool constant_weight = false;
};

/// The one list of the fields that the C ABI's struct has too, by the same names; see AttentionTensors.
template <class Other, class Field, class IfSet>
void visit_fields(RowOpTensors& tensors, Other& other, Field&& field, IfSet&& if_set) {
  field(tensors.x, other.x);
  field(tensors.residual, other.residual);
  field(tensors.residual_out, other.residual_out);
  field(tensors.weight, other.weight);
  field(tensors.out, other.out);
  field(tensors.scale, other.scale);
  field(tensors.rows, other.rows);
  field(tensors.x_stride, other.x_stride);
  field(tensors.residual_stride, other.residual_stride);
  field(tensors.residual_out_stride, other.residual_out_stride);
  field(tensors.out_stride, other.out_stride);
  field(tensors.scale_stride, other.scale_stride);
  field(tensors.lse, other.lse);
  field(tensors.residual_lse, other.residual_lse);
  field(tensors.lse_out, other.lse_out);
  field(tensors.lse_stride, other.lse_stride);
  field(tensors.lse_head_stride, other.lse_head_stride);
  field(tensors.tensor_scale, other.tensor_scale);
  field(tensors.pdl, other.pdl);
  field(tensors.constant_weight, other.constant_weight);
  if_set(tensors.eps, other.eps);
  if_set(tensors.gate_alpha, other.gate_alpha);
  if_set(tensors.gate_limit, other.gate_limit);
}

/// Bytes of the scales of a launch that writes them: f32 per token or block, without a stride of the caller's; of
/// block-scaled formats, whole atoms of 512 bytes. 0 without scales that are made. Throws ConfigError for rows that a
/// launch refuses.
std::uint64_t row_op_scale_bytes(const RowOpProblem& problem, std::int64_t rows);

/// A handle to the kernel of one RowOpProblem.
class RowOpKernel : public KernelHandle<detail::RowOpKind, RowOpProblem, RowOpPlan> {
 public:
  RowOpKernel() = default;

  /// Queues one launch on `stream`. Allocates nothing once the kernel is ready, and waits for nothing; legal while
  /// `stream` captures.
  ///
  /// If it throws, nothing is queued. It throws ConfigError that names every argument that does not fit, and
  /// DeviceError if the driver refuses. While the kernel is pending or has failed, it throws what
  /// AttentionKernel::launch() throws.
  void launch(const RowOpTensors& tensors, Stream stream) const;

  /// Hex of the kernel's cache key.
  const std::string& key() const;
  /// The kernel's binary; null unless the state is kReady.
  std::shared_ptr<const Binary> binary() const;

 private:
  friend class Engine;
  using KernelHandle::KernelHandle;
};

}  // namespace kernelwright
