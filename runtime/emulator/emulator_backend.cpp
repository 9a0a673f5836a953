#include "kernelwright/runtime/emulator/emulator_backend.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <tuple>
#include <utility>

#include "kernelwright/generator/checked.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/tensor_map.h"
#include "kernelwright/runtime/emulator/program/program.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"

namespace kernelwright {

namespace {

using emulator::HazardKind;
using emulator::HazardReport;
using emulator::KernelHazard;
using emulator::Statistics;

// Values of CUresult, named as in cuda.h, which the emulator does not include.
enum Code : int {
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kInvalidPtx = 218,
  kInvalidHandle = 400,
  kIllegalState = 401,
  kNotFound = 500,
  kIllegalAddress = 700,
  kLaunchTimeout = 702,
  kLaunchFailed = 719,
  kStreamCaptureUnsupported = 900,
};

constexpr std::size_t kMostTraces = 16;

int code_of(HazardKind fault) {
  switch (fault) {
    case HazardKind::kOutOfBounds: return kIllegalAddress;
    case HazardKind::kDeadlock: return kLaunchTimeout;
    default: return kLaunchFailed;
  }
}

/// Whether PTX for `target` ("sm_80") runs on `arch`. PTX runs on later architectures too, unless its target ends in a
/// letter.
bool runs_on(std::string_view target, const ArchInfo& arch) {
  if (target == arch.name) return true;
  if (!target.starts_with("sm_") || target.size() < 5) return false;
  int version = 0;
  for (const char c : target.substr(3)) {
    if (c < '0' || c > '9') return false;
    version = version * 10 + (c - '0');
  }
  return version <= arch.major * 10 + arch.minor;
}

DeviceInfo info_of(const ArchInfo& arch, int num_sms) {
  DeviceInfo info;
  info.name = fmt::format("emulated {}", arch.name);
  info.compute_major = arch.major;
  info.compute_minor = arch.minor;
  info.arch = arch.arch;
  info.num_sms = num_sms;
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) info.memory_bytes = static_cast<std::size_t>(pages) * static_cast<std::size_t>(page);
  info.shared_bytes_per_cta = arch.shared_bytes_per_cta;
  info.wants = ImageKind::kPtx;
  return info;
}

std::string words(const std::string& entry, const LaunchConfig& config) {
  std::string text = fmt::format("launching {} grid {}x{}x{} block {} shared {}", entry, config.grid[0], config.grid[1],
                                 config.grid[2], config.block, config.shared_bytes);
  if (config.cluster[0] * config.cluster[1] * config.cluster[2] > 1)
    text += fmt::format(" cluster {}x{}x{}", config.cluster[0], config.cluster[1], config.cluster[2]);
  return text;
}

struct EmulatedKernel final : LoadedKernel {
  std::size_t loaded_bytes() const override { return bytes; }

  std::shared_ptr<emulator::Emulator> machine;  // first: its memory has the module's variables
  std::shared_ptr<const emulator::LoadedModule> module;
  std::string entry;
  KernelNotes notes;
  std::size_t bytes = 0, params_bytes = 0;
  std::uint32_t registers = 0, max_shared_bytes = 0;
};

/// What a stream keeps while it captures. Other streams have no state.
struct EmulatedStream {
  bool capturing = false;
  std::vector<std::function<void()>> captured;
};

struct HostEvent {
  bool recorded = false;
  std::chrono::steady_clock::time_point time;
};

class EmulatedGraph final : public Device::Graph {
 public:
  using Enqueue = std::function<void(Stream, std::function<void()>)>;
  EmulatedGraph(std::vector<std::function<void()>> nodes, Enqueue enqueue)
      : nodes_(std::move(nodes)), enqueue_(std::move(enqueue)) {}
  void replay(Stream stream) override {
    for (const auto& node : nodes_) enqueue_(stream, node);
  }

 private:
  const std::vector<std::function<void()>> nodes_;
  const Enqueue enqueue_;
};

class EmulatedDevice final : public Device {
 public:
  EmulatedDevice(EmulatorBackendOptions options, const EmulatedMachine& machine)
      : options_(std::move(options)),
        arch_(arch_info(options_.arch)),
        info_(info_of(arch_, options_.num_sms > 0 ? options_.num_sms : machine.num_sms)) {
    emulator::Options running;
    running.hazards = options_.hazards;
    running.completion = options_.completion;
    running.seed = options_.seed;
    running.shuffle = options_.seed != 0;
    running.threads = options_.threads;
    running.num_sms = info_.num_sms;
    running.max_instructions = options_.max_instructions;
    running.timeline = options_.timeline;
    running.timeline_cta = options_.timeline_cta;
    running.costs = machine.costs;
    machine_ = std::make_shared<emulator::Emulator>(running);
  }

