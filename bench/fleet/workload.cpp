#include "fleet/workload.h"

#include <fmt/format.h>

#include <ctime>
#include <fstream>
#include <map>
#include <sstream>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/models/plan_file.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace kernelwright::fleet {
namespace {

constexpr const char* kHead = "kernel,entry_bytes,compile_ms";

/// A store that notes the processor time of each compile.
class TimedStore final : public KernelStore {
 public:
  explicit TimedStore(CacheOptions cache)
      : KernelStore(std::move(cache), {}, CompileWorkerOptions{.where = CompileIn::kProcess}) {}

  struct Compiled {
    std::string kernel, entry;
    double compile_ms;
  };
  std::vector<Compiled> compiled;

 private:
  static double thread_ms() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
  }
  Binary build(const SourceUnit& unit) override {
    const double begin = thread_ms();
    Binary binary = KernelStore::build(unit);
    compiled.push_back({unit.kernel, unit.entry, thread_ms() - begin});
    return binary;
  }
};

}  // namespace

std::vector<WorkloadKernel> read_workload(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line != kHead)
    throw ConfigError(path, fmt::format("is no workload; its first line would be \"{}\"", kHead));
  std::vector<WorkloadKernel> kernels;
  while (std::getline(file, line)) {
    WorkloadKernel kernel;
    char comma = 0;
    std::istringstream fields(line);
    std::getline(fields, kernel.kernel, ',');
    if (!(fields >> kernel.entry_bytes >> comma >> kernel.compile_ms) || comma != ',' || kernel.compile_ms < 0)
      throw ConfigError(path, fmt::format("line {}: \"{}\" has not the columns {}", kernels.size() + 2, line, kHead));
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

std::vector<WorkloadKernel> measure_workload(const std::string& plan, const std::string& folder) {
  bool is_plan = false;
  const std::vector<Config> configs = read_config_or_plan_file(plan, is_plan);
  const auto store = std::make_shared<TimedStore>(CacheOptions{.directory = folder});
  EngineOptions options;
  options.backend = "emulator";
  options.custom_store = store;
  options.compile_threads = 1;
  {
    Engine engine(std::move(options));
    for (const Config& config : configs)
      std::visit([&](const auto& of) { engine.prepare(of.problem, of.schedule, {.background = true}); }, config);
    if (!engine.wait_until_ready()) throw Error(plan + ": a kernel did not compile");
  }
  std::map<std::string, std::size_t> entry_bytes;
  for (const EntrySummary& entry : store->cache().list()) entry_bytes[entry.binary.entry] = entry.file_bytes;
  std::vector<WorkloadKernel> kernels;
  for (const TimedStore::Compiled& one : store->compiled)
    kernels.push_back({one.kernel, entry_bytes[one.entry], one.compile_ms});
  return kernels;
}

}  // namespace kernelwright::fleet
