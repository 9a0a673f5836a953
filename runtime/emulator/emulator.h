/// Runs PTX on the CPU. Load any PTX text, launch one of its entries with raw parameters; no GPU, no driver.
///
///   Emulator emulator({.hazards = true});
///   const auto module = emulator.load(ptx_text);
///   const DevicePtr x = emulator.memory().allocate(4096);
///   const LaunchReport report = emulator.launch(*module, "saxpy", {.grid = {8}, .block = {128}}, params);
///
/// The emulator refuses what it does not model, with opcode and line: code outside of entries at load, code within an
/// entry when that entry is asked for. A launch runs to its end before launch() returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/device/completion.h"
#include "kernelwright/runtime/emulator/checker/hazard_report.h"
#include "kernelwright/runtime/emulator/machine/memory.h"
#include "kernelwright/runtime/emulator/machine/names.h"
#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

struct Program;
struct Trace;  // trace.h

struct Options {
  bool hazards = false;
  Completion completion = Completion::kEager;
  std::uint64_t seed = 0;  // seeds schedules and Completion::kRandom; equal seeds give equal runs
  bool shuffle = false;    // warps and clusters take turns in an order drawn from the seed
  int threads = 0;         // 0: as many threads as cores
  int num_sms = 132;       // together with max_ctas_per_sm: how many CTAs are resident at once
  int max_ctas_per_sm = 1;
  std::uint64_t max_instructions = 0;  // a launch that executes more warp instructions is taken to hang; 0: no limit
  double timeout_s = 0;                // the same limit in seconds; checked every few million instructions
  bool timeline = false;               // keep LaunchReport::trace
  std::uint32_t timeline_cta = 0;      // record the cluster of this CTA, by its number in the grid, x first
};

struct Statistics {
  std::uint64_t warp_instructions = 0, thread_instructions = 0;
  std::uint64_t mma_operations = 0;  // by mma.sync, wgmma and tcgen05.mma; a multiply-add counts 2
  std::uint64_t copied_bytes = 0;    // by TMA and bulk copies
  double seconds = 0;
};

/// What happened in a launch. `fault` is set if the launch did not reach its end; its writes up to then stay in memory.
struct LaunchReport {
  Statistics statistics;
  std::vector<HazardReport> hazards;  // in a stable order
  bool completed = false;
  std::string fault;  // "" if completed; else a deadlock with what each warp waits for, an access out of bounds, a trap
  HazardKind fault_kind = HazardKind::kFault;  // the kind of `fault`
  std::shared_ptr<const Trace> trace;          // of one cluster, if options().timeline
};

/// Extents; an extent left out is 1.
struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint32_t& operator[](int i) { return i == 0 ? x : i == 1 ? y : z; }
  std::uint32_t operator[](int i) const { return i == 0 ? x : i == 1 ? y : z; }
};

struct LaunchShape {
  Dim3 grid, block, cluster;
  std::uint32_t dynamic_shared_bytes = 0;
  std::uint32_t registers_per_thread = 0;  // what ptxas gave the entry; 0: not known, and fewer checks of setmaxnreg
  bool after_previous = false;  // griddepcontrol: this launch may start before the launch ahead of it has ended
  bool after_unknown = false;   // the same; the checker assumes that the launch ahead uses all of memory
  const LaunchNotes* notes = nullptr;
};

/// A module: parsed and decoded PTX, with its global variables in device memory.
class LoadedModule {
 public:
  virtual ~LoadedModule() = default;
  virtual const Module& module() const = 0;
  /// Throws PtxError if there is no such entry, or if the emulator does not model an instruction in it.
  virtual const Program& program(std::string_view entry) const = 0;
};

/// Safe from any number of threads; launches take turns.
class Emulator {
 public:
  explicit Emulator(Options options = {});
  ~Emulator();
  const Options& options() const;
  GlobalMemory& memory();

  /// Throws PtxError if the text is not PTX that the emulator reads.
  std::shared_ptr<const LoadedModule> load(std::string ptx);

  /// Runs one grid. Throws PtxError as LoadedModule::program does, and ConfigError for a shape that no device takes.
  LaunchReport launch(const LoadedModule& module, std::string_view entry, const LaunchShape& shape,
                      std::span<const std::byte> parameters);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kernelwright::emulator
