// The emulator behind backend.h: memory, loads, launches, streams, events, captures, tensor maps, and what it refuses.
#include "kernelwright/runtime/emulator/emulator_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/machine/tensor_map.h"
#include "kernelwright/runtime/engine/emulated_machine.h"
#include "runtime/emulator/ptx_text.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using Words = std::vector<std::uint32_t>;

/// data[i] += step, a thread each; a struct by value is read as two arguments here.
const std::string kAdd = test::module_of(R"(
.visible .entry add(.param .u64 data, .param .u32 step)
{
  .reg .b32 %r<8>; .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [data];
  ld.param.u32 %r0, [step];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;
  mad.lo.s32 %r4, %r2, %r3, %r1;
  mul.wide.u32 %rd1, %r4, 4; add.s64 %rd2, %rd0, %rd1;
  ld.global.u32 %r5, [%rd2]; add.u32 %r6, %r5, %r0; st.global.u32 [%rd2], %r6;
  ret;
}
)");

/// Both warps write the same word of shared memory, without an order between them.
const std::string kRace = test::module_of(R"(
.extern .shared .align 16 .b8 data[];
.visible .entry race()
{
  .reg .b32 %r<4>;
  mov.u32 %r0, data; mov.u32 %r1, %tid.x;
  st.shared.u32 [%r0+16], %r1;
  ret;
}
)");

/// kRace with the line of its source that the store comes from.
std::string race_with_lines() {
  std::string text = kRace + "\n.file 1 \"kernels/race.cu\"\n";
  return text.insert(text.find("  st.shared"), "  .loc 1 7 0\n");
}

/// Half of the threads wait for ever.
const std::string kStuck = test::module_of(R"(
.visible .entry stuck()
{
  .reg .b32 %r<4>; .reg .pred %p<2>;
  mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 32;
  @%p0 bra OUT;
  bar.sync 1, 64;
OUT:
  ret;
}
)");

struct AddParams {
  DevicePtr data;
  std::uint32_t step;
  std::uint32_t unused = 0;
};

/// As many bytes as the entry's arguments: 12.
std::vector<std::byte> bytes_of(const AddParams& params) {
  std::vector<std::byte> bytes(12);
  std::memcpy(bytes.data(), &params, bytes.size());
  return bytes;
}

struct EmulatorBackendTest : testing::Test {
  explicit EmulatorBackendTest(EmulatorBackendOptions options = {.threads = 1})
      : backend(make_emulator_backend(std::move(options))), device(backend->device(0)) {}

  std::unique_ptr<LoadedKernel> load(const std::string& ptx, const std::string& entry, std::uint32_t shared = 0) {
    return device.load(std::string_view(ptx), entry, shared);
  }
  DevicePtr upload(const Words& words) {
    const DevicePtr address = device.allocate(words.size() * 4);
    device.copy_to_device(address, words.data(), words.size() * 4);
    return address;
  }
  Words download(DevicePtr address, std::size_t count) {
    Words words(count);
    device.copy_to_host(words.data(), address, count * 4);
    return words;
  }
  void add(const LoadedKernel& kernel, DevicePtr data, std::uint32_t step, Stream stream = nullptr) {
    const auto params = bytes_of({data, step});
    device.launch(kernel, {.grid = {2, 1, 1}, .block = 32}, params.data(), params.size(), stream);
  }
  template <class F>
  DeviceError refused(F&& call) {
    try {
      call();
    } catch (const DeviceError& error) {
      return error;
    }
    return DeviceError("nothing was thrown", 0);
  }

  std::unique_ptr<EmulatorBackend> backend;
  Device& device;
};

Words iota(std::uint32_t from) {
  Words words(64);
  std::iota(words.begin(), words.end(), from);
  return words;
}

TEST_F(EmulatorBackendTest, IsOneDeviceThatSaysWhatItIs) {
  EXPECT_EQ(backend->name(), "emulator");
  EXPECT_EQ(backend->device_count(), 1);
  EXPECT_THROW(backend->device(1), MissingError);
  const DeviceInfo& info = device.info();
  EXPECT_EQ(info.name, "emulated sm_90a");
  EXPECT_EQ(info.arch, Arch::kSm90a);
  EXPECT_EQ(info.compute_major, 9);
  EXPECT_EQ(info.num_sms, 132);
  EXPECT_EQ(info.shared_bytes_per_cta, 227 * 1024);
  EXPECT_EQ(info.wants, ImageKind::kPtx);
  EXPECT_GT(info.memory_bytes, 0u);
}

