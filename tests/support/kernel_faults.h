/// Kernels with one deliberate mistake, made by changing a statement of their templates (support/template_anchors.h),
/// and what the emulator reports about them. A test fails if the mistake's anchor names no statement, or several: the
/// mistake would then prove nothing.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/engine/emulated_machine.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/runtime/store/kernel_store.h"
#include "kernelwright/verify/attention/bound.h"
#include "kernelwright/verify/attention/device.h"
#include "kernelwright/verify/gemm/bound.h"
#include "kernelwright/verify/gemm/device.h"
#include "support/template_anchors.h"

namespace kernelwright::test {

/// Compiles `kernel` from templates with the edits, and all other kernels unchanged. It makes PTX only, for the
/// emulator.
class FaultyStore final : public KernelStore {
 public:
  FaultyStore(std::string kernel, std::vector<TemplateEdit> edits)
      : KernelStore(in_memory()), kernel_(std::move(kernel)), edits_(std::move(edits)) {}

 private:
  static CacheOptions in_memory() {
    CacheOptions options;
    options.disk = false;
    return options;
  }
  Binary build(const SourceUnit& unit) override {
    SourceUnit changed = unit;
    if (unit.kernel == kernel_) apply(changed);
    Binary binary;
    binary.entry = unit.entry;
    binary.arch = unit.arch;
    binary.ptx = compiler().compile_with_lines(changed);
    return binary;
  }
  std::string build_with_lines(const SourceUnit&) override { return {}; }

  /// All anchors are looked up in the templates as they are, before any of them changes.
  void apply(SourceUnit& unit) {
    std::vector<std::string_view> files;
    for (const TemplateFile& header : unit.headers) files.push_back(header.text);
    std::vector<PlacedEdit> placed;
    for (const TemplateEdit& edit : edits_) {
      std::vector<PlacedEdit> places = places_of(edit, files);
      EXPECT_EQ(places.size(), 1u) << "statements of " << unit.kernel << " in \"" << edit.scope << "\" that name "
                                   << edit.names << "  " << edit.from;
      if (places.size() == 1) placed.push_back(std::move(places[0]));
    }
    // The last place of a file first: the others stay where they are.
    std::stable_sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) { return a.begin > b.begin; });
    for (const PlacedEdit& edit : placed) {
      TemplateFile& header = unit.headers[edit.file];
      texts_.push_back(std::make_unique<std::string>(header.text));
      texts_.back()->replace(edit.begin, edit.end - edit.begin, edit.text);
      header.text = *texts_.back();
    }
  }

  const std::string kernel_;
  const std::vector<TemplateEdit> edits_;
  std::vector<std::unique_ptr<std::string>> texts_;  // the edited texts, to which headers refer
};

/// What was found: names of hazards as in reports, "wrong result", or "refused" by the compiler or the engine.
struct Findings {
  std::set<std::string> found;
  std::string text;
};

/// Calls `run`, which launches kernels on an engine whose `kernel` has the edits. It tries eager completion, then lazy,
/// then two random ones with shuffled warps, until something is found. `run` returns what is wrong with the results, or
/// "". num_sms 0: a usual device of `arch`.
inline Findings run_with_edits(const std::string& kernel, const std::vector<TemplateEdit>& edits, Arch arch,
                               const std::function<std::string(Engine&)>& run, int num_sms = 0) {
  const auto store = std::make_shared<FaultyStore>(kernel, edits);
  constexpr std::pair<emulator::Completion, std::uint64_t> kTries[] = {{emulator::Completion::kEager, 0},
                                                                       {emulator::Completion::kLazy, 0},
                                                                       {emulator::Completion::kRandom, 1},
                                                                       {emulator::Completion::kRandom, 2}};
  Findings findings;
  for (const auto& [completion, seed] : kTries) {
    EmulatorBackendOptions emulated;
    emulated.arch = arch;
    emulated.hazards = emulated.unknown_ahead = true;
    emulated.completion = completion;
    emulated.seed = seed;
    emulated.num_sms = num_sms;
    emulated.threads = 1;
    emulated.max_instructions = 5'000'000;
    const std::shared_ptr<EmulatorBackend> backend = make_emulator_backend(emulated);
    EngineOptions options;
    options.custom_backend = backend;
    options.custom_store = store;
    try {
      Engine engine(options);
      if (const std::string wrong = run(engine); !wrong.empty()) {
        findings.found.insert("wrong result");
        findings.text += wrong + "\n";
      }
    } catch (const CompileError& error) {
      return {{"refused"}, error.what()};
    } catch (const Error& error) {
      findings.text += std::string(error.what()) + "\n";  // the reports contain what ended a launch
    }
    for (const emulator::KernelHazard& hazard : backend->take_reports()) {
      findings.found.insert(std::string(emulator::name_of(hazard.report.kind)));
      findings.text += hazard.report.text() + "\n";
    }
    if (findings.found.empty() && !findings.text.empty()) findings.found.insert("refused");
    if (!findings.found.empty()) return findings;
  }
  return findings;
}

/// As above, for the attention case `test`, whose main kernel is `kernel`.
inline Findings run_with_edits(const std::string& kernel, const CudaCase& test, const std::vector<TemplateEdit>& edits,
                               Arch arch, int num_sms = 0) {
  AttentionCase call = make_inputs(test.problem, test.shape, test.options);
  if (test.change) test.change(call);
  return run_with_edits(
      kernel, edits, arch,
      [&](Engine& engine) -> std::string {
        DeviceCase on_device(engine.device(0), call, engine.prepare(test.problem, test.schedule));
        on_device.tensors().pdl = true;
        on_device.poison();
        on_device.launch();
        const Verdict verdict = verify(call, on_device.download(), {.budget_operations = 1e9});
        if (!on_device.guards_are_intact()) return "memory beside the outputs was written\n" + verdict.text;
        return verdict.passed ? "" : verdict.text + " ";
      },
      num_sms);
}

/// As above, for a GEMM.
inline Findings run_with_edits(const std::string& kernel, const GemmCase& call, const GemmSchedule& schedule,
                               const std::vector<TemplateEdit>& edits, Arch arch, int num_sms = 0) {
  const auto run = [&](Engine& engine) -> std::string {
    GemmDeviceCase on_device(engine.device(0), call, engine.prepare(call.problem, schedule));
    on_device.tensors().pdl = true;
    on_device.poison();
    on_device.launch();
    const GemmVerdict verdict = verify(call, on_device.download(), {.budget_operations = 1e9});
    if (!on_device.guards_are_intact()) return "memory beside d was written\n" + verdict.text;
    return verdict.passed ? "" : verdict.text + " ";
  };
  return run_with_edits(kernel, edits, arch, run, num_sms);
}

}  // namespace kernelwright::test
