// A caller whose thread has 64 KB of stack, as the threads of some servers have. Compiles, plans, reads of the cache
// and launches on the emulator then run on threads of the library.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernelwright/runtime/c/c_api.h"
#include "kernelwright/runtime/compile/nvrtc_path.h"
#include "kernelwright/runtime/process/own_thread.h"

namespace kernelwright::small_stack_test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr std::size_t kSmallStack = 64 << 10;

/// False if the system gives no thread of that stack.
bool run_on_small_stack(std::function<void()> work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_t thread;
  const auto run = [](void* given) -> void* {
    (*static_cast<std::function<void()>*>(given))();
    return nullptr;
  };
  const bool started =
      pthread_attr_setstacksize(&attributes, kSmallStack) == 0 && pthread_create(&thread, &attributes, run, &work) == 0;
  pthread_attr_destroy(&attributes);
  if (started) pthread_join(thread, nullptr);
  return started;
}

/// The whole life of a kernel, through C, on one thread. Returns what went wrong, or "".
std::string prepares_and_launches(bool hazards, const char* config) {
  const auto failed = [](const char* call) { return std::string(call) + ": " + kernelwright_last_error(); };
  kernelwright_engine_options options{.struct_size = sizeof(kernelwright_engine_options), .backend = "emulator"};
  options.memory_only_cache = 1;
  options.hazards = hazards;
  kernelwright_engine* engine = nullptr;
  if (kernelwright_engine_create(&options, &engine)) return failed("create");
  kernelwright_kernel* kernel = nullptr;
  if (kernelwright_prepare_json(engine, config, std::strlen(config), nullptr, &kernel)) return failed("prepare");
  kernelwright_kernel* again = nullptr;
  if (kernelwright_prepare_json(engine, config, std::strlen(config), nullptr, &again) || again != kernel)
    return failed("prepare again");
  kernelwright_prepare_options background{.struct_size = sizeof background, .background = 1};
  kernelwright_attention_problem problem{.struct_size = sizeof problem, .head_dim_qk = 64, .head_dim_v = 64};
  problem.q_heads = problem.kv_heads = 1;
  problem.mask = "causal";
  kernelwright_kernel* second = nullptr;
  if (kernelwright_prepare_attention(engine, &problem, &background, &second)) return failed("prepare in background");
  if (kernelwright_kernel_wait(second)) return failed("wait");

  constexpr int kTokens = 80, kElements = kTokens * 64;
  const std::vector<std::uint16_t> ones(kElements, 0x3c00);  // f16 and, as 0.0078, bf16
  std::uint64_t addresses[4];
  for (std::uint64_t& address : addresses) {
    if (kernelwright_device_allocate(engine, 0, sizeof(std::uint16_t) * kElements, &address)) return failed("allocate");
    if (kernelwright_device_write(engine, 0, address, ones.data(), sizeof(std::uint16_t) * kElements))
      return failed("write");
  }
  kernelwright_attention_tensors tensors{.struct_size = sizeof tensors};
  tensors.q = addresses[0], tensors.k = addresses[1], tensors.v = addresses[2], tensors.o = addresses[3];
  tensors.batch = 1, tensors.q_len = kTokens, tensors.kv_len = kTokens;
  for (kernelwright_kernel* each : {kernel, second})
    if (kernelwright_launch(each, &tensors, nullptr)) return failed("launch");
  std::vector<std::uint16_t> out(kElements);
  if (kernelwright_device_read(engine, 0, out.data(), addresses[3], sizeof(std::uint16_t) * kElements))
    return failed("read");
  if (out != ones) return "the mean of ones is not one";
  std::uint64_t reports = 0;
  if (kernelwright_engine_take_hazards(engine, nullptr, nullptr, &reports)) return failed("hazards");
  if (reports) return "hazards were reported";
  kernelwright_engine_destroy(engine);
  return "";
}

constexpr const char* kPortable =
    R"({"version": 1, "kind": "attention", "name": "small", "problem": {"head_dim": {"qk": 64, "v": 64},
        "heads": {"q": 1, "kv": 1}, "mask": {"kind": "causal"}}, "schedule": {"family": "portable"}})";

class SmallStack : public testing::TestWithParam<bool> {};

TEST_P(SmallStack, AKernelIsPreparedFoundAndLaunched) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's frames take more than 64 KB by themselves";
  if (!find_nvrtc()) GTEST_SKIP() << "no NVRTC";
  std::string wrong = "was not run";
  ASSERT_TRUE(run_on_small_stack([&] { wrong = prepares_and_launches(GetParam(), kPortable); }))
      << "thread_local objects of this program leave no room for such a stack";
  EXPECT_EQ(wrong, "");
}

INSTANTIATE_TEST_SUITE_P(Hazards, SmallStack, testing::Bool(),
                         [](const auto& info) { return info.param ? "Checked" : "Unchecked"; });

TEST(OwnThread, IsTakenOnlyWhereTheStackIsSmall) {
  const pthread_t here = pthread_self();
  EXPECT_TRUE(with_stack(1 << 10, 0, [&] { return pthread_equal(pthread_self(), here) != 0; }));
  EXPECT_FALSE(with_stack(SIZE_MAX, 0, [&] { return pthread_equal(pthread_self(), here) != 0; }));
  const std::size_t left = with_stack(SIZE_MAX, 0, [] { return stack_left(); });
  EXPECT_GT(left, OwnThread::kStackBytes / 4 * 3);  // thread_local objects, a sanitizer's among them, lie there too
  EXPECT_LE(left, OwnThread::kStackBytes);
}

TEST(OwnThread, HandsOnWhatIsThrown) {
  EXPECT_THROW(with_stack(SIZE_MAX, 0, [] { throw std::string("x"); }), std::string);
}

}  // namespace
}  // namespace kernelwright::small_stack_test
