/// The kernels that are mutated, ready to run on the emulator from any PTX text.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/emulator_backend.h"

namespace kernelwright::test {

/// The result of one run of a subject.
struct SubjectRun {
  std::vector<emulator::HazardReport> reports;
  std::string failure;            // the launch did not reach its end, or its result is wrong; "" if all is well
  std::vector<std::byte> output;  // everything that was written; empty if it did not reach its end
  std::uint64_t warp_instructions = 0;
};

struct Subject {
  std::string name;
  std::string ptx;                             // with -lineinfo, not mutated
  std::map<std::string, std::string> sources;  // by the name in .file
  /// Runs `ptx` instead of its own. Any number of threads at once.
  std::function<SubjectRun(const std::string& ptx, const EmulatorBackendOptions& options)> run;

  /// Made by another compiler: reports graded isa or note of the unmutated kernel do not disqualify it, and they count
  /// for no mutant.
  bool foreign = false;

  /// A line of `sources`, without blanks at its ends; "" if it is not there.
  std::string source_line(const std::string& file, int line) const;
};

/// The Hopper test kernels, one case for each piece of code in them, the attention and GEMM kernels, and cache writes. Compiles those
/// whose names contain `filter`. Throws the compiler's errors.
std::vector<Subject> mutation_subjects(const std::string& filter);

/// The cases of a JSON file (runtime/emulator/launches/ptx_case.h) whose names contain `filter`. Needs no compiler.
std::vector<Subject> ptx_subjects(const std::string& path, const std::string& filter);

}  // namespace kernelwright::test
