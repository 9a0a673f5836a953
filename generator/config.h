/// A config: one problem, a schedule that may leave everything to the planner, and the shapes to check, bench and tune
/// with. config_json.h reads and writes them; docs/config.md lists every field.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "kernelwright/generator/problem.h"
#include "kernelwright/generator/schedule.h"

namespace kernelwright {

/// `name` is [A-Za-z0-9._-]{1,64}: it becomes part of file names and of kernel entries.
struct AttentionConfig {
  std::string name;
  AttentionProblem problem;
  AttentionSchedule schedule;
  std::vector<AttentionShape> shapes;
  bool operator==(const AttentionConfig&) const = default;
};

struct GemmConfig {
  std::string name;
  GemmProblem problem;
  GemmSchedule schedule;
  std::vector<GemmShape> shapes;
  bool operator==(const GemmConfig&) const = default;
};

using Config = std::variant<AttentionConfig, GemmConfig>;

/// The config's name, whichever kind it is.
inline const std::string& name_of(const Config& config) {
  return std::visit([](const auto& kind) -> const std::string& { return kind.name; }, config);
}

}  // namespace kernelwright
