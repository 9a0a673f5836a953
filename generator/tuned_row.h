/// A tuned row: the schedule that was measured to be fastest for one problem on one architecture, and where that is
/// known from. Rows are JSON files; configs/tuned/<arch>/ ships inside the library, and a directory may overlay it
/// (tuned_table.h). A row speaks through the Spec that it leads to and through nothing else: two rows that differ in
/// provenance alone give one kernel and one cache key.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/enums.h"
#include "kernelwright/generator/fields.h"
#include "kernelwright/generator/problem.h"
#include "kernelwright/generator/schedule.h"

namespace kernelwright {

/// One shape that was measured: medians of one launch on a cold L2.
struct TunedShape {
  AttentionShape shape;
  double us = 0, model_us = 0, runner_up_us = 0;  // this row's schedule, the model's own, the second best
  bool operator==(const TunedShape&) const = default;
};
template <class Visitor>
void visit_fields(TunedShape& measured, Visitor&& field) {
  field("shape", measured.shape, required{any{}}, "what was measured");
  field("us", measured.us, real_range{0, 1e12}, "microseconds of this row's schedule, the median");
  field("model_us", measured.model_us, real_range{0, 1e12}, "of the schedule that the planner's model chooses");
  field("runner_up_us", measured.runner_up_us, real_range{0, 1e12}, "of the second best schedule; 0: there was none");
}

/// Where a row comes from. Nothing here changes a kernel.
struct Provenance {
  std::string gpu, date, kernelwright, compiler, driver, config;
  int trials = 0;
  int clock_mhz = 0;
  double speedup = 0, speedup_low = 0;
  AttentionSchedule model, runner_up;
  std::vector<TunedShape> shapes;
  bool operator==(const Provenance&) const = default;
};
template <class Visitor>
void visit_fields(Provenance& from, Visitor&& field) {
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
}

struct TunedRow {
  std::string kind = "attention";
  Arch arch = Arch::kSm80;
  std::string tuning_class;  // tuning_class(problem): lets a reader pass a row by without reading the rest
  AttentionProblem problem;
  AttentionSchedule schedule;  // family and what was tuned; arch is left out
  Provenance provenance;
  bool operator==(const TunedRow&) const = default;
};
template <class Visitor>
void visit_fields(TunedRow& row, Visitor&& field) {
  field("kind", row.kind, required{text{16}}, "attention");
  field("arch", row.arch, required{any{}}, "architecture");
  field("class", row.tuning_class, required{text{160}}, "problems of one class may take each other's rows");
  field("problem", row.problem, required{any{}}, "the problem that was tuned");
  field("schedule", row.schedule, required{any{}}, "the fastest schedule");
  field("provenance", row.provenance, required{any{}}, "where it comes from");
}

/// What two problems must share before a row of one may serve the other: dtypes, head sizes, how keys lie, mask, score
/// modifier, scales, and whether queries are many or few. "bf16 128/128 paged causal decode".
std::string tuning_class(const AttentionProblem& problem);

/// The problem as one line of JSON, fields at their default left out: equal text for equal problems.
std::string canonical_text(const AttentionProblem& problem);
/// The schedule likewise: "{}" where every field is auto.
std::string canonical_text(const AttentionSchedule& schedule);

/// Reads a row. Throws ConfigError with every violation: as read_config(), and for a class that is not the problem's, a
/// schedule without a family or with an arch of its own, and a kind or version that this library does not read.
TunedRow read_tuned_row(std::string_view json);

/// The row as JSON that read_tuned_row() reads back to an equal value.
std::string write_tuned_row(const TunedRow& row);

}  // namespace kernelwright