  const DeviceInfo& info() const override { return info_; }
  int ordinal() const override { return 0; }

  DevicePtr allocate(std::size_t bytes) override {
    require_span(0, bytes);
    const auto refuse = [&](const std::string& why) {
      throw DeviceError(fmt::format("allocating {} bytes on {}: {}", bytes, info_.name, why), kOutOfMemory);
    };
    // Beyond this limit the host would promise memory that it lacks, and end this process when the memory is used.
    const std::size_t live = machine_->memory().allocated_bytes(), most = info_.memory_bytes;
    if (most > 0 && bytes > most - std::min(live, most))
      refuse(fmt::format("this machine has {} bytes, of which {} are taken", most, live));
    try {
      return machine_->memory().allocate(bytes);
    } catch (const std::bad_alloc&) {
      refuse("this machine has no memory for them");
      throw;
    }
  }
  void free(DevicePtr address) noexcept override {
    if (address == 0) return;
    try {
      machine_->memory().free(address);
    } catch (const std::exception&) {
      // As on a GPU: free() of an address that is no allocation does nothing.
    }
  }
  void copy_to_device(DevicePtr to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    require_span(to, bytes);
    require_memory(to, bytes, "copying to");
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    machine_->memory().host_wrote(to, bytes);
  }
  void copy_to_host(void* to, DevicePtr from, std::size_t bytes) override {
    if (bytes == 0) return;
    require_span(from, bytes);
    require_memory(from, bytes, "copying from");
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  }
  void fill(DevicePtr address, std::uint8_t byte, std::size_t bytes, Stream stream) override {
    if (bytes == 0) return;
    require_span(address, bytes);
    require_memory(address, bytes, "filling");
    enqueue(stream, [this, address, byte, bytes] {
      require_memory(address, bytes, "filling");  // checked again at each replay: a replay may come after free()
      std::memset(reinterpret_cast<void*>(address), byte, bytes);
    });
  }

  std::unique_ptr<LoadedKernel> load(const KernelImage& image, const std::string& entry,
                                     std::uint32_t max_shared_bytes) override;
  void launch(const LoadedKernel& kernel, const LaunchConfig& config, const void* params, std::size_t params_bytes,
              Stream stream) override;

  int max_ctas_per_sm(const LoadedKernel& kernel, std::uint32_t block, std::uint32_t shared_bytes) override {
    const auto& of = static_cast<const EmulatedKernel&>(kernel);
    const std::uint32_t shared = shared_bytes + of.module->program(of.entry).static_shared_bytes;
    return occupancy(arch_, static_cast<int>(shared), static_cast<int>(block), static_cast<int>(of.registers)).ctas;
  }
  TensorMap encode_tensor_map(const TensorMapRequest& request) override {
    try {
      return emulator::encode_tensor_map(emulator::describe(request));
    } catch (const ConfigError& error) {
      throw DeviceError(fmt::format("encoding a tensor map: {}", error.what()), kInvalidValue);
    }
  }

  Stream create_stream() override {
    auto made = std::make_unique<EmulatedStream>();
    const std::lock_guard lock(mutex_);
    const auto stream = reinterpret_cast<Stream>(made.get());
    streams_.emplace(stream, std::move(made));
    return stream;
  }
  void destroy_stream(Stream stream) noexcept override {
    const std::lock_guard lock(mutex_);
    streams_.erase(stream);
  }
  void synchronize(Stream stream) override {
    if (capture_state(stream) != CaptureState::kNone)
      throw DeviceError("waiting for a stream that is capturing: end the capture first", kStreamCaptureUnsupported);
  }
  CaptureState capture_state(Stream stream) override {
    const std::lock_guard lock(mutex_);
    const EmulatedStream* known = find(stream);
    return known && known->capturing ? CaptureState::kActive : CaptureState::kNone;
  }

