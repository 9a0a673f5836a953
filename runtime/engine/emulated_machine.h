/// The emulated device with the numbers of a machine: the emulator itself has no table of machines.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"

namespace kernelwright {

inline EmulatedMachine emulated_machine(const MachineClass& machine) {
  const TraceRates& rates = machine.trace;
  return {.num_sms = machine.sms,
          .costs = {.wgmma_macs = static_cast<std::uint32_t>(rates.wgmma_macs),
                    .mma_sync_macs = static_cast<std::uint32_t>(rates.mma_sync_macs),
                    .copy_bytes = static_cast<std::uint32_t>(rates.copy_bytes),
                    .copy_latency = static_cast<std::uint32_t>(rates.copy_latency),
                    .store_latency = static_cast<std::uint32_t>(rates.store_latency)}};
}

/// The device of the class that stands for `options.arch`.
inline std::unique_ptr<EmulatorBackend> make_emulator_backend(EmulatorBackendOptions options = {}) {
  const EmulatedMachine machine = emulated_machine(usual_machine(options.arch));
  return make_emulator_backend(std::move(options), machine);
}

}  // namespace kernelwright
