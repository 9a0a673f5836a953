/// Configs, as what tune has to do: groups of shapes, each of which is a unit that may be tuned by itself.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/options.h"
#include "cli/targets.h"
#include "cli/tune/unit_list.h"
#include "kernelwright/generator/tuned/row.h"

namespace kernelwright::cli {

/// What one config is tuned on: groups of shapes, with a row for each group, and shapes for the check. A group is a
/// unit.
template <class KindOfConfig>
struct TuneWork {
  const NamedConfig* named;
  std::vector<std::vector<ShapeOf<KindOfConfig>>> groups;
  std::vector<ShapeOf<KindOfConfig>> checks;
};
using AnyWork = std::variant<TuneWork<AttentionConfig>, TuneWork<GemmConfig>>;

/// Throws ConfigError for a config that fixes what tune is to choose, and for one without rows to measure.
template <class KindOfConfig>
TuneWork<KindOfConfig> work_of(const NamedConfig& named, const KindOfConfig& config, const Options& options);

/// The range of rows of a group; of attention there is none.
std::optional<RowRange> rows_of(const AttentionConfig& config, const std::vector<AttentionShape>& shapes);
std::optional<RowRange> rows_of(const GemmConfig& config, const std::vector<GemmShape>& shapes);

/// Every unit of the work. Paths are absolute, so that the list may lie anywhere.
std::vector<ListedUnit> units_of(const std::vector<AnyWork>& work);

/// Those groups of the work that `units` lists, each by itself. Throws ConfigError for a unit that the configs do not
/// have.
std::vector<AnyWork> listed_work(const std::vector<AnyWork>& work, const std::vector<ListedUnit>& units);

/// The files that the units name, each once.
std::vector<std::string> files_of(const std::vector<ListedUnit>& units);

}  // namespace kernelwright::cli
