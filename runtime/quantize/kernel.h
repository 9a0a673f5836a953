/// A quantise kernel that is ready to launch, and its arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernelwright/generator/quantize/plan.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/slot/kernel_handle.h"

namespace kernelwright {

namespace detail {
struct QuantizeKind;
}

/// Arguments of one launch: device addresses. Strides count elements from one row to the next; 0 means that rows follow
/// each other without a gap.
struct QuantizeTensors {
  DevicePtr x = 0;         // [rows, k] of problem.from, aligned to its elements
  DevicePtr elements = 0;  // [rows, k] of problem.to, aligned to 16 bytes as its rows are. Overlaps no x
  DevicePtr scales = 0;    // quantize_scale_bytes() bytes, aligned to 16, in the order of contract/block_scales.h
  int rows = 0;            // 0 queues nothing
  int k = 0;               // a multiple of 32, kMostQuantizedElements at most; 0 queues nothing
  std::int64_t x_stride = 0, elements_stride = 0;
  float tensor_scale = 1;  // x / tensor_scale is quantised; a GEMM's alpha has to undo it. > 0
  bool pdl = false;        // may begin before the kernel ahead of it in the stream has ended
};

/// The one list of the fields that the C ABI's struct has too, by the same names: `field` takes a field of `tensors`
/// and that of `other`.
template <class Other, class Field>
void visit_fields(QuantizeTensors& tensors, Other& other, Field&& field) {
  field(tensors.x, other.x);
  field(tensors.elements, other.elements);
  field(tensors.scales, other.scales);
  field(tensors.rows, other.rows);
  field(tensors.k, other.k);
  field(tensors.x_stride, other.x_stride);
  field(tensors.elements_stride, other.elements_stride);
  field(tensors.tensor_scale, other.tensor_scale);
  field(tensors.pdl, other.pdl);
}

/// Of a row: as many as a GEMM's k may be.
constexpr int kMostQuantizedElements = 1 << 24;

/// Bytes of the scales of [rows, k] elements of `to`, in whole atoms. Throws ConfigError unless rows are 0 to 2^31 - 1
/// and k is 0 to kMostQuantizedElements.
std::int64_t quantize_scale_bytes(DType to, std::int64_t rows, int k);

/// A handle to the kernel of one QuantizeProblem.
class QuantizeKernel : public KernelHandle<detail::QuantizeKind, QuantizeProblem, QuantizePlan> {
 public:
  QuantizeKernel() = default;

  /// Queues elements, scales = quantised x on `stream`, in one launch. verify/formats/block_formats.h has the
  /// arithmetic, to the bit. All scales of the atoms are written, with 0 past the end of rows and k. Of the elements,
  /// only rows are written. Allocates nothing once the kernel is ready, and waits for nothing; legal while `stream`
  /// captures.
  ///
  /// If it throws, nothing is queued. It throws ConfigError that names every argument that does not fit, and
  /// DeviceError if the driver refuses. While the kernel is pending or has failed, it throws what
  /// AttentionKernel::launch() throws.
  void launch(const QuantizeTensors& tensors, Stream stream) const;

  /// Hex of the kernel's cache key.
  const std::string& key() const;
  /// The kernel's binary; null unless the state is kReady.
  std::shared_ptr<const Binary> binary() const;

 private:
  friend class Engine;
  using KernelHandle::KernelHandle;
};

}  // namespace kernelwright
