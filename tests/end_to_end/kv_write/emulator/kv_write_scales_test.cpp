// Scales that do not fit the problem: a launch of kv_write refuses them by name, and queues nothing.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/runtime/c/c_api.h"
#include "support/emulated_kv_write.h"

namespace kernelwright::kv_write_scales_test {
namespace {

using test::small_kv_write;

class KvWriteScales : public test::OnTheEmulator<int> {
 protected:
  Engine engine_ = test::make_checking_engine(4, emulator::Completion::kRandom, 1);
};
INSTANTIATE_TEST_SUITE_P(, KvWriteScales, testing::Values(0));

TEST_P(KvWriteScales, AreNamedWhereTheyDoNotFit) {
  const auto refusal = [&](ScaleKind kind, const test::KvWriteChange& change) {
    KvWriteProblem problem = small_kv_write();
    problem.dtype.kv = kind == ScaleKind::kNone ? DType::kBf16 : DType::kE4m3;
    problem.scales.k = problem.scales.v = kind;
    const KvWriteCase call = make_kv_write_inputs(problem, {.name = "drawn", .tokens = 3});
    return test::refusal_of_launch(engine_, call, change);
  };
  const std::string other =
      "is given, and the problem does not have such scales; leave it null, or prepare a problem "
      "that has";
  EXPECT_EQ(refusal(ScaleKind::kNone, [](KvWriteTensors& t) { t.k_scale = t.k; }), "/tensors/k_scale: " + other);
  EXPECT_EQ(refusal(ScaleKind::kNone, [](KvWriteTensors& t) { t.v_scale = t.k; }), "/tensors/v_scale: " + other);
  EXPECT_EQ(refusal(ScaleKind::kPerToken, [](KvWriteTensors& t) { t.q_scale = t.k; }), "/tensors/q_scale: " + other);
  for (const ScaleKind kind : {ScaleKind::kPerTensor, ScaleKind::kPerHead})
    EXPECT_EQ(refusal(kind,
                      [](KvWriteTensors& t) {
                        t.k_scale_strides = {8, 2, 1};
                      }),
              "/tensors/k_scale_strides: is given, and the problem's scales are not \"per_token\"; leave it zero");
  const std::string shared = " gives several scales one place; each key and head has a scale of its own";
  EXPECT_EQ(refusal(ScaleKind::kPerToken,
                    [](KvWriteTensors& t) {
                      t.k_scale_strides = {8, 2, 0};
                    }),
            "/tensors/k_scale_strides: [8, 2, 0]" + shared);
  EXPECT_EQ(refusal(ScaleKind::kPerToken,
                    [](KvWriteTensors& t) {
                      t.v_scale_strides = {8, 0, 1};
                    }),
            "/tensors/v_scale_strides: [8, 0, 1]" + shared);
  EXPECT_EQ(refusal(ScaleKind::kPerToken,
                    [](KvWriteTensors& t) {
                      t.v_scale_strides = {0, 2, 1};
                    }),
            "/tensors/v_scale_strides: [0, 2, 1]" + shared);
  EXPECT_NE(refusal(ScaleKind::kPerHead, [](KvWriteTensors& t) { t.k_scale = 0; }), "");
}

/// The same words through the C ABI, which has addresses and strides and no shapes.
TEST_P(KvWriteScales, AreNamedInCToo) {
  kernelwright_engine_options options{.struct_size = sizeof(options)};
  options.backend = "emulator";
  options.memory_only_cache = 1;
  kernelwright_engine* engine = nullptr;
  ASSERT_EQ(kernelwright_engine_create(&options, &engine), KERNELWRIGHT_OK) << kernelwright_last_error();
  KvWriteProblem problem = small_kv_write();
  problem.dtype.kv = DType::kE4m3;
  problem.scales.k = ScaleKind::kPerToken, problem.scales.v = ScaleKind::kPerHead;
  const std::string config = write_config(KvWriteConfig{"scales", problem, {}, {}});
  kernelwright_kernel* kernel = nullptr;
  ASSERT_EQ(kernelwright_prepare_json(engine, config.c_str(), config.size(), nullptr, &kernel), KERNELWRIGHT_OK)
      << kernelwright_last_error();
  kernelwright_kv_write_tensors tensors{.struct_size = sizeof(tensors)};
  std::uint64_t next = 1 << 20;  // nothing is queued, so no memory is needed
  for (std::uint64_t kernelwright_kv_write_tensors::*operand :
       {&kernelwright_kv_write_tensors::q, &kernelwright_kv_write_tensors::k, &kernelwright_kv_write_tensors::v,
        &kernelwright_kv_write_tensors::q_out, &kernelwright_kv_write_tensors::k_cache,
        &kernelwright_kv_write_tensors::v_cache, &kernelwright_kv_write_tensors::slot_mapping,
        &kernelwright_kv_write_tensors::q_scale, &kernelwright_kv_write_tensors::k_scale,
        &kernelwright_kv_write_tensors::v_scale})
    tensors.*operand = next, next += 1 << 20;
  tensors.tokens = 2, tensors.num_pages = 4;
  tensors.k_scale_strides = {0, 2, 1}, tensors.v_scale_strides = {8, 2, 1};
  EXPECT_EQ(kernelwright_launch_kv_write(kernel, &tensors, nullptr), KERNELWRIGHT_INVALID_ARGUMENT);
  const std::string told = kernelwright_last_error();
  for (const char* part : {"/tensors/q_scale: is given, and the problem does not have such scales",
                           "/tensors/k_scale_strides: [0, 2, 1] gives several scales one place",
                           "/tensors/v_scale_strides: is given, and the problem's scales are not \"per_token\""})
    EXPECT_NE(told.find(part), std::string::npos) << told;
  kernelwright_engine_destroy(engine);
}

}  // namespace
}  // namespace kernelwright::kv_write_scales_test
