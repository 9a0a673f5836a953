// What the engine adds to a launch: nanoseconds from a problem or a handle to the driver's entry point, behind which a
// stub driver does nothing. Targets (docs of the project's goals): finding a kernel by problem <= 25 ns, by handle <= 5
// ns; the engine's own cost of a launch, beyond the driver's call, <= 100 ns.
//
//   launch_bench [STUB_DRIVER] [--benchmark_...]
//
// Read the CPU column of the `min` lines: other programs on the machine can only add time.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/cuda/cuda_backend.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace kernelwright {
namespace {

std::string stub_path = KERNELWRIGHT_BENCH_STUB;

/// No compiler, no disk: the stub driver loads anything.
class NoCompiler final : public KernelStore {
 public:
  NoCompiler() : KernelStore(memory_only()) {}

 protected:
  Binary build(const SourceUnit& unit) override {
    Binary binary;
    binary.entry = unit.entry;
    binary.arch = unit.arch;
    binary.cubin = empty_elf();
    return binary;
  }

 private:
  static std::vector<std::byte>
  empty_elf() {  // a header without sections: nothing else of a cubin is read before its load
    const Elf64_Ehdr header{.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                            .e_ehsize = sizeof(Elf64_Ehdr)};
    std::vector<std::byte> bytes(sizeof header);
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
  }
  static CacheOptions memory_only() {
    CacheOptions options;
    options.disk = false;
    return options;
  }
};

AttentionProblem prefill() {
  AttentionProblem problem;
  problem.heads = {32, 8};
  problem.mask.kind = MaskKind::kCausal;
  return problem;
}
AttentionProblem decode() {
  AttentionProblem problem;
  problem.heads = {32, 8};
  problem.kv_layout = {KvLayoutKind::kPaged, 64};
  problem.max_q_len = 1;
  return problem;
}

AttentionTensors tensors_for(const AttentionKernel& kernel) {
  AttentionTensors tensors;
  tensors.q = tensors.k = tensors.v = tensors.o = 0x10000;
  tensors.batch = 4;
  const AttentionProblem& problem = kernel.problem();
  tensors.q_len = problem.max_q_len == 1 ? 1 : 2048;
  tensors.kv_len = 4096;
  if (problem.kv_layout.kind == KvLayoutKind::kPaged) {
    tensors.page_table = tensors.kv_lengths = 0x20000;
    tensors.page_table_stride = 64;
  }
  tensors.workspace = 0x30000;
  tensors.workspace_bytes = std::uint64_t{1} << 40;
  return tensors;
}

struct World {
  World() : engine(options()), prefill_kernel(engine.prepare(prefill())), decode_kernel(engine.prepare(decode())) {
    for (int i = 0; i < 40; ++i) {  // as many other kernels as a server has
      AttentionProblem other = prefill();
      other.kv_layout = {KvLayoutKind::kPaged, 64};
      other.mask = {.kind = MaskKind::kSlidingWindow, .window = {.left = 128 * i, .right = 0}};
      others.push_back(other);
      engine.prepare(other);
    }
  }
  static EngineOptions options() {
    EngineOptions options;
    options.custom_backend = make_cuda_backend(open_driver(stub_path));
    options.custom_store = std::make_shared<NoCompiler>();
    return options;
  }
  Engine engine;
  AttentionKernel prefill_kernel, decode_kernel;
  std::vector<AttentionProblem> others;
};
World& world() {
  static World instance;
  return instance;
}

using RawLaunch = int (*)(const void*, void*, void**, void**);
RawLaunch raw_launch() {
  void* library = dlopen(stub_path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  return reinterpret_cast<RawLaunch>(dlsym(library, "stub_launch"));
}

void raw_driver_launch(benchmark::State& state) {
  RawLaunch launch = raw_launch();
  char config[64] = {}, params[320] = {};
  void* arguments[] = {params};
  for (auto unused : state) {
    benchmark::DoNotOptimize(launch);
    benchmark::DoNotOptimize(launch(config, params, arguments, nullptr));
  }
}

void kernel_by_problem(benchmark::State& state) {
  const Engine& engine = world().engine;
  AttentionProblem problem = prefill();
  for (auto unused : state) {
    benchmark::DoNotOptimize(problem);
    benchmark::DoNotOptimize(engine.find(problem));
  }
}

void kernel_by_changing_problem(benchmark::State& state) {
  const Engine& engine = world().engine;
  const auto& problems = world().others;
  std::size_t i = 0;
  for (auto unused : state) {
    benchmark::DoNotOptimize(engine.find(problems[i]));
    i = i + 1 == problems.size() ? 0 : i + 1;
  }
}

void kernel_by_handle(benchmark::State& state) {
  AttentionKernel kernel = world().prefill_kernel;
  for (auto unused : state) {
    benchmark::DoNotOptimize(kernel);
    benchmark::DoNotOptimize(kernel.serves_fallback());  // everything that launch() resolves before it packs arguments
  }
}

void launch_prefill(benchmark::State& state) {
  const AttentionKernel kernel = world().prefill_kernel;
  AttentionTensors tensors = tensors_for(kernel);
  for (auto unused : state) {
    benchmark::DoNotOptimize(tensors);
    kernel.launch(tensors, nullptr);
  }
}

void launch_split_decode(benchmark::State& state) {  // two launches: the parts and their merge
  const AttentionKernel kernel = world().decode_kernel;
  AttentionTensors tensors = tensors_for(kernel);
  if (kernel.workspace_bytes(kernel.extent(tensors)) == 0) state.SkipWithError("the keys are not split");
  for (auto unused : state) {
    benchmark::DoNotOptimize(tensors);
    kernel.launch(tensors, nullptr);
  }
}

void attention_by_problem(benchmark::State& state) {
  Engine& engine = world().engine;
  AttentionProblem problem = prefill();
  AttentionTensors tensors = tensors_for(world().prefill_kernel);
  for (auto unused : state) {
    benchmark::DoNotOptimize(problem);
    engine.attention(problem, tensors, nullptr);
  }
}

double least(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

#define KERNELWRIGHT_BENCH(name) \
  BENCHMARK(name)->MinTime(0.05)->Repetitions(9)->ReportAggregatesOnly()->ComputeStatistics("min", least)
KERNELWRIGHT_BENCH(raw_driver_launch);
KERNELWRIGHT_BENCH(kernel_by_handle);
KERNELWRIGHT_BENCH(kernel_by_problem);
KERNELWRIGHT_BENCH(kernel_by_changing_problem);
KERNELWRIGHT_BENCH(launch_prefill);
KERNELWRIGHT_BENCH(launch_split_decode);
KERNELWRIGHT_BENCH(attention_by_problem);

}  // namespace
}  // namespace kernelwright

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc > 1) kernelwright::stub_path = argv[1];
  benchmark::RunSpecifiedBenchmarks();
}
