// The engine on the emulator: what it loads, what it reports, and one attention from its problem to its numbers.
#include <fmt/format.h>

#include <atomic>
#include <cstring>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/runtime/compile/line_info.h"
#include "kernelwright/runtime/cuda/cuda_backend.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"
#include "kernelwright/runtime/engine/loader.h"
#include "kernelwright/runtime/engine/notes.h"
#include "runtime/engine/engine_fixture.h"

namespace kernelwright::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(EmulatorEngine, AutoTakesItWhereNoDriverIsAndSaysSo) {
  ASSERT_EQ(setenv("KERNELWRIGHT_LIBCUDA", "/nonexistent/libcuda.so.1", 1), 0);
  try {
    driver_version();
    unsetenv("KERNELWRIGHT_LIBCUDA");
    GTEST_SKIP() << "an earlier test of this process has opened the driver";
  } catch (const MissingError&) {
  }
  std::vector<kernelwright::Event> events;
  EngineOptions options;
  options.cache = memory_only();
  options.emulator.arch = Arch::kSm86;
  options.sink = [&](const kernelwright::Event& event) { events.push_back(event); };
  {
    const Engine engine(options);
    EXPECT_EQ(engine.backend().name(), "emulator");
    EXPECT_EQ(engine.device(0).info().arch, Arch::kSm86);
    ASSERT_THAT(events, SizeIs(1));
    EXPECT_EQ(events[0].kind, EventKind::kDevice);
    EXPECT_EQ(to_string(events[0].kind), "device");
    EXPECT_EQ(events[0].name, "emulated sm_86");
    EXPECT_THAT(events[0].detail, HasSubstr("kernels run on the emulator: no NVIDIA driver"));
  }
  options.backend = "emulator";
  const Engine asked(options);
  EXPECT_THAT(events, SizeIs(1)) << "who asks for it need not be told";
  options.backend = "cuda";
  EXPECT_THROW(Engine{options}, MissingError);
  unsetenv("KERNELWRIGHT_LIBCUDA");
}

TEST(EmulatorEngine, WithoutACompilerItNamesWhatIsMissing) {
  EngineOptions options;
  options.backend = "emulator";
  options.cache = memory_only();
  options.nvrtc_path = "/nonexistent/libnvrtc.so.13";
  Engine engine(options);
  EXPECT_THAT(message_of<MissingError>([&] { engine.prepare(prefill_problem()); }),
              HasSubstr("no NVRTC: /nonexistent/libnvrtc.so.13 cannot be opened"));
}

TEST(KernelLoaderImages, FollowWhatTheDeviceWants) {
  FakeBackend cubins(1, ImageKind::kCubin), texts(1, ImageKind::kPtx);
  Binary binary;
  binary.entry = "k";
  binary.cubin.assign(64, std::byte{1});
  int asked = 0;
  const auto explain = [&]() -> KernelLoader::Explained {
    ++asked;
    return {};
  };
  KernelLoader loader;
  EXPECT_TRUE(loader.load(cubins.device(0), binary, 0, explain)) << "a cubin needs no PTX beside it";
  EXPECT_EQ(asked, 0);
  KernelLoader other;
  EXPECT_THAT(message_of<Error>([&] { other.load(texts.device(0), binary, 0, explain); }),
              HasSubstr("loading k: fake 0 runs PTX, and the binary came without it"));
  binary.ptx = "// ptx";
  EXPECT_TRUE(other.load(texts.device(0), binary, 0, explain));
  EXPECT_TRUE(other.load(texts.device(0), binary, 0, explain));
  EXPECT_EQ(asked, 1) << "once a load";
}

