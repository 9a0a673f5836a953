/// What the tuner asks of a candidate, whatever its kind.
#pragma once

#include <memory>
#include <vector>

#include "cli/engine_for.h"
#include "kernelwright/generator/attention/candidates.h"
#include "kernelwright/generator/digest.h"
#include "kernelwright/generator/gemm/candidates.h"
#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/generator/tuned/row.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace kernelwright::cli {

/// Adds what identifies a candidate's machine code and its launch.
void add_to_key(DigestBuilder& digest, KernelStore& store, const AttentionPlan& plan);
void add_to_key(DigestBuilder& digest, KernelStore& store, const GemmPlan& plan);

/// Sorts the likeliest candidates to the front. A GEMM's candidates come already ranked by the model that predicts
/// their times.
void order_by_prediction(std::vector<Candidate>& kept, const AttentionConfig& config,
                         const std::vector<AttentionShape>& shapes);
void order_by_prediction(std::vector<GemmCandidate>& kept, const GemmConfig& config,
                         const std::vector<GemmShape>& shapes);

/// The launches that a row for `shapes` speaks for.
TunedFor<AttentionConfig> launches_of(const AttentionConfig& config, const std::vector<AttentionShape>& shapes,
                                      const DeviceInfo& device);
TunedFor<GemmConfig> launches_of(const GemmConfig& config, const std::vector<GemmShape>& shapes,
                                 const DeviceInfo& device);

/// What the planner's model predicts of a launch; 0 if it has no model. Of a GEMM that is the estimate that ranks.
double predicted_us(const Candidate& candidate);
double predicted_us(const GemmCandidate& candidate);

/// CTAs that an SM holds at once.
int ctas_per_sm(const MachineClass& machine, const AttentionPlan& plan, const AttentionProblem& problem,
                const AttentionShape& shape, const ResourceUsage& usage);
int ctas_per_sm(const MachineClass& machine, const GemmPlan& plan, const GemmProblem& problem, const GemmShape& shape,
                const ResourceUsage& usage);

/// The binary of a candidate's kernel; null while there is none.
std::shared_ptr<const Binary> binary_of(const AttentionKernel& kernel);
std::shared_ptr<const Binary> binary_of(const GemmKernel& kernel);

}  // namespace kernelwright::cli
