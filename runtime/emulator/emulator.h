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
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/emulator/machine/memory.h"
#include "kernelwright/runtime/emulator/machine/names.h"
#include "kernelwright/runtime/emulator/program/lined_text.h"
#include "kernelwright/runtime/emulator/ptx/module.h"
#include "kernelwright/runtime/emulator/run/launch_report.h"
#include "kernelwright/runtime/emulator/run/options.h"

namespace kernelwright::emulator {

struct Program;

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
  bool cooperative = false;                // all CTAs are resident at once, and may synchronise as a grid
  bool after_previous = false;  // griddepcontrol: this launch may start before the launch ahead of it has ended
  bool after_unknown = false;   // the same; the checker assumes that the launch ahead uses all of memory
  const LaunchNotes* notes = nullptr;
};

/// Where a variable of a module lies in device memory.
struct VariablePlace {
  DevicePtr address = 0;
  std::uint64_t bytes = 0;
};

/// What the text says of an entry.
struct EntryAttributes {
  std::uint64_t static_shared_bytes = 0;
  std::uint64_t local_bytes = 0;  // for one thread, before ptxas spills
  std::uint64_t parameter_bytes = 0;
  int max_threads = 0;    // .maxntid or .reqntid; 0: not given
  int max_registers = 0;  // .maxnreg; 0: not given. ptxas alone knows how many a thread has
};

/// A module: parsed and decoded PTX, with its global variables in device memory.
class LoadedModule {
 public:
  virtual ~LoadedModule() = default;
  virtual const Module& module() const = 0;
  /// Throws PtxError if there is no such entry, or if the emulator does not model an instruction in it.
  virtual const Program& program(std::string_view entry) const = 0;
  /// A .global or .const variable; nothing if the module has none of that name.
  virtual std::optional<VariablePlace> variable(std::string_view name) const = 0;
  /// Decodes no instruction. Throws PtxError if there is no such entry, or if it cannot be read.
  virtual EntryAttributes attributes(std::string_view entry) const = 0;
};

/// Safe from any number of threads; launches take turns.
class Emulator {
 public:
  explicit Emulator(Options options = {});
  ~Emulator();
  const Options& options() const;
  GlobalMemory& memory();

  /// Throws PtxError if the text is not PTX that the emulator reads. `lined`, if given, makes the same instructions
  /// with lines of their source. The first report or fault of the module calls it, once, on any thread; that report and
  /// all later ones name places in that text.
  std::shared_ptr<const LoadedModule> load(std::string ptx, LinedText::Make lined = {});

  /// Runs one grid. Throws PtxError as LoadedModule::program does, and ConfigError for a shape that no device takes.
  LaunchReport launch(const LoadedModule& module, std::string_view entry, const LaunchShape& shape,
                      std::span<const std::byte> parameters);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kernelwright::emulator