TEST(KernelNotesOf, NameEveryWarpAndPlace) {
  const AttentionPlan prefill = plan_attention(prefill_problem(), {}, Arch::kSm80);
  const KernelNotes notes = notes_of(prefill.main);
  ASSERT_THAT(notes.roles, SizeIs(1));
  EXPECT_EQ(notes.roles[0].name, "math");
  EXPECT_EQ(notes.roles[0].num_warps, static_cast<std::uint32_t>(prefill.main.num_warps));
  ASSERT_THAT(notes.shared, SizeIs(3));
  EXPECT_EQ(notes.shared[0].name, "queries");
  EXPECT_EQ(notes.shared[1].name, "keys");
  EXPECT_EQ(notes.shared[1].offset, notes.shared[0].bytes);
  EXPECT_EQ(notes.shared[2].offset + notes.shared[2].bytes, shared_bytes(prefill.main));

  AttentionProblem decode = prefill_problem();
  decode.max_q_len = 1;
  AttentionSchedule schedule;
  schedule.merge = Merge::kCombine;
  schedule.family = Family::kPortable;
  const AttentionPlan plan = plan_attention(decode, schedule, Arch::kSm90a);
  ASSERT_TRUE(plan.main.token_gen);
  const KernelNotes rings = notes_of(plan.main);
  EXPECT_EQ(rings.shared.size(), 3u + 2u * static_cast<std::size_t>(plan.main.num_warps));
  for (const KernelNotes::Range& range : rings.shared)
    EXPECT_LE(range.offset + range.bytes, shared_bytes(plan.main)) << range.name;
  ASSERT_TRUE(plan.combine);
  EXPECT_THAT(notes_of(*plan.combine).shared, IsEmpty());
}

TEST(LineInfo, IsAllThatIsTakenOut) {
  const std::string plain = ".version 9.0\n.entry k()\n{\n\tadd.s32 %r1, %r2, 1;\n\n\tret;\n}\n";
  const std::string lined =
      ".version 9.0\n.entry k()\n{\n\t.loc\t1 7 0\n\tadd.s32 %r1, %r2, 1;\n\t.loc 1 8 3, function_name $L__info, "
      "inlined_at 1 7 "
      "0\n\tret;\n\n}\n\t.file\t1 \"kernels/a.cu\"\n\t.section\t.debug_str\n\t{\n$L__info:\n.b8 1,2,0\n\n\t}\n";
  EXPECT_EQ(without_lines(lined), without_lines(plain));
  std::string other = lined;
  other.replace(other.find("%r2, 1"), 6, "%r2, 2");
  EXPECT_NE(without_lines(other), without_lines(plain));
}

/// A problem small enough for a test, and the device memory of one call of it. With queries and keys of zero, all
/// visible keys have the same weight. Value t is t in every element, so row i of a causal result is the mean of 0..i.
class SmallAttention {
 public:
  static constexpr int kLen = 40, kHeads = 2, kHeadDim = 64;
  static AttentionProblem problem() {
    AttentionProblem problem;
    problem.dtype = {DType::kBf16, DType::kBf16, DType::kBf16};
    problem.head_dim = {kHeadDim, kHeadDim};
    problem.heads = {kHeads, 1};
    problem.mask.kind = MaskKind::kCausal;
    return problem;
  }
  explicit SmallAttention(Device& device) : device_(device) {
    std::vector<std::uint16_t> values(kLen * kHeadDim);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto token = static_cast<float>(i / kHeadDim);
      std::uint32_t bits;
      std::memcpy(&bits, &token, 4);
      values[i] = static_cast<std::uint16_t>(bits >> 16);
    }
    tensors.q = zeros(kHeads);
    tensors.k = zeros(1);
    tensors.v = zeros(1);
    tensors.o = zeros(kHeads);
    device.copy_to_device(tensors.v, values.data(), values.size() * 2);
    tensors.q_len = tensors.kv_len = kLen;
  }
  ~SmallAttention() {
    for (const DevicePtr address : {tensors.q, tensors.k, tensors.v, tensors.o}) device_.free(address);
  }
  void expect_right() {
    std::vector<std::uint16_t> out(kLen * kHeads * kHeadDim);
    device_.copy_to_host(out.data(), tensors.o, out.size() * 2);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::uint32_t bits = std::uint32_t{out[i]} << 16;
      float found;
      std::memcpy(&found, &bits, 4);
      ASSERT_EQ(found, static_cast<float>(i / (kHeads * kHeadDim)) / 2) << "element " << i;
    }
  }
  AttentionTensors tensors;

 private:
  DevicePtr zeros(int heads) {
    const std::size_t bytes = static_cast<std::size_t>(kLen * heads * kHeadDim) * 2;
    const DevicePtr address = device_.allocate(bytes);
    device_.fill(address, 0, bytes, nullptr);
    return address;
  }
  Device& device_;
};

class EmulatedAttention : public ::testing::TestWithParam<Arch> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
  static EngineOptions options() {
    EngineOptions options;
    options.backend = "emulator";
    options.emulator.arch = GetParam();
    options.emulator.hazards = true;
    return options;
  }
};

