/// The GEMM schedules worth measuring for a problem.
#pragma once

#include <vector>

#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/plan/candidates.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/config.h"

namespace kernelwright {

using GemmCandidate = CandidateOf<GemmConfig>;
using GemmCandidates = CandidateList<GemmConfig>;

/// Schedules of one kernel, for launches of the range of rows (gemm_row_range()) that `shapes` belong to. They are each
/// tile of the planner for the family that serves the problem, and variants of a tile that differ in a single field.
/// The fields that `schedule` gives stay as they are; fields that the family does not have are auto. If `shapes` belong
/// to several ranges, the model's choice is the one for the most rows. Throws ConfigError if the model itself finds no
/// kernel.
GemmCandidates enumerate_candidates(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch,
                                    const std::vector<GemmShape>& shapes, const CandidateOptions& options = {});

}  // namespace kernelwright
