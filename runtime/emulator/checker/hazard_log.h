/// The reports of one launch.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "kernelwright/runtime/emulator/emulator.h"

namespace kernelwright::emulator {

/// Gathers reports; equal ones (kind, sentence without numbers that vary, and the two instructions) are counted. Safe
/// from any number of threads.
class HazardLog {
 public:
  void add(HazardReport report);
  /// The same was seen `times` times by one cluster: the first of them has been added.
  void add_count(HazardKind kind, int first_line, int second_line, std::uint64_t times);
  /// What ended the launch.
  void add_fault(HazardReport report) { add(std::move(report)); }
  /// By kind and lines, whatever order they were found in.
  std::vector<HazardReport> take();

 private:
  using Key = std::tuple<HazardKind, int, int>;
  std::mutex mutex_;
  std::map<Key, HazardReport> reports_;
};

}  // namespace kernelwright::emulator
