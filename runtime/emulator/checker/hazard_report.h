/// A report of the checker: what is wrong, and the two sides of it.
#pragma once

#include <cstdint>
#include <string>

#include "kernelwright/runtime/emulator/machine/hazard_rule.h"

namespace kernelwright::emulator {

/// One side of a hazard.
struct HazardSide {
  std::uint32_t cta[3] = {};
  int warp = -1, lane = -1;  // -1: all lanes, or an operation that belongs to no warp
  std::string role;          // from LaunchNotes; "" if unnamed
  std::string function;      // the .func in which the instruction is; "": the entry itself
  int ptx_line = 0;
  std::string instruction;  // the instruction's text
  std::string source;       // "attention_sm90.cu:123" if the PTX has line information
};

struct HazardReport {
  HazardKind kind = HazardKind::kFault;  // that of the rule, or of a fault
  HazardRule rule = HazardRule::kFault;
  std::string what;          // one sentence
  std::string where;         // "K stage 2 (shared 17408)"; "" if the hazard has no place
  HazardSide first, second;  // second.ptx_line is 0 if the hazard has one side only
  std::uint64_t count = 1;   // how often this hazard was seen
  /// The report in several lines, for people.
  std::string text() const;
};

}  // namespace kernelwright::emulator
