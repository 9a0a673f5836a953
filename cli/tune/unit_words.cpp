#include "cli/tune/unit_words.h"

#include <fmt/format.h>

#include <ctime>

namespace kernelwright::cli {

std::optional<RowRange> range_of(const TunedFor<AttentionConfig>&) { return std::nullopt; }
std::optional<RowRange> range_of(const TunedFor<GemmConfig>& launches) { return launches.rows; }

std::string unit_name(const std::string& config, const std::optional<RowRange>& rows) {
  return rows ? fmt::format("{}, {} to {} rows", config, rows->least, rows->most) : config;
}

std::string differing_fields(const JsonValue& schedule, const JsonValue& base) {
  std::string text;
  for (const auto& [name, value] : schedule.members()) {
    if (const JsonValue* there = base.find(name); there && *there == value) continue;
    const std::string word = value.is_string() ? value.as_string() : value.dump(-1);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, word);
  }
  return text;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec);
}

}  // namespace kernelwright::cli
