/// The engines and devices that run and bench work with.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "cli/options.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"
#include "kernelwright/runtime/engine/engine.h"

namespace kernelwright::cli {

/// Where one config runs.
struct Place {
  Engine& engine;
  Device& device;
  EmulatorBackend* emulator;  // null: a GPU
};

/// What --device names: the GPU, or the emulator, which is another device for each architecture that it claims to be.
class Machine {
 public:
  explicit Machine(const Options& options) : options_(options) {}

  /// Device 0 for a config. On the emulator it is the architecture of --arch, else of the schedule, else sm_90a.
  /// Throws MissingError with one sentence if --device is not there, ConfigError if --arch is not what the GPU is.
  Place place_for(const NamedConfig& named);

 private:
  const Options& options_;
  std::unique_ptr<Engine> gpu_;
  std::map<Arch, std::unique_ptr<Engine>> emulators_;
};

/// Seconds that the emulator takes for so many operations, very roughly: it is for warnings.
double emulated_seconds(double operations);

}  // namespace kernelwright::cli
