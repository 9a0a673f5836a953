// The cuda backend over a stub driver: what reaches the driver, and the messages if the driver refuses.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <thread>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cuda/cuda_backend.h"
#include "support/stub_cuda.h"

namespace kernelwright::driver_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kOutOfMemory = 2, kInvalidImage = 200, kNoDevice = 100, kIllegalAddress = 700, kCaptureImplicit = 906;

/// The stub that `path` names, as the test sees it. Nothing closes a driver, so that both sides see one state.
class Stub {
 public:
  explicit Stub(const char* path) : library_(dlopen(path, RTLD_NOW)) {
    if (!library_) throw std::runtime_error(dlerror());
    call<void()>("stub_reset")();
  }
  template <class Function>
  Function* call(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library_, name));
  }
  StubState& state() const { return *call<StubState*()>("stub_state")(); }
  void* primary() const { return call<void*()>("stub_primary")(); }
  void* current() const { return call<void*()>("stub_current")(); }
  void set_current(void* context) const { call<void(void*)>("stub_set_current")(context); }
  int capture_mode() const { return call<int()>("stub_capture_mode")(); }

 private:
  void* library_;
};

template <class Error, class Function>
std::string message_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// A stand-in for a cubin: an ELF header without sections.
std::vector<std::byte> image(std::size_t bytes = 100) {
  std::vector<std::byte> image(bytes);
  constexpr char kIdent[] =
      "\x7f"
      "ELF\2";
  std::memcpy(image.data(), kIdent, sizeof kIdent - 1);
  return image;
}

struct Params {
  std::uint64_t address = 0x1122334455667788;
  std::uint32_t count = 42, unused = 0;
};

class StubBackend : public ::testing::Test {
 protected:
  StubBackend() : stub(KERNELWRIGHT_STUB_CUDA), backend(make_cuda_backend(open_driver(KERNELWRIGHT_STUB_CUDA))) {}
  StubState& state() { return stub.state(); }
  Device& device() { return backend->device(0); }
  std::unique_ptr<LoadedKernel> load(std::uint32_t shared_bytes = 65536) {
    return device().load(cubin, "attention_portable_0123", shared_bytes);
  }

  std::vector<std::byte> cubin = image();
  Stub stub;
  std::unique_ptr<Backend> backend;
};

TEST_F(StubBackend, ReadsTheDevice) {
  const DeviceInfo& info = device().info();
  EXPECT_EQ(info.name, "Stub 0");
  EXPECT_EQ(info.arch, Arch::kSm90a);
  EXPECT_EQ(info.num_sms, 132);
  EXPECT_EQ(info.l2_bytes, 50u << 20);
  EXPECT_EQ(info.shared_bytes_per_cta, 232448);
  EXPECT_EQ(info.memory_bytes, std::size_t{80} << 30);
  EXPECT_EQ(state().retains, 0) << "asking about a device opens no context";
}

TEST_F(StubBackend, PassesALaunchAsItIs) {
  const auto kernel = load();
  const Params params;
  const auto stream = reinterpret_cast<Stream>(0x50);
  device().launch(*kernel, {.grid = {12, 2, 3}, .block = 128, .shared_bytes = 65536}, &params, sizeof params, stream);
  const StubLaunch& launch = state().last_launch;
  EXPECT_THAT(launch.grid, ::testing::ElementsAre(12, 2, 3));
  EXPECT_EQ(launch.block, 128u);
  EXPECT_EQ(launch.shared_bytes, 65536u);
  EXPECT_EQ(launch.stream, stream);
  EXPECT_EQ(launch.context, stub.primary());
  EXPECT_EQ(std::memcmp(launch.params, &params, sizeof params), 0);
  EXPECT_THAT(launch.cluster, ::testing::Each(0u)) << "no attribute without need";
  EXPECT_FALSE(launch.pdl);
}

TEST_F(StubBackend, PassesClustersAndDependentLaunch) {
  const auto kernel = load();
  const Params params;
  device().launch(*kernel, {.cluster = {2, 1, 1}, .pdl = true}, &params, sizeof params, nullptr);
  EXPECT_THAT(state().last_launch.cluster, ::testing::ElementsAre(2, 1, 1));
  EXPECT_TRUE(state().last_launch.pdl);
}

TEST_F(StubBackend, NamesTheCallItsCodeAndTheLaunchThatFailed) {
  const auto kernel = load();
  const Params params;
  state().failing_call = "cuLaunchKernelEx";
  state().failing_result = kIllegalAddress;
  const auto launch = [&] {
    device().launch(*kernel, {.grid = {12, 1, 1}, .block = 128, .shared_bytes = 65536}, &params, sizeof params,
                    nullptr);
  };
  EXPECT_EQ(message_of<DeviceError>(launch),
            "cuLaunchKernelEx failed: CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered, "
            "launching attention_portable_0123 grid 12x1x1 block 128 shared 65536");
  try {
    launch();
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), kIllegalAddress);
  }
}

