/// A list of units to tune, which several machines share: each takes its part. A unit is a problem and, of a GEMM, a
/// range of rows.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/tuned/row.h"

namespace kernelwright::cli {

struct ListedUnit {
  std::string config;   // the file: a config, or a plan; a relative path begins at the list's folder
  std::string problem;  // the config's name in it
  std::optional<RowRange> rows;
  bool operator==(const ListedUnit&) const = default;
};

/// {"version": 1, "units": [{"config": "plan.json", "problem": "qkv", "rows": {"least": 1, "most": 16}}, ...]}
JsonValue to_json(const std::vector<ListedUnit>& units);

/// Reads such a file, and makes its paths relative to the current folder. Throws ConfigError, with the file's path in
/// front, for one that is none, lists a unit twice or has no units.
std::vector<ListedUnit> read_unit_list(const std::string& path);

/// "i/n": each n-th unit from unit i on, from 0. Every unit is in one shard. "" is all of them. Throws ConfigError.
std::vector<ListedUnit> shard_of(const std::vector<ListedUnit>& units, std::string_view shard);

}  // namespace kernelwright::cli
