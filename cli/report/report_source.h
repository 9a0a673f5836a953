/// The files that a report is made of: logs of tune, CSV files of bench/compare_peers.py, output of bench --json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/report/tuned_units.h"
#include "kernelwright/generator/json/document.h"

namespace kernelwright::cli {

/// Lines of a CSV, as text: no number is read or rounded.
struct CsvTable {
  std::vector<std::string> about;  // the comment lines, without "# "
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // each as long as `columns`
  /// The column that has one of those names, as in "row" or, in older files, "case"; -1 if none has.
  int column(std::initializer_list<std::string_view> names) const;
};
/// Reads RFC 4180; a line that starts with # is a comment. Throws ConfigError if a row has another number of cells than
/// the head.
CsvTable read_csv(std::string_view text);

struct ReportSource {
  enum class Kind { kTune, kPeers, kBench };
  std::string name;  // of the file, without its folder
  Kind kind = Kind::kTune;
  TunedUnits tuned;  // kTune
  CsvTable peers;    // kPeers
  JsonValue bench;   // kBench: the whole object
};

/// Reads a file of any of the kinds. Throws ConfigError, with the path in front, for a file that is none of them.
ReportSource read_report_source(const std::string& path);

/// What the page's script reads of the source.
JsonValue to_json(const ReportSource& source, RaceDetail detail);

/// A time that two sources may share: of one row, or of one shape of a unit.
struct ReportTime {
  std::string what;
  double us = 0;
};
std::vector<ReportTime> times_of(const ReportSource& source);

}  // namespace kernelwright::cli
