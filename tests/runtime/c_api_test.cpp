/// The C ABI: the checks that are written in C, and what needs threads and exceptions to be seen.
#include "kernelwright/runtime/c_api.h"

#include <cstring>
#include <thread>

#include "contract/attention_params.h"
#include "kernelwright/runtime/c_api_engine.h"
#include "runtime/c_api_in_c_test.h"
#include "runtime/engine_fixture.h"

namespace kernelwright::testing {
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

TEST(CApiEngine, KnowsItsVersionAndNamesEveryStatus) {
  EXPECT_STREQ(kernelwright_version(), KERNELWRIGHT_TEST_VERSION);
  for (int status = KERNELWRIGHT_OK; status <= KERNELWRIGHT_INTERNAL_ERROR; ++status)
    EXPECT_STRNE(kernelwright_status_name(status), "unknown status");
  EXPECT_STREQ(kernelwright_status_name(99), "unknown status");
}

}  // namespace
}  // namespace kernelwright::testing
