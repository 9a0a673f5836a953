/// Text that Prometheus and OpenMetrics scrapers read (exposition format 0.0.4): families of samples, escaped by the
/// rules of the format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernelwright/runtime/process/latency.h"

namespace kernelwright {

class PrometheusText {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string>>;  // names are ours; values may be any text

  /// Begins a family: its HELP and TYPE lines. `name` is a metric name ("kernelwright_loads_total"), `help` one line.
  void gauge(std::string_view name, std::string_view help) { begin(name, "gauge", help); }
  void counter(std::string_view name, std::string_view help) { begin(name, "counter", help); }

  /// A sample of the family that was begun last. The same labels come once in a family.
  void sample(std::uint64_t value, const Labels& labels = {});
  void sample(double value, const Labels& labels = {});

  /// A family with one histogram: buckets that add up, their sum in seconds and their count.
  void histogram(std::string_view name, std::string_view help, const LatencySnapshot& latency);

  std::string take() { return std::move(text_); }

 private:
  void begin(std::string_view name, std::string_view type, std::string_view help);
  void line(std::string_view suffix, const Labels& labels, const std::string& value);
  std::string text_, name_;
};

}  // namespace kernelwright
