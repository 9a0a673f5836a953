// How fast whole kernels run on the emulator: kernelwright_emulator_speed [--hazards] [--threads N]
//   gemm      gemm_sm90, 1024 x 1024 x 1024 bf16
//   attention attention_sm90, 512 queries and keys, d 128
// Prints the best and the median of five launches, in wall time and by the statistics of the emulator.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernelwright/runtime/engine/emulated_machine.h"
#include "runtime/emulator/kernels/hopper_cases.h"

using namespace kernelwright;

int main(int argc, char** argv) {
  EmulatorBackendOptions options;
  options.threads = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--hazards") == 0) options.hazards = true;
    if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc) options.threads = std::atoi(argv[++i]);
  }
  Compiler compiler;
  const test::HopperCase cases[] = {
      test::hopper_gemm("gemm_1024",
                        {.variant = {64, 128, 4, 1, false, false, 0, false}, .m = 1024, .n = 1024, .k = 1024}),
      test::hopper_attention("attention_512",
                             {.variant = {128, 64, 2, false, false}, .batch_heads = 1, .q_len = 512, .kv_len = 512}),
  };
  for (const test::HopperCase& test : cases) {
    const Binary binary = test::compile_hopper(compiler, test);
    const auto backend = make_emulator_backend(options);
    Device& device = backend->device(0);
    const KernelImage image = test::hopper_image(device, test, binary);
    std::vector<double> seconds;
    emulator::Statistics one;
    for (int round = 0; round < 5; ++round) {
      const emulator::Statistics before = backend->statistics();
      const test::HopperOutcome outcome = test.run(device, image, 1);
      if (!outcome.failure.empty()) return fmt::print("{}: {}\n", test.name, outcome.failure), 1;
      const emulator::Statistics after = backend->statistics();
      seconds.push_back(after.seconds - before.seconds);
      one.warp_instructions = after.warp_instructions - before.warp_instructions;
      one.mma_operations = after.mma_operations - before.mma_operations;
    }
    std::sort(seconds.begin(), seconds.end());
    fmt::print(
        "{:16} best {:7.1f} ms  median {:7.1f} ms  {:6.2f} M warp instructions  {:6.2f} GFLOP  {:5.1f} GFLOP/s\n",
        test.name, seconds[0] * 1e3, seconds[2] * 1e3, static_cast<double>(one.warp_instructions) * 1e-6,
        static_cast<double>(one.mma_operations) * 1e-9, static_cast<double>(one.mma_operations) * 1e-9 / seconds[0]);
  }
  return 0;
}
