/// What the host knows of each score modifier, one row a kind: the rules, the planner, predictions and documents read
/// it here. What a modifier does stands in templates/policy/score_mod.cuh.
#pragma once

#include <array>
#include <span>

#include "kernelwright/generator/problem/enums.h"

namespace kernelwright {

struct ScoreModFacts {
  ScoreModKind kind;
  /// An example of `cap`, for the table of what each family takes. 0: the kind has no cap.
  double cap = 0;
  /// Predictions: instructions and exponentials of a lane for each score.
  double instructions = 0, exponentials = 0;
  /// Hopper: registers of a math thread; and those that it needs besides if heads are packed, for data of each row.
  int registers = 0, registers_of_rows = 0;
  /// Families that do not take it yet.
  std::span<const Family> lacked_by = {};
};

/// In the order of the kinds. `tensor` and `source` open scores, as masks of these kinds do: what that costs is known
/// of AttentionSpec::opens_scores().
inline constexpr auto kScoreMods = std::to_array<ScoreModFacts>({
    {.kind = ScoreModKind::kNone},
    {.kind = ScoreModKind::kSoftcap, .cap = 30, .instructions = 4, .exponentials = 1, .registers = 4},
    {.kind = ScoreModKind::kAlibi, .instructions = 1.5, .registers_of_rows = 24},
    {.kind = ScoreModKind::kTensor},
    {.kind = ScoreModKind::kSource},
});

constexpr bool score_mods_are_in_order() {
  if (kScoreMods.size() != EnumTable<ScoreModKind>::entries.size()) return false;
  for (std::size_t i = 0; i < kScoreMods.size(); ++i)
    if (kScoreMods[i].kind != static_cast<ScoreModKind>(i)) return false;
  return true;
}
static_assert(score_mods_are_in_order(), "facts_of() finds the row of a kind at the kind's place");

constexpr const ScoreModFacts& facts_of(ScoreModKind kind) { return kScoreMods[static_cast<std::size_t>(kind)]; }

}  // namespace kernelwright
