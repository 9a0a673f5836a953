/// The C ABI: versions, errors, and handles of any kind.
#include <fmt/format.h>

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/runtime/c/c_api_guard.h"
#include "kernelwright/runtime/process/own_thread.h"
#include "kernelwright/runtime/process/per_thread.h"

namespace kernelwright {
namespace {

/// What reading a config needs of the caller's stack; a smaller one is left for a thread of ours.
constexpr std::size_t kStackBytes = std::size_t{512} << 10;

struct LastError {
  std::string words;
};

constexpr std::size_t kPrepareOptions1 = KERNELWRIGHT_END_OF(kernelwright_prepare_options, allow_when_sealed);
constexpr std::size_t kKernelInfo1 = KERNELWRIGHT_END_OF(kernelwright_kernel_info, key);

static_assert(static_cast<int>(OnMiss::kBlock) == KERNELWRIGHT_ON_MISS_BLOCK &&
              static_cast<int>(OnMiss::kFallback) == KERNELWRIGHT_ON_MISS_FALLBACK &&
              static_cast<int>(OnMiss::kError) == KERNELWRIGHT_ON_MISS_ERROR);
static_assert(static_cast<int>(KernelState::kPending) == KERNELWRIGHT_PENDING &&
              static_cast<int>(KernelState::kReady) == KERNELWRIGHT_READY &&
              static_cast<int>(KernelState::kFailed) == KERNELWRIGHT_FAILED);

/// The one that info speaks of: a GEMM's for many rows, and a layer's of gates and ups.
std::shared_ptr<const Binary> main_binary(const AttentionKernel& kernel) { return kernel.binary(); }
std::shared_ptr<const Binary> main_binary(const QuantizeKernel& kernel) { return kernel.binary(); }
std::shared_ptr<const Binary> main_binary(const KvWriteKernel& kernel) { return kernel.binary(); }
std::shared_ptr<const Binary> main_binary(const RowOpKernel& kernel) { return kernel.binary(); }
std::shared_ptr<const Binary> main_binary(const RouteKernel& kernel) { return kernel.binary(); }
std::shared_ptr<const Binary> main_binary(const MoeCombineKernel& kernel) { return kernel.binary(); }
std::shared_ptr<const Binary> main_binary(const GemmKernel& kernel) {
  const auto binaries = kernel.binaries();
  return binaries.empty() ? nullptr : binaries.back();
}
std::shared_ptr<const Binary> main_binary(const MoeKernel& kernel) { return main_binary(kernel.gate_up()); }
const std::string& main_key(const AttentionKernel& kernel) { return kernel.key(); }
const std::string& main_key(const QuantizeKernel& kernel) { return kernel.key(); }
const std::string& main_key(const KvWriteKernel& kernel) { return kernel.key(); }
const std::string& main_key(const RowOpKernel& kernel) { return kernel.key(); }
const std::string& main_key(const RouteKernel& kernel) { return kernel.key(); }
const std::string& main_key(const MoeCombineKernel& kernel) { return kernel.key(); }
const std::string& main_key(const GemmKernel& kernel) { return kernel.key(std::numeric_limits<int>::max()); }
const std::string& main_key(const MoeKernel& kernel) { return main_key(kernel.gate_up()); }

template <class KindConfig>
kernelwright_kernel::Kernel prepare(Engine& engine, const KindConfig& config, const PrepareOptions& options) {
  return engine.prepare(config.problem, config.schedule, options);
}
kernelwright_kernel::Kernel prepare(Engine& engine, const MoeConfig& config, const PrepareOptions& options) {
  return engine.prepare(config.problem, options);
}
kernelwright_kernel::Kernel prepare(Engine& engine, const Config& config, const PrepareOptions& options) {
  return std::visit([&](const auto& of) { return prepare(engine, of, options); }, config);
}

}  // namespace

kernelwright_status failed(kernelwright_status status, const char* what) noexcept {
  LastError* last = nullptr;
  try {
    last = &per_thread<LastError>();
    last->words = what;
  } catch (...) {
    if (last) last->words.clear();  // no memory for the words; the status has to do
  }
  return status;
}

PrepareOptions options_of(const kernelwright_prepare_options* given) {
  const auto c = read_struct(given, "prepare_options", kPrepareOptions1);
  if (c.on_miss < KERNELWRIGHT_ON_MISS_BLOCK || c.on_miss > KERNELWRIGHT_ON_MISS_ERROR)
    throw ConfigError("/prepare_options/on_miss",
                      fmt::format("{} is none of block (0), fallback (1) and error (2)", c.on_miss));
  return {.device = c.device,
          .on_miss = static_cast<OnMiss>(c.on_miss),
          .background = c.background != 0,
          .allow_when_sealed = c.allow_when_sealed != 0};
}

}  // namespace kernelwright

