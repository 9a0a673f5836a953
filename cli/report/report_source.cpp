#include "cli/report/report_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "cli/options.h"
#include "kernelwright/generator/error.h"

namespace kernelwright::cli {
namespace {

constexpr std::uintmax_t kMostBytes = std::uintmax_t{256} << 20;

std::string text_of(const std::string& path) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code))
    throw ConfigError(path,
                      "is no file; a log of tune, a CSV of compare_peers.py or the output of bench --json would do");
  if (std::filesystem::file_size(path, code) > kMostBytes) throw ConfigError(path, "has more than 256 MiB");
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in || !text) throw ConfigError(path, "cannot be read");
  return std::move(text).str();
}

/// Takes one line's cells off `text`. Quoted cells may hold commas, quotes and newlines.
std::vector<std::string> take_cells(std::string_view& text) {
  std::vector<std::string> cells{""};
  bool quoted = false;
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted && c == '"' && at + 1 < text.size() && text[at + 1] == '"')
      cells.back() += text[++at];
    else if (c == '"' && (quoted || cells.back().empty()))
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else if (c == '\n' && !quoted)
      break;
    else if (c != '\r' || quoted)
      cells.back() += c;
  }
  text.remove_prefix(std::min(at + 1, text.size()));
  return cells;
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool is_log(std::string_view text) {
  try {
    const JsonValue line = JsonValue::parse(take_line(text));
    return line.find("outcome") || (line.find("key") && line.find("verdict"));
  } catch (const Error&) {
    return false;
  }
}

bool is_bench(const JsonValue& json) { return json.find("launches_per_round") && json.find("rows"); }

double number_or_zero(const std::string& cell) {
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  return error == std::errc() && end == cell.data() + cell.size() ? value : 0;
}

JsonValue texts(const std::vector<std::string>& list) {
  JsonValue json = JsonValue::array();
  for (const std::string& text : list) json.push(text);
  return json;
}

/// One time for each of our arms on each row: a row is repeated for each peer.
std::vector<ReportTime> times_of(const CsvTable& table) {
  const int row = table.column({"row", "case"}), arm = table.column({"arm"}), ms = table.column({"ours_ms"});
  std::vector<ReportTime> times;
  std::set<std::string> seen;
  for (const auto& cells : table.rows) {
    const double us = number_or_zero(cells[ms]) * 1e3;
    std::string what = arm < 0 ? cells[row] : fmt::format("{}, {}", cells[row], cells[arm]);
    if (us > 0 && seen.insert(what).second) times.push_back({std::move(what), us});
  }
  return times;
}

std::vector<ReportTime> times_of(const TunedUnits& tuned) {
  std::vector<ReportTime> times;
  for (const TunedUnit& unit : tuned.units) {
    // What a server would run: the winner where it won, else the model's choice.
    const bool won = unit.outcome && unit.outcome->decision == "row";
    if (const TunedUnit::Entry* runs = won ? unit.best() : unit.model())
      for (const Trial::Time& time : runs->trial.times)
        times.push_back({fmt::format("{}, {}", unit.name(), time.shape), time.us});
  }
  return times;
}

std::vector<ReportTime> times_of_bench(const JsonValue& bench) {
  std::vector<ReportTime> times;
  for (const JsonValue& row : bench.at("/rows").elements())
    times.push_back({fmt::format("{}, {}", row.at("/config").as_string(), row.at("/shape").as_string()),
                     row.at("/median_us").as_double()});
  return times;
}

}  // namespace

int CsvTable::column(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names)
    if (const auto found = std::ranges::find(columns, name); found != columns.end())
      return static_cast<int>(found - columns.begin());
  return -1;
}

CsvTable read_csv(std::string_view text) {
  CsvTable table;
  while (!text.empty()) {
    if (text.starts_with('#')) {
      std::string_view line = take_line(text).substr(1);
      if (line.starts_with(' ')) line.remove_prefix(1);
      table.about.emplace_back(line);
      continue;
    }
    std::vector<std::string> cells = take_cells(text);
    if (cells.size() == 1 && cells[0].empty()) continue;
    if (table.columns.empty()) {
      table.columns = std::move(cells);
      continue;
    }
    if (cells.size() != table.columns.size())
      throw ConfigError("", fmt::format("row {} has {} cells, and the head names {}", table.rows.size() + 1,
                                        cells.size(), table.columns.size()));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

ReportSource read_report_source(const std::string& path) try {
  const std::string text = text_of(path);
  ReportSource source;
  source.name = std::filesystem::path(path).filename().string();
  if (is_log(text)) {
    source.tuned = read_tuned_units(text);
    if (source.tuned.units.empty()) throw ConfigError("", "has no trial");
    return source;
  }
  if (text.starts_with('{')) {
    source.kind = ReportSource::Kind::kBench;
    source.bench = JsonValue::parse(text);
    if (is_bench(source.bench)) return source;
  } else {
    source.kind = ReportSource::Kind::kPeers;
    source.peers = read_csv(text);
    const CsvTable& table = source.peers;
    if (table.column({"row", "case"}) >= 0 && table.column({"ours_ms"}) >= 0 &&
        table.column({"ratio", "speed_vs_peer"}) >= 0)
      return source;
  }
  throw ConfigError("", "is no log of tune, no CSV of compare_peers.py and no output of bench --json");
} catch (const ConfigError& error) {
  if (std::string_view(error.what()).starts_with(path)) throw;
  throw in_file(path, error);
}

JsonValue to_json(const ReportSource& source, RaceDetail detail) {
  JsonValue json = JsonValue::object();
  json.set("name", source.name);
  switch (source.kind) {
    case ReportSource::Kind::kTune: {
      JsonValue units = JsonValue::array();
      for (const TunedUnit& unit : source.tuned.units) units.push(to_json(unit, detail));
      json.set("kind", "tune").set("lines", source.tuned.lines).set("unreadable", source.tuned.unreadable);
      return json.set("units", std::move(units));
    }
    case ReportSource::Kind::kPeers: {
      JsonValue rows = JsonValue::array();
      for (const auto& cells : source.peers.rows) rows.push(texts(cells));
      json.set("kind", "peers").set("about", texts(source.peers.about)).set("columns", texts(source.peers.columns));
      return json.set("rows", std::move(rows));
    }
    case ReportSource::Kind::kBench: break;
  }
  return json.set("kind", "bench").set("bench", source.bench);
}

std::vector<ReportTime> times_of(const ReportSource& source) {
  switch (source.kind) {
    case ReportSource::Kind::kTune: return times_of(source.tuned);
    case ReportSource::Kind::kPeers: return times_of(source.peers);
    case ReportSource::Kind::kBench: break;
  }
  return times_of_bench(source.bench);
}

}  // namespace kernelwright::cli
