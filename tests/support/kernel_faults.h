/// Kernels with one deliberate mistake, made by changing the text of their templates, and what the emulator says of
/// them. A mistake that finds its text no more, or more than once, fails its test: it would prove nothing.
#pragma once

#include <gtest/gtest.h>

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
#include "kernelwright/runtime/emulator/emulator_backend.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/verify/attention/bound.h"
#include "kernelwright/verify/attention/device.h"
#include "kernelwright/verify/gemm/bound.h"
#include "kernelwright/verify/gemm/device.h"

namespace kernelwright::test {

/// `text`, which is in one of a kernel's templates once and in none of the others, becomes `replacement`. A blank of
/// `text` stands for any blanks and line ends, or none.
struct TemplateEdit {
  std::string text, replacement;
};

/// Where `text` lies in `whole` first, and how often it does.
struct FoundText {
  std::size_t begin = 0, end = 0;
  int count = 0;
};
inline FoundText find_text(std::string_view whole, std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\n'; };
  FoundText found;
  for (std::size_t begin = 0; begin < whole.size(); ++begin) {
    std::size_t at = begin, i = 0;
    for (; i < text.size(); ++i) {
      if (text[i] == ' ')
        while (at < whole.size() && is_blank(whole[at])) ++at;
      else if (at < whole.size() && whole[at] == text[i])
        ++at;
      else
        break;
    }
    if (i == text.size()) {
      if (found.count++ == 0) found.begin = begin, found.end = at;
    }
  }
  return found;
}

/// Compiles `kernel` from templates with the edits, and all other kernels as they are. For the emulator alone: PTX.
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
    if (unit.kernel == kernel_)
      for (const TemplateEdit& edit : edits_) apply(edit, changed);
    Binary binary;
    binary.entry = unit.entry;
    binary.arch = unit.arch;
    binary.ptx = compiler().compile_with_lines(changed);
    return binary;
  }
  std::string build_with_lines(const SourceUnit&) override { return {}; }

  void apply(const TemplateEdit& edit, SourceUnit& unit) {
    int count = 0;
    for (TemplateFile& header : unit.headers) {
      const FoundText found = find_text(header.text, edit.text);
      count += found.count;
      if (found.count == 0) continue;
      texts_.push_back(std::make_unique<std::string>(header.text));
      texts_.back()->replace(found.begin, found.end - found.begin, edit.replacement);
      header.text = *texts_.back();
    }
    EXPECT_EQ(count, 1) << "times that the templates of " << unit.kernel << " have\n" << edit.text;
  }

  const std::string kernel_;
  const std::vector<TemplateEdit> edits_;
  std::vector<std::unique_ptr<std::string>> texts_;  // what headers refer to
};

/// What was found: names of hazards as reports have them, "wrong result", or "refused" by the compiler or the engine.
struct Findings {
  std::set<std::string> found;
  std::string text;
};

/// Has `run` launch kernels on an engine whose `kernel` has the edits in it: eager completion, then lazy, then two
/// random ones with shuffled warps, until something is found. `run` returns what is wrong with the results, or "".
/// num_sms 0: a usual device of `arch`.
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
      findings.text += std::string(error.what()) + "\n";  // what ended a launch is among the reports
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

/// As above, of `test`, whose main kernel is `kernel`.
inline Findings run_with_edits(const std::string& kernel, const CudaCase& test, const std::vector<TemplateEdit>& edits,
                               Arch arch) {
  AttentionCase call = make_inputs(test.problem, test.shape, test.options);
  if (test.change) test.change(call);
  return run_with_edits(kernel, edits, arch, [&](Engine& engine) -> std::string {
    DeviceCase on_device(engine.device(0), call, engine.prepare(test.problem, test.schedule));
    on_device.tensors().pdl = true;
    on_device.poison();
    on_device.launch();
    const Verdict verdict = verify(call, on_device.download(), {.budget_operations = 1e9});
    if (!on_device.guards_are_intact()) return "memory beside the outputs was written\n" + verdict.text;
    return verdict.passed ? "" : verdict.text + " ";
  });
}

/// As above, of a GEMM.
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
