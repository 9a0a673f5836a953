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

/// Schedules of one kernel for launches of one range of rows (gemm_row_range()), which `shapes` are of: each tile that
/// the planner knows of the family that serves the problem, and what differs from one of them in a single field. The
/// fields that `schedule` gives stay as they are; fields that the family does not have are auto. Where `shapes` are of
/// several ranges the model's choice is that for the most rows. Throws ConfigError if the model itself finds no kernel.
GemmCandidates enumerate_candidates(const GemmProblem& problem, const GemmSchedule& schedule, Arch arch,
                                    const std::vector<GemmShape>& shapes, const CandidateOptions& options = {});

}  // namespace kernelwright
