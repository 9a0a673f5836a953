/// Small kernels for the checker's tests. Lines that begin with '!' are the synchronisation that a kernel needs.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/emulator/ptx_kernel.h"

namespace kernelwright::emulator::test {

struct HazardCase {
  const char* name;
  HazardKind kind;
  std::string body;
  LaunchShape shape = {.block = {64}, .dynamic_shared_bytes = 8192};
  std::optional<HazardKind> also = {};  // the kind of the same mistake if it ends the launch
  const char* target = "sm_90a";
};

/// %r10 is the CTA's shared memory. Each thread writes its word of it, at %r12.
inline const std::string kOwnWord = R"(
      mov.u32 %r10, data; shl.b32 %r11, %r0, 2; add.u32 %r12, %r10, %r11;
      st.shared.u32 [%r12], %r0;
    )";

inline std::string with_sync(const std::string& body, bool keep) {
  std::istringstream lines(body);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find_first_not_of(' ');
    if (at != std::string::npos && line[at] == '!') {
      if (!keep) continue;
      line[at] = ' ';
    }
    out += line + "\n";
  }
  return out;
}

inline std::string texts(const LaunchReport& report) {
  std::string all = report.fault;
  for (const HazardReport& hazard : report.hazards) all += "\n" + hazard.text();
  return all;
}

/// The names of the rules of all reports, in their order.
inline std::vector<std::string> rules_of(const LaunchReport& report) {
  std::vector<std::string> rules;
  for (const HazardReport& hazard : report.hazards) rules.emplace_back(row_of(hazard.rule).name);
  return rules;
}

/// The reports about a case with all its lines, and why a launch did not end. There should be none, under any
/// completion policy and schedule.
inline std::string reports_as_written(const HazardCase& test) {
  std::string all;
  for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom})
    for (const std::uint64_t seed : {1, 2, 3}) {
      const auto run = run_ptx(with_sync(test.body, true), test.shape,
                               {.hazards = true, .completion = completion, .seed = seed, .shuffle = seed > 1}, {}, 1024,
                               test.target);
      all += texts(run.report);
      if (!run.report.completed) all += "\nthe launch did not end";
    }
  return all;
}

/// The kinds that are reported without the lines marked '!'.
inline std::set<HazardKind> kinds_without_sync(const HazardCase& test, Completion completion) {
  const auto run = run_ptx(with_sync(test.body, false), test.shape, {.hazards = true, .completion = completion}, {},
                           1024, test.target);
  std::set<HazardKind> kinds;
  for (const HazardReport& report : run.report.hazards) kinds.insert(report.kind);
  return kinds;
}

/// Tests of it are in hazards_test.cpp; each list of cases has an instantiation of its own.
class Hazard : public testing::TestWithParam<HazardCase> {};

inline std::string name_of_case(const testing::TestParamInfo<HazardCase>& info) { return info.param.name; }

}  // namespace kernelwright::emulator::test
