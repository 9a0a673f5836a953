/// Metrics of our models at the server's address of metrics, beside what the server itself counts there: requests,
/// failures, and how long they take.
#pragma once

#include <string>

#include "errors.h"

namespace kernelwright::triton {

/// The metrics' names. A server that has metrics switched off refuses them; then there are none, and the log says so.
class MetricFamilies {
 public:
  MetricFamilies() noexcept;
  ~MetricFamilies();
  MetricFamilies(const MetricFamilies&) = delete;

  /// kernelwright_memory_bytes and kernelwright_prepare_seconds; null if there are none.
  TRITONSERVER_MetricFamily* memory() const { return memory_; }
  TRITONSERVER_MetricFamily* prepare() const { return prepare_; }

 private:
  TRITONSERVER_MetricFamily *memory_ = nullptr, *prepare_ = nullptr;
};

/// A number of a model that may go up and down. Safe from any number of threads. What fails is logged.
class Gauge {
 public:
  /// `family` may be null. `of` is a label of that name, unless it is "".
  Gauge(TRITONSERVER_MetricFamily* family, const std::string& model, const std::string& version,
        const std::string& of = "") noexcept;
  ~Gauge();
  Gauge(const Gauge&) = delete;

  void add(double difference) noexcept;
  void set(double value) noexcept;

 private:
  TRITONSERVER_Metric* metric_ = nullptr;
};

}  // namespace kernelwright::triton
