#include "cli/tune/unit_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/options.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/message.h"

namespace kernelwright::cli {
namespace {

ListedUnit read_unit(const JsonValue& json, const std::string& at) {
  for (const auto& [name, value] : json.members())
    if (name != "config" && name != "problem" && name != "rows")
      throw ConfigError(pointer_to(at, name), "is no field of a unit; config, problem and rows are");
  ListedUnit unit{json.at("/config").as_string(), json.at("/problem").as_string(), std::nullopt};
  if (const JsonValue* rows = json.find("rows"))
    unit.rows = RowRange{static_cast<int>(rows->at("/least").as_int()), static_cast<int>(rows->at("/most").as_int())};
  return unit;
}

std::optional<std::size_t> whole(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

}  // namespace

JsonValue to_json(const std::vector<ListedUnit>& units) {
  JsonValue list = JsonValue::array();
  for (const ListedUnit& unit : units) {
    JsonValue json = JsonValue::object().set("config", unit.config).set("problem", unit.problem);
    if (unit.rows) json.set("rows", JsonValue::object().set("least", unit.rows->least).set("most", unit.rows->most));
    list.push(std::move(json));
  }
  return JsonValue::object().set("version", 1).set("units", std::move(list));
}

std::vector<ListedUnit> read_unit_list(const std::string& path) try {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) throw ConfigError("", "cannot be read; a file that tune --list-units wrote would do");
  const JsonValue json = JsonValue::parse(text.str());
  if (json.at("/version").as_int() != 1) throw ConfigError("/version", "is not 1");
  std::vector<ListedUnit> units;
  for (const JsonValue& element : json.at("/units").elements()) {
    const std::string at = pointer_to("/units", units.size());
    ListedUnit unit = read_unit(element, at);
    if (std::filesystem::path(unit.config).is_relative())
      unit.config = (std::filesystem::path(path).parent_path() / unit.config).string();
    if (std::ranges::find(units, unit) != units.end()) throw ConfigError(at, "is listed twice");
    units.push_back(std::move(unit));
  }
  if (units.empty()) throw ConfigError("/units", "is empty; a unit to tune would do");
  return units;
} catch (const ConfigError& error) {
  throw in_file(path, error);
} catch (const Error& error) {
  throw in_file(path, ConfigError("", error.what()));
}

std::vector<ListedUnit> shard_of(const std::vector<ListedUnit>& units, std::string_view shard) {
  if (shard.empty()) return units;
  const std::size_t slash = std::min(shard.find('/'), shard.size());
  const auto i = whole(shard.substr(0, slash)), n = whole(shard.substr(std::min(slash + 1, shard.size())));
  if (!i || !n || *i >= *n)
    throw ConfigError("--shard",
                      fmt::format("{} is no shard; i/n with i < n would do, as 0/4", quoted_for_message(shard)));
  std::vector<ListedUnit> taken;
  for (std::size_t at = *i; at < units.size(); at += *n) taken.push_back(units[at]);
  return taken;
}

}  // namespace kernelwright::cli
