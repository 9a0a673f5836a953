// Subjects that are PTX files: each case of a JSON file is one.
#include <memory>
#include <utility>

#include "kernelwright/generator/error.h"
#include "runtime/emulator/launches/ptx_case.h"
#include "runtime/emulator/mutation/subjects.h"

namespace kernelwright::test {
namespace {

emulator::Options options_of(const EmulatorBackendOptions& options) {
  emulator::Options made;
  made.hazards = options.hazards;
  made.completion = options.completion;
  made.seed = options.seed;
  made.shuffle = options.seed != 0;
  made.threads = options.threads;
  made.max_instructions = options.max_instructions;
  return made;
}

Subject subject_of(const PtxCase& test) {
  const auto expected = std::make_shared<const PtxCaseRun>(run_ptx_case(test, test.ptx, {.threads = 1}));
  Subject subject{test.name, test.ptx, {}, {}, /*foreign=*/true};
  subject.run = [test, expected](const std::string& ptx, const EmulatorBackendOptions& options) {
    SubjectRun made;
    try {
      PtxCaseRun run = run_ptx_case(test, ptx, options_of(options));
      made.reports = std::move(run.hazards);
      made.failure = run.fault;
      made.warp_instructions = run.warp_instructions;
      // Results whose order of sums is free are equal if they are close.
      if (run.fault.empty()) made.output = agree(expected->after, run.after) ? expected->outputs() : run.outputs();
    } catch (const Error& error) {
      made.failure = error.what();
    }
    return made;
  };
  return subject;
}

}  // namespace

std::vector<Subject> ptx_subjects(const std::string& path, const std::string& filter) {
  std::vector<Subject> subjects;
  for (const PtxCase& test : read_ptx_cases(path, filter)) subjects.push_back(subject_of(test));
  return subjects;
}

}  // namespace kernelwright::test
