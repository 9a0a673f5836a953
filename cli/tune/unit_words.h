/// The words for a unit and its schedules in tables, logs and pages.
#pragma once

#include <optional>
#include <string>

#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/tuned/row.h"

namespace kernelwright::cli {

/// The range of rows that a row speaks for; of attention there is none.
std::optional<RowRange> range_of(const TunedFor<AttentionConfig>& launches);
std::optional<RowRange> range_of(const TunedFor<GemmConfig>& launches);

/// "mlp", "mlp, 17 to 32 rows"
std::string unit_name(const std::string& config, const std::optional<RowRange>& rows);

/// The members of one schedule that the other lacks or has with another value: "block_n 96, num_stages 2".
std::string differing_fields(const JsonValue& schedule, const JsonValue& base);

/// "2026-11-21T12:00:00Z"
std::string utc_now();

}  // namespace kernelwright::cli
