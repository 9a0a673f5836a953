// The cuda backend on a real GPU, with kernels that NVRTC compiles for it. Skips by name if either is missing.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/device/backend.h"

namespace kernelwright {
namespace {

using ::testing::HasSubstr;

struct Params {
  DevicePtr data = 0;
  int count = 0;
  int add = 0;
};

// add: one thread per element. shared: reverses the elements through dynamic shared memory.
constexpr const char* kSource = R"(
struct Params { int* data; int count; int add; };
extern "C" __global__ void add(const __grid_constant__ Params params) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < params.count) params.data[i] += params.add;
}
)";
constexpr const char* kSharedSource = R"(
struct Params { int* data; int count; int add; };
extern "C" __global__ void shared(const __grid_constant__ Params params) {
  extern __shared__ int tile[];
  const int last = params.count - 1;
  for (int i = threadIdx.x; i < params.count; i += blockDim.x) tile[i] = params.data[i];
  __syncthreads();
  for (int i = threadIdx.x; i < params.count; i += blockDim.x) params.data[i] = tile[last - i] + params.add;
}
)";

class CudaBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      backend = make_cuda_backend();
    } catch (const MissingError& error) {
      GTEST_SKIP() << error.what();
    }
    if (compiler.path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
    ASSERT_TRUE(device().info().arch) << "a GPU that no row of generator/problem/arch.cpp serves: "
                                      << device().info().name;
  }
  Device& device() { return backend->device(0); }
  std::unique_ptr<LoadedKernel> load(const char* entry, const char* source, std::uint32_t shared_bytes = 0) {
    SourceUnit unit;
    unit.kernel = unit.entry = entry;
    unit.arch = to_string(*device().info().arch);
    unit.source = source;
    unit.options = {"--gpu-architecture=" + unit.arch, "--std=c++17", "-default-device"};
    return device().load(compiler.compile(unit).cubin, entry, shared_bytes);
  }
  std::vector<int> read(DevicePtr data, std::size_t count) {
    std::vector<int> values(count);
    device().copy_to_host(values.data(), data, count * sizeof(int));
    return values;
  }
  void launch_add(const LoadedKernel& kernel, DevicePtr data, int count, int add, Stream stream) {
    const Params params{data, count, add};
    device().launch(kernel, {.grid = {static_cast<std::uint32_t>(count + 127) / 128, 1, 1}, .block = 128}, &params,
                    sizeof params, stream);
  }

  Compiler compiler;
  std::unique_ptr<Backend> backend;
};

TEST_F(CudaBackendTest, DescribesTheDevice) {
  const DeviceInfo& info = device().info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_GT(info.num_sms, 0);
  EXPECT_GT(info.memory_bytes, std::size_t{1} << 30);
  EXPECT_GT(info.l2_bytes, 1u << 20);
  EXPECT_GE(info.shared_bytes_per_cta, 99 * 1024);
}

TEST_F(CudaBackendTest, CopiesALargeBufferThereAndBack) {
  std::vector<int> values(8 << 20);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i * 7);
  const DevicePtr data = device().allocate(values.size() * sizeof(int));
  EXPECT_EQ(data % 256, 0u);
  device().copy_to_device(data, values.data(), values.size() * sizeof(int));
  EXPECT_EQ(read(data, values.size()), values);
  device().free(data);
}

TEST_F(CudaBackendTest, LaunchesOnAStreamOfItsOwn) {
  const auto kernel = load("add", kSource);
  const Stream stream = device().create_stream();
  const DevicePtr data = device().allocate(1000 * sizeof(int));
  device().fill(data, 0, 1000 * sizeof(int), stream);
  launch_add(*kernel, data, 1000, 5, stream);
  launch_add(*kernel, data, 1000, 6, stream);
  device().synchronize(stream);
  EXPECT_THAT(read(data, 1000), ::testing::Each(11));
  EXPECT_GT(device().max_ctas_per_sm(*kernel, 128, 0), 0);
  device().free(data);
  device().destroy_stream(stream);
}