TEST_F(StubBackend, NamesACodeThatTheDriverDoesNotKnow) {
  state().failing_call = "cuMemAlloc";
  state().failing_result = 12345;
  EXPECT_EQ(message_of<DeviceError>([&] { device().allocate(80); }),
            "cuMemAlloc failed: unknown error (12345): the driver has no text for it, allocating 80 bytes on Stub 0");
}

TEST_F(StubBackend, RefusesParametersOfAnotherSize) {
  const auto kernel = load();
  const char params[8] = {};
  EXPECT_EQ(message_of<DeviceError>([&] { device().launch(*kernel, {}, params, sizeof params, nullptr); }),
            "attention_portable_0123: 8 bytes of parameters were given and its entry takes 16; host and device were "
            "built from different versions of its contract");
  EXPECT_EQ(state().launches, 0);
}

TEST_F(StubBackend, LeavesNothingForTheFirstLaunch) {
  const auto kernel = load(98304);
  EXPECT_EQ(state().loads, 1);
  EXPECT_EQ(state().func_loads, 1);
  EXPECT_EQ(state().max_shared, 98304);
  EXPECT_EQ(state().carveout, 100);
  EXPECT_EQ(kernel->loaded_bytes(), cubin.size());
  EXPECT_EQ(stub.capture_mode(), 0) << "the thread's own capture mode is back";
}

TEST_F(StubBackend, UnloadsWhatALoadLeftHalfDone) {
  state().failing_call = "cuLibraryGetKernel";
  state().failing_result = 500;
  EXPECT_THROW(load(), DeviceError);
  EXPECT_EQ(state().loads, 1);
  EXPECT_EQ(state().unloads, 1);
}

TEST_F(StubBackend, ShowsTheDriverNoTruncatedImage) {
  cubin[0x28] = std::byte{101};  // e_shoff: the sections begin past the end
  EXPECT_EQ(message_of<DeviceError>([&] { load(); }),
            "loading attention_portable_0123: its 100 bytes are not a whole ELF file");
  cubin = image(63);
  EXPECT_THROW(load(), DeviceError);
  cubin.clear();
  EXPECT_THROW(load(), DeviceError);
  EXPECT_EQ(state().loads, 0);
}

TEST_F(StubBackend, SaysWhatTheDriverSupportsWhenALoadFails) {
  state().failing_call = "cuLibraryLoadData";
  state().failing_result = kInvalidImage;
  EXPECT_THAT(
      message_of<DeviceError>([&] { load(); }),
      AllOf(StartsWith("cuLibraryLoadData failed: CUDA_ERROR_INVALID_IMAGE (200)"),
            HasSubstr("loading attention_portable_0123 (100 bytes) on Stub 0, whose driver supports CUDA 12.8")));
}

TEST_F(StubBackend, EntersThePrimaryContextAndLeavesItAgain) {
  device().free(device().allocate(256));
  EXPECT_EQ(state().retains, 1);
  EXPECT_EQ(state().pushes, 2);
  EXPECT_EQ(state().pops, 2);
  EXPECT_EQ(stub.current(), nullptr);
}

TEST_F(StubBackend, PushesNothingWhereThePrimaryContextIsCurrent) {
  const auto kernel = load();
  stub.set_current(stub.primary());
  const int pushes = state().pushes;
  const Params params;
  device().launch(*kernel, {}, &params, sizeof params, nullptr);
  device().free(device().allocate(256));
  EXPECT_EQ(state().pushes, pushes);
  EXPECT_EQ(stub.current(), stub.primary());
}

TEST_F(StubBackend, GivesTheCallerItsOwnContextBackEvenAfterAnError) {
  int other = 0;
  stub.set_current(&other);
  state().failing_call = "cuMemAlloc";
  state().failing_result = kOutOfMemory;
  EXPECT_THROW(device().allocate(1), DeviceError);
  EXPECT_EQ(stub.current(), &other);
}

TEST_F(StubBackend, WorksFromAThreadWithoutAContext) {
  const auto kernel = load();
  const Params params;
  std::thread([&] { device().launch(*kernel, {}, &params, sizeof params, nullptr); }).join();
  EXPECT_EQ(state().launches, 1);
  EXPECT_EQ(state().last_launch.context, stub.primary());
}

