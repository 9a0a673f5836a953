/// What a tuning log says, put together by unit: the trials with all their rounds, and what the race came to.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/json/document.h"
#include "kernelwright/runtime/tune/tuning_log.h"

namespace kernelwright::cli {

/// One config on one device, and of a GEMM one range of rows.
struct TunedUnit {
  /// One schedule, with every round that was logged of it.
  struct Entry {
    Trial trial;  // its last line
    struct Round {
      int race = 0, round = 0;  // from 0; a log may hold several races of a unit
      double mean_us = 0;
      int clock_mhz = 0;
      std::string date;
    };
    std::vector<Round> rounds;
  };
  std::vector<Entry> entries;  // in the order of the log
  std::optional<UnitOutcome> outcome;
  int races = 0;  // those that began

  const Trial& first() const { return entries.front().trial; }
  /// "mlp", "mlp, 1 to 16 rows"
  std::string name() const;
  /// The entry of that key; nullptr if there is none.
  const Entry* find(std::string_view key) const;
  /// The model's choice, and the fastest schedule that is not the model's; nullptr if the log has none that was timed.
  const Entry* model() const;
  const Entry* best() const;
  /// The fields in which the entry's schedule differs from the model's: "block_n 96, num_stages 2".
  std::string label(const Entry& entry) const;
};

struct TunedUnits {
  std::vector<TunedUnit> units;
  std::size_t lines = 0, unreadable = 0;
};
/// Reads the text of a log. A line that is no trial and no outcome is counted and passed over.
TunedUnits read_tuned_units(std::string_view log);

/// How much of a race a page shows, if it must be small.
enum class RaceDetail {
  kAll,
  kLastRounds,  // of a schedule that is out: its last round alone
  kFinalists,   // the model's choice and the schedules that were in at the end
};
JsonValue to_json(const TunedUnit& unit, RaceDetail detail);

}  // namespace kernelwright::cli
