/// A config: one problem, a schedule that may leave everything to the planner, and the shapes to check, bench and tune
/// with. config_json.h reads and writes configs; docs/config.md lists every field.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "kernelwright/generator/problem/kv_write.h"
#include "kernelwright/generator/problem/moe_combine.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/route.h"
#include "kernelwright/generator/problem/row_op.h"
#include "kernelwright/generator/problem/schedule.h"

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

struct KvWriteConfig {
  std::string name;
  KvWriteProblem problem;
  KvWriteSchedule schedule;
  std::vector<KvWriteShape> shapes;
  bool operator==(const KvWriteConfig&) const = default;
};

struct RowOpConfig {
  std::string name;
  RowOpProblem problem;
  RowOpSchedule schedule;
  std::vector<RowOpShape> shapes;
  bool operator==(const RowOpConfig&) const = default;
};

struct RouteConfig {
  std::string name;
  RouteProblem problem;
  RouteSchedule schedule;
  std::vector<RouteShape> shapes;
  bool operator==(const RouteConfig&) const = default;
};

struct MoeCombineConfig {
  std::string name;
  MoeCombineProblem problem;
  MoeCombineSchedule schedule;
  std::vector<MoeCombineShape> shapes;
  bool operator==(const MoeCombineConfig&) const = default;
};

using Config = std::variant<AttentionConfig, GemmConfig, KvWriteConfig, RowOpConfig, RouteConfig, MoeCombineConfig>;

/// The parts of a kind of config, for code that is written once for all kinds.
template <class KindOfConfig>
using ProblemOf = decltype(KindOfConfig::problem);
template <class KindOfConfig>
using ScheduleOf = decltype(KindOfConfig::schedule);
template <class KindOfConfig>
using ShapeOf = typename decltype(KindOfConfig::shapes)::value_type;
/// "attention", "gemm", "kv_write", "row_op", "route", "moe_combine": the value of "kind" in a file.
template <class KindOfConfig>
inline constexpr const char* kKindWord = nullptr;
template <>
inline constexpr const char* kKindWord<AttentionConfig> = "attention";
template <>
inline constexpr const char* kKindWord<GemmConfig> = "gemm";
template <>
inline constexpr const char* kKindWord<KvWriteConfig> = "kv_write";
template <>
inline constexpr const char* kKindWord<RowOpConfig> = "row_op";
template <>
inline constexpr const char* kKindWord<RouteConfig> = "route";
template <>
inline constexpr const char* kKindWord<MoeCombineConfig> = "moe_combine";

/// The config's name, whichever kind it is.
inline const std::string& name_of(const Config& config) {
  return std::visit([](const auto& kind) -> const std::string& { return kind.name; }, config);
}

}  // namespace kernelwright
