// Random sequences of calls of the C ABI from a seed, the same in every run. $KERNELWRIGHT_ABI_CALLS is the number of
// calls (20 000), $KERNELWRIGHT_ABI_SEED the first seed (1).
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "fuzz/c_abi_calls.h"

namespace {

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

int main() {
  const std::uint64_t wanted = from_environment("KERNELWRIGHT_ABI_CALLS", 20'000);
  std::uint64_t seed = from_environment("KERNELWRIGHT_ABI_SEED", 1);
  kernelwright::fuzz::CallCounts counts;
  std::vector<std::uint8_t> bytes(8192);
  const std::uint64_t first = seed;
  for (; counts.calls < wanted; ++seed) {
    std::mt19937_64 random(seed);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    if (seed % 100 == 0)  // from where to start again, should the next ones end the process
      std::fprintf(stderr, "seed %llu: %llu calls\n", static_cast<unsigned long long>(seed),
                   static_cast<unsigned long long>(counts.calls));
    kernelwright::fuzz::make_calls(bytes, counts);
  }
  std::printf("%llu calls in %llu sequences from seed %llu; %llu launches taken; by status:",
              static_cast<unsigned long long>(counts.calls), static_cast<unsigned long long>(seed - first),
              static_cast<unsigned long long>(first), static_cast<unsigned long long>(counts.launched));
  for (const std::uint64_t count : counts.by_status) std::printf(" %llu", static_cast<unsigned long long>(count));
  std::printf("\n");
  // Sequences that nothing comes of test nothing.
  return counts.launched * 50 > counts.calls && counts.by_status[0] * 10 > counts.calls ? 0 : 1;
}
