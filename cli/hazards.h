/// Reports of the emulator, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/sarif.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/runtime/emulator/checker/suppressions.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"

namespace kernelwright::cli {

/// What --hazards, --hazard-suppressions and --sarif ask for.
class HazardReview {
 public:
  /// Reads the file of suppressions, and throws ConfigError for what is wrong in it.
  explicit HazardReview(const Options& options);
  /// Takes out the reports below the grade that is asked for, and those that a suppression names.
  std::vector<emulator::KernelHazard> judge(std::vector<emulator::KernelHazard> found);
  /// Writes the SARIF file, and says on stderr which suppressions have matched nothing.
  void finish() const;
  std::size_t suppressed() const { return suppressed_.size(); }

 private:
  const Options& options_;
  emulator::HazardGrade least_;
  emulator::Suppressions suppressions_;
  std::vector<emulator::KernelHazard> judged_;  // for the SARIF file
  std::vector<SuppressedHazard> suppressed_;
};

/// An array of objects: kernel, kind, rule, grade, section, what, where, count, the two sides, what would mend it, and
/// the text for people.
JsonValue to_json(const std::vector<emulator::KernelHazard>& hazards);

/// Each report on separate lines, below a heading that counts them.
std::string hazards_text(const std::vector<emulator::KernelHazard>& hazards);

JsonValue to_json(const emulator::Statistics& statistics);

}  // namespace kernelwright::cli