TEST(EmulatorBackendArch, MayBeAnyRow) {
  for (const ArchInfo& row : all_archs()) {
    const auto backend = make_emulator_backend({.arch = row.arch});
    EXPECT_EQ(backend->device(0).info().arch, row.arch);
    EXPECT_EQ(backend->device(0).info().shared_bytes_per_cta, row.shared_bytes_per_cta);
    EXPECT_EQ(backend->device(0).info().num_sms, usual_machine(row.arch).sms) << "the class that stands for it";
  }
}

TEST(EmulatorBackendArch, HasTheMachinesSmsUnlessTheOptionsSayANumber) {
  const EmulatedMachine machine{.num_sms = 7, .costs = {}};
  EXPECT_EQ(make_emulator_backend({}, machine)->device(0).info().num_sms, 7);
  EXPECT_EQ(make_emulator_backend({.num_sms = 3}, machine)->device(0).info().num_sms, 3);
}

TEST_F(EmulatorBackendTest, RunsALaunchBeforeItReturns) {
  const auto kernel = load(kAdd, "add");
  const DevicePtr data = upload(iota(0));
  EXPECT_EQ(data % 256, 0u);
  add(*kernel, data, 5);
  EXPECT_EQ(download(data, 64), iota(5));
  EXPECT_GT(backend->statistics().warp_instructions, 20u);
  EXPECT_EQ(kernel->loaded_bytes(), kAdd.size());
  device.free(data);
}

TEST_F(EmulatorBackendTest, MemoryIsCheckedAndAFreedOneIsNamed) {
  EXPECT_EQ(device.allocate(0), 0u);
  const DevicePtr data = upload(Words(64, 7));
  device.fill(data + 4, 0xff, 8, nullptr);
  EXPECT_EQ(download(data, 4), (Words{7, 0xffffffff, 0xffffffff, 7}));
  Words words(65);
  const DeviceError past = refused([&] { device.copy_to_host(words.data(), data, 65 * 4); });
  EXPECT_EQ(past.code(), 1);
  EXPECT_THAT(past.what(), HasSubstr("copying from 260 bytes"));
  device.free(data);
  device.free(data);  // frees nothing
  EXPECT_EQ(refused([&] { device.copy_to_device(data, words.data(), 4); }).code(), 1);
}

