/// Runs mutants until a check finds them.
#pragma once

#include <string>
#include <vector>

#include "runtime/emulator/mutation/equivalents.h"
#include "runtime/emulator/mutation/mutants.h"
#include "runtime/emulator/mutation/subjects.h"

namespace kernelwright::test {

enum class Fate {
  kReported,     // by a check
  kStopped,      // deadlock, fault: the launch did not reach its end
  kWrongOutput,  // nothing but a comparison finds it
  kSilent,
  kEquivalent,   // silent, and there is a reason why it may be
  kNotExecuted,  // not a mutant: its instruction is never executed
};
const char* name_of(Fate fate);

struct MutantResult {
  std::string kernel;
  MutantKey key;
  SyncSite site;
  std::string change;
  std::string source;  // "gemm_sm90.cu:116 < gemm_sm90.cu:267", from the kernel's own code outwards
  Fate fate = Fate::kSilent;
  std::string found_by;    // "race, missing proxy fence"
  std::string grade;       // of the gravest report: "error"
  std::string completion;  // the policy under which: "eager"
  std::string first_text;  // of the first report
};

/// Runs all mutants of `subject`, `jobs` at a time. Throws Error if the subject itself is reported or wrong: then its
/// mutants say nothing. Fates are kSilent where kEquivalent might be said. A silent mutant has also survived
/// `more_seeds` schedules under each completion policy and, where a barrier is deleted, a long delay of each warp.
std::vector<MutantResult> run_mutants(const Subject& subject, int jobs, int more_seeds);

}  // namespace kernelwright::test
