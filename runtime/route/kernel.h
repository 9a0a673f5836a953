/// A kernel that chooses the experts of tokens, ready to launch, and its arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/route/plan.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/slot/kernel_handle.h"

namespace kernelwright {

namespace detail {
struct RouteKind;
}

/// What one launch reads and writes: device addresses; null where the problem has no such operand. What is written
/// overlaps nothing else.
///
/// Sorted rows are pairs of (token, slot) by expert, and for one expert by token. Local experts are those that the
/// problem sorts by: all, or with local_experts those to which local_ids maps.
///
/// Where experts are given (score), ids and weights are read. Only sorted_weights needs weights. A number that is no
/// expert has no row, and its position is -1; so it is with the second pair of a token and an expert.
struct RouteTensors {
  DevicePtr logits = 0;          // [tokens, experts] of dtype; aligned to 16 bytes; null where experts are given
  DevicePtr bias = 0;            // with bias: f32 [experts]
  DevicePtr local_ids = 0;       // with local_experts: int32 [experts]; a number below local_experts, each once, or -1
  DevicePtr ids = 0;             // int32 [tokens, top_k]: experts, the largest score first
  DevicePtr weights = 0;         // f32 [tokens, top_k]
  DevicePtr starts = 0;          // with sort: int32 [local experts + 1]: the first row of each, and the end
  DevicePtr source_rows = 0;     // with sort: int32 [route_sorted_rows()]: the token of each sorted row
  DevicePtr positions = 0;       // with sort: int32 [tokens, top_k]: the sorted row of each pair; -1: not sorted here
  DevicePtr sorted_weights = 0;  // with sort, optional: f32 [route_sorted_rows()]
  DevicePtr workspace = 0;       // RouteKernel::workspace_bytes() bytes, in any state; aligned to 16 bytes
  std::uint64_t workspace_bytes = 0;

  std::int64_t tokens = 0;         // 0 writes starts alone
  std::int64_t logits_stride = 0;  // elements from one token to the next; 0: experts
  std::optional<float> factor;     // of the weights, >= 0; absent: the problem's
  bool pdl = false;                // may begin before the kernel ahead of it in the stream has ended
};

/// The one list of the fields that the C ABI's struct has too, by the same names; see AttentionTensors.
template <class Other, class Field, class IfSet>
void visit_fields(RouteTensors& tensors, Other& other, Field&& field, IfSet&& if_set) {
  field(tensors.logits, other.logits);
  field(tensors.bias, other.bias);
  field(tensors.local_ids, other.local_ids);
  field(tensors.ids, other.ids);
  field(tensors.weights, other.weights);
  field(tensors.starts, other.starts);
  field(tensors.source_rows, other.source_rows);
  field(tensors.positions, other.positions);
  field(tensors.sorted_weights, other.sorted_weights);
  field(tensors.workspace, other.workspace);
  field(tensors.workspace_bytes, other.workspace_bytes);
  field(tensors.tokens, other.tokens);
  field(tensors.logits_stride, other.logits_stride);
  field(tensors.pdl, other.pdl);
  if_set(tensors.factor, other.factor);
}

/// Elements of source_rows: a row for each pair, and with an alignment those that may lie between experts. Throws
/// ConfigError for more tokens than a launch takes.
std::int64_t route_sorted_rows(const RouteProblem& problem, std::int64_t tokens);

/// A handle to the kernels of one RouteProblem.
class RouteKernel : public KernelHandle<detail::RouteKind, RouteProblem, RoutePlan> {
 public:
  RouteKernel() = default;

  /// Queues one launch on `stream`, or two. Allocates nothing once the kernel is ready, and waits for nothing; legal
  /// while `stream` captures.
  ///
  /// If it throws, nothing is queued. It throws ConfigError that names every argument that does not fit, and
  /// DeviceError if the driver refuses. While the kernel is pending or has failed, it throws what
  /// AttentionKernel::launch() throws.
  void launch(const RouteTensors& tensors, Stream stream) const;

  /// Bytes of workspace for up to `tokens` tokens; 0 for few. Throws ConfigError for more tokens than a launch takes.
  std::uint64_t workspace_bytes(std::int64_t tokens) const;

  /// Hex of the cache key of the kernel that chooses.
  const std::string& key() const;
  /// That kernel's binary; null unless the state is kReady.
  std::shared_ptr<const Binary> binary() const;

 private:
  friend class Engine;
  using KernelHandle::KernelHandle;
};

}  // namespace kernelwright
