/// The cases that every attention kernel must pass: awkward lengths, layouts, masks and values.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "end_to_end/attention/cases/attention_problems.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/verify/attention/case.h"

namespace kernelwright {

struct CudaCase {
  std::string name;  // letters, digits and _
  AttentionProblem problem;
  AttentionShape shape;
  AttentionSchedule schedule = {};
  InputOptions options = {};
  std::function<void(AttentionCase&)> change = {};  // values and run-time parameters, after the inputs are made
};
inline void PrintTo(const CudaCase& test, std::ostream* out) { *out << test.name; }

/// Masks that and/or make of others, by a name for each.
std::vector<std::pair<std::string, Mask>> joined_masks();

/// A slope for each query head that is not its default.
void give_slopes(AttentionCase& call);

/// All of them, in the order of attention.md's list; names begin with its numbers. The portable family takes each one.
const std::vector<CudaCase>& all_cuda_cases();
/// Adds those of them whose values are the point: numbers that lose a key, hide a NaN, or do not fit.
void add_value_cases(std::vector<CudaCase>& cases);

/// Adds those of few rows of fp8 queries, and makes a problem's queries, keys and values e4m3.
void add_fp8_query_cases(std::vector<CudaCase>& cases);
AttentionProblem fp8_queries(AttentionProblem problem, ScaleKind scales = ScaleKind::kPerTensor);

/// Adds those of scales that differ by key. give_extreme_scales() makes them 0, tiny and huge beside each other.
void add_key_scale_cases(std::vector<CudaCase>& cases);
void give_extreme_scales(AttentionCase& call);

/// The cases of attention_sm90: small, of every head size, tile and schedule, and of errors that its rings and its
/// order of items could cause. Their schedules name the family.
std::vector<CudaCase> hopper_cases();
/// Those over fp8 keys and values, which hopper_cases() have too.
std::vector<CudaCase> hopper_fp8_cases();
/// Those with a rotary part in tensors of its own, likewise.
std::vector<CudaCase> rotary_cases();

/// Those of keys that hold their values, on hopper or portable.
std::vector<CudaCase> latent_cases(Family family);

/// The same for attention_sm100.
std::vector<CudaCase> blackwell_cases();

/// The portable kernels' own: each kind of stage, and keys split among warps.
std::vector<CudaCase> portable_cases();

/// `test` on one family; its name begins with the family's.
CudaCase of_family(CudaCase test, Family family);

/// Whether its problem and schedule have a kernel for `arch`.
inline bool is_taken(const CudaCase& test, Arch arch) {
  try {
    plan_attention(test.problem, test.schedule, arch);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

/// Those of all_cuda_cases() that attention_sm90 takes, on it.
const std::vector<CudaCase>& shared_cases_on_hopper();

}  // namespace kernelwright
