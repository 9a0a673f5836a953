// Slots of a cache whose elements 32 bits do not count, on the GPU. Each token's bytes lie at its slot, where a small
// cache has the same bytes, and every other byte of the large cache is as it was. Skipped by name if there is no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/kv_write/bound.h"
#include "kernelwright/verify/kv_write/device.h"
#include "support/cuda_engine.h"

namespace kernelwright::far_slots_cuda_test {
namespace {

constexpr int kPage = 16, kHeads = 8, kDepth = 128, kTokens = 8;
constexpr std::int64_t kRow = std::int64_t{kHeads} * kDepth;  // elements of a token's keys

struct Pool {
  std::string name;
  DType dtype;
  VLayout v_layout;
  std::int64_t elements;  // of keys, and of values: the slot behind so many is in the cache
};
void PrintTo(const Pool& pool, std::ostream* out) { *out << pool.name; }

/// What a launch has to write: a byte for each offset into the keys or the values.
using Wanted = std::map<std::size_t, std::byte>;

class KvWriteOnCuda : public testing::TestWithParam<Pool> {
 protected:
  void SetUp() override {
    if (!test::CudaEngine::get().engine) GTEST_SKIP() << "no GPU: " << test::CudaEngine::get().missing;
    const std::size_t needed = 2 * cache_bytes() + (std::size_t{1} << 30), memory = device().info().memory_bytes;
    if (memory < needed)
      GTEST_SKIP() << device().info().name << " has " << memory << " bytes, and this takes " << needed;
  }
  Engine& engine() { return *test::CudaEngine::get().engine; }
  Device& device() { return engine().device(0); }
  /// Two pages more than the elements that the pool's name counts.
  std::int64_t slots() const { return GetParam().elements / kRow + 2 * kPage; }
  std::size_t cache_bytes() const { return static_cast<std::size_t>(slots() * kRow) * bytes_of(GetParam().dtype); }

  KvWriteProblem problem() const {
    KvWriteProblem problem;
    problem.head_dim = {kDepth, kDepth};
    problem.heads = {kHeads, kHeads};
    problem.kv_layout = {KvLayoutKind::kPaged, kPage};
    problem.dtype.kv = GetParam().dtype;
    problem.v_layout = GetParam().v_layout;
    problem.rope = {.style = RopeStyle::kNeox, .width = kDepth};
    if (is_fp8(problem.dtype.kv)) problem.scales.k = problem.scales.v = ScaleKind::kPerHead;
    return problem;
  }
  /// The bytes of `call`'s tokens in a small cache, at the places of `slots` in a large one.
  static Wanted wanted_of(const KvWriteCase& call, const KvWriteOutput& small, HeadsOf of,
                          const std::vector<std::int64_t>& slots) {
    Wanted wanted;
    const std::size_t begin = (of == HeadsOf::kK ? call.k_cache : call.v_cache).offset;
    const std::size_t bytes = bytes_of(call.problem.dtype.kv);
    for (std::int64_t token = 0; token < call.tokens; ++token)
      for (int head = 0; call.slot_of(token) >= 0 && head < kHeads; ++head)
        for (int element = 0; element < kDepth; ++element)
          for (std::size_t byte = 0; byte < bytes; ++byte)
            wanted[call.cache_byte(of, slots[static_cast<std::size_t>(token)], head, element) - begin + byte] =
                small.cache[call.cache_byte(of, call.slot_of(token), head, element) + byte];
    return wanted;
  }
  /// Expects that `cache` has the wanted bytes, and those that it was filled with everywhere else.
  void expect_bytes(const DeviceMemory::Guarded& cache, const Wanted& wanted, const char* name) {
    constexpr std::size_t kChunk = std::size_t{64} << 20;
    const std::vector<std::byte> untouched(kChunk, DeviceMemory::kGuardByte);
    std::vector<std::byte> found(kChunk);
    for (std::size_t first = 0; first < cache.bytes; first += kChunk) {
      const std::size_t count = std::min(kChunk, cache.bytes - first);
      device().copy_to_host(found.data(), cache.data() + first, count);
      for (auto at = wanted.lower_bound(first); at != wanted.end() && at->first < first + count; ++at) {
        ASSERT_EQ(found[at->first - first], at->second) << name << ", byte " << at->first;
        found[at->first - first] = DeviceMemory::kGuardByte;
      }
      if (std::memcmp(found.data(), untouched.data(), count) == 0) continue;
      const auto other = std::mismatch(found.begin(), found.end(), untouched.begin()).first;
      FAIL() << name << ": byte " << first + static_cast<std::size_t>(other - found.begin()) << " was written";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(, KvWriteOnCuda,
                         testing::Values(Pool{"bf16_2g", DType::kBf16, VLayout::kRows, std::int64_t{1} << 31},
                                         Pool{"e4m3_4g", DType::kE4m3, VLayout::kRows, std::int64_t{1} << 32},
                                         Pool{"columns_2g", DType::kE4m3, VLayout::kColumns, std::int64_t{1} << 31}),
                         [](const auto& info) { return info.param.name; });

TEST_P(KvWriteOnCuda, WritesSlotsThat32BitsDoNotReach) {
  const std::int64_t far = GetParam().elements / kRow;  // the first slot behind the pool's count of elements
  // The last three are skipped: two behind the cache, of which one has a small number in 32 bits.
  const std::vector<std::int64_t> places = {far - 1,     far, far + kPage + 1, 3,
                                            slots() - 1, -1,  slots(),         (std::int64_t{1} << 32) + 5};
  KvWriteCase call = make_kv_write_inputs(problem(), {.name = "far", .tokens = kTokens, .pages = 4});
  for (std::size_t skipped = 5; skipped < places.size(); ++skipped) call.slot_mapping[skipped] = -1;
  const KvWriteKernel kernel = engine().prepare(problem());
  KvWriteDeviceCase near(device(), call, kernel);
  near.poison();
  near.launch();
  const KvWriteOutput small = near.download();
  const auto verdict = verify(call, small);
  ASSERT_TRUE(verdict.passed) << verdict.text;

  DeviceMemory memory(device());
  const DeviceMemory::Guarded keys = memory.allocate_guarded(cache_bytes()),
                              values = memory.allocate_guarded(cache_bytes());
  for (const auto& cache : {keys, values}) {
    memory.renew_guards(cache);
    device().fill(cache.data(), static_cast<std::uint8_t>(DeviceMemory::kGuardByte), cache.bytes, memory.stream());
  }
  memory.wait();
  KvWriteTensors& tensors = near.tensors();
  tensors.k_cache = keys.data(), tensors.v_cache = values.data();
  tensors.num_pages = static_cast<int>(slots() / kPage);
  tensors.slot_mapping = memory.upload(places);
  near.poison();
  near.launch();
  const KvWriteOutput output = near.download();
  EXPECT_EQ(output.q_out, small.q_out);
  EXPECT_TRUE(std::ranges::all_of(output.cache, [](std::byte byte) { return byte == DeviceMemory::kGuardByte; }))
      << "the small cache was written";
  expect_bytes(keys, wanted_of(call, small, HeadsOf::kK, places), "keys");
  expect_bytes(values, wanted_of(call, small, HeadsOf::kV, places), "values");
  EXPECT_TRUE(memory.guards_are_intact(keys) && memory.guards_are_intact(values));
}

}  // namespace
}  // namespace kernelwright::far_slots_cuda_test
