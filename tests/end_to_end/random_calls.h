/// Attention problems and calls drawn at random from a number, to find combinations that no person thought of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/verify/attention/case.h"

namespace kernelwright {

/// A problem, and the schedule that a kernel of it is asked for with.
struct DrawnKernel {
  AttentionProblem problem;
  AttentionSchedule schedule;
};

/// `count` of them for `arch`, the same for the same seed: in turn of each family and form that there is, each with
/// features drawn at random.
std::vector<DrawnKernel> draw_kernels(int count, std::uint64_t seed, Arch arch);

/// How large calls get.
struct CallLimits {
  int queries, keys, batch;  // of a sequence; sequences
  std::int64_t tokens;       // keys times KV heads of the whole batch
};

/// One call of a kernel.
struct DrawnCall {
  AttentionShape shape;
  InputOptions options;
  bool other_scale = false, other_window = false;
  Window window;

  AttentionCase make(const AttentionProblem& problem) const;
};
DrawnCall draw_call(const AttentionProblem& problem, const CallLimits& limits, std::uint64_t seed,
                    std::uint64_t number);

/// For people: the config, which `kernelwright run` accepts, and settings that a config cannot hold.
std::string describe(const DrawnKernel& kernel, const DrawnCall& call);

}  // namespace kernelwright