TEST_F(EmulatorBackendTest, DimensionsOfALaunchAreMultipliedWithoutWrapping) {
  const std::string text = kAdd;
  const auto module = backend->emulator().load(text);
  const auto params = bytes_of({upload(iota(0)), 1});
  const auto refusal = [&](const emulator::LaunchShape& shape) -> std::string {
    try {
      backend->emulator().launch(*module, "add", shape, params);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "launched";
  };
  constexpr std::uint32_t kHalf = 1u << 31;
  EXPECT_THAT(refusal({.block = {kHalf, kHalf, 4}}),  // 2^64 threads, which are none modulo 2^64
              HasSubstr("/block: 18446744073709551615 threads; a CTA has at most 1024"));
  EXPECT_THAT(refusal({.grid = {kHalf, kHalf, 4}, .block = {32, 1, 1}, .cluster = {kHalf, kHalf, 4}}),
              HasSubstr("/cluster: 18446744073709551615 CTAs; a cluster has at most 16"));
  EXPECT_THAT(refusal({.grid = {kHalf, 2, 1}, .block = {32, 1, 1}}),  // 2^32 clusters
              HasSubstr("/grid: 4294967296 CTAs; the emulator runs at most 2147483647"));
}

TEST_F(EmulatorBackendTest, AnAccessOutsideOfMemoryEndsTheLaunch) {
  const auto kernel = load(kAdd, "add");
  const DevicePtr data = upload(Words(32));  // 64 threads
  const DeviceError error = refused([&] { add(*kernel, data, 1); });
  EXPECT_EQ(error.code(), 700);
  EXPECT_THAT(error.what(), HasSubstr("launching add grid 2x1x1 block 32 shared 0 on emulated sm_90a: "));
  EXPECT_THAT(error.what(), HasSubstr("an allocation of 128 bytes"));
  const DevicePtr whole = upload(iota(1));
  add(*kernel, whole, 1);  // the device is as good as before
  EXPECT_EQ(download(whole, 64), iota(2));
}

TEST_F(EmulatorBackendTest, ADeadlockEndsTheLaunch) {
  const auto kernel = load(kStuck, "stuck");
  const DeviceError error = refused([&] { device.launch(*kernel, {.block = 64}, nullptr, 0, nullptr); });
  EXPECT_EQ(error.code(), 702) << error.what();
  EXPECT_THAT(error.what(), HasSubstr("deadlock"));
}

TEST_F(EmulatorBackendTest, RefusesImagesThatItCannotRun) {
  const std::byte elf[64] = {std::byte{0x7f}, std::byte{'E'}, std::byte{'L'}, std::byte{'F'}};
  const DeviceError cubin = refused([&] { device.load(std::span<const std::byte>(elf), "add", 0); });
  EXPECT_EQ(cubin.code(), 200);
  EXPECT_STREQ(cubin.what(), "loading add: the emulator runs PTX, and this is a cubin of 64 bytes");

  const DeviceError unknown = refused([&] { load(test::in_body("frobnicate.b32 %r0;", ".reg .b32 %r<2>;"), "k"); });
  EXPECT_EQ(unknown.code(), 218);
  EXPECT_THAT(unknown.what(), HasSubstr("loading k on the emulator: PTX line 6: "));
  EXPECT_THAT(unknown.what(), HasSubstr("frobnicate"));

  EXPECT_EQ(refused([&] { load(kAdd, "subtract"); }).code(), 500);
  const DeviceError shared = refused([&] { load(kAdd, "add", 228 * 1024); });
  EXPECT_EQ(shared.code(), 1);
  EXPECT_THAT(shared.what(), HasSubstr("233472 bytes of shared memory, and emulated sm_90a allows 232448"));
}

TEST(EmulatorBackendArch, RunsPtxForItselfAndForEarlierOnesThatAreNotSpecific) {
  const auto load_on = [](Arch arch, const std::string& target) {
    std::string ptx = kAdd;
    ptx.replace(ptx.find("sm_90a"), 6, target);
    make_emulator_backend({.arch = arch})->device(0).load(std::string_view(ptx), "add", 0);
  };
  EXPECT_NO_THROW(load_on(Arch::kSm80, "sm_80"));
  EXPECT_NO_THROW(load_on(Arch::kSm90a, "sm_80"));
  EXPECT_NO_THROW(load_on(Arch::kSm100a, "sm_90"));
  EXPECT_THROW(load_on(Arch::kSm80, "sm_86"), DeviceError);
  EXPECT_THROW(load_on(Arch::kSm100a, "sm_90a"), DeviceError);
  EXPECT_THROW(load_on(Arch::kSm90a, "sm_100a"), DeviceError);
}

TEST_F(EmulatorBackendTest, RefusesLaunchesThatADriverWouldRefuse) {
  const auto kernel = load(kAdd, "add", 1024);
  const auto params = bytes_of({upload(iota(0)), 1});
  const auto launch = [&](const LaunchConfig& config, std::size_t bytes = 12) {
    return refused([&] { device.launch(*kernel, config, params.data(), bytes, nullptr); });
  };
  EXPECT_THAT(launch({.block = 32}, 8).what(), HasSubstr("8 bytes of parameters were given and its entry takes 12"));
  EXPECT_THAT(launch({.block = 32, .shared_bytes = 2048}).what(), HasSubstr("loaded for at most 1024 bytes"));
  EXPECT_THAT(launch({.block = 2048}).what(), HasSubstr("a CTA has at most 1024"));
  EXPECT_THAT(launch({.grid = {1, 65536, 1}, .block = 32}).what(), HasSubstr("65535"));
  EXPECT_EQ(launch({.grid = {3, 1, 1}, .block = 32, .cluster = {2, 1, 1}}).code(), 1);
  EXPECT_EQ(backend->statistics().warp_instructions, 0u);
  const auto old = make_emulator_backend({.arch = Arch::kSm80});
  std::string ptx = kAdd;
  ptx.replace(ptx.find("sm_90a"), 6, "sm_80");
  const auto on_old = old->device(0).load(std::string_view(ptx), "add", 0);
  EXPECT_THAT(refused([&] {
                old->device(0).launch(*on_old, {.grid = {2, 1, 1}, .cluster = {2, 1, 1}}, params.data(), 12, nullptr);
              }).what(),
              HasSubstr("sm_80 has no clusters"));
}

TEST_F(EmulatorBackendTest, ACaptureKeepsLaunchesAndFillsUntilItIsReplayed) {
  const auto kernel = load(kAdd, "add");
  const DevicePtr data = upload(iota(0));
  const Stream stream = device.create_stream();
  EXPECT_EQ(device.capture_state(stream), CaptureState::kNone);
  device.begin_capture(stream);
  EXPECT_EQ(device.capture_state(stream), CaptureState::kActive);
  EXPECT_EQ(device.capture_state(nullptr), CaptureState::kNone);
  EXPECT_EQ(refused([&] { device.begin_capture(stream); }).code(), 401);
  EXPECT_EQ(refused([&] { device.synchronize(stream); }).code(), 900);
  device.fill(data, 0, 64 * 4, stream);
  add(*kernel, data, 3, stream);
  add(*kernel, data, 4, stream);
  add(*kernel, data, 100);  // another stream: at once
  EXPECT_EQ(download(data, 64), iota(100));
  const auto graph = device.end_capture(stream);
  EXPECT_EQ(device.capture_state(stream), CaptureState::kNone);
  EXPECT_EQ(download(data, 64), iota(100));
  for (int i = 0; i < 2; ++i) {
    graph->replay(stream);
    EXPECT_EQ(download(data, 64), Words(64, 7));
  }
  device.destroy_stream(stream);
  EXPECT_EQ(refused([&] { add(*kernel, data, 1, stream); }).code(), 400);
  EXPECT_EQ(refused([&] { device.begin_capture(nullptr); }).code(), 900);
  EXPECT_EQ(refused([&] { device.end_capture(nullptr); }).code(), 401);
}

TEST_F(EmulatorBackendTest, EventsCarryTheHostsTime) {
  DeviceEvent *from = device.create_event(), *to = device.create_event();
  EXPECT_THROW(device.elapsed_ms(from, to), DeviceError);
  device.record(from, nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  device.record(to, nullptr);
  EXPECT_GE(device.elapsed_ms(from, to), 3.f);
  device.destroy_event(from);
  EXPECT_EQ(refused([&] { device.record(from, nullptr); }).code(), 400);
  device.destroy_event(to);
}

TEST_F(EmulatorBackendTest, EncodesTensorMapsThatItsKernelsRead) {
  TensorMapRequest request{
      .address = device.allocate(64 * 128), .dtype = DType::kBf16, .rank = 2, .swizzle = Swizzle::k128B};
  request.dims[0] = request.dims[1] = 64;
  request.strides_bytes[0] = 128;
  request.box[0] = 64;
  request.box[1] = 8;
  const TensorMap map = device.encode_tensor_map(request);
  const emulator::TensorMapDescription read = emulator::decode_tensor_map(map.bytes);
  EXPECT_EQ(read.address, request.address);
  EXPECT_EQ(read.box_bytes(), 64u * 8 * 2);
  EXPECT_EQ(read.swizzle, Swizzle::k128B);
  request.box[0] = 512;
  const DeviceError error = refused([&] { device.encode_tensor_map(request); });
  EXPECT_EQ(error.code(), 1);
  EXPECT_THAT(error.what(), HasSubstr("encoding a tensor map: "));
}

TEST_F(EmulatorBackendTest, OccupancyFollowsTheArchitecture) {
  const auto kernel = load(kAdd, "add", 100 * 1024);
  EXPECT_EQ(device.max_ctas_per_sm(*kernel, 128, 0), 16);
  EXPECT_EQ(device.max_ctas_per_sm(*kernel, 128, 100 * 1024), 2);
  EXPECT_EQ(device.max_ctas_per_sm(*kernel, 1024, 0), 2);
  KernelImage image(kAdd);
  image.registers = 255;
  EXPECT_EQ(device.max_ctas_per_sm(*device.load(image, "add", 0), 128, 0), 2);
}

TEST_F(EmulatorBackendTest, AKernelMayOutliveItsBackend) {
  auto kernel = load(kAdd, "add");
  backend.reset();
  EXPECT_EQ(kernel->loaded_bytes(), kAdd.size());
}

struct CheckedBackend : EmulatorBackendTest {
  CheckedBackend()
      : EmulatorBackendTest({.hazards = true, .threads = 1, .on_report = [this](const emulator::KernelHazard& hazard) {
                               told.push_back(hazard.kernel + ": " + hazard.report.text());
                             }}) {}
  std::vector<std::string> told;
};

TEST_F(CheckedBackend, ReportsGoToTheSinkAndAreKeptAndThrowNothing) {
  KernelNotes notes;
  notes.roles.push_back({.first_warp = 0, .num_warps = 1, .name = "load"});
  notes.roles.push_back({.first_warp = 1, .num_warps = 1, .name = "math"});
  notes.shared.push_back({.offset = 0, .bytes = 64, .name = "keys", .stage_bytes = 16});
  KernelImage image(kRace);
  image.notes = &notes;
  const auto kernel = device.load(image, "race", 64);
  notes = {};  // the device has its own
  for (int i = 0; i < 2; ++i) device.launch(*kernel, {.block = 64, .shared_bytes = 64}, nullptr, 0, nullptr);
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_THAT(told[0], HasSubstr("race: race"));
  EXPECT_THAT(told[0], HasSubstr("keys stage 1"));
  const std::vector<emulator::KernelHazard> reports = backend->take_reports();
  ASSERT_THAT(reports, SizeIs(1)) << "equal ones are counted";
  EXPECT_EQ(reports[0].kernel, "race");
  EXPECT_EQ(reports[0].report.kind, emulator::HazardKind::kRace);
  EXPECT_GE(reports[0].report.count, 2u);
  EXPECT_EQ(reports[0].report.first.role, "math");
  EXPECT_EQ(reports[0].report.second.role, "load");
  EXPECT_THAT(backend->take_reports(), IsEmpty());
}

TEST_F(CheckedBackend, LinesOfTheSourceAreMadeOnceForTheFirstReport) {
  int made = 0;
  KernelImage image(kRace);
  image.lined_ptx = [&] {
    ++made;
    return race_with_lines();
  };
  const auto kernel = device.load(image, "race", 64);
  device.launch(*kernel, {.block = 1, .shared_bytes = 64}, nullptr, 0, nullptr);
  EXPECT_THAT(told, IsEmpty());
  EXPECT_EQ(made, 0) << "there is no report";
  for (int i = 0; i < 2; ++i) device.launch(*kernel, {.block = 64, .shared_bytes = 64}, nullptr, 0, nullptr);
  EXPECT_EQ(made, 1);
  const std::string text = race_with_lines();  // a kernel that runs this text has the same reports
  const auto lined = device.load(KernelImage(std::string_view(text)), "race", 64);
  device.launch(*lined, {.block = 64, .shared_bytes = 64}, nullptr, 0, nullptr);
  ASSERT_THAT(told, SizeIs(3));
  EXPECT_THAT(told[2], HasSubstr("`st.shared.u32 [%r0+16], %r1;`, race.cu:7"));
  EXPECT_EQ(told[0], told[2]);
  EXPECT_EQ(told[1], told[2]);
}

TEST_F(CheckedBackend, ReportsDoWithoutLinesThatCannotBeHad) {
  const std::function<std::string()> makers[] = {
      {},
      [] { return std::string(); },
      [] { return std::string("no PTX"); },
      [] { return kAdd; },
      []() -> std::string { throw std::runtime_error("no compiler"); },
  };
  for (const auto& make : makers) {
    KernelImage image(kRace);
    image.lined_ptx = make;
    const auto kernel = device.load(image, "race", 64);
    device.launch(*kernel, {.block = 64, .shared_bytes = 64}, nullptr, 0, nullptr);
    EXPECT_EQ(told.back(), told.front());
  }
  ASSERT_THAT(told, SizeIs(std::size(makers)));
  EXPECT_THAT(told[0], HasSubstr("`st.shared.u32 [%r0+16], %r1;`"));
  EXPECT_THAT(told[0], Not(HasSubstr("race.cu")));
}

TEST_F(CheckedBackend, WhatEndedALaunchIsAmongTheReports) {
  const auto kernel = load(kStuck, "stuck");
  EXPECT_EQ(refused([&] { device.launch(*kernel, {.block = 64}, nullptr, 0, nullptr); }).code(), 702);
  const auto reports = backend->take_reports();
  ASSERT_FALSE(reports.empty());
  bool deadlock = false;
  for (const auto& [name, report] : reports) deadlock |= report.kind == emulator::HazardKind::kDeadlock;
  EXPECT_TRUE(deadlock);
}

TEST_F(EmulatorBackendTest, SeveralThreadsMayLaunchAndCapture) {
  const auto kernel = load(kAdd, "add");
  std::vector<std::thread> threads;
  std::vector<DevicePtr> data;
  for (int i = 0; i < 4; ++i) data.push_back(upload(iota(0)));
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      const Stream stream = device.create_stream();
      device.begin_capture(stream);
      add(*kernel, data[static_cast<std::size_t>(i)], 1, stream);
      const auto graph = device.end_capture(stream);
      for (int j = 0; j < 5; ++j) graph->replay(stream);
      device.destroy_stream(stream);
    });
  for (std::thread& thread : threads) thread.join();
  for (const DevicePtr address : data) EXPECT_EQ(download(address, 64), iota(5));
}

}  // namespace
}  // namespace kernelwright
