#include "cli/report/report_page.h"

#include <fmt/format.h>

#include <map>
#include <optional>

#include "cli/terminal.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/message.h"

namespace kernelwright::detail {
struct EmbeddedText {
  const char *path, *text;
};
extern const EmbeddedText embedded_report[];
extern const std::size_t embedded_report_count;
}  // namespace kernelwright::detail

namespace kernelwright::cli {
namespace {

using Cells = std::vector<std::string>;

std::string_view embedded(std::string_view path) {
  for (std::size_t i = 0; i < detail::embedded_report_count; ++i)
    if (detail::embedded_report[i].path == path) return detail::embedded_report[i].text;
  throw Error(fmt::format("the library has no {}", path));
}

/// Replaces each {{name}} of the template. Values are not looked into.
std::string filled(std::string_view text, const std::map<std::string, std::string, std::less<>>& values) {
  std::string out;
  while (true) {
    const std::size_t begin = text.find("{{"), end = text.find("}}", begin);
    if (begin == text.npos || end == text.npos) return out.append(text);
    out.append(text.substr(0, begin)).append(values.find(text.substr(begin + 2, end - begin - 2))->second);
    text.remove_prefix(end + 2);
  }
}

/// A plain table. Cells that start with a digit are aligned to the right by the style sheet.
std::string html_table(const Cells& head, const std::vector<Cells>& rows) {
  std::string out = "<div class=\"wide\"><table><thead><tr>";
  for (const std::string& cell : head) out += "<th scope=\"col\">" + html_text(cell);
  out += "</thead><tbody>\n";
  for (const Cells& row : rows) {
    out += "<tr>";
    for (const std::string& cell : row) {
      const bool number = !cell.empty() && cell[0] >= '0' && cell[0] <= '9';
      out += (number ? "<td class=\"number\">" : "<td>") + html_text(cell);
    }
    out += "\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string folded(const std::string& summary, const std::string& body) {
  return "<details><summary>" + html_text(summary) + "</summary>\n" + body + "</details>\n";
}

std::string clocks_text(const UnitOutcome& outcome) {
  if (!outcome.clock_median_mhz) return "unknown";
  return fmt::format("{} / {} / {}", outcome.clock_least_mhz, outcome.clock_median_mhz, outcome.clock_most_mhz);
}

std::string ratio_text(const Ratio& ratio) {
  if (ratio.pairs == 0) return "";
  if (ratio.low == 0) return fmt::format("{:.3f}", ratio.median);
  return fmt::format("{:.3f} ({:.3f} .. {:.3f})", ratio.median, ratio.low, ratio.high);
}

std::string decision_text(const std::optional<UnitOutcome>& outcome) {
  if (!outcome) return "no outcome";
  if (outcome->decision == "row") return "a row";
  if (outcome->decision == "pinned") return "the model, pinned";
  if (outcome->decision == "model") return "the model";
  if (outcome->decision == "slowed") return "none: the GPU was slowed down";
  return "none";
}

std::string tables_of(const TunedUnits& tuned) {
  std::vector<Cells> units, from, refused;
  for (const TunedUnit& unit : tuned.units) {
    const TunedUnit::Entry *best = unit.best(), *model = unit.model();
    const auto mean = [](const TunedUnit::Entry* entry) {
      return entry && entry->trial.mean_us > 0 ? fmt::format("{:.2f}", entry->trial.mean_us) : "";
    };
    units.push_back({unit.name(), decision_text(unit.outcome),
                     unit.outcome ? ratio_text(unit.outcome->best_over_model) : "", mean(model), mean(best),
                     best ? unit.label(*best) : "", best ? std::to_string(best->trial.registers) : "",
                     std::to_string(unit.entries.size())});
    if (const auto& outcome = unit.outcome)
      from.push_back({unit.name(), outcome->device, outcome->gpu_id.empty() ? "unknown" : outcome->gpu_id,
                      clocks_text(*outcome), cli::listed(outcome->limits), outcome->compiler, outcome->driver,
                      outcome->kernelwright, fmt::format("{:.0f}", outcome->seconds), outcome->date});
    for (const TunedUnit::Entry& entry : unit.entries)
      if (!entry.trial.reason.empty())
        refused.push_back(
            {unit.name(), unit.label(entry), std::string(to_string(entry.trial.verdict)), entry.trial.reason});
  }
  std::string out = html_table({"unit", "what runs now", "speed of the best, over the model's choice",
                                "model's choice, us", "best, us", "best schedule", "registers", "schedules"},
                               units);
  if (!from.empty())
    out += "<h3>Where the numbers come from</h3>\n" +
           html_table({"unit", "device", "GPU", "SM MHz: least / median / most", "held down by", "compiler", "driver",
                       "kernelwright", "seconds", "date"},
                      from);
  if (!refused.empty())
    out += folded(fmt::format("{} schedules were refused", refused.size()),
                  html_table({"unit", "schedule", "verdict", "reason"}, refused));
  return out;
}

std::string tables_of(const CsvTable& table) {
  std::string out = "<ul class=\"about\">";
  for (const std::string& line : table.about) out += "<li>" + html_text(line);
  return out + "</ul>\n" + folded(fmt::format("All {} rows", table.rows.size()), html_table(table.columns, table.rows));
}

std::string tables_of_bench(const JsonValue& bench) {
  std::vector<Cells> rows;
  const auto text = [](const JsonValue& row, std::string_view name) {
    const JsonValue* value = row.find(name);
    if (!value) return std::string();
    return value->is_string() ? value->as_string() : value->dump(-1);
  };
  for (const JsonValue& row : bench.at("/rows").elements())
    rows.push_back({text(row, "config"), text(row, "shape"), text(row, "median_us"), text(row, "p10_us"),
                    text(row, "p90_us"), text(row, "bound_us"), text(row, "tflops"), text(row, "registers")});
  return html_table({"config", "shape", "median, us", "10 %, us", "90 %, us", "at best, us", "TFLOP/s", "registers"},
                    rows);
}

std::string tables_of(const ReportSource& source) {
  switch (source.kind) {
    case ReportSource::Kind::kTune: return tables_of(source.tuned);
    case ReportSource::Kind::kPeers: return tables_of(source.peers);
    case ReportSource::Kind::kBench: break;
  }
  return tables_of_bench(source.bench);
}

/// The rows that A and B share, in A's order, with both times; how many rows only one of them has.
JsonValue comparison(const ReportSource& a, const ReportSource& b) {
  const std::vector<ReportTime> times_a = times_of(a), times_b = times_of(b);
  std::map<std::string_view, double> of_b;
  for (const ReportTime& time : times_b) of_b[time.what] = time.us;
  JsonValue rows = JsonValue::array();
  for (const ReportTime& time : times_a)
    if (const auto found = of_b.find(time.what); found != of_b.end())
      rows.push(JsonValue::object().set("what", time.what).set("a_us", time.us).set("b_us", found->second));
  const std::size_t shared = rows.elements().size();
  if (shared == 0)
    throw ConfigError("--compare",
                      fmt::format("{} and {} share no row; two runs of one thing would do", a.name, b.name));
  return JsonValue::object()
      .set("a", a.name)
      .set("b", b.name)
      .set("only_a", times_a.size() - shared)
      .set("only_b", times_b.size() - shared)
      .set("rows", std::move(rows));
}

std::string comparison_table(const JsonValue& compared) {
  std::vector<Cells> rows;
  for (const JsonValue& row : compared.at("/rows").elements()) {
    const double a = row.at("/a_us").as_double(), b = row.at("/b_us").as_double();
    rows.push_back({row.at("/what").as_string(), fmt::format("{:.2f}", a), fmt::format("{:.2f}", b),
                    b > 0 ? fmt::format("{:.3f}", a / b) : ""});
  }
  return folded(fmt::format("All {} rows", rows.size()),
                html_table({"row", "A, us", "B, us", "speed of B over A"}, rows));
}

std::string page_of(const std::vector<ReportSource>& sources, const std::optional<JsonValue>& compared,
                    RaceDetail detail) {
  JsonValue list = JsonValue::array();
  std::string sections;
  if (compared)
    sections += "<section id=\"compare\"><h2>B against A</h2>\n<div class=\"charts\"></div>\n" +
                comparison_table(*compared) + "</section>\n";
  for (std::size_t i = 0; i < sources.size(); ++i) {
    list.push(to_json(sources[i], detail));
    sections += fmt::format("<section id=\"source-{}\"><h2>{}</h2>\n<div class=\"charts\"></div>\n{}</section>\n", i,
                            html_text(sources[i].name), tables_of(sources[i]));
  }
  JsonValue data = JsonValue::object();
  data.set("kernelwright", KERNELWRIGHT_VERSION).set("races_in_full", detail == RaceDetail::kAll);
  data.set("compare", compared.value_or(JsonValue())).set("sources", std::move(list));
  std::string title = compared ? "B against A" : sources[0].name;
  return filled(embedded("page.html"),
                {{"title", html_text(title)},
                 {"style", std::string(embedded("page.css"))},
                 {"script", std::string(embedded("charts.js")) + std::string(embedded("page.js"))},
                 {"sections", std::move(sections)},
                 {"version", KERNELWRIGHT_VERSION},
                 {"data", script_json(data)}});
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const unsigned char c = static_cast<unsigned char>(text[0]);
    const bool is_control = length == 1 && (c < 0x20 || c == 0x7f);
    if (length == 0 || is_control)
      out += "\xef\xbf\xbd";
    else if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

std::string script_json(const JsonValue& json) {
  std::string out;
  for (const char c : json.dump(-1)) c == '<' ? out += "\\u003c" : out += c;
  return out;
}

std::string report_page(const std::vector<ReportSource>& sources, bool compare) {
  std::optional<JsonValue> compared;
  if (compare) compared = comparison(sources.at(0), sources.at(1));
  std::string page;
  for (const RaceDetail detail : {RaceDetail::kAll, RaceDetail::kLastRounds, RaceDetail::kFinalists}) {
    page = page_of(sources, compared, detail);
    if (page.size() < kMostPageBytes) return page;
  }
  throw ConfigError("LOG", fmt::format("the page would have {} bytes, and the most are {}; fewer files would do",
                                       page.size(), kMostPageBytes));
}

}  // namespace kernelwright::cli
