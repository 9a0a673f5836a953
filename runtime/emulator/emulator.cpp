#include "kernelwright/runtime/emulator/emulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "kernelwright/generator/checked.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/checker/global_shadow.h"
#include "kernelwright/runtime/emulator/checker/hazard_log.h"
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/device_heap.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/program/clock_reads.h"
#include "kernelwright/runtime/emulator/program/program.h"
#include "kernelwright/runtime/emulator/program/shared_layout.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "kernelwright/runtime/emulator/run/launch.h"
#include "kernelwright/runtime/process/own_thread.h"

namespace kernelwright::emulator {

namespace {

constexpr std::uint32_t kRegistersPerSm = 65536, kMostThreads = 1024, kMostClusterCtas = 16;
constexpr std::uint64_t kMostCtas = 0x7fffffff;  // CTAs are numbered in 32 bits; a GPU takes as many along x alone
constexpr std::uint32_t kMostSharedBytes =
    227 * 1024;                                  // sm_90, opt-in; the caller checks the limit of a smaller architecture
constexpr std::size_t kParameterAlignment = 64;  // tensor maps are parameters
// What reading PTX and running a kernel need of a caller's stack. With less, the work moves to a thread of our own.
constexpr std::size_t kStackBytes = kParserStackBytes;

class Loaded : public LoadedModule {
 public:
  Loaded(std::unique_ptr<Module> module, GlobalMemory& memory, LinedText::Make lined)
      : module_(std::move(module)), memory_(memory) {
    if (lined) lined_ = std::make_unique<LinedText>(*module_, std::move(lined));
    respell(*module_);
    split_clock_reads(*module_);
    const std::vector<std::byte>& image = module_->global_image;
    globals_ = memory_.allocate(image.size(), "the module's variables");
    if (!image.empty()) std::memcpy(reinterpret_cast<void*>(globals_), image.data(), image.size());
    for (const InitialAddress& value : module_->addresses) {
      const std::uint64_t bits = ((value.function ? 0 : globals_) + value.address) >> value.shift;
      std::memcpy(reinterpret_cast<void*>(globals_ + value.at), &bits, static_cast<std::size_t>(value.bytes));
    }
  }
  ~Loaded() override {
    if (globals_) memory_.free(globals_);
  }
  Loaded(const Loaded&) = delete;
  const Module& module() const override { return *module_; }
  const Program& program(std::string_view name) const override {
    const std::lock_guard lock(mutex_);
    if (const auto known = programs_.find(name); known != programs_.end()) return *known->second;
    const Entry& entry = readable(name);
    auto made = with_stack(kStackBytes, kStackBytes, [&] { return decode(*module_, entry, globals_); });
    made->lined = lined_.get();
    return *programs_.emplace(entry.name, std::move(made)).first->second;
  }
  std::optional<VariablePlace> variable(std::string_view name) const override {
    const auto known = module_->variables.find(name);
    if (known == module_->variables.end()) return std::nullopt;
    const Variable& found = known->second;
    if (found.space != StateSpace::kGlobal && found.space != StateSpace::kConst) return std::nullopt;
    return VariablePlace{globals_ + found.offset, found.bytes};
  }
  EntryAttributes attributes(std::string_view name) const override {
    const Entry& entry = readable(name);
    return {lay_out_shared(*module_, entry).static_bytes, entry.local_bytes, entry.parameter_bytes, entry.max_threads,
            entry.max_registers};
  }

 private:
  /// The entry of that name, which the parser could read.
  const Entry& readable(std::string_view name) const {
    const Entry* entry = module_->find(name);
    if (!entry) {
      std::string entries;
      for (const Entry& other : module_->entries)
        entries += fmt::format("{}`{}`", entries.empty() ? "" : ", ", other.name);
      throw PtxError(
          1, fmt::format("there is no entry `{}`; the module has {}", name, entries.empty() ? "none" : entries));
    }
    if (!entry->refusal.empty())
      throw PtxError(entry->refusal_line, fmt::format("in the entry `{}`: {}", name, entry->refusal));
    return *entry;
  }

