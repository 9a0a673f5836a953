#include "metrics.h"

#include <memory>
#include <mutex>
#include <vector>

namespace kernelwright::triton {
namespace {

TRITONSERVER_MetricFamily* family(const char* name, const char* description) {
  TRITONSERVER_MetricFamily* made = nullptr;
  check(TRITONSERVER_MetricFamilyNew(&made, TRITONSERVER_METRIC_KIND_GAUGE, name, description));
  return made;
}

/// Held while a metric is made or deleted. The server gives metrics with the same labels one object, and counts it
/// behind its lookup. A model that takes over from its former version could get the object that the former one just
/// deletes.
std::mutex& metrics_change() {
  static std::mutex mutex;
  return mutex;
}

struct DeleteLabel {
  void operator()(TRITONSERVER_Parameter* label) const { TRITONSERVER_ParameterDelete(label); }
};

}  // namespace

MetricFamilies::MetricFamilies() noexcept {
  TRITONSERVER_Error* error = guarded([&] {
    memory_ = family("kernelwright_memory_bytes", "Device memory of a model: its weights, and buffers of its requests");
    prepare_ =
        family("kernelwright_prepare_seconds", "Time until a model's kernels were compiled, or taken from the cache");
  });
  if (!error) return;
  log(TRITONSERVER_LOG_INFO,
      std::string("kernelwright: the server takes no metrics: ") + TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
}

MetricFamilies::~MetricFamilies() {
  for (TRITONSERVER_MetricFamily* each : {memory_, prepare_})
    if (each) log_failure(TRITONSERVER_MetricFamilyDelete(each), "TRITONSERVER_MetricFamilyDelete");
}

Gauge::Gauge(TRITONSERVER_MetricFamily* family, const std::string& model, const std::string& version,
             const std::string& of) noexcept {
  if (!family) return;
  TRITONSERVER_Error* error = guarded([&] {
    std::vector<std::unique_ptr<TRITONSERVER_Parameter, DeleteLabel>> labels;
    std::vector<const TRITONSERVER_Parameter*> given;
    const auto label = [&](const char* name, const std::string& value) {
      labels.emplace_back(TRITONSERVER_ParameterNew(name, TRITONSERVER_PARAMETER_STRING, value.c_str()));
      given.push_back(labels.back().get());
    };
    label("model", model);
    label("version", version);
    if (!of.empty()) label("of", of);
    const std::lock_guard lock(metrics_change());
    check(TRITONSERVER_MetricNew(&metric_, family, given.data(), given.size()));
  });
  log_failure(error, "TRITONSERVER_MetricNew");
}

Gauge::~Gauge() {
  if (!metric_) return;
  const std::lock_guard lock(metrics_change());
  log_failure(TRITONSERVER_MetricDelete(metric_), "TRITONSERVER_MetricDelete");
}

void Gauge::add(double difference) noexcept {
  if (metric_) log_failure(TRITONSERVER_MetricIncrement(metric_, difference), "TRITONSERVER_MetricIncrement");
}

void Gauge::set(double value) noexcept {
  if (metric_) log_failure(TRITONSERVER_MetricSet(metric_, value), "TRITONSERVER_MetricSet");
}

}  // namespace kernelwright::triton
