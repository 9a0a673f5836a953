/// How an engine begins: its backend, its store, its rows and its sinks.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/generator/tuned/table.h"
#include "kernelwright/runtime/attention/data.h"
#include "kernelwright/runtime/engine/emulated_machine.h"
#include "kernelwright/runtime/engine/engine_state.h"
#include "kernelwright/runtime/kv_write/data.h"
#include "kernelwright/runtime/process/interrupt.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace kernelwright {
namespace {

/// `why_not_cuda` is set if "auto" could not take the GPU.
std::shared_ptr<Backend> open_backend(const EngineOptions& options, std::string& why_not_cuda) {
  if (options.custom_backend) return options.custom_backend;
  if (options.backend == "cuda") return make_cuda_backend();
  if (options.backend == "emulator") return make_emulator_backend(options.emulator);
  if (options.backend == "auto") {
    try {
      return make_cuda_backend();
    } catch (const MissingError& error) {
      why_not_cuda = error.what();
      return make_emulator_backend(options.emulator);
    }
  }
  throw ConfigError("/backend", fmt::format("\"{}\" is not a backend; cuda, emulator and auto are", options.backend));
}

bool wants_ptx(Backend& backend) {
  for (int i = 0; i < backend.device_count(); ++i)
    if (backend.device(i).info().wants == ImageKind::kPtx) return true;
  return false;
}

EngineOptions with_sink_level(EngineOptions options) {
  options.sink = at_least(options.sink_level, std::move(options.sink));
  return options;
}

std::shared_ptr<KernelStore> open_store(const EngineOptions& options, Backend& backend) {
  if (options.custom_store) return options.custom_store;
  CacheOptions cache = options.cache;
  if (!cache.sink) cache.sink = options.sink;
  if (!wants_ptx(backend)) cache.ptx = false;  // to read the PTX too would double a hit's time
  return std::make_shared<KernelStore>(std::move(cache), options.nvrtc_path, options.compile_workers);
}

/// The kernel that a launch is of.
template <class Loaded, class Tensors>
std::string name_of(const Loaded& kernel, const Tensors&) {
  return kernel_name(kernel.spec);
}
std::string name_of(const detail::LoadedGemm& kernel, const GemmTensors& tensors) {
  return kernel_name(kernel.variant_for(tensors).spec);
}

}  // namespace

std::string Engine::kernel_origin(const EngineOptions& options) {
  return options.custom_store ? options.custom_store->origin()
                              : KernelStore(options.cache, options.nvrtc_path, options.compile_workers).origin();
}

Engine::State::State(EngineOptions given)
    : options(with_sink_level(std::move(given))),
      backend(open_backend(options, why_not_cuda)),
      store(open_store(options, *backend)),
      rows(options.custom_rows
               ? options.custom_rows
               : std::make_shared<const TunedTable>(TunedTable::from_environment(options.tuned_dir, require_usable))),
      wants_lines(options.emulator.hazards),
      pool(options.compile_threads) {
  hold_exit_of_this_thread();
  shared.launch_sampling = options.launch_sampling;
  if (!why_not_cuda.empty() && options.sink)
    options.sink({.kind = EventKind::kDevice,
                  .key = "",
                  .name = backend->device(0).info().name,
                  .detail = "kernels run on the emulator: " + why_not_cuda});
  auto* const emulated = dynamic_cast<EmulatorBackend*>(backend.get());
  if (options.check_data || (emulated && options.emulator.hazards)) {
    const auto check = [this, emulated](const auto& kernel, const auto& tensors, Stream stream) {
      for (const std::string& what : detail::find_bad_data(kernel, tensors, stream)) {
        const std::string name = name_of(kernel, tensors);
        if (emulated)
          emulated->add_report(
              {name, {.kind = emulator::HazardKind::kData, .rule = emulator::HazardRule::kBadData, .what = what}});
        if (options.sink) options.sink({.kind = EventKind::kBadData, .key = "", .name = name, .detail = what});
      }
    };
    check_attention_data = check, check_kv_write_data = check, check_gemm_data = check;
  }
  if (options.sink)
    for (const SkippedRow& row : rows->skipped())
      options.sink({.kind = EventKind::kTunedRow, .key = "", .name = row.name, .detail = row.reason});
}

}  // namespace kernelwright