  DeviceEvent* create_event() override {
    auto made = std::make_unique<HostEvent>();
    const std::lock_guard lock(mutex_);
    auto* event = reinterpret_cast<DeviceEvent*>(made.get());
    events_.emplace(event, std::move(made));
    return event;
  }
  void destroy_event(DeviceEvent* event) noexcept override {
    const std::lock_guard lock(mutex_);
    events_.erase(event);
  }
  void record(DeviceEvent* event, Stream stream) override {
    {
      const std::lock_guard lock(mutex_);
      find(event);
    }
    enqueue(stream, [this, event] {
      const auto now = std::chrono::steady_clock::now();
      const std::lock_guard lock(mutex_);
      find(event) = {true, now};
    });
  }
  float elapsed_ms(DeviceEvent* from, DeviceEvent* to) override {
    const std::lock_guard lock(mutex_);
    const HostEvent &begin = find(from), &end = find(to);
    if (!begin.recorded || !end.recorded) throw DeviceError("timing two events: one was not recorded", kInvalidHandle);
    return std::chrono::duration<float, std::milli>(end.time - begin.time).count();
  }

  void begin_capture(Stream stream) override {
    const std::lock_guard lock(mutex_);
    EmulatedStream* known = find(stream);
    if (!known)
      throw DeviceError("beginning a capture on the default stream, which cannot capture; create a stream",
                        kStreamCaptureUnsupported);
    if (known->capturing) throw DeviceError("beginning a capture on a stream that is capturing already", kIllegalState);
    known->capturing = true;
  }
  std::unique_ptr<Graph> end_capture(Stream stream) override {
    const std::lock_guard lock(mutex_);
    EmulatedStream* known = find(stream);
    if (!known || !known->capturing)
      throw DeviceError("ending a capture on a stream that is not capturing", kIllegalState);
    known->capturing = false;
    return std::make_unique<EmulatedGraph>(
        std::exchange(known->captured, {}),
        [this](Stream on, std::function<void()> node) { enqueue(on, std::move(node)); });
  }

  std::vector<KernelHazard> take_reports() {
    const std::lock_guard lock(mutex_);
    std::vector<KernelHazard> all;
    for (auto& [key, hazard] : reports_) all.push_back(std::move(hazard));
    reports_.clear();
    return all;
  }
  void add_report(const KernelHazard& hazard) {
    {
      const std::lock_guard lock(mutex_);
      add_locked(hazard);
    }
    if (options_.on_report) options_.on_report(hazard);
  }
  std::vector<std::shared_ptr<const emulator::Trace>> take_traces() {
    const std::lock_guard lock(mutex_);
    return std::exchange(traces_, {});
  }
  Statistics statistics() const {
    const std::lock_guard lock(mutex_);
    return statistics_;
  }
  emulator::Emulator& machine() { return *machine_; }

 private:
  /// One launch, executed when its stream reaches it.
  struct Launch {
    std::shared_ptr<const emulator::LoadedModule> module;
    std::string entry;
    KernelNotes notes;
    std::uint32_t registers = 0;
    LaunchConfig config;
    std::vector<std::byte> params;
    Stream stream = nullptr;
  };
  void run(const Launch& launch);
  void keep(const std::string& entry, const emulator::LaunchReport& report);
  /// Needs mutex_. Reports about data are equal if their sentences are; all others are equal if their lines are.
  void add_locked(const KernelHazard& hazard) {
    const HazardReport& report = hazard.report;
    const auto [known, fresh] =
        reports_.try_emplace({hazard.kernel, report.rule, report.first.ptx_line, report.second.ptx_line,
                              report.kind == HazardKind::kData ? report.what : ""},
                             hazard);
    if (!fresh) known->second.report.count += report.count;
  }

