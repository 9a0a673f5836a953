#include "kernelwright/runtime/engine/prometheus.h"

#include <fmt/format.h>

#include <cmath>

namespace kernelwright {
namespace {

/// Writes a backslash and a line feed as two characters; in a label's value, a quote too.
std::string escaped(std::string_view text, bool quote) {
  std::string out;
  for (const char each : text) {
    if (each == '\\')
      out += "\\\\";
    else if (each == '\n')
      out += "\\n";
    else if (each == '"' && quote)
      out += "\\\"";
    else
      out += each;
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

void PrometheusText::begin(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, escaped(help, false), type);
}

void PrometheusText::line(std::string_view suffix, const Labels& labels, const std::string& value) {
  text_ += name_;
  text_ += suffix;
  const char* before = "{";
  for (const auto& [label, of] : labels) {
    text_ += fmt::format("{}{}=\"{}\"", before, label, escaped(of, true));
    before = ",";
  }
  if (!labels.empty()) text_ += '}';
  text_ += ' ' + value + '\n';
}

void PrometheusText::sample(std::uint64_t value, const Labels& labels) { line("", labels, fmt::format("{}", value)); }
void PrometheusText::sample(double value, const Labels& labels) { line("", labels, number(value)); }

void PrometheusText::histogram(std::string_view name, std::string_view help, const LatencySnapshot& latency) {
  begin(name, "histogram", help);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < latency.buckets.size(); ++i) {
    below += latency.buckets[i];
    const bool last = i == latency.bounds_s.size();
    line("_bucket", {{"le", last ? "+Inf" : number(latency.bounds_s[i])}}, fmt::format("{}", below));
  }
  line("_sum", {}, number(latency.sum_s));
  line("_count", {}, fmt::format("{}", latency.count));
}

}  // namespace kernelwright
