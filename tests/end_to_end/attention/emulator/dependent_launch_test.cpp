// Programmatic dependent launch. In a chain of launches, each reads what the one ahead of it wrote and overwrites what
// that one read. The chain must give the same bits with PDL as without. On the emulator nothing overlaps, so the
// checker reports what would go wrong; on a GPU, launches do overlap. Skipped by name if there is no compiler, or no
// GPU.
#include <gtest/gtest.h>

#include <cstring>
#include <ostream>

#include "end_to_end/attention/cases/attention_problems.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/verify/attention/device.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "support/ptx_store.h"

namespace kernelwright::dependent_launch_test {
namespace {

struct Subject {
  const char* name;
  AttentionProblem problem;
  AttentionSchedule schedule;
  AttentionShape small, large;  // for the emulator, for a GPU
};
void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }

AttentionSchedule on(Family family, bool token_gen = false, int splits = 0, Merge merge = Merge::kInKernel) {
  AttentionSchedule schedule;
  schedule.family = family;
  schedule.token_gen = token_gen;
  if (splits) schedule.splits = splits;
  if (token_gen) schedule.merge = merge;
  return schedule;
}

/// Every kernel, with the data that its threads read by themselves: lengths, offsets, pages, sinks. Some items see no
/// key.
std::vector<Subject> subjects() {
  const AttentionProblem full = causal(default_problem()), small = dims(full, 64, 64);
  AttentionProblem mixed = paged(with_sinks(full), 16);
  mixed.q_layout = QLayout::kRagged;
  AttentionProblem packed = with_sinks(windowed(small, 40));
  packed.score_mod.kind = ScoreModKind::kAlibi;
  const AttentionProblem token = decode(default_problem()), pages = paged(decode(full, 4), 16);
  const AttentionProblem bytes = fp8(decode(default_problem()));
  AttentionShape uneven = lists({}, {300, 40, 0});
  uneven.q_len = 100;
  const AttentionShape chunks = lists({130, 1, 0, 5}, {300, 200, 0, 64}),
                       long_chunks = lists({1000, 1, 1, 1, 700, 1, 0, 300}, {3000, 5000, 1, 4000, 700, 8000, 0, 300}),
                       one_token = shape_of(2, 1, 500), many_tokens = shape_of(8, 1, 6000),
                       queries = lists({}, {300, 7, 0}), many_queries = lists({}, {9000, 100, 0, 2000});
  const auto of = [](AttentionShape shape, int q_len) {
    shape.q_len = q_len;
    return shape;
  };
  return {
      {"hopper_prefill", full, on(Family::kHopper), uneven, shape_of(4, 1024, 1024)},
      {"hopper_prefill_mixed", mixed, on(Family::kHopper), chunks, long_chunks},
      {"hopper_prefill_window", packed, on(Family::kHopper), uneven, shape_of(4, 2048, 2048)},
      {"hopper_decode", pages, on(Family::kHopper, true, 1), of(queries, 4), of(many_queries, 4)},
      {"hopper_decode_in_kernel", pages, on(Family::kHopper, true, 3), of(queries, 4), of(many_queries, 4)},
      {"hopper_decode_combine", token, on(Family::kHopper, true, 3, Merge::kCombine), one_token, many_tokens},
      {"portable_prefill", mixed, on(Family::kPortable), chunks, long_chunks},
      {"portable_decode_in_kernel", pages, on(Family::kPortable, true, 3), of(queries, 4), of(many_queries, 4)},
      {"portable_decode_combine", token, on(Family::kPortable, true, 3, Merge::kCombine), one_token, many_tokens},
      {"portable_decode_fp8", bytes, on(Family::kPortable, true, 2), one_token, many_tokens},
  };
}

std::string name_of(const testing::TestParamInfo<Subject>& info) { return info.param.name; }

/// Six launches on four buffers of queries or outputs. At the start, the first buffer holds the call's queries. Each
/// launch reads what the launch before it wrote. Every other launch overwrites what the launch before it reads.
class Chain {
 public:
  Chain(Device& device, const AttentionCase& call, const AttentionKernel& kernel)
      : device_(device), call_(call), kernel_(kernel), on_device_(device, call, kernel) {
    EXPECT_EQ(call.q.buffer->size(), bytes()) << "an output is to be the next queries";
    for (DevicePtr& buffer : buffers_) buffer = device.allocate(bytes());
  }
  ~Chain() {
    on_device_.wait();
    for (const DevicePtr buffer : buffers_) device_.free(buffer);
  }

  /// NaN wherever nothing has been written yet.
  void reset() {
    on_device_.wait();
    on_device_.poison();
    device_.copy_to_device(buffers_[0], call_.q.buffer->data(), bytes());
    for (int i = 1; i < 4; ++i) device_.fill(buffers_[i], 0xff, bytes(), stream());
  }
  void launch(bool pdl) {
    AttentionTensors tensors = on_device_.tensors();
    tensors.pdl = pdl;
    for (int link = 0; link < 6; ++link) {
      const int other = 1 + link / 2;
      tensors.q = buffers_[link % 2 == 0 ? 0 : other];
      tensors.o = buffers_[link % 2 == 0 ? other : 0];
      kernel_.launch(tensors, stream());
    }
  }
  /// Everything that the chain leaves: all buffers, and the LSE of the last launch.
  std::vector<std::byte> result() {
    std::vector<std::byte> all(4 * bytes());
    const AttentionOutput output = on_device_.download();  // waits
    for (int i = 0; i < 4; ++i) device_.copy_to_host(all.data() + i * bytes(), buffers_[i], bytes());
    const auto* lse = reinterpret_cast<const std::byte*>(output.lse.data());
    all.insert(all.end(), lse, lse + output.lse.size() * sizeof(float));
    return all;
  }
  std::vector<std::byte> run(bool pdl) {
    reset();
    launch(pdl);
    return result();
  }
  Stream stream() const { return on_device_.stream(); }

