#include "runtime/emulator/mutation/subjects.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/engine/emulated_machine.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/runtime/store/kernel_store.h"
#include "kernelwright/verify/attention/device.h"
#include "kernelwright/verify/gemm/device.h"
#include "kernelwright/verify/kv_write/device.h"
#include "kernelwright/verify/moe_combine/device.h"
#include "kernelwright/verify/route/device.h"
#include "kernelwright/verify/row_op/device.h"
#include "runtime/emulator/foreign/foreign_cases.h"
#include "runtime/emulator/kernels/hopper_cases.h"
#include "runtime/emulator/mutation/subject_calls.h"

namespace kernelwright::test {
namespace {

/// Cases that between them execute all code of the Hopper kernels: other cases differ in shapes alone.
constexpr const char* kHopperCases[] = {
    "gemm_plain",
    "gemm_lagged_release",
    "gemm_cluster2",
    "gemm_cluster2_barrier_exit",
    "gemm_f32_out",
    "attention_d64",
    "attention_d64_causal",
    "attention_d64_overlap",
    "copy_bulk_copy",
    "copy_bulk_reduce",
    "copy_cluster_exchange",
    "copy_tensor_boxes",
    "copy_cp_async_ring",
    "copy_cp_async_groups",
    "copy_dependent_launch",
    "kv_pipeline_shared_keys_ahead",
    "kv_pipeline_split_in_turn",
};

/// Likewise, of the kernels with the traits of other people's.
constexpr const char* kForeignCases[] = {
    "foreign_streamk_parts",       "foreign_streamk_parts_fences",
    "foreign_streamk_chain",       "foreign_streamk_chain_fences",
    "foreign_streamk_parts_many",  "foreign_streamk_chain_many",
    "foreign_streamk_sm90_parts",  "foreign_streamk_sm90_chain",
    "foreign_grouped_gemm_shared", "foreign_grouped_gemm_global",
    "foreign_fmha_long",           "foreign_fmha_shared_long",
};

std::map<std::string, std::string> sources_of(const SourceUnit& unit) {
  std::map<std::string, std::string> sources;
  for (const auto& header : unit.headers) sources[std::string(header.path)] = header.text;
  sources[unit.kernel + ".cu"] = unit.source;
  return sources;
}

/// Runs `launch` on a new backend. `launch` returns what is wrong.
template <class Launch>
SubjectRun run_on_backend(const EmulatorBackendOptions& options, Launch&& launch) {
  const std::shared_ptr<EmulatorBackend> backend = make_emulator_backend(options);
  SubjectRun run;
  try {
    launch(backend, run);
  } catch (const Error& error) {
    run.failure = error.what();
    run.output.clear();
  }
  for (emulator::KernelHazard& hazard : backend->take_reports()) run.reports.push_back(std::move(hazard.report));
  run.warp_instructions = backend->statistics().warp_instructions;
  return run;
}

Subject hopper_subject(Compiler& compiler, const HopperCase& test) {
  const auto binary = std::make_shared<const Binary>(compile_hopper(compiler, test, /*line_info=*/true));
  Subject subject{test.name, binary->ptx, sources_of(hopper_source(test, true)), {}};
  subject.run = [binary, test](const std::string& ptx, EmulatorBackendOptions options) {
    options.arch = test.arch;
    return run_on_backend(options, [&](const std::shared_ptr<EmulatorBackend>& backend, SubjectRun& run) {
      KernelImage image{std::string_view(ptx)};
      image.registers = static_cast<std::uint32_t>(binary->usage.registers);
      image.notes = &test.notes;
      HopperOutcome outcome = test.run(backend->device(0), image, 1);
      run.failure = std::move(outcome.failure);
      run.output = std::move(outcome.output);
    });
  };
  return subject;
}

/// Gives the engine the binaries that it is told to give.
class FixedStore : public KernelStore {
 public:
  explicit FixedStore(std::map<std::string, Binary> binaries)
      : KernelStore(CacheOptions{.disk = false}), binaries_(std::move(binaries)) {}

 protected:
  Binary build(const SourceUnit& unit) override {
    const auto found = binaries_.find(unit.entry);
    if (found == binaries_.end()) throw Error("the subject has no kernel " + unit.entry);
    return found->second;
  }
  std::string build_with_lines(const SourceUnit&) override { return {}; }  // they have lines already

 private:
  std::map<std::string, Binary> binaries_;
};

/// A call through the engine, of whichever kind.
struct EngineCall {
  std::string name;
  std::function<void(Engine&, SubjectRun&)> launch;
  Arch arch = Arch::kSm90a;
  int num_sms = 0;