TEST_P(EmulatedAttention, RunsFromItsProblemToItsNumbersWithoutAHazard) {
  Engine engine(options());
  const AttentionKernel kernel = engine.prepare(SmallAttention::problem());
  SmallAttention call(engine.device(0));
  kernel.launch(call.tensors, nullptr);
  call.expect_right();
  auto& backend = dynamic_cast<EmulatorBackend&>(engine.backend());
  for (const auto& [name, report] : backend.take_reports()) ADD_FAILURE() << name << ": " << report.text();
  EXPECT_GT(backend.statistics().mma_operations, 0u);
}

TEST_P(EmulatedAttention, IsCapturedAndReplayed) {
  Engine engine(options());
  const AttentionKernel kernel = engine.prepare(SmallAttention::problem());
  Device& device = engine.device(0);
  SmallAttention call(device);
  const Stream stream = device.create_stream();
  device.begin_capture(stream);
  kernel.launch(call.tensors, stream);
  const auto graph = device.end_capture(stream);
  graph->replay(stream);
  device.synchronize(stream);
  call.expect_right();
  device.destroy_stream(stream);
}

INSTANTIATE_TEST_SUITE_P(On, EmulatedAttention, ::testing::Values(Arch::kSm80, Arch::kSm90a),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(EmulatedAttention, ReportsNameTheLinesOfTheTemplates) {
  Engine engine(options());
  const AttentionKernel kernel = engine.prepare(SmallAttention::problem());
  const std::string lined =
      engine.store().ptx_with_lines(engine.store().source_of(kernel.plan().main), *kernel.binary());
  EXPECT_THAT(lined, HasSubstr(".loc"));
  EXPECT_THAT(lined, HasSubstr(kernel_name(kernel.plan().main) + ".cu"));
  Binary other = *kernel.binary();
  other.ptx += "// another\n";
  EXPECT_EQ(engine.store().ptx_with_lines(engine.store().source_of(kernel.plan().main), other), "");
}

/// A store whose kernels lack their barriers, so that they have reports.
class RacyStore : public KernelStore {
 public:
  /// `eager`: the text that runs has the lines already.
  explicit RacyStore(bool eager) : KernelStore(memory_only()), eager_(eager) {}
  std::atomic<int> compiled_for_lines{0};

 protected:
  Binary build(const SourceUnit& unit) override {
    Binary binary = compiler().compile(unit);
    binary.ptx = without_barriers(eager_ ? compiler().compile_with_lines(unit) : binary.ptx);
    return binary;
  }
  std::string build_with_lines(const SourceUnit& unit) override {
    ++compiled_for_lines;
    return eager_ ? "" : without_barriers(compiler().compile_with_lines(unit));
  }

 private:
  static std::string without_barriers(std::string ptx) {
    for (std::size_t at = 0; (at = ptx.find("\tbar", at)) != ptx.npos;) ptx.erase(at, ptx.find('\n', at) - at);
    return ptx;
  }
  const bool eager_;
};

TEST(EmulatorEngine, CompilesLinesForTheFirstReportAsIfTheKernelHadThem) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  const auto text_of = [](const std::vector<emulator::KernelHazard>& reports) {
    std::string text;
    for (const auto& [name, report] : reports) text += name + ": " + report.text() + "\n";
    EXPECT_THAT(text, HasSubstr(".cu"));
    return text;
  };
  std::string texts[2];
  for (const bool eager : {false, true}) {
    EngineOptions options;
    options.backend = "emulator";
    options.emulator.arch = Arch::kSm80;
    options.emulator.hazards = true;
    const auto store = std::make_shared<RacyStore>(eager);
    options.custom_store = store;
    Engine engine(options);
    const AttentionKernel kernel = engine.prepare(SmallAttention::problem());
    EXPECT_EQ(store->compiled_for_lines, 0);
    SmallAttention call(engine.device(0));
    for (int i = 0; i < 2; ++i) kernel.launch(call.tensors, nullptr);
    EXPECT_EQ(store->compiled_for_lines, 1) << "one kernel, two launches";
    texts[eager] = text_of(dynamic_cast<EmulatorBackend&>(engine.backend()).take_reports());
  }
  EXPECT_EQ(texts[0], texts[1]);
}

}  // namespace
}  // namespace kernelwright::test