 private:
  std::size_t bytes() const { return call_.o_elems() * bytes_of(call_.problem.dtype.out); }
  Device& device_;
  const AttentionCase& call_;
  AttentionKernel kernel_;
  DeviceCase on_device_;
  DevicePtr buffers_[4] = {};
};

// ---- on the emulator ----

EngineOptions checking_options() {
  EngineOptions options;
  options.backend = "emulator";
  options.emulator.arch = Arch::kSm90a;
  options.emulator.hazards = true;
  options.emulator.unknown_ahead = true;
  options.emulator.num_sms = 4;
  options.custom_store = test::ptx_store();
  return options;
}

std::vector<emulator::KernelHazard> take_reports(Engine& engine) {
  return dynamic_cast<EmulatorBackend&>(engine.backend()).take_reports();
}

class DependentLaunchOnTheEmulator : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

TEST_P(DependentLaunchOnTheEmulator, TouchesNoMemoryBeforeItsWaitAndChangesNoBit) {
  Engine engine(checking_options());
  const AttentionCase call = make_inputs(GetParam().problem, GetParam().small);
  Chain chain(engine.device(0), call, engine.prepare(GetParam().problem, GetParam().schedule));
  const std::vector<std::byte> expected = chain.run(false);
  EXPECT_TRUE(chain.run(true) == expected);
  for (const auto& [kernel, report] : take_reports(engine)) ADD_FAILURE() << kernel << ": " << report.text();
}

/// Kernels without griddepcontrol.wait.
class HastyStore final : public KernelStore {
 public:
  HastyStore() : KernelStore({.disk = false}) {}

 private:
  Binary build(const SourceUnit& unit) override {
    Binary binary;
    binary.entry = unit.entry;
    binary.arch = unit.arch;
    binary.ptx = compiler().compile_with_lines(unit);
    const std::string wait = "griddepcontrol.wait;";
    EXPECT_NE(binary.ptx.find(wait), std::string::npos) << unit.kernel << " has no wait";
    for (std::size_t at; (at = binary.ptx.find(wait)) != std::string::npos;) binary.ptx.erase(at, wait.size());
    return binary;
  }
  std::string build_with_lines(const SourceUnit&) override { return ""; }
};

TEST_P(DependentLaunchOnTheEmulator, IsReportedOfAKernelThatDoesNotWait) {
  EngineOptions options = checking_options();
  options.custom_store = std::make_shared<HastyStore>();
  Engine engine(options);
  const AttentionCase call = make_inputs(GetParam().problem, GetParam().small);
  DeviceCase on_device(engine.device(0), call, engine.prepare(GetParam().problem, GetParam().schedule));
  on_device.poison();
  on_device.tensors().pdl = true;
  on_device.launch();
  on_device.wait();
  const auto reports = take_reports(engine);
  EXPECT_FALSE(reports.empty());
  for (const auto& [kernel, report] : reports)
    EXPECT_EQ(report.kind, emulator::HazardKind::kGridDependency) << report.text();
}

INSTANTIATE_TEST_SUITE_P(, DependentLaunchOnTheEmulator, testing::ValuesIn(subjects()), name_of);

// ---- on a GPU ----

class DependentLaunch : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    try {
      EngineOptions options;
      options.backend = "cuda";
      engine_ = std::make_unique<Engine>(options);
    } catch (const MissingError& error) {
      GTEST_SKIP() << "no GPU: " << error.what();
    }
    const DeviceInfo& info = engine_->device(0).info();
    if (!info.arch || !arch_info(*info.arch).pdl) GTEST_SKIP() << info.name << " has no programmatic dependent launch";
    if (!family_exists_on(GetParam().schedule.family.value(), *info.arch))
      GTEST_SKIP() << to_string(GetParam().schedule.family.value()) << " kernels do not run on " << info.name;
  }
  std::unique_ptr<Engine> engine_;
};

TEST_P(DependentLaunch, ChangesNoBitInTwoHundredChainsOnCuda) {
  Device& device = engine_->device(0);
  const AttentionCase call = make_inputs(GetParam().problem, GetParam().large);
  Chain chain(device, call, engine_->prepare(GetParam().problem, GetParam().schedule));
  const std::vector<std::byte> expected = chain.run(false);
  ASSERT_TRUE(chain.run(false) == expected) << "without it, two chains differ";
  for (int repeat = 0; repeat < 200; ++repeat)
    ASSERT_TRUE(chain.run(true) == expected) << "chain " << repeat << " of launches that may overlap differs";
}

TEST_P(DependentLaunch, ChangesNoBitInAGraphOnCuda) {
  Device& device = engine_->device(0);
  const AttentionCase call = make_inputs(GetParam().problem, GetParam().large);
  Chain chain(device, call, engine_->prepare(GetParam().problem, GetParam().schedule));
  const std::vector<std::byte> expected = chain.run(false);
  device.begin_capture(chain.stream());
  chain.launch(true);
  const std::unique_ptr<Device::Graph> graph = device.end_capture(chain.stream());
  for (int repeat = 0; repeat < 50; ++repeat) {
    chain.reset();
    graph->replay(chain.stream());
    ASSERT_TRUE(chain.result() == expected) << "replay " << repeat << " differs";
  }
}

INSTANTIATE_TEST_SUITE_P(, DependentLaunch, testing::ValuesIn(subjects()), name_of);

}  // namespace
}  // namespace kernelwright::dependent_launch_test
