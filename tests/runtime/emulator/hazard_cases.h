/// Small kernels with the synchronisation that they need on lines that begin with '!', for the checker's tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>

#include "runtime/emulator/ptx_kernel.h"

namespace kernelwright::emulator::test {

struct HazardCase {
  const char* name;
  HazardKind kind;
  std::string body;
  LaunchShape shape = {.block = {64}, .dynamic_shared_bytes = 8192};
  std::optional<HazardKind> also = {};  // what the same mistake is called where it ends the launch
  const char* target = "sm_90a";
};

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

/// With all its lines: nothing to report, under every completion policy and several schedules.
inline void expect_clean(const HazardCase& test) {
  for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom})
    for (const std::uint64_t seed : {1, 2, 3}) {
      const auto run = run_ptx(with_sync(test.body, true), test.shape,
                               {.hazards = true, .completion = completion, .seed = seed, .shuffle = seed > 1}, {}, 1024,
                               test.target);
      EXPECT_TRUE(run.report.completed);
      EXPECT_THAT(texts(run.report), testing::IsEmpty());
    }
}

/// Without the lines marked '!': the checker names what is missing.
inline void expect_found(const HazardCase& test) {
  for (const Completion completion : {Completion::kEager, Completion::kLazy}) {
    const auto run = run_ptx(with_sync(test.body, false), test.shape, {.hazards = true, .completion = completion}, {},
                             1024, test.target);
    const bool found =
        std::any_of(run.report.hazards.begin(), run.report.hazards.end(),
                    [&](const HazardReport& report) { return report.kind == test.kind || report.kind == test.also; });
    EXPECT_TRUE(found) << "looked for: " << name_of(test.kind) << "; found: " << texts(run.report);
  }
}

}  // namespace kernelwright::emulator::test
