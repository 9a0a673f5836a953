/// How the emulator behaves as a device. Light: the engine's header has one of these in its options.
#pragma once

#include <cstdint>
#include <functional>

#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/runtime/device/completion.h"

namespace kernelwright {

namespace emulator {
struct KernelHazard;  // emulator_backend.h
}

struct EmulatorBackendOptions {
  Arch arch = Arch::kSm90a;  // what the device says that it is: any row of arch.h
  bool hazards = false;      // check every launch for races, missing fences, misused barriers; about half the speed
  /// With `hazards`: whatever stands ahead of a launch with LaunchConfig::pdl is taken to read and write all of memory,
  /// so that any access of it before griddepcontrol.wait is reported. Else what that launch did decides.
  bool unknown_ahead = false;
  emulator::Completion completion = emulator::Completion::kEager;
  /// Of Completion::kRandom and, unless it is 0, of the order in which warps and clusters take turns. Equal seeds give
  /// equal runs.
  std::uint64_t seed = 0;
  int num_sms = 0;                     // what the device says that it has; 0: as many as a usual part of `arch`
  int threads = 0;                     // of the host, for the clusters of a launch; 0: as many as cores
  std::uint64_t max_instructions = 0;  // warp instructions of a launch before it is taken to hang; 0: no limit
  bool timeline = false;               // keep what EmulatorBackend::take_traces() gives
  std::uint32_t timeline_cta = 0;      // of this CTA's cluster: its number in the grid, x first
  /// Told each report at the end of its launch, on the thread that launched. Must not throw or call back in.
  std::function<void(const emulator::KernelHazard&)> on_report;
};

}  // namespace kernelwright
