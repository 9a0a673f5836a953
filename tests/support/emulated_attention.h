/// Shared by tests of kernels on the emulator: an engine with every check on, and a launch that must cause no report.
/// With KERNELWRIGHT_TEST_DEVICE=cuda the same tests run on the GPU, which makes no reports.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/verify/attention/bound.h"
#include "kernelwright/verify/attention/device.h"
#include "support/ptx_store.h"
#include "support/test_device.h"

namespace kernelwright::test {

/// An emulated `arch` of `num_sms` SMs. `completion` and `seed` decide when copies land and in what order warps run.
/// On the GPU, whose SMs and order are its own, a fixture of another architecture is skipped.
inline Engine make_checking_engine(int num_sms, emulator::Completion completion, std::uint64_t seed,
                                   Arch arch = Arch::kSm90a) {
  EngineOptions options;
  if (tests_run_on_cuda()) {
    skip_unless_gpu_is(arch);
    options.backend = "cuda";
    return Engine(options);
  }
  options.backend = "emulator";
  options.emulator.arch = arch;
  options.emulator.hazards = true;
  options.emulator.num_sms = num_sms;
  options.emulator.completion = completion;
  options.emulator.seed = seed;
  options.custom_store = ptx_store();
  return Engine(options);
}

inline void expect_no_reports(Engine& engine) {
  for (const auto& [name, report] : take_reports(engine)) ADD_FAILURE() << name << ": " << report.text();
}

/// Scales that are 0 or negative are told, and kernels compute with them: a call that has one may cause that report.
inline void expect_no_reports_but_of_scales(Engine& engine, const AttentionCase& call) {
  bool has_odd = false;
  for (const auto* scales : {&call.k_scale, &call.v_scale})
    for (const float scale : *scales) has_odd |= scale <= 0;
  for (const auto& [name, report] : take_reports(engine)) {
    const bool of_scale = report.what.find("_scale") != std::string::npos || report.what.starts_with("and ");
    if (!has_odd || report.kind != emulator::HazardKind::kData || !of_scale)
      ADD_FAILURE() << name << ": " << report.text();
  }
}

/// The inputs of a case, with the changes that the case asks for. Case 36 puts NaN into random values, which then are
/// not random.
inline AttentionCase inputs_of(const CudaCase& test) {
  AttentionCase call = make_inputs(test.problem, test.shape, test.options);
  if (test.change) {
    test.change(call);
    call.random_values = call.random_values && test.name.find("c36") == std::string::npos;
  }
  return call;
}

/// One launch into poisoned outputs. It must cause no report and write nothing beside the outputs.
inline AttentionOutput run_checked(Engine& engine, const CudaCase& test, const AttentionCase& call) {
  DeviceCase on_device(engine.device(0), call, engine.prepare(test.problem, test.schedule));
  on_device.poison();
  on_device.launch();
  const AttentionOutput output = on_device.download();
  EXPECT_TRUE(on_device.guards_are_intact()) << "memory beside an output was written";
  expect_no_reports_but_of_scales(engine, call);
  return output;
}

inline Verdict verdict_of(const AttentionCase& call, const AttentionOutput& output) {
  return verify(call, output, {.budget_operations = 1e9});
}

inline void expect_same_bits(const AttentionOutput& one, const AttentionOutput& other, const char* what) {
  EXPECT_EQ(one.o, other.o) << what;
  ASSERT_EQ(one.lse.size(), other.lse.size()) << what;
  if (one.lse.empty()) return;
  EXPECT_EQ(std::memcmp(one.lse.data(), other.lse.data(), one.lse.size() * sizeof(float)), 0) << what << ", in lse";
}

/// For tests that need a compiler and no GPU.
template <class Param>
class OnTheEmulator : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

inline void expect_right(const AttentionCase& call, const AttentionOutput& output) {
  const Verdict verdict = verdict_of(call, output);
  EXPECT_TRUE(verdict.passed) << verdict.text << "\nworst/bound " << verdict.worst_ratio << ", lse "
                              << verdict.worst_lse_ratio << ", rms " << verdict.rms_ratio << " of "
                              << verdict.rms_limit;
}

}  // namespace kernelwright::test
