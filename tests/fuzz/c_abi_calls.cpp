#include "fuzz/c_abi_calls.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "kernelwright/generator/checked.h"
#include "kernelwright/runtime/c/c_api_engine.h"
#include "kernelwright/runtime/emulator/machine/tensor_map.h"
#include "support/fake_store.h"

namespace kernelwright::fuzz {
namespace {

/// Numbers out of the input; zeros once it has ended.
class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool ended() const { return at_ >= bytes_.size(); }
  std::uint8_t byte() { return ended() ? 0 : bytes_[at_++]; }
  std::size_t below(std::size_t count) { return (byte() | std::size_t{byte()} << 8) % count; }
  bool one_in(std::size_t count) { return below(count) == 0; }
  std::uint64_t raw() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  /// Numbers that often cause overflows.
  std::uint64_t extreme() {
    const std::uint64_t power = std::uint64_t{1} << below(64);
    switch (below(8)) {
      case 0: return 0;
      case 1: return power;
      case 2: return power - 1;
      case 3: return 0 - power;
      case 4: return power + byte();
      case 5: return raw();
      case 6: return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(raw())));
      default: return byte();
    }
  }
  template <class T, std::size_t n>
  const T& of(const T (&list)[n]) {
    return list[below(n)];
  }
  template <class T>
  T fill() {
    T value;
    auto* to = reinterpret_cast<unsigned char*>(&value);
    for (std::size_t i = 0; i < sizeof value; ++i) to[i] = byte();
    return value;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

[[noreturn]] void broken(const std::string& what) {
  std::fprintf(stderr, "c_abi_calls: %s\nlast error: %s\n", what.c_str(), kernelwright_last_error());
  std::abort();
}

std::uint64_t launches_taken = 0;

struct TakenKernel final : LoadedKernel {
  std::size_t loaded_bytes() const override { return 1000; }
};

/// Accepts every launch and reads nothing. Checks that launches keep to the sizes that a driver accepts.
class TakingDevice final : public Device {
 public:
  explicit TakingDevice(Arch arch) {
    const ArchInfo& row = arch_info(arch);
    info_ = {.name = "taking",
             .compute_major = row.major,
             .compute_minor = row.minor,
             .arch = arch,
             .num_sms = 132,
             .memory_bytes = std::size_t{80} << 30,
             .shared_bytes_per_cta = row.shared_bytes_per_cta};
  }
  const DeviceInfo& info() const override { return info_; }
  int ordinal() const override { return 0; }
  DevicePtr allocate(std::size_t bytes) override {
    require_span(0, bytes);
    if (bytes > info_.memory_bytes) throw DeviceError("cuMemAlloc: 2 (out of memory)", 2);
    return bytes ? 0x7000'0000 : 0;
  }
  void free(DevicePtr) noexcept override {}
  void copy_to_device(DevicePtr to, const void*, std::size_t bytes) override { require_span(to, bytes); }
  void copy_to_host(void*, DevicePtr from, std::size_t bytes) override { require_span(from, bytes); }
  void fill(DevicePtr address, std::uint8_t, std::size_t bytes, Stream) override {
    if (!is_span(address, bytes)) broken(fmt::format("{} bytes at {:#x} are filled", bytes, address));
  }
  std::unique_ptr<LoadedKernel> load(const KernelImage&, const std::string&, std::uint32_t) override {
    return std::make_unique<TakenKernel>();
  }
  void launch(const LoadedKernel&, const LaunchConfig& config, const void* params, std::size_t params_bytes,
              Stream) override {
    ++launches_taken;
    if (config.grid[0] == 0 || config.grid[0] > 0x7fffffff || config.grid[1] == 0 || config.grid[1] > 65535 ||
        config.grid[2] != 1 || config.block == 0 || config.block > 1024)
      broken(fmt::format("a grid of {} x {} x {} CTAs of {} threads is launched", config.grid[0], config.grid[1],
                         config.grid[2], config.block));
    for (std::size_t i = 0; i < params_bytes; ++i) sum_ = sum_ + static_cast<const unsigned char*>(params)[i];
  }
  int max_ctas_per_sm(const LoadedKernel&, std::uint32_t, std::uint32_t) override { return 1; }
  TensorMap encode_tensor_map(const TensorMapRequest& request) override {
    try {
      return emulator::encode_tensor_map(emulator::describe(request));
    } catch (const ConfigError& error) {
      broken(fmt::format("a tensor map reaches the driver that no driver takes: {}", error.what()));
    }
  }
  Stream create_stream() override { return nullptr; }
  void destroy_stream(Stream) noexcept override {}
  void synchronize(Stream) override {}
  CaptureState capture_state(Stream) override { return CaptureState::kNone; }
  DeviceEvent* create_event() override { return nullptr; }
  void destroy_event(DeviceEvent*) noexcept override {}
  void record(DeviceEvent*, Stream) override {}
  float elapsed_ms(DeviceEvent*, DeviceEvent*) override { return 0; }
  void begin_capture(Stream) override {}
  std::unique_ptr<Graph> end_capture(Stream) override { return nullptr; }

 private:
  DeviceInfo info_;
  volatile unsigned sum_ = 0;
};

class TakingBackend final : public Backend {
 public:
  explicit TakingBackend(Arch arch) : device_(arch) {}
  std::string_view name() const override { return "taking"; }
  int device_count() const override { return 1; }
  Device& device(int ordinal) override {
    if (ordinal != 0) throw MissingError("there is device 0 alone");
    return device_;
  }

 private:
  TakingDevice device_;
};

kernelwright_engine* taking_engine(Arch arch) {
  EngineOptions options;
  options.compile_threads = 1;
  options.custom_backend = std::make_shared<TakingBackend>(arch);
  options.custom_store = std::make_shared<testing::FakeStore>();
  return new kernelwright_engine(std::move(options));
}

enum class Kind { kAttention, kGemm, kQuantize };
struct Kernel {
  kernelwright_kernel* handle = nullptr;
  Kind kind = Kind::kAttention;
};

constexpr const char* kConfigs[] = {
    R"({"version":1,"kind":"attention","name":"x","problem":{"head_dim":{"qk":128,"v":128},"heads":{"q":8,"kv":2},"mask":{"kind":"causal"},"lse":true},"schedule":"auto"})",
    R"({"version":1,"kind":"attention","name":"x","problem":{"head_dim":{"qk":128,"v":128},"heads":{"q":8,"kv":2},"max_q_len":1,"kv_layout":{"kind":"paged","page_size":64}},"schedule":"auto"})",
    R"({"version":1,"kind":"attention","name":"x","problem":{"head_dim":{"qk":64,"v":64},"heads":{"q":4,"kv":4},"q_layout":"ragged","kv_layout":{"kind":"ragged"},"mask":{"kind":"sliding_window","window":{"left":7,"right":0}}},"schedule":"auto"})",
    R"({"version":1,"kind":"attention","name":"x","problem":{"head_dim":{"qk":192,"v":128},"heads":{"q":16,"kv":2},"q_layout":"ragged","kv_layout":{"kind":"paged","page_size":16},"score_mod":{"kind":"softcap","cap":30},"sinks":true},"schedule":"auto"})",
    R"({"version":1,"kind":"gemm","name":"x","problem":{"n":512,"k":256},"schedule":"auto"})",
    R"({"version":1,"kind":"gemm","name":"x","problem":{"n":128,"k":4096,"layout":"tn","epilogue":"alpha * acc + beta * c"},"schedule":"auto"})",
    R"({"version":1,"kind":"gemm","name":"x","problem":{"n":384,"k":1024,"dtype":{"a":"e4m3","b":"e4m3","d":"bf16"},"scales":"per_block"},"schedule":"auto"})",
    R"({"version":1,"kind":"gemm","name":"x","problem":{"n":256,"k":512,"dtype":{"a":"mxfp8","b":"mxfp8","d":"bf16"},"scales":"per_block"},"schedule":"auto"})",
    R"({"version":1,"kind":"gemm","name":"x","problem":{"n":256,"k":8192},"schedule":{"split_k":4,"split_mode":"turnstile"}})",
};
constexpr std::string_view kGemmKind = "\"kind\":\"gemm\"";

/// Kernels that are prepared once, for three architectures, because most calls are launches.
const std::vector<Kernel>& ready_kernels() {
  static std::vector<std::unique_ptr<kernelwright_engine>> engines;
  static const std::vector<Kernel> kernels = [] {
    std::vector<Kernel> made;
    for (const Arch arch : {Arch::kSm86, Arch::kSm90a, Arch::kSm100a}) {
      kernelwright_engine* engine = engines.emplace_back(taking_engine(arch)).get();
      Kernel kernel;
      for (const std::string_view config : kConfigs) {
        kernel.kind = config.find(kGemmKind) != config.npos ? Kind::kGemm : Kind::kAttention;
        if (kernelwright_prepare_json(engine, config.data(), config.size(), nullptr, &kernel.handle) == KERNELWRIGHT_OK)
          made.push_back(kernel);
      }
      kernel.kind = Kind::kQuantize;
      for (const char* to : {"mxfp8", "nvfp4"})
        if (kernelwright_prepare_quantize(engine, "bf16", to, nullptr, &kernel.handle) == KERNELWRIGHT_OK)
          made.push_back(kernel);
    }
    if (made.size() < 20) broken("most kernels cannot be prepared");
    return made;
  }();
  return kernels;
}

/// A struct in exactly as many bytes as its struct_size says.
template <class T>
class Sized {
 public:
  Sized(Input& in, const T& value) {
    constexpr std::size_t kMost = 4096;  // the library reads no more than this
    std::size_t size = sizeof(T);
    switch (in.below(12)) {
      case 0: size = in.below(kMost / 8) * 8; break;
      case 1: size = in.extreme(); break;
      case 2: size = sizeof(T) / 8 * 8 - in.below(sizeof(T) / 8) * 8; break;
      default: break;
    }
    there_ = size > kMost ? sizeof(std::size_t) : std::max(size, sizeof(std::size_t));
    memory_.reset(static_cast<unsigned char*>(std::malloc(there_)));
    std::memset(memory_.get(), 0, there_);
    std::memcpy(memory_.get(), &value, std::min(there_, sizeof(T)));
    if (there_ > sizeof(T) && in.one_in(2)) memory_.get()[sizeof(T) + in.below(there_ - sizeof(T))] = in.byte();
    std::memcpy(memory_.get(), &size, sizeof size);
    if (in.one_in(64)) memory_.reset();
  }
  T* get() { return reinterpret_cast<T*>(memory_.get()); }

 private:
  struct Free {
    void operator()(unsigned char* memory) const { std::free(memory); }
  };
  std::unique_ptr<unsigned char, Free> memory_;
  std::size_t there_ = 0;
};

class Calls {
 public:
  Calls(std::span<const std::uint8_t> bytes, CallCounts& counts) : in_(bytes), counts_(counts) {}
  ~Calls() { destroy(); }
  Calls(const Calls&) = delete;

  void make_all() {
    while (!in_.ended()) make_one();
  }

 private:
  static constexpr std::uint64_t kUntouched = 0x5ca1ab1e0ddba11;

  /// Checks what every call promises.
  kernelwright_status held(const char* call, kernelwright_status status) {
    ++counts_.calls;
    if (status < KERNELWRIGHT_OK || status > KERNELWRIGHT_INTERNAL_ERROR)
      broken(fmt::format("{} returned {}", call, status));
    if (status == KERNELWRIGHT_INTERNAL_ERROR) broken(fmt::format("{} ended in an internal error", call));
    ++counts_.by_status[status];
    if (status != KERNELWRIGHT_OK && *kernelwright_last_error() == 0) broken(fmt::format("{} failed wordlessly", call));
    return status;
  }
  template <class T>
  void unwritten(const char* call, kernelwright_status status, const T& value, const T& before) {
    if (status != KERNELWRIGHT_OK && value != before) broken(fmt::format("{} failed and wrote a result", call));
  }

  void make_one() {
    switch (in_.below(32)) {
      case 0: return create();
      case 1: return lifecycle();
      case 2: return prepare_json();
      case 3: return prepare_attention();
      case 4: return prepare_quantize();
      case 5: return memory();
      case 6: return memory();
      case 7: return ask();
      case 8: return ask();
      case 9: return scale_bytes();
      case 10:
      case 11:
      case 12:
      case 13: return launch_quantize();
      default: return in_.one_in(2) ? attention() : gemm();
    }
  }

  const char* text() {  // any bytes, with a zero behind them
    std::string& made = texts_.emplace_back();
    for (std::size_t i = in_.below(20); i > 0; --i) made.push_back(static_cast<char>(in_.byte()));
    return made.c_str();
  }
  template <std::size_t n>
  const char* word(const char* const (&words)[n]) {
    const std::size_t at = in_.below(2 * n + 2);
    return at == 2 * n ? text() : at == 2 * n + 1 ? nullptr : words[at % n];
  }

  void create() {
    destroy();
    if (in_.one_in(3)) {
      static constexpr Arch kArchs[] = {Arch::kSm86, Arch::kSm90a, Arch::kSm100a};
      engine_ = taking_engine(in_.of(kArchs));
      return;
    }
    static constexpr const char* kBackends[] = {"emulator"};  // of a GPU nothing is known here
    static constexpr const char* kArchs[] = {"sm_80", "sm_90a", "sm_100a"};
    static constexpr const char* kCompletions[] = {"eager", "lazy", "random"};
    auto options = in_.fill<kernelwright_engine_options>();
    options.backend = in_.one_in(8) ? "neither" : kBackends[0];
    options.cache_directory = options.nvrtc_path = "/nonexistent/kernelwright";
    options.tuned_dir = nullptr;
    static constexpr const char* kLayers[] = {"/nonexistent/layer", nullptr};
    options.read_only_layers = in_.one_in(2) ? kLayers : nullptr;
    options.num_read_only_layers = in_.below(3);
    options.memory_only_cache = 1;
    options.event_callback = in_.one_in(2) ? on_event : nullptr;
    options.emulator_arch = word(kArchs);
    options.completion = word(kCompletions);
    Sized<kernelwright_engine_options> sized(in_, options);
    if (!sized.get()) return;  // by default it would look for a GPU
    kernelwright_engine* made = nullptr;
    const auto status =
        held("engine_create", kernelwright_engine_create(sized.get(), in_.one_in(32) ? nullptr : &made));
    if (status == KERNELWRIGHT_OK && !made) broken("engine_create made nothing");
    unwritten("engine_create", status, made, static_cast<kernelwright_engine*>(nullptr));
    engine_ = made;
  }
  static void on_event(const kernelwright_event* event, void*) {
    if (event->struct_size != sizeof *event || !event->kind || !event->detail) broken("an event without words");
  }
  static void on_hazard(const kernelwright_hazard*, void*) {}
  void destroy() {
    kernelwright_engine_destroy(engine_);
    engine_ = nullptr;
    own_.clear();
    addresses_.clear();
  }
  kernelwright_engine* engine() { return in_.one_in(32) ? nullptr : engine_; }

  static void on_row(const kernelwright_kernel_row* row, void*) {
    if (!row->kind || !row->kernel || std::strlen(row->key) != 64 || !row->error || !row->source || !row->entry)
      broken("a kernel's row without its words");
  }
  static void on_text(const char* text, size_t length, void*) {
    if (std::strlen(text) != length || length == 0) broken("metrics of another length");
  }
  template <class Call>
  void ask_flag(const char* name, Call* call) {
    int32_t flag = 7;
    const auto status = held(name, call(engine(), in_.one_in(16) ? nullptr : &flag));
    unwritten(name, status, flag, 7);
    if (status == KERNELWRIGHT_OK && flag != 0 && flag != 1) broken("a flag that is none");
  }

  void lifecycle() {
    switch (in_.below(11)) {
      case 0: held("engine_seal", kernelwright_engine_seal(engine())); return;
      case 1: {
        int32_t ready = 7;
        const auto status = held("wait_until_ready", kernelwright_engine_wait_until_ready(
                                                         engine(), static_cast<int32_t>(in_.below(3)), &ready));
        unwritten("wait_until_ready", status, ready, 7);
        return;
      }
      case 2: {
        int32_t promoted = 0;
        held("promote", kernelwright_engine_promote(engine(), in_.one_in(2) ? nullptr : &promoted));
        return;
      }
      case 3: {
        Sized<kernelwright_counters> counters(in_, in_.fill<kernelwright_counters>());
        held("counters", kernelwright_engine_counters(engine(), counters.get()));
        return;
      }
      case 4: {
        uint64_t count = 0;
        held("take_hazards", kernelwright_engine_take_hazards(engine(), in_.one_in(2) ? on_hazard : nullptr, nullptr,
                                                              in_.one_in(2) ? nullptr : &count));
        return;
      }
      case 5: return ask_flag("is_ready", kernelwright_engine_is_ready);
      case 6: return ask_flag("is_sealed", kernelwright_engine_is_sealed);
      case 7: {
        Sized<kernelwright_latency> latency(in_, in_.fill<kernelwright_latency>());
        const auto step = static_cast<int32_t>(in_.one_in(4) ? in_.extreme() : in_.below(4));
        held("latency", kernelwright_engine_latency(engine(), step, latency.get()));
        return;
      }
      case 8:
        held("metrics", kernelwright_engine_metrics(engine(), in_.one_in(8) ? nullptr : on_text, nullptr));
        return;
      case 9: {
        uint64_t count = 0;
        held("list_kernels", kernelwright_engine_list_kernels(engine(), in_.one_in(8) ? nullptr : on_row, nullptr,
                                                              in_.one_in(2) ? nullptr : &count));
        return;
      }
      default: return destroy();
    }
  }

  int32_t device() { return in_.one_in(8) ? static_cast<int32_t>(in_.extreme()) : 0; }

  void memory() {
    // Host memory is as large as the largest allocation, so the library may read whatever it accepts.
    static constexpr std::size_t kMost = 1 << 16;
    static std::array<unsigned char, kMost> host;
    const auto some_address = [&]() -> uint64_t {
      if (addresses_.empty() || in_.one_in(4)) return in_.extreme();
      return addresses_[in_.below(addresses_.size())] + (in_.one_in(2) ? 0 : in_.extreme() % 70000);
    };
    // No allocation that a machine might grant and then fill.
    const uint64_t hostile = in_.extreme(), bytes = hostile > kMost && hostile < uint64_t{1} << 44 ? 100 : hostile;
    switch (in_.below(5)) {
      case 0: {
        uint64_t address = kUntouched;
        const auto status = held("allocate", kernelwright_device_allocate(engine(), device(), bytes, &address));
        unwritten("allocate", status, address, kUntouched);
        if (status == KERNELWRIGHT_OK && bytes > 0) addresses_.push_back(address);
        if (status == KERNELWRIGHT_OK && bytes > kMost) broken(fmt::format("{} bytes were allocated", bytes));
        return;
      }
      case 1: {
        const std::size_t at = addresses_.empty() ? 0 : in_.below(addresses_.size());
        const uint64_t address = addresses_.empty() || in_.one_in(3) ? in_.extreme() : addresses_[at];
        held("free", kernelwright_device_free(engine(), device(), address));
        return;
      }
      case 2: {
        const char* name = nullptr;
        const auto status =
            held("device_name", kernelwright_device_name(engine(), device(), in_.one_in(9) ? nullptr : &name));
        if (status == KERNELWRIGHT_OK && (!name || !*name)) broken("a device without a name");
        return;
      }
      case 3:
        held("write", kernelwright_device_write(engine(), device(), some_address(),
                                                in_.one_in(16) ? nullptr : host.data(), bytes));
        return;
      default:
        held("read", kernelwright_device_read(engine(), device(), in_.one_in(16) ? nullptr : host.data(),
                                              some_address(), bytes));
        return;
    }
  }

  Sized<kernelwright_prepare_options> prepare_options() {
    auto options = in_.one_in(4) ? in_.fill<kernelwright_prepare_options>() : kernelwright_prepare_options{};
    options.on_miss = in_.one_in(8) ? options.on_miss : static_cast<int32_t>(in_.below(3));
    options.device = device();
    options.background = in_.one_in(4);
    return Sized<kernelwright_prepare_options>(in_, options);
  }
  void keep(const char* call, kernelwright_status status, kernelwright_kernel* made, Kind kind) {
    held(call, status);
    if ((status == KERNELWRIGHT_OK) != (made != nullptr)) broken(fmt::format("{}: a kernel without success", call));
    if (made) own_.push_back({made, kind});
  }

  void prepare_json() {
    std::string config = in_.of(kConfigs);
    for (std::size_t edits = in_.below(4); edits > 0; --edits) {
      const std::size_t at = in_.below(config.size() + 1);
      switch (in_.below(4)) {
        case 0: config.insert(at, std::to_string(static_cast<int64_t>(in_.extreme()))); break;
        case 1: config.erase(at, in_.below(8)); break;
        case 2:
          if (at < config.size()) config[at] = static_cast<char>(in_.byte());
          break;
        default:  // another number in place of one
          if (const std::size_t digit = config.find_first_of("0123456789", at); digit != config.npos)
            config.replace(digit, config.find_first_not_of("0123456789", digit) - digit, std::to_string(in_.extreme()));
      }
    }
    auto options = prepare_options();
    kernelwright_kernel* kernel = nullptr;
    // Text of exactly its length, without a zero behind it.
    const std::vector<char> text(config.begin(), config.end());
    const auto status = kernelwright_prepare_json(engine(), in_.one_in(64) ? nullptr : text.data(), text.size(),
                                                  options.get(), &kernel);
    // A launch checks the handle's kind before anything else, whatever its state.
    keep("prepare_json", status, kernel, config.find(kGemmKind) != config.npos ? Kind::kGemm : Kind::kAttention);
  }

  void prepare_attention() {
    static constexpr const char* kDTypes[] = {"bf16", "f16", "e4m3", "f32"};
    static constexpr const char* kQLayouts[] = {"padded", "ragged"};
    static constexpr const char* kKvLayouts[] = {"padded", "ragged", "paged"};
    static constexpr const char* kMasks[] = {"none", "causal", "sliding_window", "chunked"};
    static constexpr const char* kMods[] = {"none", "softcap", "alibi"};
    static constexpr const char* kScales[] = {"none", "per_tensor", "per_head"};
    auto problem = in_.fill<kernelwright_attention_problem>();
    problem.q_dtype = word(kDTypes), problem.kv_dtype = word(kDTypes), problem.out_dtype = word(kDTypes);
    problem.q_layout = word(kQLayouts), problem.kv_layout = word(kKvLayouts);
    problem.mask = word(kMasks), problem.score_mod = word(kMods), problem.scales = word(kScales);
    if (!in_.one_in(3)) {
      static constexpr int32_t kDims[] = {64, 128, 192, 256}, kHeads[] = {1, 2, 8, 16, 4096};
      problem.head_dim_qk = in_.of(kDims), problem.head_dim_v = in_.of(kDims);
      problem.q_heads = in_.of(kHeads), problem.kv_heads = in_.of(kHeads);
      problem.page_size = in_.one_in(2) ? 64 : 0, problem.max_q_len = in_.one_in(2);
    }
    Sized<kernelwright_attention_problem> sized(in_, problem);
    auto options = prepare_options();
    kernelwright_kernel* kernel = nullptr;
    const auto status = kernelwright_prepare_attention(engine(), sized.get(), options.get(), &kernel);
    keep("prepare_attention", status, kernel, Kind::kAttention);
  }

  void prepare_quantize() {
    static constexpr const char* kFrom[] = {"bf16", "f16", "f32"};
    static constexpr const char* kTo[] = {"mxfp8", "mxfp4", "nvfp4", "e4m3"};
    auto options = prepare_options();
    kernelwright_kernel* kernel = nullptr;
    const auto status = kernelwright_prepare_quantize(engine(), word(kFrom), word(kTo), options.get(), &kernel);
    keep("prepare_quantize", status, kernel, Kind::kQuantize);
  }

  const kernelwright_kernel* kernel_of(Kind kind) {
    if (in_.one_in(64)) return nullptr;
    if (!own_.empty() && in_.one_in(4)) return own_[in_.below(own_.size())].handle;
    const auto& ready = ready_kernels();
    const std::size_t from = in_.below(ready.size());
    for (std::size_t i = 0; i < ready.size(); ++i)
      if (const Kernel& kernel = ready[(from + i) % ready.size()]; kernel.kind == kind) return kernel.handle;
    return nullptr;
  }

  void ask() {
    switch (in_.below(4)) {
      case 0: {
        Sized<kernelwright_kernel_info> info(in_, in_.fill<kernelwright_kernel_info>());
        held("get_info",
             kernelwright_kernel_get_info(kernel_of(in_.one_in(2) ? Kind::kGemm : Kind::kAttention), info.get()));
        return;
      }
      case 1: held("kernel_wait", kernelwright_kernel_wait(kernel_of(Kind::kAttention))); return;
      case 2:
        if (!*kernelwright_status_name(static_cast<int32_t>(in_.extreme()))) broken("a status without a name");
        return;
      default:
        if (!*kernelwright_version() || !kernelwright_last_error()) broken("no version, or no last error");
    }
  }

  void scale_bytes() {
    static constexpr const char* kTo[] = {"mxfp8", "mxfp4", "nvfp4", "bf16"};
    uint64_t bytes = kUntouched;
    const auto status =
        held("scale_bytes", kernelwright_quantize_scale_bytes(word(kTo), static_cast<int64_t>(in_.extreme()),
                                                              static_cast<int32_t>(in_.extreme()), &bytes));
    unwritten("scale_bytes", status, bytes, kUntouched);
  }

  /// Some of a struct's words replaced by extremes; `first` spares struct_size.
  template <class T>
  void worsen(T& value) {
    for (std::size_t edits = in_.one_in(3) ? 0 : in_.below(4) + 1; edits > 0; --edits) {
      const bool wide = in_.one_in(2);
      const std::size_t width = wide ? 8 : 4, at = 8 + in_.below((sizeof(T) - 8) / width) * width;
      const uint64_t extreme = in_.extreme();
      std::memcpy(reinterpret_cast<unsigned char*>(&value) + at, &extreme, width);
    }
  }
  int32_t some(int32_t most) { return static_cast<int32_t>(in_.below(static_cast<std::size_t>(most))); }

  void attention() {
    kernelwright_attention_tensors tensors{};
    if (in_.one_in(8)) {
      tensors = in_.fill<kernelwright_attention_tensors>();
    } else {
      tensors.q = 0x10000, tensors.k = 0x2000000, tensors.v = 0x3000000, tensors.o = 0x4000000;
      tensors.batch = 1 + some(4), tensors.q_len = 1 + some(200), tensors.kv_len = some(3000);
      if (in_.one_in(2)) tensors.q_len = 1;
      if (in_.one_in(2)) tensors.lse = 0x5000000;
      if (in_.one_in(2)) tensors.kv_lengths = 0x5100000;
      if (in_.one_in(3))
        tensors.page_table = 0x5200000, tensors.page_table_stride = 200, tensors.num_pages = some(1000);
      if (in_.one_in(3)) tensors.q_offsets = 0x5300000, tensors.q_tokens = 1 + some(200), tensors.kv_lengths = 0;
      if (tensors.q_offsets && in_.one_in(2)) tensors.kv_offsets = tensors.q_offsets;
      if (in_.one_in(3)) tensors.sinks = 0x5400000;
      if (in_.one_in(4)) tensors.mask = 0x70000001;
      if (in_.one_in(4)) tensors.bias = 0x78000000;
      if (in_.one_in(2)) tensors.workspace = 0x6000000, tensors.workspace_bytes = uint64_t{1} << 32;
      if (in_.one_in(3)) tensors.k_strides = {3000 * 256, 256, 128};
    }
    worsen(tensors);
    Sized<kernelwright_attention_tensors> sized(in_, tensors);
    const kernelwright_kernel* kernel = kernel_of(in_.one_in(32) ? Kind::kGemm : Kind::kAttention);
    if (in_.one_in(4)) {
      uint64_t bytes = kUntouched;
      const auto status = held("workspace_bytes", kernelwright_workspace_bytes(kernel, sized.get(), &bytes));
      unwritten("workspace_bytes", status, bytes, kUntouched);
      if (status == KERNELWRIGHT_OK && bytes > uint64_t{1} << 56) broken(fmt::format("{} bytes of workspace", bytes));
      return;
    }
    held("launch", kernelwright_launch(kernel, sized.get(), nullptr));
  }

  void gemm() {
    kernelwright_gemm_tensors tensors{};
    if (in_.one_in(8)) {
      tensors = in_.fill<kernelwright_gemm_tensors>();
    } else {
      tensors.a = 0x10000, tensors.b = 0x4000000, tensors.d = 0x8000000, tensors.m = some(2000);
      if (in_.one_in(3)) tensors.c = 0xc000000;
      if (in_.one_in(2)) tensors.scale_a = 0xd000000, tensors.scale_b = 0xe000000;
      if (in_.one_in(2)) tensors.workspace = 0x10000000, tensors.workspace_bytes = uint64_t{1} << 32;
      if (in_.one_in(3)) tensors.a_stride = 16384;
    }
    worsen(tensors);
    Sized<kernelwright_gemm_tensors> sized(in_, tensors);
    const kernelwright_kernel* kernel = kernel_of(in_.one_in(32) ? Kind::kAttention : Kind::kGemm);
    if (in_.one_in(4)) {
      uint64_t bytes = kUntouched;
      const auto status = held("gemm_workspace_bytes", kernelwright_gemm_workspace_bytes(kernel, sized.get(), &bytes));
      unwritten("gemm_workspace_bytes", status, bytes, kUntouched);
      if (status == KERNELWRIGHT_OK && bytes > uint64_t{1} << 60) broken(fmt::format("{} bytes of workspace", bytes));
      return;
    }
    held("launch_gemm", kernelwright_launch_gemm(kernel, sized.get(), nullptr));
  }

  void launch_quantize() {
    kernelwright_quantize_tensors tensors{};
    if (in_.one_in(8)) {
      tensors = in_.fill<kernelwright_quantize_tensors>();
    } else {
      tensors.x = 0x10000, tensors.elements = 0x4000000, tensors.scales = 0x8000000;
      tensors.rows = some(3000), tensors.k = 32 * some(100);
    }
    worsen(tensors);
    Sized<kernelwright_quantize_tensors> sized(in_, tensors);
    held("launch_quantize", kernelwright_launch_quantize(kernel_of(Kind::kQuantize), sized.get(), nullptr));
  }

  Input in_;
  CallCounts& counts_;
  kernelwright_engine* engine_ = nullptr;
  std::vector<Kernel> own_;
  std::vector<uint64_t> addresses_;
  std::deque<std::string> texts_;
};

}  // namespace

void make_calls(std::span<const std::uint8_t> bytes, CallCounts& counts) {
  ready_kernels();
  const std::uint64_t before = launches_taken;
  Calls(bytes, counts).make_all();
  counts.launched += launches_taken - before;
}

}  // namespace kernelwright::fuzz
