/// A loaded model, and the engines that models share.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "kernelwright/engine.h"
#include "metrics.h"
#include "operation.h"
#include "weights.h"

namespace kernelwright::triton {

/// What a model's parameters say of its engine.
struct DeviceOptions {
  bool emulated = false;
  Arch arch = Arch::kSm90a;     // of the emulator
  bool hazards = false;         // the emulator's checks
  std::string cache_directory;  // "": the engine's default
  auto operator<=>(const DeviceOptions&) const = default;
};

/// The state of the backend. Models of equal options share one engine, which ends with the last of them. So a server
/// keeps no kernels of models that are gone. Safe from any number of threads.
class Engines {
 public:
  /// Throws MissingError if there is no GPU and `options` wants one.
  std::shared_ptr<Engine> engine(const DeviceOptions& options);
  const MetricFamilies& metrics() const { return metrics_; }

 private:
  const MetricFamilies metrics_;
  std::mutex mutex_;
  std::map<DeviceOptions, std::weak_ptr<Engine>> engines_;
};

/// The state of a model: immutable but for copies of its weights, and shared by its instances.
class Model {
 public:
  /// Reads the model's configuration, its problem.json and the header of its weights. Throws ConfigError if they do not
  /// fit each other, and what Engines::engine() throws.
  Model(TRITONBACKEND_Model* model, Engines& engines);

  const Operation& operation() const { return *operation_; }
  Engine& engine() const { return *engine_; }
  bool emulated() const { return emulated_; }
  /// Weights::on(), of the model's weights.
  const std::vector<DevicePtr>& weights_on(Device& device) const;
  /// What an instance tells of itself: how long its kernel took, and by how much its buffers grew or shrank.
  void note_prepared(double seconds) const { prepare_->set(seconds); }
  void note_buffers(double bytes) const { of_buffers_->add(bytes); }

 private:
  std::unique_ptr<Operation> operation_;
  std::shared_ptr<Engine> engine_;
  bool emulated_ = false;
  std::unique_ptr<Weights> weights_;  // in memory of the engine's devices
  std::unique_ptr<Gauge> prepare_, of_buffers_, of_weights_;
};

}  // namespace kernelwright::triton
