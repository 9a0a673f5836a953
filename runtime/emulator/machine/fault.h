/// The error that ends an emulated launch: the program did something that hardware would trap on or leave undefined.
#pragma once

#include <string>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/machine/hazard_rule.h"

namespace kernelwright::emulator {

/// Handlers throw it with what happened. The machine catches it and reports it with the warp, its lanes, the PTX line,
/// the role and the template line.
class Fault : public Error {
 public:
  explicit Fault(const std::string& what, HazardKind kind = HazardKind::kFault) : Fault(what, rule_of_fault(kind)) {}
  Fault(const std::string& what, HazardRule rule) : Error(what), rule_(rule) {}
  HazardRule rule() const { return rule_; }
  HazardKind kind() const { return row_of(rule_).kind; }

 private:
  HazardRule rule_;
};

}  // namespace kernelwright::emulator
