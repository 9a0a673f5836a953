/// The C ABI: the checks written in C, and those that need threads and exceptions.
#include "kernelwright/runtime/c/c_api.h"

#include <cstring>
#include <thread>

#include "contract/attention_params.h"
#include "contract/quantize.h"
#include "kernelwright/runtime/c/c_api_engine.h"
#include "runtime/c/c_api_in_c_test.h"
#include "runtime/engine/engine_fixture.h"

namespace kernelwright::test {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

struct CApiTest : EngineTest {
  CApiTest() : engine(options()) {}
  kernelwright_engine engine;
};

TEST_F(CApiTest, PreparesAndLaunchesFromC) {
  EXPECT_EQ(c_prepares_and_launches(&engine), 0);
  ASSERT_THAT(device().launches(), SizeIs(1));
  EXPECT_EQ(device().launches()[0].stream, some_stream());
  EXPECT_EQ(device().launches()[0].as<contract::AttentionParams>().scale, 0.5f);
}

TEST_F(CApiTest, Quantises) {
  kernelwright_kernel* kernel = nullptr;
  ASSERT_EQ(kernelwright_prepare_quantize(&engine, "bf16", "nvfp4", nullptr, &kernel), KERNELWRIGHT_OK)
      << kernelwright_last_error();
  kernelwright_kernel* again = nullptr;
  ASSERT_EQ(kernelwright_prepare_quantize(&engine, "bf16", "nvfp4", nullptr, &again), KERNELWRIGHT_OK);
  EXPECT_EQ(again, kernel);
  uint64_t bytes = 0;
  ASSERT_EQ(kernelwright_quantize_scale_bytes("nvfp4", 129, 64, &bytes), KERNELWRIGHT_OK);
  EXPECT_EQ(bytes, static_cast<uint64_t>(quantize_scale_bytes(DType::kNvfp4, 129, 64)));

  kernelwright_quantize_tensors tensors{};
  tensors.struct_size = sizeof tensors;
  tensors.x = 0x10000, tensors.elements = 0x20000, tensors.scales = 0x30000;
  tensors.rows = 3, tensors.k = 64;
  ASSERT_EQ(kernelwright_launch_quantize(kernel, &tensors, some_stream()), KERNELWRIGHT_OK)
      << kernelwright_last_error();
  tensors.tensor_scale = 4;
  ASSERT_EQ(kernelwright_launch_quantize(kernel, &tensors, some_stream()), KERNELWRIGHT_OK);
  ASSERT_THAT(device().launches(), SizeIs(2));
  EXPECT_EQ(device().launches()[0].stream, some_stream());
  EXPECT_EQ(device().launches()[0].as<contract::QuantizeParams>().tensor_scale, 1.0f);
  EXPECT_EQ(device().launches()[1].as<contract::QuantizeParams>().tensor_scale, 4.0f);

  tensors.k = 33;
  EXPECT_EQ(kernelwright_launch_quantize(kernel, &tensors, nullptr), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_THAT(kernelwright_last_error(), HasSubstr("/tensors/k"));
  kernelwright_gemm_tensors of_gemm{};
  of_gemm.struct_size = sizeof of_gemm;
  EXPECT_EQ(kernelwright_launch_gemm(kernel, &of_gemm, nullptr), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_STREQ(kernelwright_last_error(), "/kernel: quantises; kernelwright_launch_quantize() launches it");
  EXPECT_EQ(kernelwright_prepare_quantize(&engine, nullptr, "nvfp4", nullptr, &kernel), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_STREQ(kernelwright_last_error(), "/from: is null");
  EXPECT_EQ(kernelwright_prepare_quantize(&engine, "bf16", "e4m3", nullptr, &kernel), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_EQ(kernelwright_quantize_scale_bytes("bf16", 1, 32, &bytes), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_STREQ(kernelwright_last_error(), "/to: \"bf16\" has no scales of blocks");
  for (const auto& [rows, k] : {std::pair<int64_t, int32_t>{-1, 32}, {int64_t{1} << 31, 32}, {1, -32}, {1, 0x7fffffe0}})
    EXPECT_EQ(kernelwright_quantize_scale_bytes("mxfp8", rows, k, &bytes), KERNELWRIGHT_INVALID_ARGUMENT) << rows << k;
  EXPECT_STREQ(kernelwright_last_error(), "/k: 2147483616 is outside [0, 16777216]");
  EXPECT_THROW(quantize_scale_bytes(DType::kMxfp8, int64_t{1} << 40, 32), ConfigError);
  tensors.k = 64;
  tensors.elements_stride = int64_t{1} << 60;
  EXPECT_EQ(kernelwright_launch_quantize(kernel, &tensors, nullptr), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_THAT(kernelwright_last_error(), HasSubstr("/tensors/elements_stride: 1152921504606846976 elements of nvfp4"));
  tensors.elements_stride = 0;
  tensors.x_stride = INT64_MIN;
  EXPECT_EQ(kernelwright_launch_quantize(kernel, &tensors, nullptr), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_THAT(kernelwright_last_error(), HasSubstr("/tensors/x_stride: -9223372036854775808 is less than"));
  tensors.x_stride = 0;
  tensors.scales = ~uint64_t{0} - 15;
  EXPECT_EQ(kernelwright_launch_quantize(kernel, &tensors, nullptr), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_STREQ(kernelwright_last_error(),
               "/tensors/scales: 512 bytes at 0xfffffffffffffff0 end behind what 64-bit addresses reach");
  tensors.k = 0x7fffffe0;
  EXPECT_EQ(kernelwright_launch_quantize(kernel, &tensors, nullptr), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_STREQ(kernelwright_last_error(), "/tensors/k: 2147483616 is more than a GEMM takes, 16777216");
}

TEST_F(CApiTest, LaunchesALayerOfExpertsFromC) {
  EXPECT_EQ(c_launches_a_layer_of_experts(&engine), 0);
  const auto launches = device().launches();
  ASSERT_THAT(launches, SizeIs(6));  // the choice, two that quantise, two GEMMs and the sum
  for (const auto& launch : launches) EXPECT_EQ(launch.stream, some_stream());
}

TEST_F(CApiTest, ReportsErrorsToC) { EXPECT_EQ(c_reports_errors(&engine), 0); }

TEST_F(CApiTest, SizesItsStructs) { EXPECT_EQ(c_structs_are_sized(&engine), 0); }

TEST_F(CApiTest, EachKindOfFailureHasItsStatus) {
  kernelwright_attention_problem problem{};
  problem.struct_size = sizeof problem;
  problem.head_dim_qk = problem.head_dim_v = 128;
  problem.q_heads = problem.kv_heads = 1;
  kernelwright_kernel* kernel = nullptr;
  const auto prepare = [&] { return kernelwright_prepare_attention(&engine, &problem, nullptr, &kernel); };
  store->fail("");
  EXPECT_EQ(prepare(), KERNELWRIGHT_COMPILE_ERROR);
  EXPECT_THAT(kernelwright_last_error(), HasSubstr("told to fail"));
  store->heal();
  device().refuse_loads = true;
  EXPECT_EQ(prepare(), KERNELWRIGHT_DEVICE_ERROR);
  device().refuse_loads = false;
  EXPECT_EQ(prepare(), KERNELWRIGHT_OK);
  EXPECT_THAT(kernelwright_last_error(), HasSubstr("cuLibraryLoadData")) << "a success must not touch the last error";
}

TEST_F(CApiTest, TheLastErrorIsThisThreadsOwn) {
  kernelwright_kernel* kernel = nullptr;
  ASSERT_NE(kernelwright_prepare_json(&engine, nullptr, 0, nullptr, &kernel), KERNELWRIGHT_OK);
  std::thread([&] {
    EXPECT_STREQ(kernelwright_last_error(), "");
    ASSERT_NE(kernelwright_prepare_json(nullptr, "{}", 2, nullptr, &kernel), KERNELWRIGHT_OK);
    EXPECT_STREQ(kernelwright_last_error(), "/engine: is null");
  }).join();
  EXPECT_STREQ(kernelwright_last_error(), "/config: is null");
}

TEST(CApiEngine, CreationFailsWithAStatusAndDestroyTakesNull) {
  kernelwright_engine_options options{};
  options.struct_size = sizeof options;
  options.backend = "metal";
  kernelwright_engine* engine = nullptr;
  EXPECT_EQ(kernelwright_engine_create(&options, &engine), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_EQ(engine, nullptr);
  EXPECT_THAT(kernelwright_last_error(), HasSubstr("\"metal\" is not a backend"));
  EXPECT_EQ(kernelwright_engine_create(nullptr, nullptr), KERNELWRIGHT_INVALID_ARGUMENT);
  kernelwright_engine_destroy(nullptr);
}

class CApiEmulator : public ::testing::Test {
 protected:
  CApiEmulator() {
    options.struct_size = sizeof options;
    options.backend = "emulator";
    options.memory_only_cache = 1;
    options.emulator_arch = "sm_86";
    options.completion = "random";
    options.seed = 3;
    options.hazards = 1;
  }
  ~CApiEmulator() override { kernelwright_engine_destroy(engine); }
  kernelwright_status create() { return kernelwright_engine_create(&options, &engine); }

  kernelwright_engine_options options{};
  kernelwright_engine* engine = nullptr;
};

TEST_F(CApiEmulator, IsChosenByNameAndGivesMemory) {
  ASSERT_EQ(create(), KERNELWRIGHT_OK) << kernelwright_last_error();
  const char* name = nullptr;
  ASSERT_EQ(kernelwright_device_name(engine, 0, &name), KERNELWRIGHT_OK);
  EXPECT_STREQ(name, "emulated sm_86");
  EXPECT_EQ(kernelwright_device_name(engine, 1, &name), KERNELWRIGHT_MISSING);
  std::uint64_t address = 0;
  ASSERT_EQ(kernelwright_device_allocate(engine, 0, 8, &address), KERNELWRIGHT_OK);
  const std::uint64_t written = 0x123456789abcdef0;
  std::uint64_t read = 0;
  EXPECT_EQ(kernelwright_device_write(engine, 0, address, &written, 8), KERNELWRIGHT_OK);
  EXPECT_EQ(kernelwright_device_read(engine, 0, &read, address, 8), KERNELWRIGHT_OK);
  EXPECT_EQ(read, written);
  EXPECT_EQ(kernelwright_device_read(engine, 0, &read, address, 9), KERNELWRIGHT_DEVICE_ERROR);
  EXPECT_EQ(kernelwright_device_write(engine, 0, address, nullptr, 8), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_EQ(kernelwright_device_free(engine, 0, address), KERNELWRIGHT_OK);
  EXPECT_EQ(kernelwright_device_read(engine, 0, &read, address, 8), KERNELWRIGHT_DEVICE_ERROR);
}

TEST_F(CApiEmulator, MemoryThatNobodyHasIsRefused) {
  ASSERT_EQ(create(), KERNELWRIGHT_OK) << kernelwright_last_error();
  std::uint64_t address = 7;
  // With its guard bands it would be a few hundred bytes, modulo 2^64.
  EXPECT_EQ(kernelwright_device_allocate(engine, 0, ~std::uint64_t{0} - 5, &address), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_STREQ(kernelwright_last_error(),
               "/bytes: 18446744073709551610 bytes are more than any memory has; 72057594037927936 are the most");
  // A size that a device may have and this machine does not.
  EXPECT_EQ(kernelwright_device_allocate(engine, 0, std::uint64_t{1} << 55, &address), KERNELWRIGHT_DEVICE_ERROR);
  EXPECT_THAT(kernelwright_last_error(),
              HasSubstr("allocating 36028797018963968 bytes on emulated sm_86: this machine has "));
  EXPECT_EQ(address, 7u) << "a call that fails writes no result";
  ASSERT_EQ(kernelwright_device_allocate(engine, 0, 64, &address), KERNELWRIGHT_OK);
  std::uint64_t word = 0;
  for (const std::uint64_t bytes : {~std::uint64_t{0}, ~std::uint64_t{0} - address + 1, std::uint64_t{1} << 60}) {
    EXPECT_EQ(kernelwright_device_write(engine, 0, address, &word, bytes), KERNELWRIGHT_INVALID_ARGUMENT);
    EXPECT_EQ(kernelwright_device_read(engine, 0, &word, address, bytes), KERNELWRIGHT_INVALID_ARGUMENT);
    EXPECT_THAT(kernelwright_last_error(), HasSubstr("/bytes: "));
  }
}

TEST_F(CApiEmulator, OptionsThatAreNoWordsAreRefused) {
  options.emulator_arch = "sm_70";
  EXPECT_EQ(create(), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_THAT(kernelwright_last_error(), HasSubstr("/engine_options/emulator_arch: \"sm_70\" is not one of "));
  options.emulator_arch = nullptr;
  options.completion = "soon";
  EXPECT_EQ(create(), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_STREQ(kernelwright_last_error(), "/engine_options/completion: \"soon\" is not one of eager, lazy, random");
}

TEST_F(CApiEmulator, SaysWhereKernelsComeFrom) {
  const char* origin = nullptr;
  options.nvrtc_path = "/nowhere/libnvrtc.so.13";
  options.memory_only_cache = 1;
  EXPECT_EQ(kernelwright_kernel_origin(&options, &origin), KERNELWRIGHT_MISSING);
  EXPECT_THAT(kernelwright_last_error(), HasSubstr("no kernel can be compiled or found: /nowhere/libnvrtc.so.13 "));
  options.remote = "redis://127.0.0.1:1";
  ASSERT_EQ(kernelwright_kernel_origin(&options, &origin), KERNELWRIGHT_OK) << kernelwright_last_error();
  EXPECT_THAT(origin, HasSubstr("redis://127.0.0.1:1"));
  EXPECT_EQ(kernelwright_kernel_origin(&options, nullptr), KERNELWRIGHT_INVALID_ARGUMENT);
}

TEST_F(CApiEmulator, OptionsOfTheFirstVersionStillDo) {
  options.struct_size = offsetof(kernelwright_engine_options, emulator_arch);
  ASSERT_EQ(create(), KERNELWRIGHT_OK) << kernelwright_last_error();
  const char* name = nullptr;
  ASSERT_EQ(kernelwright_device_name(engine, 0, &name), KERNELWRIGHT_OK);
  EXPECT_STREQ(name, "emulated sm_90a") << "what lies behind struct_size is not read";
}

TEST_F(CApiEmulator, HandsReportsOut) {
  options.emulator_arch = nullptr;
  ASSERT_EQ(create(), KERNELWRIGHT_OK) << kernelwright_last_error();
  Device& on = engine->engine.device(0);
  const auto kernel = on.load(std::string_view(".version 8.8\n.target sm_90a\n.address_size 64\n"
                                               ".visible .entry clash()\n{\n.reg .b32 %r<2>;\n.shared .b32 word;\n"
                                               "mov.u32 %r0, %tid.x;\nst.shared.u32 [word], %r0;\nret;\n}\n"),
                              "clash", 0);
  on.launch(*kernel, {.block = 64}, nullptr, 0, nullptr);
  std::vector<std::string> told;
  const auto note = [](const kernelwright_hazard* hazard, void* to) {
    EXPECT_EQ(hazard->struct_size, sizeof *hazard);
    EXPECT_STREQ(hazard->kernel, "clash");
    EXPECT_GE(hazard->count, 1u);
    EXPECT_THAT(hazard->text, HasSubstr(hazard->what));
    EXPECT_THAT(hazard->text, HasSubstr(hazard->rule));
    EXPECT_STREQ(hazard->grade, "error");
    EXPECT_THAT(hazard->section, HasSubstr("Causality order"));
    EXPECT_THAT(hazard->mend, HasSubstr("barrier"));
    static_cast<std::vector<std::string>*>(to)->push_back(hazard->kind);
  };
  std::uint64_t count = 0;
  ASSERT_EQ(kernelwright_engine_take_hazards(engine, note, &told, &count), KERNELWRIGHT_OK);
  EXPECT_GE(count, 1u);
  EXPECT_EQ(told.size(), count);
  EXPECT_THAT(told, ::testing::Contains("race"));
  ASSERT_EQ(kernelwright_engine_take_hazards(engine, nullptr, nullptr, &count), KERNELWRIGHT_OK);
  EXPECT_EQ(count, 0u);
}

TEST_F(CApiTest, AGpuReportsNoHazards) {
  std::uint64_t count = 7;
  EXPECT_EQ(kernelwright_engine_take_hazards(&engine, nullptr, nullptr, &count), KERNELWRIGHT_OK);
  EXPECT_EQ(count, 0u);
}

TEST(CApiEngine, OpensBundlesAndReportsThoseThatItCannotUse) {
  std::vector<std::string> told;
  const char* const files[] = {"/nonexistent/one.kwpack", "/nonexistent/two.kwpack"};
  kernelwright_engine_options options{.struct_size = sizeof(options)};
  options.backend = "emulator";
  options.memory_only_cache = 1;
  options.bundles = files;
  options.num_bundles = 2;
  options.user_data = &told;
  options.event_callback = [](const kernelwright_event* event, void* data) {
    if (std::string_view(event->kind) == "cache degraded")
      static_cast<std::vector<std::string>*>(data)->emplace_back(event->name);
  };
  kernelwright_engine* made = nullptr;
  ASSERT_EQ(kernelwright_engine_create(&options, &made), KERNELWRIGHT_OK) << kernelwright_last_error();
  kernelwright_engine_destroy(made);
  EXPECT_EQ(told, (std::vector<std::string>{files[0], files[1]}));
  told.clear();
  const char* const keys[] = {"/nonexistent/key.pub"};
  options.bundle_keys = keys;
  options.num_bundle_keys = 1;
  ASSERT_EQ(kernelwright_engine_create(&options, &made), KERNELWRIGHT_OK) << kernelwright_last_error();
  kernelwright_engine_destroy(made);
  EXPECT_EQ(told.size(), 2u) << "no bundle is taken without its key";
  options.bundles = nullptr;
  EXPECT_EQ(kernelwright_engine_create(&options, &made), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_NE(std::string_view(kernelwright_last_error()).find("engine_options/bundles"), std::string_view::npos);
}

TEST(CApiEngine, CertificatesOfARemoteCacheReachIt) {
  std::string told;
  kernelwright_engine_options options{.struct_size = sizeof(options)};
  options.backend = "emulator";
  options.memory_only_cache = 1;
  options.remote = "https://me:sesame@127.0.0.1:1/kernels";
  options.user_data = &told;
  options.event_callback = [](const kernelwright_event* event, void* data) {
    if (std::string_view(event->kind) == "cache degraded") *static_cast<std::string*>(data) += event->detail;
  };
  for (const char* kernelwright_engine_options::*const field :
       {&kernelwright_engine_options::remote_ca, &kernelwright_engine_options::remote_certificate,
        &kernelwright_engine_options::remote_certificate_key}) {
    told.clear();
    options.*field = "/nonexistent/file.pem";
    kernelwright_engine* made = nullptr;
    ASSERT_EQ(kernelwright_engine_create(&options, &made), KERNELWRIGHT_OK) << kernelwright_last_error();
    kernelwright_engine_destroy(made);
    EXPECT_THAT(told, HasSubstr("/nonexistent/file.pem"));
    EXPECT_EQ(told.find("sesame"), std::string::npos);
    options.*field = nullptr;
  }
}

TEST(CApiEngine, EveryOptionOfCompileWorkersReachesThem) {
  kernelwright_engine_options options{.struct_size = sizeof(options)};
  options.backend = "emulator";
  options.memory_only_cache = 1;
  options.compile_in = "child";
  kernelwright_engine* made = nullptr;
  EXPECT_EQ(kernelwright_engine_create(&options, &made), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_STREQ(kernelwright_last_error(),
               "/engine_options/compile_in: \"child\" is not one of process, workers, auto, hosts");
  options.compile_in = "workers";
  options.compile_time_limit_ms = -1;
  EXPECT_EQ(kernelwright_engine_create(&options, &made), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_STREQ(kernelwright_last_error(), "/engine_options/compile_time_limit_ms: -1 is no time; write 0 or more");
  options.compile_time_limit_ms = 200;
  options.compiles_per_host = 1;
  options.compile_memory_bytes = std::uint64_t{300} << 20;
  options.compile_worker = "/nonexistent/kernelwright-cc";
  ASSERT_EQ(kernelwright_engine_create(&options, &made), KERNELWRIGHT_OK) << kernelwright_last_error();
  kernelwright_kernel* kernel = nullptr;
  EXPECT_EQ(kernelwright_prepare_quantize(made, "bf16", "mxfp8", nullptr, &kernel), KERNELWRIGHT_MISSING);
  EXPECT_NE(std::string_view(kernelwright_last_error()).find("/nonexistent/kernelwright-cc"), std::string_view::npos)
      << kernelwright_last_error();
  kernelwright_engine_destroy(made);
}

TEST(CApiEngine, KnowsItsVersionAndNamesEveryStatus) {
  EXPECT_STREQ(kernelwright_version(), KERNELWRIGHT_TEST_VERSION);
  EXPECT_EQ(kernelwright_version(), std::to_string(KERNELWRIGHT_VERSION_MAJOR) + "." +
                                        std::to_string(KERNELWRIGHT_VERSION_MINOR) + "." +
                                        std::to_string(KERNELWRIGHT_VERSION_PATCH));
  EXPECT_EQ(kernelwright_version_number(), KERNELWRIGHT_VERSION_NUMBER);
  static_assert(KERNELWRIGHT_MAKE_VERSION(0, 2, 0) > KERNELWRIGHT_MAKE_VERSION(0, 1, 999) &&
                KERNELWRIGHT_MAKE_VERSION(1, 0, 0) > KERNELWRIGHT_MAKE_VERSION(0, 999, 999));
  for (int status = KERNELWRIGHT_OK; status <= KERNELWRIGHT_INTERNAL_ERROR; ++status)
    EXPECT_STRNE(kernelwright_status_name(status), "unknown status");
  EXPECT_STREQ(kernelwright_status_name(99), "unknown status");
}

}  // namespace
}  // namespace kernelwright::test
