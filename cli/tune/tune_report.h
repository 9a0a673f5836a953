/// The decision of `tune`, and its output: the row, the table and the JSON object. This file calls no device.
#pragma once

#include <optional>
#include <string>

#include "cli/terminal.h"
#include "cli/tune/tune_trials.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/tuned/row.h"

namespace kernelwright::cli {

/// What a row records besides the measurements.
struct TuneMachine {
  std::string driver, kernelwright, date;
  bool emulator = false;
};

enum class Decision {
  kRow,      // a schedule is faster than the model's choice, beyond noise; the row has it
  kPinned,   // none is faster, but another row would apply to the problem; the row has the model's choice
  kNothing,  // none is faster, and the plan of today is the model's choice: no row is needed
  kSlowed,   // a fault of the GPU held its clock down, so the race says nothing; no row is written
  kNone,     // interrupted, or the model's choice could not be measured
};

/// `current`: the plan for the problem today, with all rows.
template <class KindOfConfig>
Decision decide(const TuneResult<KindOfConfig>& result, const PlanOf<KindOfConfig>& current);

/// The row of kRow and kPinned, and the name of its file. That is the config's name, then the device's class unless it
/// stands for its architecture, then for a GEMM the most rows that the row is for.
template <class KindOfConfig>
TunedRowOf<KindOfConfig> row_of(const TuneResult<KindOfConfig>& result, Decision decision, const TuneMachine& machine);
std::string row_name(const TuneResult<AttentionConfig>& result);
std::string row_name(const TuneResult<GemmConfig>& result);
std::string row_name(const TunedRow& row);
std::string row_name(const GemmTunedRow& row);

/// What the log says of the race once it has ended.
template <class KindOfConfig>
UnitOutcome outcome_of(const TuneResult<KindOfConfig>& result, Decision decision, const TuneMachine& machine);

/// The best few of the race with their times, the refused schedules with reasons, and the conclusion. `written`: the
/// row's path. A schedule is described by the fields in which it differs from the model's choice: "block_n 96,
/// num_stages 2".
template <class KindOfConfig>
std::string report_text(const TuneResult<KindOfConfig>& result, Decision decision, const std::string& written,
                        const TuneMachine& machine, const Style& style);
template <class KindOfConfig>
JsonValue report_json(const TuneResult<KindOfConfig>& result, Decision decision, const std::string& written,
                      const TuneMachine& machine);

}  // namespace kernelwright::cli
