/// A tuned row: the schedule that was measured to be fastest for one problem on one class of devices, and where that is
/// known from. Rows are JSON files; configs/tuned/<arch>/ ships inside the library, and a directory may overlay it
/// (table.h). A row speaks through the Spec that it leads to and through nothing else: two rows that differ in
/// provenance alone give one kernel and one cache key.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/fields.h"

namespace kernelwright {

/// One shape that was measured: medians of one launch on a cold L2.
template <class KindOfConfig>
struct TunedShape {
  ShapeOf<KindOfConfig> shape;
  double us = 0, model_us = 0, runner_up_us = 0;  // this row's schedule, the model's own, the second best
  bool operator==(const TunedShape&) const = default;
};
template <class KindOfConfig, class Visitor>
void visit_fields(TunedShape<KindOfConfig>& measured, Visitor&& field) {
  field("shape", measured.shape, required{any{}}, "what was measured");
  field("us", measured.us, real_range{0, 1e12}, "microseconds of this row's schedule, the median");
  field("model_us", measured.model_us, real_range{0, 1e12}, "of the schedule that the planner's model chooses");
  field("runner_up_us", measured.runner_up_us, real_range{0, 1e12}, "of the second best schedule; 0: there was none");
}

/// The id of a GPU that nothing tells from others: on the emulator, and where NVML is missing.
inline constexpr const char* kUnknownGpu = "unknown";

/// One GPU on which the race was run.
struct MeasuredGpu {
  std::string id;      // 16 digits that tell it from others, and do not name it
  int clock_mhz = 0;   // of the SMs during the race, the median; 0: not known
  std::string limits;  // what held the clock down: "power cap"
  bool operator==(const MeasuredGpu&) const = default;
};
template <class Visitor>
void visit_fields(MeasuredGpu& gpu, Visitor&& field) {
  field("id", gpu.id, required{text{64}}, "tells it from other GPUs");
  field("clock_mhz", gpu.clock_mhz, range{0, 1 << 20}, "SM clock during the race, the median; 0: not known");
  field("limits", gpu.limits, text{160}, "what held the clock down, as NVML says");
}

/// Where a row comes from. Nothing here changes a kernel.
template <class KindOfConfig>
struct Provenance {
  std::string gpu, date, kernelwright, compiler, driver, config;
  int trials = 0;
  int clock_mhz = 0;
  double speedup = 0, speedup_low = 0;
  ScheduleOf<KindOfConfig> model, runner_up;
  std::vector<TunedShape<KindOfConfig>> shapes;
  std::vector<MeasuredGpu> gpus;
  bool confirmed = false;  // raced again on another GPU, with the same winner; the speedups are the lesser ones
  bool operator==(const Provenance&) const = default;
};
template <class KindOfConfig, class Visitor>
void visit_fields(Provenance<KindOfConfig>& from, Visitor&& field) {
  field("gpu", from.gpu, required{text{128}}, "the device that it was measured on");
  field("date", from.date, required{text{10}}, "YYYY-MM-DD, UTC");
  field("kernelwright", from.kernelwright, text{64}, "the project's version");
  field("compiler", from.compiler, text{256}, "what compiled the kernels");
  field("driver", from.driver, text{64}, "CUDA version of the driver");
  field("config", from.config, text{64}, "the config that was tuned");
  field("trials", from.trials, range{0, 1 << 20}, "schedules that were compiled and measured");
  field("clock_mhz", from.clock_mhz, range{0, 1 << 20}, "SM clock while the last round was measured; 0: not known");
  field("speedup", from.speedup, real_range{0, 1e9}, "time of the model's choice over this row's, geometric mean");
  field("speedup_low", from.speedup_low, real_range{0, 1e9}, "lower end of its 95 % interval");
  field("model", from.model, any{}, "the schedule that the model chose then");
  field("runner_up", from.runner_up, any{}, "the second best schedule");
  field("shapes", from.shapes, any{}, "what was measured");
  field("gpus", from.gpus, any{}, "the GPUs on which it was raced");
  field("confirmed", from.confirmed, any{}, "whether it won on a second GPU too");
}

/// Rows of the result, from `least` to `most`.
struct RowRange {
  int least = 1, most = 1;
  bool operator==(const RowRange&) const = default;
  bool contains(int rows) const { return least <= rows && rows <= most; }
};
template <class Visitor>
void visit_fields(RowRange& rows, Visitor&& field) {
  field("least", rows.least, required{range{1, 1 << 24}}, "the fewest");
  field("most", rows.most, required{range{1, 1 << 24}}, "the most");
}

/// Which launches of its problem a row speaks for. One of attention speaks for all.
template <class KindOfConfig>
struct TunedFor {
  bool operator==(const TunedFor&) const = default;
};
/// A GEMM's best tile turns with the rows, and with how many SMs share the tiles.
template <>
struct TunedFor<GemmConfig> {
  int num_sms = 0;
  RowRange rows;
  bool operator==(const TunedFor&) const = default;
};

template <class KindOfConfig>
struct TunedRowOf {
  std::string kind = kKindWord<KindOfConfig>;
  Arch arch = Arch::kSm80;
  DeviceClass device = DeviceClass::kA100;  // that it was measured on; arch_of(device) is `arch`
  std::string tuning_class;  // tuning_class(problem): lets a reader pass a row by without reading the rest
  ProblemOf<KindOfConfig> problem;
  TunedFor<KindOfConfig> launches;
  ScheduleOf<KindOfConfig> schedule;  // family and what was tuned; arch is left out
  Provenance<KindOfConfig> provenance;
  bool operator==(const TunedRowOf&) const = default;
};
template <class KindOfConfig, class Visitor>
void visit_fields(TunedRowOf<KindOfConfig>& row, Visitor&& field) {
  field("kind", row.kind, required{text{16}}, "attention or gemm");
  field("arch", row.arch, required{any{}}, "architecture");
  field("device", row.device, required{any{}}, "the class of devices that it was measured on");
  field("class", row.tuning_class, required{text{160}}, "problems of one class may take each other's rows");
  field("problem", row.problem, required{any{}}, "the problem that was tuned");
  if constexpr (std::is_same_v<KindOfConfig, GemmConfig>) {
    field("num_sms", row.launches.num_sms, required{range{1, 1 << 16}}, "SMs of the device");
    field("rows", row.launches.rows, required{any{}}, "rows of the result that it is for");
  }
  field("schedule", row.schedule, required{any{}}, "the fastest schedule");
  field("provenance", row.provenance, required{any{}}, "where it comes from");
}

using TunedRow = TunedRowOf<AttentionConfig>;
using GemmTunedRow = TunedRowOf<GemmConfig>;
using AnyTunedRow = std::variant<TunedRow, GemmTunedRow>;

/// What two problems must share before a row of one may serve the other: dtypes, head sizes, layout of keys, mask,
/// score modifier, scales, and whether queries are many. "bf16 128/128 paged causal decode". For a GEMM it is
/// everything but the epilogue, "gemm bf16 nt 4096 x 14336": its rows serve the very problem alone.
std::string tuning_class(const AttentionProblem& problem);
std::string tuning_class(const GemmProblem& problem);

/// The problem as one line of JSON, fields at their default left out: equal text for equal problems.
std::string canonical_text(const AttentionProblem& problem);
std::string canonical_text(const GemmProblem& problem);
/// The schedule likewise: "{}" where every field is auto.
std::string canonical_text(const AttentionSchedule& schedule);
std::string canonical_text(const GemmSchedule& schedule);

/// Reads a row of either kind. Throws ConfigError with every violation, as read_config() does. These are violations
/// too: a class that is not the problem's, a device of another architecture, and an empty range of rows. So is a
/// schedule without a family or with an arch of its own, and a kind or version that this library does not read.
AnyTunedRow read_tuned_row(std::string_view json);

/// The row as JSON that read_tuned_row() reads back to an equal value.
std::string write_tuned_row(const TunedRow& row);
std::string write_tuned_row(const GemmTunedRow& row);

}  // namespace kernelwright
