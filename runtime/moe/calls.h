/// Inside of a layer's launch: the arguments of its kernels, and the rules that the layer's own arguments obey.
#pragma once

#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/gemm/launch.h"
#include "kernelwright/runtime/moe/launch.h"
#include "kernelwright/runtime/moe_combine/launch.h"
#include "kernelwright/runtime/route/launch.h"
#include "kernelwright/runtime/row_op/launch.h"

namespace kernelwright::detail {

/// The arguments of each kernel. Those of the kernels that quantise count only where the problem has scales.
struct MoeCalls {
  RouteTensors route;
  RowOpTensors quantize_x;
  GemmTensors gate_up;
  RowOpTensors quantize_rows;
  GemmTensors down;
  MoeCombineTensors combine;
};
/// `t`: with strides that are not 0. `has_pdl`: each kernel may begin before the one ahead of it has ended.
MoeCalls calls_of(const MoeProblem& problem, const MoeTensors& t, const MoeWorkspace& at, bool has_pdl) noexcept;

/// The kernels that a launch queues. Those that quantise are null without scales.
struct LoadedMoe {
  const LoadedRoute* route = nullptr;
  const LoadedRowOp* quantize_x = nullptr;
  const LoadedGemm *gate_up = nullptr, *down = nullptr;
  const LoadedRowOp* quantize_rows = nullptr;
  const LoadedMoeCombine* combine = nullptr;
};

/// Throws ConfigError for numbers that no arithmetic may be done with.
void require_numbers(const MoeProblem& problem, const MoeTensors& t);

/// Every rule that `t`, whose strides are not 0, breaks, with the words of the kernel whose rule it is.
std::vector<Violation> broken_rules(const MoeProblem& problem, const LoadedMoe& loaded, const MoeTensors& t,
                                    const MoeWorkspace& at);

}  // namespace kernelwright::detail