TEST_F(CudaBackendTest, GivesAKernelAllTheSharedMemoryOfTheDevice) {
  const auto bytes = static_cast<std::uint32_t>(device().info().shared_bytes_per_cta);
  const int count = static_cast<int>(bytes / sizeof(int));
  const auto kernel = load("shared", kSharedSource, bytes);
  std::vector<int> values(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = i;
  const DevicePtr data = device().allocate(bytes);
  device().copy_to_device(data, values.data(), bytes);
  const Params params{data, count, 1};
  device().launch(*kernel, {.block = 256, .shared_bytes = bytes}, &params, sizeof params, nullptr);
  device().synchronize(nullptr);
  const std::vector<int> result = read(data, values.size());
  for (int i = 0; i < count; ++i) ASSERT_EQ(result[static_cast<std::size_t>(i)], count - i);
  device().free(data);
}

TEST_F(CudaBackendTest, RefusesMoreSharedMemoryThanTheDeviceHas) {
  const auto bytes = static_cast<std::uint32_t>(device().info().shared_bytes_per_cta) + 1024;
  try {
    load("shared", kSharedSource, bytes);
    FAIL() << "loaded";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("setting the dynamic shared bytes of shared to " + std::to_string(bytes)));
  }
}

TEST_F(CudaBackendTest, LaunchesClustersAndDependentLaunches) {
  if (device().info().compute_major < 9) GTEST_SKIP() << "clusters need compute capability 9.0";
  const auto kernel = load("add", kSource);
  const Stream stream = device().create_stream();
  const DevicePtr data = device().allocate(1024 * sizeof(int));
  device().fill(data, 0, 1024 * sizeof(int), stream);
  const Params params{data, 1024, 3};
  device().launch(*kernel, {.grid = {8, 1, 1}, .block = 128, .cluster = {2, 1, 1}}, &params, sizeof params, stream);
  device().synchronize(stream);
  EXPECT_THAT(read(data, 1024), ::testing::Each(3));
  device().launch(*kernel, {.grid = {8, 1, 1}, .block = 128, .pdl = true}, &params, sizeof params, stream);
  device().synchronize(stream);
  EXPECT_THAT(read(data, 1024), ::testing::Each(6));
  device().free(data);
  device().destroy_stream(stream);
}

TEST_F(CudaBackendTest, CapturesLaunchesAndReplaysThem) {
  const auto kernel = load("add", kSource);
  const Stream stream = device().create_stream();
  const DevicePtr data = device().allocate(1000 * sizeof(int));
  device().fill(data, 0, 1000 * sizeof(int), stream);
  device().synchronize(stream);
  device().begin_capture(stream);
  EXPECT_EQ(device().capture_state(stream), CaptureState::kActive);
  launch_add(*kernel, data, 1000, 5, stream);
  launch_add(*kernel, data, 1000, 6, stream);
  const auto graph = device().end_capture(stream);
  EXPECT_EQ(device().capture_state(stream), CaptureState::kNone);
  EXPECT_THAT(read(data, 1000), ::testing::Each(0)) << "captured, not run";
  for (int i = 0; i < 3; ++i) graph->replay(stream);
  device().synchronize(stream);
  EXPECT_THAT(read(data, 1000), ::testing::Each(33));
  device().free(data);
  device().destroy_stream(stream);
}

TEST_F(CudaBackendTest, LoadsAndUnloadsWhileAnotherStreamCaptures) {
  const auto kernel = load("add", kSource);
  const Stream stream = device().create_stream();
  const DevicePtr data = device().allocate(1000 * sizeof(int));
  device().fill(data, 0, 1000 * sizeof(int), stream);
  device().begin_capture(stream);
  launch_add(*kernel, data, 1000, 5, stream);
  std::thread([&] { load("shared", kSharedSource, 1024).reset(); }).join();
  launch_add(*kernel, data, 1000, 6, stream);
  const auto graph = device().end_capture(stream);
  graph->replay(stream);
  device().synchronize(stream);
  EXPECT_THAT(read(data, 1000), ::testing::Each(11));
  device().free(data);
  device().destroy_stream(stream);
}

