/// Runs PTX on the CPU. Load any PTX text, launch one of its entries with raw parameters; no GPU, no driver.
///
///   Emulator emulator({.hazards = true});
///   const auto module = emulator.load(ptx_text);
///   const DevicePtr x = emulator.memory().allocate(4096);
///   const LaunchReport report = emulator.launch(*module, "saxpy", {.grid = {8}, .block = {128}}, params);
///
/// What it does not model it refuses by opcode and line: outside the entries at load, and within an entry when that
/// entry is asked for. A launch runs to its end before launch() returns.
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
#include "kernelwright/runtime/emulator/checker/hazard_kind.h"
#include "kernelwright/runtime/emulator/machine/memory.h"
#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

struct Program;
struct Trace;  // trace.h

struct Options {
  bool hazards = false;
  Completion completion = Completion::kEager;
  std::uint64_t seed = 0;  // of schedules and of Completion::kRandom; equal seeds give equal runs
  bool shuffle = false;    // warps and clusters take turns in an order drawn from the seed
  int threads = 0;         // 0: as many as cores
  int num_sms = 132;       // with max_ctas_per_sm: how many CTAs are resident at once
  int max_ctas_per_sm = 1;
  std::uint64_t max_instructions = 0;  // warp instructions of a launch before it is taken to hang; 0: no limit
  double timeout_s = 0;                // of a launch, likewise; looked at every few million instructions
  bool timeline = false;               // keep LaunchReport::trace
  std::uint32_t timeline_cta = 0;      // of this CTA's cluster: its number in the grid, x first
};

/// Names for people: which warps play which role, and what lies where in shared memory. A plain table that whoever
/// launches fills in; the emulator knows nothing else of the kernel.
using LaunchNotes = KernelNotes;

/// One side of a hazard.
struct HazardSide {
  std::uint32_t cta[3] = {};
  int warp = -1, lane = -1;  // -1: all lanes, or an operation that is not a warp's
  std::string role;          // of LaunchNotes; "" if unnamed
  int ptx_line = 0;
  std::string instruction;  // its text
  std::string source;       // "attention_sm90.cu:123" if the PTX has line information
};

struct HazardReport {
  HazardKind kind = HazardKind::kRace;
  std::string what;          // one sentence
  std::string where;         // "K stage 2 (shared 17408)"; "" if it is no place
  HazardSide first, second;  // second.ptx_line is 0 if there is one side only
  std::uint64_t count = 1;   // how often it was seen
  /// Several lines, for people.
  std::string text() const;
};

struct Statistics {
  std::uint64_t warp_instructions = 0, thread_instructions = 0;
  std::uint64_t mma_operations = 0;  // 2 per multiply-add, of mma.sync, wgmma and tcgen05.mma
  std::uint64_t copied_bytes = 0;    // by TMA and bulk copies
  double seconds = 0;
};

/// What happened in a launch. `fault` is set if it did not reach its end; what it wrote until then is written.
struct LaunchReport {
  Statistics statistics;
  std::vector<HazardReport> hazards;  // in a stable order
  bool completed = false;
  std::string fault;                           // "" if completed: deadlock with who waits for what, out of bounds, trap
  HazardKind fault_kind = HazardKind::kFault;  // of `fault`
  std::shared_ptr<const Trace> trace;          // of one cluster, if options().timeline
};

/// Extents; what is not said is 1.
struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint32_t& operator[](int i) { return i == 0 ? x : i == 1 ? y : z; }
  std::uint32_t operator[](int i) const { return i == 0 ? x : i == 1 ? y : z; }
};

struct LaunchShape {
  Dim3 grid, block, cluster;
  std::uint32_t dynamic_shared_bytes = 0;
  std::uint32_t registers_per_thread = 0;  // what ptxas gave the entry; 0: not known, and setmaxnreg is checked less
  bool after_previous = false;             // griddepcontrol: may start before the launch ahead of it has ended
  bool after_unknown = false;              // the same, and hazards take that launch to use all of memory
  const LaunchNotes* notes = nullptr;
};

/// PTX, parsed and decoded, with its global variables in device memory.
class LoadedModule {
 public:
  virtual ~LoadedModule() = default;
  virtual const Module& module() const = 0;
  /// Throws PtxError if there is no such entry, or what it holds is not modelled.
  virtual const Program& program(std::string_view entry) const = 0;
};

/// Safe from any number of threads; launches take turns.
class Emulator {
 public:
  explicit Emulator(Options options = {});
  ~Emulator();
  const Options& options() const;
  GlobalMemory& memory();

  /// Throws PtxError.
  std::shared_ptr<const LoadedModule> load(std::string ptx);

  /// Runs one grid. Throws PtxError as LoadedModule::program does, ConfigError for a shape that no device takes.
  LaunchReport launch(const LoadedModule& module, std::string_view entry, const LaunchShape& shape,
                      std::span<const std::byte> parameters);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kernelwright::emulator