  std::unique_ptr<Module> module_;
  std::unique_ptr<LinedText> lined_;  // null: the module's own text has the lines that are known
  GlobalMemory& memory_;
  std::uint64_t globals_ = 0;
  mutable std::mutex mutex_;  // guards programs_
  mutable std::map<std::string_view, std::unique_ptr<Program>> programs_;
};

/// Reports at once everything that a device would refuse about a launch.
void check_shape(const LaunchShape& shape, const Program& program, std::size_t parameter_bytes) {
  std::vector<Violation> wrong;
  const auto add = [&](const char* field, std::string message) { wrong.push_back({field, std::move(message)}); };
  CheckedSize all_threads = 1, all_ctas = 1, all_grid = 1;
  for (int i = 0; i < 3; ++i) {
    all_threads *= shape.block[i];
    all_ctas *= shape.cluster[i];
    all_grid *= shape.grid[i];
    if (shape.grid[i] == 0 || shape.block[i] == 0 || shape.cluster[i] == 0)
      add("", "a dimension of the launch is 0");
    else if (shape.grid[i] % shape.cluster[i] != 0)
      add("/grid", fmt::format("{} is no multiple of the cluster's {}", shape.grid[i], shape.cluster[i]));
    const int required = program.entry->required_cluster[i];
    if (required != 0 && shape.cluster[i] != static_cast<std::uint32_t>(required))
      add("/cluster", fmt::format("{} where the entry was compiled for {}", shape.cluster[i], required));
  }
  const std::uint64_t threads = all_threads.or_most(), ctas = all_ctas.or_most(), grid = all_grid.or_most();
  if (grid > kMostCtas) add("/grid", fmt::format("{} CTAs; the emulator runs at most {}", grid, kMostCtas));
  if (threads > kMostThreads) add("/block", fmt::format("{} threads; a CTA has at most {}", threads, kMostThreads));
  if (program.entry->max_threads != 0 && threads > static_cast<std::uint64_t>(program.entry->max_threads))
    add("/block",
        fmt::format("{} threads; the entry was compiled for at most {}", threads, program.entry->max_threads));
  if (ctas > kMostClusterCtas)
    add("/cluster", fmt::format("{} CTAs; a cluster has at most {}", ctas, kMostClusterCtas));
  const std::uint64_t shared = std::uint64_t{shape.dynamic_shared_bytes} + program.static_shared_bytes;
  if (shared > kMostSharedBytes)
    add("/dynamic_shared_bytes", fmt::format("{} shared bytes; a CTA has at most {}", shared, kMostSharedBytes));
  if (parameter_bytes < program.entry->parameter_bytes)
    add("/parameters",
        fmt::format("{} bytes; `{}` takes {}", parameter_bytes, program.entry->name, program.entry->parameter_bytes));
  if (!wrong.empty()) throw ConfigError(std::move(wrong));
}

/// The launch's parameters, aligned. The kernel reads them as long as it runs.
class Parameters {
 public:
  Parameters(GlobalMemory& memory, std::span<const std::byte> from) : memory_(memory) {
    storage_.resize(std::max<std::size_t>(from.size(), 1) + kParameterAlignment);
    auto* first =
        reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(storage_.data()) + kParameterAlignment - 1) /
                                     kParameterAlignment * kParameterAlignment);
    std::copy(from.begin(), from.end(), first);
    bytes_ = {first, from.size()};
    if (!from.empty()) memory_.lend(first, from.size(), false, "the kernel's parameters");
  }
  ~Parameters() {
    if (!bytes_.empty()) memory_.forget(reinterpret_cast<std::uint64_t>(bytes_.data()));
  }
  Parameters(const Parameters&) = delete;
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  GlobalMemory& memory_;
  std::vector<std::byte> storage_;
  std::span<const std::byte> bytes_;
};