  /// Needs mutex_. Null is the default stream, which has no state. Throws for an unknown stream.
  EmulatedStream* find(Stream stream) {
    if (!stream) return nullptr;
    const auto found = streams_.find(stream);
    if (found == streams_.end())
      throw DeviceError("the stream is none of this device's; create_stream() makes one", kInvalidHandle);
    return found->second.get();
  }
  HostEvent& find(DeviceEvent* event) {
    const auto found = events_.find(event);
    if (found == events_.end())
      throw DeviceError("the event is none of this device's; create_event() makes one", kInvalidHandle);
    return *found->second;
  }
  /// Runs `work` now, or, if `stream` captures, when the capture is replayed.
  void enqueue(Stream stream, std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      if (EmulatedStream* known = find(stream); known && known->capturing) {
        known->captured.push_back(std::move(work));
        return;
      }
    }
    work();
  }
  void require_memory(DevicePtr address, std::size_t bytes, const char* doing) const {
    try {
      machine_->memory().check(address, bytes);
    } catch (const emulator::Fault& fault) {
      throw DeviceError(fmt::format("{} {} bytes at {:#x}: {}", doing, bytes, address, fault.what()), kInvalidValue);
    }
  }

  const EmulatorBackendOptions options_;
  const ArchInfo& arch_;
  const DeviceInfo info_;
  std::shared_ptr<emulator::Emulator> machine_;
  mutable std::mutex mutex_;  // guards what follows; never held while a launch runs
  std::map<Stream, std::unique_ptr<EmulatedStream>> streams_;
  std::map<DeviceEvent*, std::unique_ptr<HostEvent>> events_;
  std::map<std::tuple<std::string, emulator::HazardRule, int, int, std::string>, KernelHazard> reports_;
  std::vector<std::shared_ptr<const emulator::Trace>> traces_;
  Statistics statistics_;
  Stream last_stream_ = nullptr;  // the stream of the launch before
  bool launched_ = false;
};

std::unique_ptr<LoadedKernel> EmulatedDevice::load(const KernelImage& image, const std::string& entry,
                                                   std::uint32_t max_shared_bytes) {
  if (image.kind() != ImageKind::kPtx)
    throw DeviceError(
        fmt::format("loading {}: the emulator runs PTX, and this is a cubin of {} bytes", entry, image.bytes.size()),
        kInvalidImage);
  auto kernel = std::make_unique<EmulatedKernel>();
  kernel->machine = machine_;
  kernel->entry = entry;
  kernel->bytes = image.bytes.size();
  kernel->registers = image.registers;
  kernel->max_shared_bytes = max_shared_bytes;
  if (image.notes) kernel->notes = *image.notes;
  try {
    kernel->module =
        machine_->load({reinterpret_cast<const char*>(image.bytes.data()), kernel->bytes}, image.lined_ptx);
    const emulator::Module& module = kernel->module->module();
    if (!runs_on(module.target, arch_))
      throw DeviceError(fmt::format("loading {}: PTX for {} does not run on {}; have the device claim to be {}", entry,
                                    module.target, info_.name, module.target),
                        kNoBinaryForGpu);
    if (!module.find(entry)) throw DeviceError(fmt::format("loading {}: the PTX has no such entry", entry), kNotFound);
    const emulator::Program& program = kernel->module->program(entry);
    kernel->params_bytes = program.entry->parameter_bytes;
    const std::uint64_t shared = std::uint64_t{max_shared_bytes} + program.static_shared_bytes;
    if (shared > static_cast<std::uint64_t>(arch_.shared_bytes_per_cta))
      throw DeviceError(fmt::format("loading {}: {} bytes of shared memory, and {} allows {}", entry, shared,
                                    info_.name, arch_.shared_bytes_per_cta),
                        kInvalidValue);
  } catch (const emulator::PtxError& error) {
    throw DeviceError(fmt::format("loading {} on the emulator: PTX {}", entry, error.what()), kInvalidPtx);
  } catch (const std::bad_alloc&) {
    throw DeviceError(fmt::format("loading {}: this machine has no memory for it", entry), kOutOfMemory);
  }
  return kernel;
}

void EmulatedDevice::launch(const LoadedKernel& loaded, const LaunchConfig& config, const void* params,
                            std::size_t params_bytes, Stream stream) {
  const auto& kernel = static_cast<const EmulatedKernel&>(loaded);
  const auto refuse = [&](const std::string& why) {
    throw DeviceError(fmt::format("{}: {}", words(kernel.entry, config), why), kInvalidValue);
  };
  if (params_bytes != kernel.params_bytes)
    refuse(fmt::format("{} bytes of parameters were given and its entry takes {}", params_bytes, kernel.params_bytes));
  if (config.shared_bytes > kernel.max_shared_bytes)
    refuse(fmt::format("it was loaded for at most {} bytes of dynamic shared memory", kernel.max_shared_bytes));
  if (config.grid[1] > 65535 || config.grid[2] > 65535) refuse("a grid has at most 65535 CTAs in y and in z");
  if (!arch_.clusters && config.cluster[0] * config.cluster[1] * config.cluster[2] > 1)
    refuse(fmt::format("{} has no clusters", arch_.name));
  Launch launch{.module = kernel.module,
                .entry = kernel.entry,
                .notes = kernel.notes,
                .registers = kernel.registers,
                .config = config,
                .stream = stream};
  const auto* bytes = static_cast<const std::byte*>(params);
  launch.params.assign(bytes, bytes + params_bytes);
  enqueue(stream, [this, launch = std::move(launch)] { run(launch); });
}