  EmulatorBackendOptions options(EmulatorBackendOptions options) const {
    if (num_sms > 0) options.num_sms = num_sms;
    options.arch = arch;
    return options;
  }
};

EngineCall engine_call(const AttentionCall& test) {
  const auto call = std::make_shared<const AttentionCase>(make_inputs(test.problem, test.shape, {}));
  const auto launch = [call, test](Engine& engine, SubjectRun& run) {
    DeviceCase device_case(engine.device(0), *call, engine.prepare(test.problem, test.schedule));
    device_case.tensors().pdl = true;
    device_case.poison();
    device_case.launch();
    run.output = device_case.download().o;
    if (!device_case.guards_are_intact()) run.failure = "memory beside an output was written";
  };
  const bool blackwell = test.schedule.family == Family::kBlackwell;
  return {test.name, launch, blackwell ? Arch::kSm100a : EmulatorBackendOptions{}.arch, test.num_sms};
}

EngineCall engine_call(const GemmCall& test) {
  const auto call = std::make_shared<const GemmCase>(make_gemm_inputs(test.problem, {.name = "mutation", .m = test.m}));
  const auto launch = [call, test](Engine& engine, SubjectRun& run) {
    GemmDeviceCase device_case(engine.device(0), *call, engine.prepare(test.problem, test.schedule));
    device_case.tensors().pdl = true;
    // One tile is all that a CTA of gemm_portable has, unless there shall be few.
    if (test.schedule.family == Family::kPortable) device_case.tensors().sm_budget = test.num_sms;
    device_case.poison();
    device_case.launch();
    run.output = device_case.download().d;
    if (!device_case.guards_are_intact()) run.failure = "memory beside d was written";
  };
  const bool blackwell = test.schedule.family == Family::kBlackwell;
  return {test.name, launch, blackwell ? Arch::kSm100a : EmulatorBackendOptions{}.arch, test.num_sms};
}

EngineCall engine_call(const KvWriteCall& test) {
  const auto call = std::make_shared<const KvWriteCase>(
      make_kv_write_inputs(test.problem, {.name = "mutation", .tokens = test.tokens}));
  const auto launch = [call, test](Engine& engine, SubjectRun& run) {
    KvWriteDeviceCase device_case(engine.device(0), *call, engine.prepare(test.problem));
    device_case.tensors().pdl = true;
    device_case.poison();
    device_case.launch();
    const KvWriteOutput output = device_case.download();
    run.output = output.q_out;
    run.output.insert(run.output.end(), output.cache.begin(), output.cache.end());
    if (!device_case.guards_are_intact()) run.failure = "memory beside an output was written";
  };
  return {test.name, launch, EmulatorBackendOptions{}.arch, 0};
}

EngineCall engine_call(const RowOpCall& test) {
  const auto call =
      std::make_shared<const RowOpCase>(make_row_op_inputs(test.problem, {.name = "mutation", .rows = test.rows}));
  const auto launch = [call, test](Engine& engine, SubjectRun& run) {
    RowOpDeviceCase device_case(engine.device(0), *call, engine.prepare(test.problem));
    device_case.tensors().pdl = true;
    device_case.poison();
    device_case.launch();
    const RowOpOutput output = device_case.download();
    run.output = output.out;
    run.output.insert(run.output.end(), output.residual_out.begin(), output.residual_out.end());
    run.output.insert(run.output.end(), output.scale.begin(), output.scale.end());
    if (!device_case.guards_are_intact()) run.failure = "memory beside an output was written";
  };
  return {test.name, launch, EmulatorBackendOptions{}.arch, 0};
}

EngineCall engine_call(const RouteCall& test) {
  const auto call =
      std::make_shared<const RouteCase>(make_route_inputs(test.problem, {.name = "mutation", .tokens = test.tokens}));
  const auto launch = [call, test](Engine& engine, SubjectRun& run) {
    RouteDeviceCase device_case(engine.device(0), *call, engine.prepare(test.problem));
    device_case.tensors().pdl = true;
    device_case.poison();
    device_case.launch();
    const RouteOutput output = device_case.download();
    for (const auto* words : {&output.ids, &output.weights, &output.starts, &output.source_rows, &output.positions,
                              &output.sorted_weights}) {
      const auto bytes = std::as_bytes(std::span(*words));
      run.output.insert(run.output.end(), bytes.begin(), bytes.end());
    }
    if (!device_case.guards_are_intact()) run.failure = "memory beside an output was written";
  };
  return {test.name, launch, EmulatorBackendOptions{}.arch, 0};
}

EngineCall engine_call(const MoeCombineCall& test) {
  const auto call = std::make_shared<const MoeCombineCase>(
      make_moe_combine_inputs(test.problem, {.name = "mutation", .tokens = test.tokens}, {.odd = true}));
  const auto launch = [call, test](Engine& engine, SubjectRun& run) {
    MoeCombineDeviceCase device_case(engine.device(0), *call, engine.prepare(test.problem));
    device_case.tensors().pdl = true;
    device_case.poison();
    device_case.launch();
    run.output = device_case.download().out;
    if (!device_case.guards_are_intact()) run.failure = "memory beside an output was written";
  };
  return {test.name, launch, EmulatorBackendOptions{}.arch, 0};
}

std::vector<EngineCall> engine_calls(const std::string& filter) {
  std::vector<EngineCall> calls;
  const auto add = [&](const auto& tests) {
    for (const auto& test : tests)
      if (test.name.find(filter) != std::string::npos) calls.push_back(engine_call(test));
  };
  add(attention_calls());
  add(gemm_calls());
  add(kv_write_calls());
  add(row_op_calls());
  add(route_calls());
  add(moe_combine_calls());
  return calls;
}

/// All kernels of one call, joined: a subject has one text, so that each kernel gets a subject of its own.
std::vector<Subject> engine_subjects(Compiler& compiler, const EngineCall& test) {
  /// Records the kernels that the engine asks for, with lines.
  class RecordingStore : public KernelStore {
   public:
    explicit RecordingStore(Compiler& compiler) : KernelStore(CacheOptions{.disk = false}), compiler_(compiler) {}
    std::map<std::string, std::pair<SourceUnit, Binary>> built;

   protected:
    Binary build(const SourceUnit& unit) override {
      Binary binary = compiler_.compile(unit);
      binary.ptx = compiler_.compile_with_lines(unit);
      built[unit.entry] = {unit, binary};
      return binary;
    }
    std::string build_with_lines(const SourceUnit&) override { return {}; }

   private:
    Compiler& compiler_;
  };

  const auto run_with = [test](std::shared_ptr<KernelStore> store, const std::shared_ptr<EmulatorBackend>& backend,
                               SubjectRun& run) {
    EngineOptions options;
    options.custom_backend = backend;
    options.custom_store = std::move(store);
    Engine engine(options);
    test.launch(engine, run);
  };

  const auto recording = std::make_shared<RecordingStore>(compiler);
  const SubjectRun first = run_on_backend(
      test.options({}),
      [&](const std::shared_ptr<EmulatorBackend>& backend, SubjectRun& run) { run_with(recording, backend, run); });
  if (!first.failure.empty()) throw Error(test.name + ": " + first.failure);
  std::map<std::string, Binary> binaries;
  for (const auto& [entry, made] : recording->built) binaries[entry] = made.second;

  std::vector<Subject> subjects;
  for (const auto& [entry, made] : recording->built) {
    const std::string& kernel = made.first.kernel;
    Subject subject{test.name + (binaries.size() > 1 ? "_" + kernel : ""), made.second.ptx, sources_of(made.first), {}};
    subject.run = [test, run_with, binaries, entry = entry](const std::string& ptx,
                                                            const EmulatorBackendOptions& options) {
      std::map<std::string, Binary> changed = binaries;
      changed[entry].ptx = ptx;
      EmulatorBackendOptions checking = test.options(options);
      checking.unknown_ahead = true;  // each wait for the launch ahead counts
      return run_on_backend(checking, [&](const std::shared_ptr<EmulatorBackend>& backend, SubjectRun& run) {
        run_with(std::make_shared<FixedStore>(std::move(changed)), backend, run);
      });
    };
    subjects.push_back(std::move(subject));
  }
  return subjects;
}

}  // namespace

std::string Subject::source_line(const std::string& file, int line) const {
  // NVRTC puts its own folder before the names that it was given. Of names that fit, the longest is right: a kernel's
  // unit may be a line that includes the kernel.
  const std::string* text = nullptr;
  std::size_t longest = 0;
  for (const auto& [name, source] : sources)
    if ((file == name || file.ends_with("/" + name)) && name.size() > longest) text = &source, longest = name.size();
  if (!text) return {};
  std::size_t begin = 0;
  for (int i = 1; i < line && begin != std::string::npos; ++i) {
    begin = text->find('\n', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (begin == std::string::npos) return {};
  std::string found = text->substr(begin, text->find('\n', begin) - begin);
  found.erase(0, std::min(found.find_first_not_of(' '), found.size()));
  found.erase(found.find_last_not_of(" \r") + 1);
  return found;
}

std::vector<Subject> mutation_subjects(const std::string& filter) {
  Compiler compiler;
  std::vector<Subject> subjects;
  const auto add = [&](std::span<const char* const> names, const std::vector<HopperCase>& cases) {
    for (const char* name : names) {
      if (std::string(name).find(filter) == std::string::npos) continue;
      const auto found = std::find_if(cases.begin(), cases.end(), [&](const auto& test) { return test.name == name; });
      if (found == cases.end()) throw Error(std::string("there is no case ") + name);
      subjects.push_back(hopper_subject(compiler, *found));
    }
  };
  add(kHopperCases, hopper_cases());
  add(kForeignCases, foreign_cases());
  for (const EngineCall& test : engine_calls(filter))
    for (Subject& subject : engine_subjects(compiler, test)) subjects.push_back(std::move(subject));
  return subjects;
}

}  // namespace kernelwright::test
