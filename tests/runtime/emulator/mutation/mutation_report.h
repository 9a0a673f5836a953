/// The result of a mutation run as numbers and as text.
#pragma once

#include <string>
#include <vector>

#include "runtime/emulator/mutation/mutation_run.h"

namespace kernelwright::test {

struct MutationScore {
  int mutants = 0;  // mutants whose instruction is executed
  int reported = 0, stopped = 0, wrong_output = 0, silent = 0, equivalent = 0;
  void add(Fate fate);
  int found() const { return reported + stopped; }
  double raw_percent() const;       // found, of all
  double adjusted_percent() const;  // found, of those that are not equivalent
};
MutationScore score_of(const std::vector<MutantResult>& results);

/// Markdown: the score, tables by kernel and by instruction, the mutants that were not found, and the reasons.
std::string markdown_of(const std::vector<MutantResult>& results, const std::vector<Equivalent>& equivalents);
/// One line for each mutant.
std::string csv_of(const std::vector<MutantResult>& results);

}  // namespace kernelwright::test
