/// The engine and device that run and bench work with.
#pragma once

#include "kernelwright/runtime/engine.h"
#include "options.h"

namespace kernelwright::cli {

EngineOptions engine_options(const Options& options);
/// Device 0. Throws MissingError with one sentence if --device is not there.
Device& device_for(Engine& engine, const Options& options);
/// The kernel of a config on `device`. Throws ConfigError led by the file's path, else as Engine::prepare().
AttentionKernel prepare(Engine& engine, Device& device, const NamedConfig& named);

}  // namespace kernelwright::cli
