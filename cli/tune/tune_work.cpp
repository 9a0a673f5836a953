#include "cli/tune/tune_work.h"

#include <algorithm>
#include <filesystem>

#include "cli/tune/tune_trials.h"
#include "cli/tune/unit_words.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/kernels.h"

namespace kernelwright::cli {
namespace {

/// A row is for its problem, whichever config asks: fields that a config fixes are not part of the row.
template <class KindOfConfig>
void require_open_schedule(const NamedConfig& named, const KindOfConfig& config) {
  auto schedule = config.schedule;
  std::vector<Violation> violations;
  visit_fields(schedule, [&](const char* name, const auto& value, const auto&, const char*) {
    if (value.is_auto() || std::string_view(name) == "arch" || std::string_view(name) == "family") return;
    violations.push_back(
        {std::string("/schedule/") + name, "is fixed, and tune is there to choose it; \"auto\" would do"});
  });
  if (!violations.empty()) throw in_file(named.path, ConfigError(std::move(violations)));
}

/// The path of the file that a config was read from: of a plan's problem, the plan's.
std::string file_of(const NamedConfig& named) { return named.path.substr(0, named.path.rfind('#')); }

}  // namespace

template <class KindOfConfig>
TuneWork<KindOfConfig> work_of(const NamedConfig& named, const KindOfConfig& config, const Options& options) {
  require_valid(named, std::nullopt);
  require_open_schedule(named, config);
  TuneWork<KindOfConfig> work{&named, groups_of(config, choose_shapes(named.path, config, options.shapes, false)),
                              choose_shapes(named.path, config, {}, true)};
  if (work.groups.empty()) throw in_file(named.path, ConfigError("/shapes", "have no rows; one to measure would do"));
  return work;
}
template TuneWork<AttentionConfig> work_of(const NamedConfig&, const AttentionConfig&, const Options&);
template TuneWork<GemmConfig> work_of(const NamedConfig&, const GemmConfig&, const Options&);

std::optional<RowRange> rows_of(const AttentionConfig&, const std::vector<AttentionShape>&) { return std::nullopt; }
std::optional<RowRange> rows_of(const GemmConfig& config, const std::vector<GemmShape>& shapes) {
  return gemm_row_range(planned_rows(config.problem, shapes.at(0)));
}

std::vector<ListedUnit> units_of(const std::vector<AnyWork>& work) {
  std::vector<ListedUnit> units;
  for (const AnyWork& item : work)
    std::visit(
        [&]<class KindOfConfig>(const TuneWork<KindOfConfig>& one) {
          for (const auto& shapes : one.groups)
            units.push_back({std::filesystem::absolute(file_of(*one.named)).string(), one.named->name(),
                             rows_of(std::get<KindOfConfig>(one.named->config), shapes)});
        },
        item);
  return units;
}

std::vector<AnyWork> listed_work(const std::vector<AnyWork>& work, const std::vector<ListedUnit>& units) {
  std::vector<AnyWork> chosen;
  for (const ListedUnit& unit : units) {
    const std::size_t before = chosen.size();
    for (const AnyWork& item : work)
      std::visit(
          [&]<class KindOfConfig>(const TuneWork<KindOfConfig>& one) {
            if (file_of(*one.named) != unit.config || one.named->name() != unit.problem) return;
            for (const auto& shapes : one.groups)
              if (rows_of(std::get<KindOfConfig>(one.named->config), shapes) == unit.rows)
                chosen.push_back(TuneWork<KindOfConfig>{one.named, {shapes}, one.checks});
          },
          item);
    if (chosen.size() == before)
      throw ConfigError(unit.config, unit_name(unit.problem, unit.rows) +
                                         ": the file has no such unit; tune "
                                         "--list-units names those that it has");
  }
  return chosen;
}

std::vector<std::string> files_of(const std::vector<ListedUnit>& units) {
  std::vector<std::string> files;
  for (const ListedUnit& unit : units)
    if (std::ranges::find(files, unit.config) == files.end()) files.push_back(unit.config);
  return files;
}

}  // namespace kernelwright::cli
