/// The reports of one launch.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "kernelwright/runtime/emulator/checker/hazard_report.h"

namespace kernelwright::emulator {

/// Gathers reports and counts equal ones. Two reports are equal if their rule, their two instructions and their
/// sentence without varying numbers are equal. Safe from any number of threads.
class HazardLog {
 public:
  void add(HazardReport report);
  /// One cluster has seen the same hazard `times` times. The first of them was passed to add().
  void add_count(HazardRule rule, int first_line, int second_line, std::uint64_t times);
  /// The fault that ended the launch.
  void add_fault(HazardReport report) { add(std::move(report)); }
  /// All reports, sorted by rule and lines: the order in which they were found does not matter.
  std::vector<HazardReport> take();

 private:
  using Key = std::tuple<HazardRule, int, int>;
  std::mutex mutex_;
  std::map<Key, HazardReport> reports_;
};

}  // namespace kernelwright::emulator
