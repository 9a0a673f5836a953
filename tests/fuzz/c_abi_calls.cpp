#include "fuzz/c_abi_calls.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "fuzz/taking_device.h"
#include "kernelwright/runtime/c/c_api_engine.h"
#include "support/fake_store.h"

namespace kernelwright::fuzz {
namespace {

kernelwright_engine* taking_engine(Arch arch) {
  EngineOptions options;
  options.compile_threads = 1;
  options.custom_backend = std::make_shared<TakingBackend>(arch);
  options.custom_store = std::make_shared<test::FakeStore>();
  return new kernelwright_engine(std::move(options));
}

enum class Kind { kAttention, kGemm, kQuantize, kKvWrite, kRowOp, kRoute, kMoeCombine, kMoe };
struct Kernel {
  kernelwright_kernel* handle = nullptr;
  Kind kind = Kind::kAttention;
};

constexpr const char* kConfigs[] = {
    R"({"version":1,"kind":"attention","name":"x","problem":{"head_dim":{"qk":128,"v":128},"heads":{"q":8,"kv":2},"mask":{"kind":"causal"},"lse":true},"schedule":"auto"})",
    R"({"version":1,"kind":"attention","name":"x","problem":{"head_dim":{"qk":128,"v":128},"heads":{"q":8,"kv":2},"max_q_len":1,"kv_layout":{"kind":"paged","page_size":64}},"schedule":"auto"})",
    R"({"version":1,"kind":"attention","name":"x","problem":{"head_dim":{"qk":64,"v":64},"heads":{"q":4,"kv":4},"q_layout":"ragged","kv_layout":{"kind":"ragged"},"mask":{"kind":"sliding_window","window":{"left":7,"right":0}}},"schedule":"auto"})",
    R"({"version":1,"kind":"attention","name":"x","problem":{"head_dim":{"qk":192,"v":128},"heads":{"q":16,"kv":2},"q_layout":"ragged","kv_layout":{"kind":"paged","page_size":16},"score_mod":{"kind":"softcap","cap":30},"sinks":true},"schedule":"auto"})",
    R"({"version":1,"kind":"attention","name":"x","problem":{"dtype":{"q":"e4m3","kv":"e4m3"},"head_dim":{"qk":128,"v":128},"heads":{"q":8,"kv":2},"scales":"per_token"},"schedule":"auto"})",
    R"({"version":1,"kind":"attention","name":"x","problem":{"dtype":{"kv":"e4m3"},"head_dim":{"qk":128,"v":128},"heads":{"q":8,"kv":2},"max_q_len":1,"kv_layout":{"kind":"paged","page_size":64},"scales":"per_page"},"schedule":"auto"})",
    R"({"version":1,"kind":"gemm","name":"x","problem":{"n":512,"k":256},"schedule":"auto"})",
    R"({"version":1,"kind":"gemm","name":"x","problem":{"n":128,"k":4096,"layout":"tn","epilogue":"alpha * acc + beta * c"},"schedule":"auto"})",
    R"({"version":1,"kind":"gemm","name":"x","problem":{"n":384,"k":1024,"dtype":{"a":"e4m3","b":"e4m3","d":"bf16"},"scales":"per_block"},"schedule":"auto"})",
    R"({"version":1,"kind":"gemm","name":"x","problem":{"n":384,"k":512,"dtype":{"a":"bf16","b":"bf16","d":"e4m3"},"epilogue":"d = quantize(acc, e4m3, per=token_group(128), scale=s);"},"schedule":"auto"})",
    R"({"version":1,"kind":"gemm","name":"x","problem":{"n":256,"k":512,"dtype":{"a":"mxfp8","b":"mxfp8","d":"bf16"},"scales":"per_block"},"schedule":"auto"})",
    R"({"version":1,"kind":"gemm","name":"x","problem":{"n":256,"k":8192},"schedule":{"split_k":4,"split_mode":"turnstile"}})",
    R"({"version":1,"kind":"gemm","name":"x","problem":{"n":512,"k":256,"kv_write":{"head_dim":{"qk":64,"v":64},"heads":{"q":4,"kv":2},"kv_layout":{"kind":"paged","page_size":16},"rope":{"style":"neox","width":64}}},"schedule":"auto"})",
    R"({"version":1,"kind":"kv_write","name":"x","problem":{"head_dim":{"qk":128,"v":128},"heads":{"q":8,"kv":2},"kv_layout":{"kind":"paged","page_size":16},"qk_norm":{"kind":"rms"},"rope":{"style":"neox","width":64}},"schedule":"auto"})",
    R"({"version":1,"kind":"kv_write","name":"x","problem":{"dtype":{"kv":"e4m3"},"head_dim":{"qk":64,"v":64},"heads":{"q":4,"kv":4},"kv_layout":{"kind":"padded"},"index":"positions","scales":{"k":"per_token","v":"per_head"}},"schedule":"auto"})",
    R"({"version":1,"kind":"kv_write","name":"x","problem":{"head_dim":{"qk":64,"v":64},"heads":{"q":2,"kv":1},"kv_layout":{"kind":"ragged"},"q_out":false},"schedule":{"num_warps":2}})",
    R"({"version":1,"kind":"row_op","name":"x","problem":{"width":512,"input":"add","norm":{"kind":"rms"}},"schedule":"auto"})",
    R"({"version":1,"kind":"row_op","name":"x","problem":{"dtype":{"out":"e4m3"},"width":1024,"input":"gate_up","scales":{"kind":"per_block"}},"schedule":"auto"})",
    R"({"version":1,"kind":"row_op","name":"x","problem":{"dtype":{"in":"f32","out":"nvfp4"},"width":96,"norm":{"kind":"rms","weight":false},"scales":{"kind":"per_block"}},"schedule":{"rows_per_cta":8}})",
    R"({"version":1,"kind":"route","name":"x","problem":{"experts":256,"top_k":8,"score":"sigmoid","bias":true,"n_group":8,"topk_group":4,"renormalize":true},"schedule":"auto"})",
    R"({"version":1,"kind":"route","name":"x","problem":{"dtype":"bf16","experts":60,"top_k":4,"local_experts":15,"alignment":128},"schedule":"auto"})",
    R"({"version":1,"kind":"route","name":"x","problem":{"experts":8,"top_k":2,"order":"top_k_first","sort":false},"schedule":{"warps":8}})",
    R"({"version":1,"kind":"moe_combine","name":"x","problem":{"width":7168,"top_k":8,"residual":true},"schedule":"auto"})",
    R"({"version":1,"kind":"moe_combine","name":"x","problem":{"dtype":{"in":"f16","out":"f32"},"width":40,"top_k":3,"weighted":false},"schedule":{"threads":32}})",
    R"({"version":1,"kind":"moe","name":"x","problem":{"hidden":256,"intermediate":128,"scales":"per_block","residual":true,"route":{"experts":16,"top_k":4,"bias":true}}})",
    R"({"version":1,"kind":"moe","name":"x","problem":{"hidden":64,"intermediate":48,"dtype":"f16","route":{"experts":12,"top_k":3,"score":"given","local_experts":4}}})",
};
constexpr std::pair<std::string_view, Kind> kKinds[] = {
    {"\"kind\":\"gemm\"", Kind::kGemm},
    {"\"kind\":\"kv_write\"", Kind::kKvWrite},
    {"\"kind\":\"row_op\"", Kind::kRowOp},
    {"\"kind\":\"route\"", Kind::kRoute},
    {"\"kind\":\"moe_combine\"", Kind::kMoeCombine},
    {"\"kind\":\"moe\"", Kind::kMoe},
};

Kind kind_of(std::string_view config) {
  for (const auto& [text, kind] : kKinds)
    if (config.find(text) != config.npos) return kind;
  return Kind::kAttention;
}

/// Kernels that are prepared once, for three architectures, because most calls are launches.
const std::vector<Kernel>& ready_kernels() {
  static std::vector<std::unique_ptr<kernelwright_engine>> engines;
  static const std::vector<Kernel> kernels = [] {
    std::vector<Kernel> made;
    for (const Arch arch : {Arch::kSm86, Arch::kSm90a, Arch::kSm100a}) {
      kernelwright_engine* engine = engines.emplace_back(taking_engine(arch)).get();
      Kernel kernel;
      for (const std::string_view config : kConfigs) {
        kernel.kind = kind_of(config);
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
      case 10: return rope();
      case 11:
      case 12:
      case 13: return launch_quantize();
      case 14:
      case 15:
      case 16: return kv_write();
      case 17:
      case 18: return row_op();
      case 19: return route();
      case 20: return moe_combine();
      case 21: return moe();
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
    options.compile_worker = "/nonexistent/kernelwright-cc";
    static constexpr const char* kPlaces[] = {"process", "workers", "auto"};
    options.compile_in = word(kPlaces);
    static constexpr const char* kLayers[] = {"/nonexistent/layer", nullptr};
    options.read_only_layers = in_.one_in(2) ? kLayers : nullptr;
    options.num_read_only_layers = in_.below(3);
    options.bundles = in_.one_in(2) ? kLayers : nullptr;
    options.num_bundles = in_.below(3);
    options.bundle_keys = in_.one_in(2) ? kLayers : nullptr;
    options.num_bundle_keys = in_.below(3);
    static constexpr const char* kRemotes[] = {"redis://127.0.0.1:1", "http://127.0.0.1:1", "https://127.0.0.1:1/a"};
    options.remote = word(kRemotes);  // nobody listens there
    options.remote_keys = in_.one_in(2) ? kLayers : nullptr;
    options.num_remote_keys = in_.below(3);
    options.remote_signing_key = in_.one_in(2) ? kLayers[0] : nullptr;
    options.remote_ca = in_.one_in(4) ? kLayers[0] : nullptr;
    options.remote_certificate = in_.one_in(4) ? kLayers[0] : nullptr;
    options.remote_certificate_key = in_.one_in(4) ? kLayers[0] : nullptr;
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
    switch (in_.below(12)) {
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
      case 10: return ranks();
      default: return destroy();
    }
  }

  /// Ready kernels are promoted by name, or digests that no kernel has.
  void ranks() {
    std::vector<std::uint8_t> digests(in_.below(4) * KERNELWRIGHT_DIGEST_BYTES);  // no byte more may be written
    std::size_t count = kUntouched;
    const std::size_t capacity = digests.size() / KERNELWRIGHT_DIGEST_BYTES;
    const auto status = held("ready_digests", kernelwright_engine_ready_digests(engine(), digests.data(), capacity,
                                                                                in_.one_in(8) ? nullptr : &count));
    unwritten("ready_digests", status, count, std::size_t{kUntouched});
    if (in_.one_in(4) && !digests.empty()) digests[in_.below(digests.size())] ^= 1;
    int32_t promoted = 0;
    held("promote_exactly", kernelwright_engine_promote_exactly(engine(), in_.one_in(8) ? nullptr : digests.data(),
                                                                in_.one_in(8) ? ~std::size_t{0} / 64 : capacity,
                                                                in_.one_in(2) ? nullptr : &promoted));
    std::array<std::uint8_t, KERNELWRIGHT_DIGEST_BYTES> digest{};
    held("plan_digest", kernelwright_engine_plan_digest(engine(), in_.one_in(8) ? nullptr : digest.data()));
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
    keep("prepare_json", status, kernel, kind_of(config));
  }

  void prepare_attention() {
    static constexpr const char* kDTypes[] = {"bf16", "f16", "e4m3", "f32"};
    static constexpr const char* kQLayouts[] = {"padded", "ragged"};
    static constexpr const char* kKvLayouts[] = {"padded", "ragged", "paged"};
    static constexpr const char* kMasks[] = {"none", "causal", "sliding_window", "chunked"};
    static constexpr const char* kMods[] = {"none", "softcap", "alibi"};
    static constexpr const char* kScales[] = {"none", "per_tensor", "per_head", "per_token", "per_page"};
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

  kernelwright_strides some_scale_strides() {
    kernelwright_strides strides{};
    strides.batch = some(6001), strides.token = in_.one_in(2) ? 0 : some(5), strides.head = some(3001);
    return strides;
  }

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
      if (in_.one_in(8)) tensors.kv_starts = 0x5180000;
      if (in_.one_in(3))
        tensors.page_table = 0x5200000, tensors.page_table_stride = 200, tensors.num_pages = some(1000);
      if (in_.one_in(3)) tensors.q_offsets = 0x5300000, tensors.q_tokens = 1 + some(200), tensors.kv_lengths = 0;
      if (tensors.q_offsets && in_.one_in(2)) tensors.kv_offsets = tensors.q_offsets;
      if (in_.one_in(3)) tensors.sinks = 0x5400000;
      if (in_.one_in(4)) tensors.mask = 0x70000001;
      if (in_.one_in(4)) tensors.bias = 0x78000000;
      if (in_.one_in(2)) tensors.workspace = 0x6000000, tensors.workspace_bytes = uint64_t{1} << 32;
      if (in_.one_in(3)) tensors.k_strides = {3000 * 256, 256, 128};
      if (!in_.one_in(3)) tensors.k_scale = 0x7a000000, tensors.v_scale = 0x7b000000, tensors.q_scale = 0x7c000000;
      if (in_.one_in(4)) tensors.k_scale_strides = tensors.v_scale_strides = some_scale_strides();
      if (in_.one_in(8)) tensors.v_scale_strides = some_scale_strides();
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
      if (in_.one_in(3)) tensors.scale_d = 0xf000000, tensors.scale_d_stride = some(4000);
      if (in_.one_in(8)) tensors.amax = 0x20000000, tensors.squares = 0x21000000, tensors.squares_a = 0x22000000;
      if (in_.one_in(8)) tensors.tensor_scale = static_cast<float>(some(9)) / 4;
    }
    worsen(tensors);
    kernelwright_kv_write_tensors cache = some_cache();
    cache.struct_size = sizeof cache;
    if (in_.one_in(2)) cache.q = cache.k = cache.v = cache.q_out = 0, cache.tokens = 0;
    tensors.kv_write = in_.one_in(2) ? &cache : nullptr;  // an address, which no bytes may change
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

  kernelwright_kv_write_tensors some_cache() {
    kernelwright_kv_write_tensors tensors{};
    if (in_.one_in(8)) {
      tensors = in_.fill<kernelwright_kv_write_tensors>();
    } else {
      tensors.q = 0x10000, tensors.k = 0x2000000, tensors.v = 0x3000000, tensors.q_out = 0x4000000;
      tensors.k_cache = 0x5000000, tensors.v_cache = 0x9000000, tensors.q_weight = tensors.k_weight = 0xd000000;
      tensors.cos_sin = 0xd100000, tensors.cos_sin_rows = 1 + some(4096), tensors.positions = 0xe000000;
      tensors.slot_mapping = 0xe100000, tensors.batch_indices = 0xe200000, tensors.page_table = 0xe300000;
      tensors.k_scale = 0xe400000, tensors.v_scale = 0xe500000;
      tensors.tokens = some(3000), tensors.num_pages = 1 + some(1000), tensors.batch = 1 + some(8);
      tensors.kv_len = 1 + some(4096), tensors.kv_tokens = 1 + some(100000), tensors.page_table_stride = 256;
      if (in_.one_in(3)) tensors.k_strides = tensors.v_strides = {0, 2048, 128};
      if (in_.one_in(3)) tensors.k_cache_strides = tensors.v_cache_strides = {16 * 512, 256, 16 * 256};
    }
    worsen(tensors);
    return tensors;
  }

  void kv_write() {
    Sized<kernelwright_kv_write_tensors> sized(in_, some_cache());
    const kernelwright_kernel* kernel = kernel_of(in_.one_in(32) ? Kind::kAttention : Kind::kKvWrite);
    held("launch_kv_write", kernelwright_launch_kv_write(kernel, sized.get(), nullptr));
  }

  void row_op() {
    kernelwright_row_op_tensors tensors{};
    if (in_.one_in(8)) {
      tensors = in_.fill<kernelwright_row_op_tensors>();
    } else {
      tensors.x = 0x1000000, tensors.residual = 0x3000000, tensors.residual_out = 0x3000000, tensors.weight = 0x5000000;
      tensors.out = 0x6000000, tensors.scale = 0x8000000, tensors.rows = some(3000);
      if (in_.one_in(3)) tensors.x_stride = 2048, tensors.out_stride = 2048;
      if (in_.one_in(3)) tensors.residual_out = 0x3800000;
    }
    worsen(tensors);
    Sized<kernelwright_row_op_tensors> sized(in_, tensors);
    const kernelwright_kernel* kernel = kernel_of(in_.one_in(32) ? Kind::kAttention : Kind::kRowOp);
    held("launch_row_op", kernelwright_launch_row_op(kernel, sized.get(), nullptr));
  }

  void route() {
    kernelwright_route_tensors tensors{};
    if (in_.one_in(8)) {
      tensors = in_.fill<kernelwright_route_tensors>();
    } else {
      tensors.logits = 0x1000000, tensors.bias = 0x3000000, tensors.local_ids = 0x3100000, tensors.ids = 0x4000000;
      tensors.weights = 0x5000000, tensors.starts = 0x6000000, tensors.source_rows = 0x7000000;
      tensors.positions = 0x8000000, tensors.tokens = some(3000);
      if (in_.one_in(2)) tensors.sorted_weights = 0x9000000;
      if (!in_.one_in(4)) tensors.workspace = 0xa000000, tensors.workspace_bytes = 1 << 20;
      if (in_.one_in(3)) tensors.logits_stride = 512;
      if (in_.one_in(3)) tensors.overrides = KERNELWRIGHT_SET_FACTOR, tensors.factor = 2.5f;
    }
    worsen(tensors);
    Sized<kernelwright_route_tensors> sized(in_, tensors);
    const kernelwright_kernel* kernel = kernel_of(in_.one_in(32) ? Kind::kMoeCombine : Kind::kRoute);
    if (in_.one_in(4)) {
      uint64_t bytes = kUntouched;
      const auto status =
          held("route_workspace_bytes", kernelwright_route_workspace_bytes(kernel, sized.get(), &bytes));
      unwritten("route_workspace_bytes", status, bytes, kUntouched);
      if (status == KERNELWRIGHT_OK && bytes > uint64_t{1} << 36) broken(fmt::format("{} bytes of workspace", bytes));
      return;
    }
    held("launch_route", kernelwright_launch_route(kernel, sized.get(), nullptr));
  }

  void moe_combine() {
    kernelwright_moe_combine_tensors tensors{};
    if (in_.one_in(8)) {
      tensors = in_.fill<kernelwright_moe_combine_tensors>();
    } else {
      tensors.rows = 0x1000000, tensors.positions = 0x8000000, tensors.weights = 0x8100000;
      tensors.residual = 0x9000000, tensors.out = 0xc000000;
      tensors.num_rows = some(3000), tensors.tokens = some(300);
      if (in_.one_in(3)) tensors.out = tensors.residual;
      if (in_.one_in(3)) tensors.rows_stride = tensors.out_stride = tensors.residual_stride = 8192;
    }
    worsen(tensors);
    Sized<kernelwright_moe_combine_tensors> sized(in_, tensors);
    const kernelwright_kernel* kernel = kernel_of(in_.one_in(32) ? Kind::kRoute : Kind::kMoeCombine);
    held("launch_moe_combine", kernelwright_launch_moe_combine(kernel, sized.get(), nullptr));
  }

  void moe() {
    kernelwright_moe_tensors tensors{};
    if (in_.one_in(8)) {
      tensors = in_.fill<kernelwright_moe_tensors>();
    } else {
      tensors.x = 0x1000000, tensors.gate_up = 0x2000000, tensors.down = 0x4000000, tensors.out = 0x5000000;
      tensors.workspace = 0x10000000, tensors.workspace_bytes = 1 << 26, tensors.tokens = some(3000);
      if (!in_.one_in(3)) tensors.logits = 0x6000000, tensors.bias = 0x6100000, tensors.residual = 0x7000000;
      if (!in_.one_in(3)) tensors.gate_up_scale = 0x3000000, tensors.down_scale = 0x3100000;
      if (in_.one_in(3)) tensors.ids = 0x8000000, tensors.weights = 0x8100000, tensors.local_ids = 0x8200000;
      if (in_.one_in(3)) tensors.overrides = KERNELWRIGHT_SET_FACTOR, tensors.factor = 2.5f;
    }
    worsen(tensors);
    Sized<kernelwright_moe_tensors> sized(in_, tensors);
    const kernelwright_kernel* kernel = kernel_of(in_.one_in(32) ? Kind::kRoute : Kind::kMoe);
    if (in_.one_in(4)) {
      uint64_t bytes = kUntouched;
      const auto status = held("moe_workspace_bytes", kernelwright_moe_workspace_bytes(kernel, sized.get(), &bytes));
      unwritten("moe_workspace_bytes", status, bytes, kUntouched);
      return;
    }
    held("launch_moe", kernelwright_launch_moe(kernel, sized.get(), nullptr));
  }

  /// Rows are few, or so many that no table has them: what lies between would be allocated and computed.
  void rope() {
    static constexpr const char* kScalings[] = {"default", "llama3", "yarn", "longrope", "proportional"};
    static std::array<float, 3 * 1024> table;
    static constexpr double kFactors[] = {1, 2, 0, -1, 4};
    auto rope = in_.one_in(4) ? in_.fill<kernelwright_rope>() : kernelwright_rope{};
    rope.scaling = word(kScalings);
    if (!in_.one_in(4)) rope.width = 2 * some(6), rope.original_positions = 4096, rope.factor = 8;
    rope.factors = in_.one_in(8) ? nullptr : kFactors;
    rope.num_factors = in_.below(std::size(kFactors) + 1);
    Sized<kernelwright_rope> sized(in_, rope);
    const int64_t rows = in_.one_in(4) ? int64_t{1} << 40 : some(4) - 1;
    const auto first = static_cast<int64_t>(in_.one_in(2) ? in_.extreme() : in_.below(100));
    held("rope_table", kernelwright_rope_table(sized.get(), first, rows, in_.one_in(8) ? nullptr : table.data()));
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
