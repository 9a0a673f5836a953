/// A kernel that adds up the rows of a token's experts, ready to launch, and its arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernelwright/generator/moe_combine/plan.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/slot/kernel_handle.h"

namespace kernelwright {

namespace detail {
struct MoeCombineKind;
}

/// What one launch reads and writes: device addresses; null where the problem has no such operand. Strides count
/// elements from one row to the next; 0 means that rows follow each other without a gap. Rows begin at multiples of 16
/// bytes. positions and weights are aligned to 16 bytes where top_k is a multiple of 4, to 8 where it is even.
///
/// out may be the residual, with its dtype and stride. It overlaps nothing else.
struct MoeCombineTensors {
  DevicePtr rows = 0;       // [num_rows, width] of dtype.in: what experts made; null for no rows
  DevicePtr positions = 0;  // int32 [tokens, top_k]: the row of each pair, as route says it; outside the rows: skipped
  DevicePtr weights = 0;    // with weighted: f32 [tokens, top_k]; the row of a weight of 0 is not read
  DevicePtr residual = 0;   // with residual: [tokens, width] of dtype.in
  DevicePtr out = 0;        // [tokens, width] of dtype.out

  std::int64_t num_rows = 0;
  std::int64_t tokens = 0;  // 0 queues nothing
  std::int64_t rows_stride = 0, residual_stride = 0, out_stride = 0;
  bool pdl = false;  // may begin before the kernel ahead of it in the stream has ended
};

/// The one list of the fields that the C ABI's struct has too, by the same names; see AttentionTensors.
template <class Other, class Field>
void visit_fields(MoeCombineTensors& tensors, Other& other, Field&& field) {
  field(tensors.rows, other.rows);
  field(tensors.positions, other.positions);
  field(tensors.weights, other.weights);
  field(tensors.residual, other.residual);
  field(tensors.out, other.out);
  field(tensors.num_rows, other.num_rows);
  field(tensors.tokens, other.tokens);
  field(tensors.rows_stride, other.rows_stride);
  field(tensors.residual_stride, other.residual_stride);
  field(tensors.out_stride, other.out_stride);
  field(tensors.pdl, other.pdl);
}

/// A handle to the kernel of one MoeCombineProblem.
class MoeCombineKernel : public KernelHandle<detail::MoeCombineKind, MoeCombineProblem, MoeCombinePlan> {
 public:
  MoeCombineKernel() = default;

  /// Queues one launch on `stream`. Allocates nothing once the kernel is ready, and waits for nothing; legal while
  /// `stream` captures.
  ///
  /// If it throws, nothing is queued. It throws ConfigError that names every argument that does not fit, and
  /// DeviceError if the driver refuses. While the kernel is pending or has failed, it throws what
  /// AttentionKernel::launch() throws.
  void launch(const MoeCombineTensors& tensors, Stream stream) const;

  /// Hex of the kernel's cache key.
  const std::string& key() const;
  /// The kernel's binary; null unless the state is kReady.
  std::shared_ptr<const Binary> binary() const;

 private:
  friend class Engine;
  using KernelHandle::KernelHandle;
};

}  // namespace kernelwright