using namespace kernelwright;

const char* kernelwright_version(void) { return KERNELWRIGHT_VERSION; }

int32_t kernelwright_version_number(void) { return KERNELWRIGHT_VERSION_NUMBER; }

const char* kernelwright_status_name(kernelwright_status status) {
  switch (status) {
    case KERNELWRIGHT_OK: return "ok";
    case KERNELWRIGHT_INVALID_ARGUMENT: return "invalid argument";
    case KERNELWRIGHT_COMPILE_ERROR: return "compile error";
    case KERNELWRIGHT_MISSING: return "missing";
    case KERNELWRIGHT_DEVICE_ERROR: return "device error";
    case KERNELWRIGHT_NOT_READY: return "not ready";
    case KERNELWRIGHT_INTERNAL_ERROR: return "internal error";
    default: return "unknown status";
  }
}

const char* kernelwright_last_error(void) {
  try {
    return per_thread<LastError>().words.c_str();
  } catch (...) {
    return "";
  }
}

kernelwright_status kernelwright_prepare_json(kernelwright_engine* engine, const char* config, size_t length,
                                              const kernelwright_prepare_options* options,
                                              kernelwright_kernel** kernel) {
  return guarded([&] {
    kernelwright_kernel*& out = not_null(kernel, "kernel");
    kernelwright_engine& owner = not_null(engine, "engine");
    not_null(config, "config");
    const std::variant<Config, MoeConfig> read =
        with_stack(kStackBytes, kStackBytes, [&] { return read_config_or_layer(std::string_view(config, length)); });
    const PrepareOptions how = options_of(options);
    out = owner.handle(std::visit([&](const auto& of) { return prepare(owner.engine, of, how); }, read));
  });
}

kernelwright_status kernelwright_kernel_get_info(const kernelwright_kernel* kernel, kernelwright_kernel_info* info) {
  return guarded([&] {
    std::visit(
        [&](const auto& handle) {
          const std::shared_ptr<const Binary> binary = main_binary(handle);
          const ResourceUsage usage = binary ? binary->usage : ResourceUsage{};
          write_struct(kernelwright_kernel_info{.struct_size = sizeof(kernelwright_kernel_info),
                                                .state = static_cast<int32_t>(handle.state()),
                                                .serves_fallback = handle.serves_fallback(),
                                                .device = handle.device(),
                                                .registers = usage.registers,
                                                .spill_bytes = usage.spill_stores + usage.spill_loads,
                                                .static_shared_bytes = usage.static_shared,
                                                .cubin_bytes = binary ? binary->cubin.size() : 0,
                                                .key = main_key(handle).c_str()},
                       info, "kernel_info", kKernelInfo1);
        },
        not_null(kernel, "kernel").kernel);
  });
}

kernelwright_status kernelwright_kernel_wait(const kernelwright_kernel* kernel) {
  return guarded([&] { std::visit([](const auto& handle) { handle.wait(); }, not_null(kernel, "kernel").kernel); });
}
