/// A GEMM that is ready to launch, and its arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/kv_write/kernel.h"
#include "kernelwright/runtime/slot/kernel_handle.h"

namespace kernelwright {

struct GemmPlan;  // generator/gemm/planner.h

namespace detail {
struct GemmKind;
}

/// Arguments of one launch: device addresses, aligned to 16 bytes (scales and bias: to their element). Strides count
/// elements from one row to the next; 0 means that rows follow each other without a gap. Rows of a, b and d begin at
/// multiples of 16 bytes.
struct GemmTensors {
  DevicePtr a = 0;                     // [m, k], or [k, m] where the layout says so
  DevicePtr b = 0;                     // [n, k], or [k, n]; with GemmGroups::pointers uint64 [count], aligned to 8
  DevicePtr d = 0;                     // [m, n], or with gates [m, n / 2]; overlaps none, or is c with its strides
  DevicePtr c = 0;                     // [m, n], where the epilogue has c
  DevicePtr bias = 0;                  // [n], where the epilogue has bias
  DevicePtr scale_a = 0, scale_b = 0;  // f32, or atoms of bytes, as GemmProblem says
  int m = 0;                           // rows; 0 queues nothing
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0, d_stride = 0;
  /// Of per_block scales: elements from one row of scale_a [k / 128, m] and of scale_b [n / 128, k / 128] to the next.
  /// With gates, scale_b is [2 * ceil(n / 256), k / 128]. scale_a's is a multiple of 4; 0 stands for m rounded up to 4.
  /// Of block-scaled formats atoms of 512 bytes, from those of 128 rows to the next; bytes past k in the last one are
  /// not NaN.
  std::int64_t scale_a_stride = 0, scale_b_stride = 0;
  float alpha = 1, beta = 1;  // where the epilogue has them
  /// SMs to take at most; 0: all. Changes no result. Kernels that take all SMs in any case (takes_all_sms()) refuse it.
  /// Hopper's kernels with parts of k in a cluster, which serve few rows, ignore it: they launch a CTA for each part of
  /// each tile.
  int sm_budget = 0;
  bool pdl = false;  // may begin before the kernel ahead of it in the stream has ended
  /// With pdl: b holds weights, which no kernel ahead that may still run writes. Its first tiles are loaded before that
  /// one has ended, but not with groups, whose bounds say which matrix comes first.
  bool constant_b = false;
  /// See GemmKernel::workspace_bytes(). Aligned to 16 bytes.
  DevicePtr workspace = 0;
  std::uint64_t workspace_bytes = 0;
  /// Of problems with groups that have bounds: int32 as GemmProblem::groups says, read by the kernel. m is then the
  /// rows of a and d. If bounds decrease, or pass the rows there are, the launch computes nothing and writes 1 to
  /// `status`.
  DevicePtr bounds = 0;
  DevicePtr status = 0;  // int32, or none
  /// Rows that a group that has any is expected to have: chooses the kernel. 0: m / count, rounded up.
  int expected_m = 0;
  /// With GemmGroups::gather: int32 [m], the row of a for each row of d. Outside [0, source_rows) it is a row of zeros.
  DevicePtr gather = 0;
  /// Of a, and of its scales. With groups of kind k: of a and b, the most that bounds may say.
  int source_rows = 0;
  /// With GemmGroups::scatter: int32 [m], the row of d that each row of the product becomes; -1: none. c has d's rows.
  /// No two rows of groups have the same one: else either is written. One outside [-1, result_rows) is not written, and
  /// `status` becomes 1.
  DevicePtr scatter = 0;
  int result_rows = 0;  // of d and c, with scatter
  /// Where the epilogue quantises: f32 [columns of d / 128, m], and of masked groups and a batch [count, columns of
  /// d / 128, m / count]. It is written, and overlaps nothing else. A GEMM reads it as its scale_a. scale_d_stride:
  /// from one row of it to the next; 0 stands for m, or m / count, rounded up to 4.
  /// Of a d in mxfp8, mxfp4 or nvfp4: bytes, atoms of contract/scale_atoms.h as a GEMM reads them, aligned to 16
  /// bytes. Rows past m, up to whole atoms, get scales of 0. Of groups, docs/gemm/groups.md says where atoms lie.
  /// scale_d_stride: atoms from 128 rows to the next 128; 0 stands for those of d's columns. Or with layout=rows [m,
  /// columns of d / 32 or 16], scale_d_stride bytes apart.
  DevicePtr scale_d = 0;
  std::int64_t scale_d_stride = 0;
  /// Of a batch (GemmGroups), and for c and d of kind k: elements from the first row of a group to the first row of the
  /// next one. m is then the rows of all groups. 0: groups follow each other without a gap. A group's rows are a_stride
  /// apart, and so on. So groups may lie behind each other, [count, m / count, k], or side by side, [m / count, count,
  /// k]. Rows of d of two groups have no element in common.
  std::int64_t a_batch_stride = 0, b_batch_stride = 0, c_batch_stride = 0, d_batch_stride = 0;
  /// Of a d in mxfp8, mxfp4 or nvfp4: values / tensor_scale are quantised, and the next GEMM's alpha undoes it. Above
  /// 0.
  float tensor_scale = 1;
  /// With amax: an f32, at least 0, that becomes the largest magnitude of all values if it is less. The caller clears
  /// it.
  DevicePtr amax = 0;
  /// With squares: f32 [columns of d / 128, rounded up, m], which is written. squares_stride: from one row of it to the
  /// next; 0 stands for m rounded up to 4.
  DevicePtr squares = 0;
  std::int64_t squares_stride = 0;
  /// With rstd: such sums of a, f32 [k / 128, rounded up, m]. rms_eps joins their mean, and is at least 0.
  DevicePtr squares_a = 0;
  std::int64_t squares_a_stride = 0;
  float rms_eps = 1e-6f;
  /// Of a problem with kv_write: the cache, and what a launch of kv_write reads beside its rows. The product has these
  /// rows, d is q_out, and m the tokens. So q, k, v and q_out, their strides and pdl are left out. Read by launch().
  const KvWriteTensors* kv_write = nullptr;
};

/// The one list of the fields that the C ABI's struct has too, by the same names. `field` takes a field of `tensors`
/// and that of `other`. `if_set` takes those that the C struct gives only where a bit of its `overrides` is set, in
/// the order of these bits, the lowest bit first.
template <class Other, class Field, class IfSet>
void visit_fields(GemmTensors& tensors, Other& other, Field&& field, IfSet&& if_set) {
  field(tensors.a, other.a);
  field(tensors.b, other.b);
  field(tensors.d, other.d);
  field(tensors.c, other.c);
  field(tensors.bias, other.bias);
  field(tensors.scale_a, other.scale_a);
  field(tensors.scale_b, other.scale_b);
  field(tensors.m, other.m);
  field(tensors.a_stride, other.a_stride);
  field(tensors.b_stride, other.b_stride);
  field(tensors.c_stride, other.c_stride);
  field(tensors.d_stride, other.d_stride);
  field(tensors.scale_a_stride, other.scale_a_stride);
  field(tensors.scale_b_stride, other.scale_b_stride);
  field(tensors.sm_budget, other.sm_budget);
  field(tensors.pdl, other.pdl);
  field(tensors.constant_b, other.constant_b);
  field(tensors.workspace, other.workspace);
  field(tensors.workspace_bytes, other.workspace_bytes);
  field(tensors.bounds, other.bounds);
  field(tensors.status, other.status);
  field(tensors.expected_m, other.expected_m);
  field(tensors.gather, other.gather);
  field(tensors.source_rows, other.source_rows);
  field(tensors.scale_d, other.scale_d);
  field(tensors.scale_d_stride, other.scale_d_stride);
  field(tensors.a_batch_stride, other.a_batch_stride);
  field(tensors.b_batch_stride, other.b_batch_stride);
  field(tensors.c_batch_stride, other.c_batch_stride);
  field(tensors.d_batch_stride, other.d_batch_stride);
  field(tensors.scatter, other.scatter);
  field(tensors.result_rows, other.result_rows);
  field(tensors.tensor_scale, other.tensor_scale);
  field(tensors.amax, other.amax);
  field(tensors.squares, other.squares);
  field(tensors.squares_stride, other.squares_stride);
  field(tensors.squares_a, other.squares_a);
  field(tensors.squares_a_stride, other.squares_a_stride);
  if_set(tensors.alpha, other.alpha);
  if_set(tensors.beta, other.beta);
  if_set(tensors.rms_eps, other.rms_eps);
}

/// A handle to the kernels of one GEMM.
class GemmKernel : public KernelHandle<detail::GemmKind, GemmProblem, GemmPlan> {
 public:
  GemmKernel() = default;

