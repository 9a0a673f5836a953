/// Reports that a person has judged and accepts, read from a file.
///
/// A line names a rule, a kernel, a place and a reason: `lane-release gemm_* epilogue.cu:* one warp is converged here`.
/// The kernel is the name of the entry. The place is that of either side: "FILE:LINE" of the source, "ptx:LINE", or
/// "func:NAME" for all of a function that the kernel calls. `*` stands for any characters, also for a whole word. Lines
/// that begin with `#` are comments.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/runtime/emulator/checker/hazard_report.h"

namespace kernelwright::emulator {

struct Suppression {
  int line = 0;  // of the file
  std::string rule, kernel, place, reason;
  std::size_t matches = 0;  // reports that it has taken out
};

class Suppressions {
 public:
  Suppressions() = default;
  /// Throws ConfigError, which names the line, for a rule that does not exist or a line without a reason.
  Suppressions(std::string_view text, const std::string& path);

  /// The first line that names the report, which counts the match. Null: none does.
  const Suppression* match(std::string_view kernel, const HazardReport& report);
  const std::vector<Suppression>& all() const { return all_; }

 private:
  std::vector<Suppression> all_;
};

}  // namespace kernelwright::emulator