TEST_F(CudaBackendTest, TimesWorkWithEvents) {
  const auto kernel = load("add", kSource);
  const Stream stream = device().create_stream();
  const DevicePtr data = device().allocate(64 << 20);
  device().fill(data, 0, 64 << 20, stream);
  DeviceEvent* begin = device().create_event();
  DeviceEvent* end = device().create_event();
  device().record(begin, stream);
  for (int i = 0; i < 10; ++i) launch_add(*kernel, data, 16 << 20, 1, stream);
  device().record(end, stream);
  const float elapsed = device().elapsed_ms(begin, end);
  EXPECT_GT(elapsed, 0.1f);  // 1.3 GB through memory
  EXPECT_LT(elapsed, 1000.0f);
  device().destroy_event(begin);
  device().destroy_event(end);
  device().free(data);
  device().destroy_stream(stream);
}

TEST_F(CudaBackendTest, ServesThreadsThatNeverTouchedCuda) {
  const auto kernel = load("add", kSource);
  const DevicePtr data = device().allocate(1000 * sizeof(int));
  device().fill(data, 0, 1000 * sizeof(int), nullptr);
  device().synchronize(nullptr);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const Stream stream = device().create_stream();
      for (int i = 0; i < 50; ++i) launch_add(*kernel, data + static_cast<DevicePtr>(t) * 1000, 250, 1, stream);
      device().synchronize(stream);
      device().destroy_stream(stream);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(read(data, 1000), ::testing::Each(50));
  device().free(data);
}

TEST_F(CudaBackendTest, EncodesTensorMaps) {
  if (device().info().compute_major < 9) GTEST_SKIP() << "tensor maps need compute capability 9.0";
  const DevicePtr data = device().allocate(128 * 256);
  const TensorMapRequest request{.address = data, .dims = {128, 128}, .strides_bytes = {256}, .box = {64, 64}};
  const TensorMap first = device().encode_tensor_map(request);
  const TensorMap again = device().encode_tensor_map(request);
  EXPECT_EQ(std::memcmp(&first, &again, sizeof first), 0);
  TensorMapRequest bad = request;
  bad.box[0] = 512;
  EXPECT_THROW(device().encode_tensor_map(bad), DeviceError);
  device().free(data);
}

TEST_F(CudaBackendTest, RefusesAnEntryThatTheCubinDoesNotHave) {
  SourceUnit unit;
  unit.kernel = unit.entry = "add";
  unit.arch = to_string(*device().info().arch);
  unit.source = kSource;
  unit.options = {"--gpu-architecture=" + unit.arch, "--std=c++17", "-default-device"};
  const Binary binary = compiler.compile(unit);
  try {
    device().load(binary.cubin, "subtract", 0);
    FAIL() << "loaded";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("loading subtract ("));
  }
}

TEST_F(CudaBackendTest, LeavesTheCallersContextCurrent) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_TRUE(library);
  const auto create = reinterpret_cast<int (*)(void**, unsigned, int)>(dlsym(library, "cuCtxCreate_v2"));
  const auto current = reinterpret_cast<int (*)(void**)>(dlsym(library, "cuCtxGetCurrent"));
  const auto destroy = reinterpret_cast<int (*)(void*)>(dlsym(library, "cuCtxDestroy_v2"));
  const auto kernel = load("add", kSource);
  const DevicePtr data = device().allocate(128 * sizeof(int));
  const auto run = [&] {
    device().fill(data, 0, 128 * sizeof(int), nullptr);
    launch_add(*kernel, data, 128, 9, nullptr);
    EXPECT_THAT(read(data, 128), ::testing::Each(9));
  };
  void* before = nullptr;
  void* after = nullptr;
  current(&before);
  run();
  current(&after);
  EXPECT_EQ(before, after);
  void* own = nullptr;
  ASSERT_EQ(create(&own, 0, 0), 0);  // and makes it current
  run();
  current(&after);
  EXPECT_EQ(after, own);
  destroy(own);
  device().free(data);
}

TEST_F(CudaBackendTest, RefusesParametersOfAnotherSize) {
  const auto kernel = load("add", kSource);
  const char params[8] = {};
  EXPECT_THROW(device().launch(*kernel, {}, params, sizeof params, nullptr), DeviceError);
}

}  // namespace
}  // namespace kernelwright