  /// Queues d = epilogue(a b) on `stream`: one launch, ahead of which words of the workspace are cleared where there is
  /// one. Allocates nothing once the kernel is ready and waits for nothing
  /// (tensor maps are looked up under a lock that is held for moments); legal while `stream` captures. k = 0 leaves
  /// what the epilogue makes of zeros.
  ///
  /// Throws, and has queued nothing: ConfigError that names every argument that does not fit; DeviceError if the driver
  /// refuses; and as AttentionKernel::launch() while the kernel is pending or has failed.
  void launch(const GemmTensors& tensors, Stream stream) const;

  /// Bytes of GemmTensors::workspace that a launch of `m` rows takes: 0 but for kernels whose parts of k take turns.
  /// Needs no zeroing before any launch, and holds nothing between launches. So launches of one stream may share one
  /// buffer as large as the largest answer; launches that may overlap need one each. Covers the fallback as well.
  std::uint64_t workspace_bytes(int m) const;

  /// Hex of the cache key of the kernel that serves `m` rows. With groups, `m` is the rows of one group:
  /// GemmTensors::expected_m, or where that is 0, all rows divided by the count of groups, rounded up.
  const std::string& key(int m) const;
  /// The kernels' binaries, as plan().variants has them; empty unless the state is kReady.
  std::vector<std::shared_ptr<const Binary>> binaries() const;

 private:
  friend class Engine;
  using KernelHandle::KernelHandle;
};

}  // namespace kernelwright