TEST_F(StubBackend, CopiesAndFills) {
  const DevicePtr memory = device().allocate(4);
  EXPECT_EQ(memory % 256, 0u);
  const char text[] = "abc";
  char back[4] = {};
  device().copy_to_device(memory, text, 4);
  device().copy_to_host(back, memory, 4);
  EXPECT_STREQ(back, "abc");
  device().fill(memory, 'z', 2, nullptr);
  device().copy_to_host(back, memory, 4);
  EXPECT_STREQ(back, "zzc");
  device().free(memory);
  EXPECT_EQ(device().allocate(0), 0u);
  device().free(0);
  EXPECT_EQ(state().allocations, 1);
  EXPECT_EQ(state().frees, 1);
}

TEST_F(StubBackend, AsksNobodyForMemoryThatCannotBe) {
  const auto refused = [](const std::function<void()>& call) { return message_of<ConfigError>(call); };
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  char byte = 0;
  EXPECT_EQ(refused([&] { device().allocate(kMost - 5); }),
            "/bytes: 18446744073709551610 bytes are more than any memory has; 72057594037927936 are the most");
  EXPECT_THAT(refused([&] { device().copy_to_device(kMost - 7, &byte, 16); }), StartsWith("/bytes: 16 bytes are more"));
  EXPECT_THAT(refused([&] { device().copy_to_host(&byte, 16, kMost - 7); }), StartsWith("/bytes: "));
  EXPECT_THAT(refused([&] { device().fill(kMost, 0, 2, nullptr); }), StartsWith("/bytes: "));
  EXPECT_EQ(state().allocations + state().copies + state().fills + state().retains, 0);
}

TEST_F(StubBackend, TellsTheStatesOfCapture) {
  const auto stream = reinterpret_cast<Stream>(0x50);
  EXPECT_EQ(device().capture_state(stream), CaptureState::kNone);
  state().capture_status = 1;
  EXPECT_EQ(device().capture_state(stream), CaptureState::kActive);
  state().capture_status = 2;
  EXPECT_EQ(device().capture_state(stream), CaptureState::kInvalidated);
  state().failing_call = "cuStreamIsCapturing";
  state().failing_result = kCaptureImplicit;
  EXPECT_EQ(device().capture_state(nullptr), CaptureState::kActive) << "the default stream, while another one captures";
  state().failing_result = kIllegalAddress;
  EXPECT_THROW(device().capture_state(stream), DeviceError);
}

TEST_F(StubBackend, CapturesAGraphAndReplaysIt) {
  const Stream stream = device().create_stream();
  device().begin_capture(stream);
  EXPECT_EQ(device().capture_state(stream), CaptureState::kActive);
  const auto graph = device().end_capture(stream);
  EXPECT_EQ(device().capture_state(stream), CaptureState::kNone);
  graph->replay(stream);
  graph->replay(stream);
  EXPECT_EQ(state().graph_launches, 2);
  EXPECT_EQ(stub.current(), nullptr);
  device().destroy_stream(stream);
  EXPECT_THAT(message_of<DeviceError>([&] { device().begin_capture(nullptr); }), HasSubstr("default stream"));
}

TEST_F(StubBackend, UnloadsOnlyWhenNothingCaptures) {
  auto kernel = load();
  const Stream stream = device().create_stream();
  device().begin_capture(stream);
  kernel.reset();
  EXPECT_EQ(state().unloads, 0);
  const auto graph = device().end_capture(stream);
  EXPECT_EQ(state().unloads, 1);
}

TEST_F(StubBackend, UnloadsAfterACaptureThatFailed) {
  auto kernel = load();
  const Stream stream = device().create_stream();
  device().begin_capture(stream);
  kernel.reset();
  state().failing_call = "cuStreamEndCapture";
  state().failing_result = 901;
  EXPECT_THROW(device().end_capture(stream), DeviceError);
  kernel = load();
  EXPECT_EQ(state().unloads, 1);
}

TEST_F(StubBackend, KeepsTheDeviceForKernelsThatOutliveTheBackend) {
  auto kernel = load();
  backend.reset();
  EXPECT_EQ(state().releases, 0);
  kernel.reset();
  EXPECT_EQ(state().unloads, 1);
  EXPECT_EQ(state().releases, 1);
}

TEST_F(StubBackend, TimesEvents) {
  DeviceEvent* event = device().create_event();
  device().record(event, nullptr);
  EXPECT_FLOAT_EQ(device().elapsed_ms(event, event), 1.5f);
  device().destroy_event(event);
}

TEST_F(StubBackend, AsksForOccupancy) { EXPECT_EQ(device().max_ctas_per_sm(*load(), 256, 1024), 8); }

TEST_F(StubBackend, EncodesATensorMapOnce) {
  TensorMapRequest request{.address = 0x10000, .dims = {128, 64}, .strides_bytes = {256}, .box = {64, 64}};
  const TensorMap first = device().encode_tensor_map(request);
  const TensorMap again = device().encode_tensor_map(request);
  EXPECT_EQ(state().encodes, 1);
  EXPECT_EQ(std::memcmp(&first, &again, sizeof first), 0);
  request.address += 256;
  const TensorMap moved = device().encode_tensor_map(request);
  EXPECT_EQ(state().encodes, 2);
  EXPECT_NE(std::memcmp(&first, &moved, sizeof first), 0);
}

