/// The kernels of a layer of experts as one launch.
#pragma once

#include <cstdint>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/moe.h"
#include "kernelwright/runtime/gemm/kernel.h"
#include "kernelwright/runtime/moe/kernel.h"
#include "kernelwright/runtime/moe_combine/kernel.h"
#include "kernelwright/runtime/route/kernel.h"
#include "kernelwright/runtime/row_op/kernel.h"

namespace kernelwright::detail {

/// What a MoeKernel points to. It is made once, and lives as long as its Engine.
struct MoeLayer {
  MoeProblem problem;
  RouteKernel route;
  RowOpKernel quantize_x, quantize_rows;  // empty without scales
  GemmKernel gate_up, down;
  MoeCombineKernel combine;

  void launch(const MoeTensors& tensors, Stream stream) const;
  /// Bytes of the route's own workspace. They do not fall as tokens grow.
  std::uint64_t counts_bytes(std::int64_t tokens) const;

  /// Calls visit(name, kernel) with each part, in the order of their launches.
  template <class Visit>
  void each_part(Visit&& visit) const {
    visit("route", route);
    if (quantize_x) visit("quantize_x", quantize_x);
    visit("gate_up", gate_up);
    if (quantize_rows) visit("quantize_rows", quantize_rows);
    visit("down", down);
    visit("combine", combine);
  }

 private:
  template <class Kernel>
  static auto& slot_of(const Kernel& kernel) {
    return kernel.slot();
  }
};

/// Where a launch keeps what lies between its kernels: offsets into the workspace, each a multiple of 256 bytes.
/// Regions that the problem has not are empty.
struct MoeWorkspace {
  std::uint64_t ids = 0, weights = 0;                        // [tokens, top_k]
  std::uint64_t starts = 0, source_rows = 0, positions = 0;  // as RouteTensors has them
  std::uint64_t counts = 0, counts_bytes = 0;                // the route's own workspace
  std::uint64_t x = 0, x_scale = 0;        // e4m3 [tokens, hidden]; f32 [hidden / 128, tokens rounded up to 4]
  std::uint64_t inner = 0;                 // dtype [pairs, intermediate]: what gate_up makes
  std::uint64_t rows = 0, rows_scale = 0;  // the same as e4m3, and f32 [intermediate / 128, pairs rounded up to 4]
  std::uint64_t made = 0;                  // dtype [pairs, hidden]: what down makes
  std::uint64_t bytes = 0;
};
/// `counts_bytes`: MoeLayer's.
MoeWorkspace plan_moe_workspace(const MoeProblem& problem, std::int64_t tokens, std::uint64_t counts_bytes) noexcept;

/// The most tokens of a launch: a row of the GEMMs for each of a token's experts.
std::int64_t most_tokens(const MoeProblem& problem) noexcept;

}  // namespace kernelwright::detail
