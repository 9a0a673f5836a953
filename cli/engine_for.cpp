#include "engine_for.h"

#include <fmt/format.h>

#include "kernelwright/generator/error.h"

namespace kernelwright::cli {

EngineOptions engine_options(const Options& options) {
  EngineOptions engine;
  engine.backend = options.device;
  engine.cache = cache_options(options);
  return engine;
}

Device& device_for(Engine& engine, const Options&) {
  Device& device = engine.device(0);
  if (!device.info().arch)
    throw MissingError(fmt::format("{} has compute capability {}.{}, which no kernel here is compiled for",
                                   device.info().name, device.info().compute_major, device.info().compute_minor));
  return device;
}

AttentionKernel prepare(Engine& engine, Device& device, const NamedConfig& named) {
  require_valid(named, device.info().arch);
  try {
    return engine.prepare(named.config.problem, named.config.schedule, {.device = device.ordinal()});
  } catch (const ConfigError& error) {
    throw in_file(named.path, error);
  }
}

}  // namespace kernelwright::cli
