/// The report: one HTML file that needs no network. Its tables are plain HTML; its script draws the charts from the
/// JSON that the page carries.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/report/report_source.h"

namespace kernelwright::cli {

/// The page stays below 2 MB. Races are shown in less detail where they would not fit.
inline constexpr std::size_t kMostPageBytes = 2'000'000;

/// `compare`: the first two sources, A and B, are compared, row by row. Throws ConfigError if the page would be too
/// large in any detail, or if A and B share no row.
std::string report_page(const std::vector<ReportSource>& sources, bool compare);

/// `text` fit for HTML: its signs are escaped. Bytes that are not UTF-8, and control characters, become U+FFFD.
std::string html_text(std::string_view text);
/// JSON fit for a <script> element: no "<" stands in it.
std::string script_json(const JsonValue& json);

}  // namespace kernelwright::cli
