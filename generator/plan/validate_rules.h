/// Inside of validate: code that the attention and GEMM rules share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/message.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/field_rules.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/rule_check.h"
#include "kernelwright/generator/problem/score_mods.h"

namespace kernelwright::detail {

template <class Schedule>
void check_target(const Schedule& schedule, std::optional<Arch> arch, std::vector<Violation>& violations) {
  if (!arch) return;
  if (!schedule.arch.is_auto() && schedule.arch.value() != *arch)
    violations.push_back({"/schedule/arch", "the schedule is for " + std::string(to_string(schedule.arch.value())) +
                                                " and " + std::string(to_string(*arch)) +
                                                " was asked for; \"auto\" takes either"});
  else if (schedule.arch.is_auto() && !schedule.family.is_auto() && !family_exists_on(schedule.family.value(), *arch))
    violations.push_back({"/schedule/family", std::string(to_string(schedule.family.value())) +
                                                  " kernels do not run on " + std::string(to_string(*arch)) +
                                                  "; they run on " + std::string(archs_of(schedule.family.value()))});
}

/// "64, 80, 96"
inline std::string join_numbers(const std::vector<int>& numbers) {
  std::string joined;
  for (const int number : numbers) joined += (joined.empty() ? "" : ", ") + std::to_string(number);
  return joined;
}

/// Collects what a kernel family lacks, all in the same wording.
class FamilyRules {
 public:
  FamilyRules(Family family, std::vector<Violation>& violations) : family_(family), violations_(violations) {}

  template <Enum E>
  void takes(const std::string& path, E found, const std::vector<E>& built) {
    std::vector<std::string_view> words;
    for (const E one : built) {
      if (one == found) return;
      words.push_back(to_string(one));
    }
    refuse(path, "\"" + std::string(to_string(found)) + "\"", join(words));
  }
  void takes(const std::string& path, int found, const std::vector<int>& built) {
    for (const int one : built)
      if (one == found) return;
    refuse(path, std::to_string(found), join_numbers(built));
  }
  /// Takes masks of ranges, over chunks of one size, as range_mask() does. Beside them, joined by "and", it takes one
  /// mask of each kind that open_mask() takes.
  void takes_masks(const std::string& path, const Mask& mask) {
    MasksSoFar before;
    takes_masks(path, mask, false, before);
  }
  /// Score modifiers that this family does not lack.
  void takes_score_mod(const std::string& path, const ScoreMod& mod) {
    std::vector<ScoreModKind> built;
    for (const ScoreModFacts& facts : kScoreMods)
      if (std::ranges::find(facts.lacked_by, family_) == facts.lacked_by.end()) built.push_back(facts.kind);
    takes(path + "/kind", mod.kind, built);
  }
  /// "112 is not built yet for the portable family; it has 64, 80"
  void refuse(const std::string& path, const std::string& found, const std::string& built) {
    violations_.push_back(
        {path, found + " is not built yet for the " + std::string(to_string(family_)) + " family; it has " + built});
  }
  /// Refuses fields of other families by name, so that no one tunes a field that no code reads.
  template <class Schedule>
  void has_only(Schedule schedule, const std::vector<std::string_view>& fields) {
    visit_fields(schedule, [&](const char* name, const auto& value, const auto&, const char*) {
      if (value.is_auto() || is_among(name, fields)) return;
      violations_.push_back({pointer_to("/schedule", name), "the " + std::string(to_string(family_)) +
                                                                " family has no " + std::string(name) +
                                                                "; its fields are " + join(fields)});
    });
  }

 private:
  struct MasksSoFar {
    int chunk = 0;
    bool tensor = false, source = false;
  };
  void takes_masks(const std::string& path, const Mask& mask, bool in_or, MasksSoFar& before) {
    if (mask.kind == MaskKind::kChunked && before.chunk != 0 && mask.chunk != before.chunk)
      refuse(path + "/chunk", std::to_string(mask.chunk) + " beside chunks of " + std::to_string(before.chunk),
             "chunks of one size");
    else if (mask.kind == MaskKind::kChunked)
      before.chunk = mask.chunk;
    if (mask.kind == MaskKind::kTensor) takes_open_mask(path, mask.kind, in_or, before.tensor);
    if (mask.kind == MaskKind::kSource) takes_open_mask(path, mask.kind, in_or, before.source);
    for (std::size_t i = 0; i < mask.operands.size(); ++i)
      takes_masks(pointer_to(path + "/operands", i), mask.operands[i], in_or || mask.kind == MaskKind::kOr, before);
  }
  void takes_open_mask(const std::string& path, MaskKind kind, bool in_or, bool& another) {
    const std::string word = "\"" + std::string(to_string(kind)) + "\"";
    if (in_or) refuse(path + "/kind", word + " as a part of an \"or\"", "it alone or as a part of an \"and\"");
    if (another) refuse(path + "/kind", "a second mask of kind " + word, "one of them");
    another = true;
  }
  static bool is_among(std::string_view name, const std::vector<std::string_view>& fields) {
    for (const std::string_view field : fields)
      if (field == name) return true;
    return false;
  }
  Family family_;
  std::vector<Violation>& violations_;
};

/// What a family takes that loads through tensor maps.
struct MappedOperands {
  int depth_step, most_qk, most_v;  // head sizes are multiples of `depth_step` from 16 to those
  bool gathers;                     // keys of pages without room for a box are copied row by row
  bool multiplies_narrow = false;   // q, k and v may be e4m3, whose heads are multiples of 16; scales go with them
  bool widens = false;              // the output may be f32, or any type beside e4m3
  bool has_rotary_parts = false;    // a rotary part of 16 bits may lie in tensors of its own
  bool converts_narrow = false;     // under 16-bit queries, k and v may be e4m3 or e5m2; scales go with them
  bool stores_narrow = true;        // with multiplies_narrow, the output may be e4m3
  bool takes_columns = false;       // fp8 values may lie in columns
};
void check_mapped_problem(const AttentionProblem& problem, const MappedOperands& takes, FamilyRules& rules);

inline constexpr const char* kNoRotaryPart = "0, no rotary part";
/// Checks the width of a rotary part in tensors of its own. It is a multiple of `step`, and the rest of the head one of
/// `plain_step`.
void check_rotary_width(const AttentionProblem& problem, int step, int plain_step, FamilyRules& rules);
/// Checks its type, for kernels whose products go on from the plain part to the rotary one: hopper and portable.
void check_rotary_type(const AttentionProblem& problem, FamilyRules& rules);

}  // namespace kernelwright::detail