TEST_F(StubBackend, KeepsTensorMapsRightWhenTheirSlotsCollide) {
  TensorMapRequest request{.dims = {128, 64}, .strides_bytes = {256}, .box = {64, 64}};
  for (int round = 0; round < 2; ++round)
    for (DevicePtr i = 1; i <= 5000; ++i) {
      request.address = i * 256;
      const TensorMap map = device().encode_tensor_map(request);
      DevicePtr address = 0;
      std::memcpy(&address, &map, sizeof address);
      ASSERT_EQ(address, request.address);
    }
}

TEST_F(StubBackend, DescribesATensorMapThatTheDriverRefuses) {
  state().failing_call = "cuTensorMapEncodeTiled";
  state().failing_result = 1;
  EXPECT_THAT(
      message_of<DeviceError>([&] {
        device().encode_tensor_map({.address = 0x10001, .dims = {128, 64}, .strides_bytes = {256}, .box = {64, 32}});
      }),
      HasSubstr("encoding a tensor map of bf16 [128, 64], strides [256] bytes, box [64, 32], swizzle 128B, at "
                "0x10001"));
  EXPECT_THROW(device().encode_tensor_map({.rank = 6}), DeviceError);
}

TEST_F(StubBackend, NamesADeviceThatIsNotThere) {
  EXPECT_EQ(message_of<MissingError>([&] { backend->device(3); }),
            "there is no CUDA device 3; the driver sees 1: 0 to 0");
  EXPECT_THROW(backend->device(-1), MissingError);
}

TEST_F(StubBackend, RefusesInAForkedChildInsteadOfHanging) {
  const auto kernel = load();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const Params params;
    const bool launch = message_of<DeviceError>([&] {
                          device().launch(*kernel, {}, &params, sizeof params, nullptr);
                        }).find("forked") != std::string::npos;
    const bool open = message_of<DeviceError>([] { make_cuda_backend(); }).find("forked") != std::string::npos;
    device().free(0x1234);  // quietly
    _exit(launch && open ? 7 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  EXPECT_NO_THROW(device().free(device().allocate(1))) << "the parent goes on";
}

TEST(Driver, SaysThatThereIsNone) {
  EXPECT_THAT(message_of<MissingError>([] { open_driver("/nowhere/libcuda.so.1"); }),
              StartsWith("no NVIDIA driver: /nowhere/libcuda.so.1 was not found; "));
}

TEST(Driver, SaysThatItSeesNoGpu) {
  const Stub stub(KERNELWRIGHT_STUB_CUDA);
  const auto make = [] { make_cuda_backend(open_driver(KERNELWRIGHT_STUB_CUDA)); };
  stub.state().init_result = kNoDevice;
  EXPECT_THAT(message_of<MissingError>(make),
              AllOf(StartsWith("no GPU: the NVIDIA driver"), HasSubstr("sees no device")));
  stub.state().init_result = 0;
  stub.state().device_count = 0;
  EXPECT_THAT(message_of<MissingError>(make), StartsWith("no GPU: the NVIDIA driver"));
  stub.state().init_result = 803;
  EXPECT_THAT(message_of<MissingError>(make),
              StartsWith("no usable GPU: cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"));
}

TEST(Driver, SaysThatItIsTooOld) {
  EXPECT_THAT(message_of<MissingError>([] { open_driver(KERNELWRIGHT_STUB_CUDA_ANCIENT); }),
              AllOf(StartsWith("the NVIDIA driver is too old: "),
                    HasSubstr("has no cuLaunchKernelEx; install a driver for CUDA 11.8 or newer")));
}

TEST(Driver, LoadsModulesWhereThereAreNoLibraries) {
  const Stub stub(KERNELWRIGHT_STUB_CUDA_OLD);
  const auto backend = make_cuda_backend(open_driver(KERNELWRIGHT_STUB_CUDA_OLD));
  auto kernel = backend->device(0).load(image(), "k", 1024);
  EXPECT_EQ(stub.state().loads, 1);
  EXPECT_EQ(stub.state().max_shared, 1024);
  const Params params;
  backend->device(0).launch(*kernel, {.block = 64}, &params, sizeof params, nullptr);
  EXPECT_EQ(stub.state().last_launch.block, 64u);
  kernel.reset();
  EXPECT_EQ(stub.state().unloads, 1);
  EXPECT_THAT(message_of<MissingError>([&] { backend->device(0).encode_tensor_map({}); }),
              StartsWith("the NVIDIA driver is too old for tensor maps"));
}

}  // namespace
}  // namespace kernelwright::driver_test
