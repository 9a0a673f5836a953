/// The predicted speed of a launch: the time of each unit of the machine, and the unit that bounds it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/plan/machine.h"

namespace kernelwright {

/// The time that one of the machine's units would take if it waited for no other.
struct PredictedTerm {
  std::string name;  // "products", "exponentials", ...
  double microseconds = 0;
  std::string of;  // what the term counts
};

struct Predicted {
  double microseconds = 0;  // of the launch: the time that a stream waits
  double operations = 0;    // of the product, or the two over visible keys; a multiply and an add counted as two
  double clock_ghz = 0;     // the clock that power allows
  std::string bound;        // the term that is longest, or "latency" if none takes most of the time
  std::vector<PredictedTerm> terms;
  const MachineRates* machine = nullptr;

  double tflops() const { return microseconds > 0 ? operations / microseconds * 1e-6 : 0; }
  /// The term of that name; 0 if there is none.
  double term(std::string_view name) const;
};

}  // namespace kernelwright
