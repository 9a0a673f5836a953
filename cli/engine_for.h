/// The engines and devices with which run and bench work.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "cli/options.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"
#include "kernelwright/runtime/engine/engine.h"

namespace kernelwright::cli {

/// The device and engine on which one config runs.
struct Place {
  Engine& engine;
  Device& device;
  EmulatorBackend* emulator;  // null: a GPU
};

/// The device that --device names: the GPU, or the emulator, which is a separate device for each architecture that it
/// claims to be.
class Machine {
 public:
  explicit Machine(const Options& options) : options_(options) {}

  /// Device 0 for a config. On the emulator it claims the architecture of --arch, else of the schedule, else sm_90a.
  /// Throws MissingError with one sentence if the device of --device does not exist. Throws ConfigError if --arch is
  /// not the GPU's architecture.
  Place place_for(const NamedConfig& named);

 private:
  const Options& options_;
  std::unique_ptr<Engine> gpu_;
  std::map<Arch, std::unique_ptr<Engine>> emulators_;
};

/// A rough estimate of the seconds that the emulator takes for `operations` operations, for warnings.
double emulated_seconds(double operations);

}  // namespace kernelwright::cli