void EmulatedDevice::run(const Launch& launch) {
  emulator::LaunchShape shape;
  for (int i = 0; i < 3; ++i) {
    shape.grid[i] = launch.config.grid[i];
    shape.cluster[i] = launch.config.cluster[i];
  }
  shape.block[0] = launch.config.block;
  shape.dynamic_shared_bytes = launch.config.shared_bytes;
  shape.registers_per_thread = launch.registers;
  shape.notes = &launch.notes;
  {
    const std::lock_guard lock(mutex_);
    // A launch may overlap the launch ahead of it in its own stream. PDL does not concern launches of other streams.
    shape.after_previous = launch.config.pdl && launched_ && last_stream_ == launch.stream;
    shape.after_unknown = launch.config.pdl && options_.unknown_ahead;
    last_stream_ = launch.stream;
    launched_ = true;
  }
  emulator::LaunchReport report;
  try {
    report = machine_->launch(*launch.module, launch.entry, shape, launch.params);
  } catch (const ConfigError& error) {
    throw DeviceError(fmt::format("{} on {}: {}", words(launch.entry, launch.config), info_.name, error.what()),
                      kInvalidValue);
  } catch (const std::bad_alloc&) {
    throw DeviceError(fmt::format("{}: this machine has no memory for it", words(launch.entry, launch.config)),
                      kOutOfMemory);
  }
  keep(launch.entry, report);
  if (!report.completed)
    throw DeviceError(fmt::format("{} on {}: {}", words(launch.entry, launch.config), info_.name, report.fault),
                      code_of(report.fault_kind));
}

void EmulatedDevice::keep(const std::string& entry, const emulator::LaunchReport& report) {
  {
    const std::lock_guard lock(mutex_);
    statistics_.warp_instructions += report.statistics.warp_instructions;
    statistics_.thread_instructions += report.statistics.thread_instructions;
    statistics_.mma_operations += report.statistics.mma_operations;
    statistics_.copied_bytes += report.statistics.copied_bytes;
    statistics_.seconds += report.statistics.seconds;
    if (report.trace) {
      if (traces_.size() == kMostTraces) traces_.erase(traces_.begin());
      traces_.push_back(report.trace);
    }
    for (const HazardReport& hazard : report.hazards) add_locked({entry, hazard});
  }
  if (options_.on_report)
    for (const HazardReport& hazard : report.hazards) options_.on_report({entry, hazard});
  if (!report.printed.empty()) options_.on_print(report.printed);
}

class Emulated final : public EmulatorBackend {
 public:
  Emulated(EmulatorBackendOptions options, const EmulatedMachine& machine) : device_(std::move(options), machine) {}
  std::string_view name() const override { return "emulator"; }
  int device_count() const override { return 1; }
  Device& device(int ordinal) override {
    if (ordinal != 0) throw MissingError(fmt::format("there is no emulated device {}; device 0 is the one", ordinal));
    return device_;
  }
  std::vector<KernelHazard> take_reports() override { return device_.take_reports(); }
  void add_report(KernelHazard hazard) override { device_.add_report(hazard); }
  std::vector<std::shared_ptr<const emulator::Trace>> take_traces() override { return device_.take_traces(); }
  Statistics statistics() const override { return device_.statistics(); }
  emulator::Emulator& emulator() override { return device_.machine(); }

 private:
  EmulatedDevice device_;
};

}  // namespace

std::unique_ptr<EmulatorBackend> make_emulator_backend(EmulatorBackendOptions options, const EmulatedMachine& machine) {
  return std::make_unique<Emulated>(std::move(options), machine);
}

}  // namespace kernelwright
