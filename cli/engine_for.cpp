#include "cli/engine_for.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "cli/explain/resources.h"
#include "cli/targets.h"
#include "kernelwright/generator/error.h"

namespace kernelwright::cli {
namespace {

constexpr double kEmulatedRate = 1e10;  // operations per second and core, in mma.sync

EngineOptions engine_options(const Options& options, Arch arch) {
  EngineOptions engine;
  engine.backend = options.device;
  engine.cache = cache_options(options);
  engine.emulator = emulator_options(options, arch);
  engine.custom_rows = std::make_shared<const TunedTable>(options.no_tuned_rows ? TunedTable() : tuned_rows(options));
  engine.sink = [](const Event& event) {
    if (event.kind != EventKind::kDevice) return;
    fmt::print(stderr, "kernelwright: {}\n", event.detail.substr(0, event.detail.find(';')));
  };
  return engine;
}

Place place_on(Engine& engine) { return {engine, engine.device(0), dynamic_cast<EmulatorBackend*>(&engine.backend())}; }

}  // namespace

Place Machine::place_for(const NamedConfig& named) {
  require_address_space();
  const Arch arch = claimed_arch(named, options_);
  if (!gpu_) {
    if (const auto known = emulators_.find(arch); known != emulators_.end()) return place_on(*known->second);
    EngineOptions wanted = engine_options(options_, arch);
    if (!emulators_.empty()) wanted.backend = "emulator";  // "auto" took it before, and said so
    auto engine = std::make_unique<Engine>(std::move(wanted));
    if (place_on(*engine).emulator) return place_on(*(emulators_[arch] = std::move(engine)));
    gpu_ = std::move(engine);
  }
  const DeviceInfo& info = gpu_->device(0).info();
  if (!info.arch)
    throw MissingError(fmt::format("{} has compute capability {}.{}, which no kernel here is compiled for", info.name,
                                   info.compute_major, info.compute_minor));
  if (!options_.archs.empty() && arch != *info.arch)
    throw ConfigError("--arch", fmt::format("{} is not what {} is; {} is, or --device emulator would do",
                                            to_string(arch), info.name, to_string(*info.arch)));
  if (!options_.hazards.empty())
    throw ConfigError(
        "--hazards", fmt::format("the emulator looks for them, and this is {}; --device emulator would do", info.name));
  return place_on(*gpu_);
}

double emulated_seconds(double operations) {
  return operations / (kEmulatedRate * std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace kernelwright::cli