/// What a driver gives to a cooperative launch: eight bytes, of which the first four are their number and the last four
/// are a barrier. For another launch their address is 0, and a grid that synchronises traps.
class GridWorkspace {
 public:
  GridWorkspace(GlobalMemory& memory, const Program& program, const LaunchShape& shape, const Options& options)
      : memory_(memory) {
    if (!shape.cooperative) return;
    const auto at_least_one = [](int count) { return static_cast<std::uint64_t>(std::max(1, count)); };
    const std::uint64_t resident = at_least_one(options.num_sms) * at_least_one(options.max_ctas_per_sm);
    CheckedSize ctas = 1;
    for (int i = 0; i < 3; ++i) ctas *= shape.grid[i];
    if (ctas.or_most() > resident)
      throw ConfigError("/grid", fmt::format("a cooperative launch of {} CTAs, of which {} are resident at once",
                                             ctas.or_most(), resident));
    if (!program.reads_grid_workspace) return;
    constexpr std::uint32_t kBytes = 8, kContents[] = {kBytes, 0};
    address_ = memory_.allocate(kBytes, "the grid's workspace");
    std::memcpy(reinterpret_cast<void*>(address_), kContents, kBytes);
  }
  ~GridWorkspace() {
    if (address_ != 0) memory_.free(address_);
  }
  GridWorkspace(const GridWorkspace&) = delete;
  std::uint64_t address() const { return address_; }

 private:
  GlobalMemory& memory_;
  std::uint64_t address_ = 0;
};

}  // namespace

struct Emulator::State {
  Options options;
  GlobalMemory memory;
  std::mutex launching;  // one grid at a time: each grid uses all the cores that it may
  std::uint32_t launches = 0;
  TensorMapEdits map_edits;
  std::unique_ptr<DeviceHeap> heap;  // made by the first launch that uses it
};

Emulator::Emulator(Options options) : state_(std::make_unique<State>()) { state_->options = options; }
Emulator::~Emulator() = default;
const Options& Emulator::options() const { return state_->options; }
GlobalMemory& Emulator::memory() { return state_->memory; }

std::shared_ptr<const LoadedModule> Emulator::load(std::string ptx, LinedText::Make lined) {
  return with_stack(kStackBytes, kStackBytes, [&] {
    return std::make_shared<Loaded>(parse_ptx(std::move(ptx)), state_->memory, std::move(lined));
  });
}

LaunchReport Emulator::launch(const LoadedModule& module, std::string_view entry, const LaunchShape& shape,
                              std::span<const std::byte> parameters) {
  const Program& program = module.program(entry);
  check_shape(shape, program, parameters.size());
  const std::lock_guard lock(state_->launching);
  const Parameters held(state_->memory, parameters);
  const GridWorkspace workspace(state_->memory, program, shape, state_->options);
  if (program.uses_heap && !state_->heap)
    state_->heap = std::make_unique<DeviceHeap>(state_->memory, state_->options.heap_bytes);
  const std::shared_ptr<const GlobalMemory::View> view = state_->memory.view();
  Launch launch;
  launch.heap = state_->heap.get();
  launch.program = &program;
  std::uint32_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    launch.grid[i] = shape.grid[i], launch.block[i] = shape.block[i], launch.cluster[i] = shape.cluster[i];
    threads *= shape.block[i];
  }
  launch.dynamic_shared_bytes = shape.dynamic_shared_bytes;
  launch.parameters = held.bytes();
  launch.memory = view.get();
  launch.registers_known = shape.registers_per_thread != 0;
  // A thread names 255 registers at most. Registers are allocated in eights, so such a thread has 256, and setmaxnreg
  // counts 256.
  const std::uint32_t fit = std::min(kRegistersPerSm / ((threads + 31) / 32 * 32) / 8 * 8, 256u);
  launch.registers_per_thread = launch.registers_known ? (shape.registers_per_thread + 7) / 8 * 8 : fit;
  launch.grid_workspace = workspace.address();
  if (launch.grid_workspace != 0) launch.rounds_per_turn = 4;  // a CTA that waits for the grid polls until others run
  launch.number = ++state_->launches;
  launch.depends_on = shape.after_previous ? launch.number - 1 : 0;
  launch.depends_on_all = shape.after_unknown;
  if (state_->options.hazards) view->track_users();
  launch.map_edits = &state_->map_edits;
  GlobalShadow exchange;
  if (state_->options.hazards && program.clusters_communicate) launch.exchange = &exchange;
  HazardLog log;
  LaunchReport report = with_stack(kStackBytes, kStackBytes, [&] {
    return run_launch(launch, state_->options, shape.notes, state_->options.hazards ? &log : nullptr);
  });
  report.hazards = log.take();
  return report;
}

}  // namespace kernelwright::emulator
