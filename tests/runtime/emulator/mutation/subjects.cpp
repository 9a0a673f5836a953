#include "runtime/emulator/mutation/subjects.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/specialize.h"
#include "kernelwright/runtime/compiler.h"
#include "kernelwright/runtime/engine.h"
#include "kernelwright/verify/attention_device.h"
#include "kernelwright/verify/gemm_device.h"
#include "runtime/emulator/kernels/hopper_cases.h"

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

std::map<std::string, std::string> sources_of(const SourceUnit& unit) {
  std::map<std::string, std::string> sources;
  for (const auto& header : unit.headers) sources[std::string(header.path)] = header.text;
  sources[unit.kernel + ".cu"] = unit.source;
  return sources;
}

/// Runs `launch`, which returns what is wrong, on a backend of its own.
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
  subject.run = [binary, test](const std::string& ptx, const EmulatorBackendOptions& options) {
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

/// A call of attention, and the kernel that its schedule asks for. It may launch two kernels.
struct AttentionCall {
  std::string name;
  AttentionProblem problem;
  AttentionShape shape;
  AttentionSchedule schedule = {};
  int num_sms = 0;  // 0: as many as the emulator has by itself
};

/// A call of GEMM likewise. Two SMs: each CTA walks several tiles.
struct GemmCall {
  std::string name;
  GemmProblem problem;
  int m = 0;
  GemmSchedule schedule = {};
  int num_sms = 2;
};

AttentionProblem small_problem(Heads heads, int head_dim = 64) {
  AttentionProblem problem;
  problem.dtype = {DType::kBf16, DType::kBf16, DType::kBf16};
  problem.head_dim = {head_dim, head_dim};
  problem.heads = heads;
  return problem;
}

AttentionShape small_shape(int q_len, int kv_len) {
  AttentionShape shape;
  shape.name = "mutation";
  shape.q_len = q_len;
  shape.kv_len = kv_len;
  return shape;
}

void add_portable(std::vector<AttentionCall>& calls) {
  AttentionProblem prefill = small_problem({2, 1});
  prefill.mask.kind = MaskKind::kCausal;
  // Long enough for its ring to go round, and its first CTA sees no key.
  AttentionSchedule portable;
  portable.family = Family::kPortable;
  calls.push_back({"portable_prefill", prefill, small_shape(448, 320), portable});
  AttentionProblem decode = small_problem({8, 2});
  decode.mask.kind = MaskKind::kCausal;
  decode.max_q_len = 1;
  decode.kv_layout = {KvLayoutKind::kPaged, 16};
  AttentionSchedule parts = portable;
  parts.splits = 2;
  parts.merge = Merge::kCombine;  // by a kernel of its own, which is a subject too
  calls.push_back({"portable_decode", decode, small_shape(1, 700), parts});

  AttentionSchedule registers = portable;
  registers.staging = Staging::kRegisters;
  registers.num_stages = 2;
  registers.num_warps = 4;
  registers.block_m = 64;
  registers.block_n = 32;
  calls.push_back({"portable_prefill_registers", prefill, small_shape(250, 200), registers});
  AttentionSchedule columns = portable;
  columns.num_warps = 4;
  columns.block_m = 32;
  columns.block_n = 64;
  columns.warp_n = 32;
  columns.num_stages = 2;
  calls.push_back({"portable_prefill_columns", prefill, small_shape(250, 260), columns});
  AttentionSchedule waiting = portable;
  waiting.splits = 1;
  waiting.staging = Staging::kRegisters;
  waiting.num_stages = 2;
  calls.push_back({"portable_decode_registers", decode, small_shape(1, 700), waiting});
}

/// Lengths of sequences: an item each, and a tile or several.
AttentionShape small_batch(std::vector<int> q_lens, std::vector<int> kv_lens) {
  AttentionShape shape = small_shape(1, 1);
  shape.batch = static_cast<int>(kv_lens.size());
  shape.q_lens = std::move(q_lens);
  shape.kv_lens = std::move(kv_lens);
  return shape;
}

/// attention_sm90 in the forms whose synchronisation differs: rings, chunks of keys, turns, slots of queries, tiles
/// that are cleaned, warpgroups without rows. A CTA walks several items: some of several tiles, so that a ring goes
/// round within one, and some of one tile side by side, or the ring of keys would say what that of queries has to.
void add_hopper_prefill(std::vector<AttentionCall>& calls) {
  constexpr int kSms = 2;
  AttentionSchedule hopper;
  hopper.family = Family::kHopper;
  hopper.math_warpgroups = 2;
  hopper.block_n = 48;
  hopper.kv_ring = KvRing::kSplit;
  hopper.num_kv_stages = 3;
  hopper.overlap = Overlap::kBoth;
  hopper.q_stages = 2;
  hopper.pack_gqa = false;
  const AttentionProblem dense = small_problem({1, 1});
  // One CTA ends with items of one tile, the other with one of many.
  AttentionShape short_ones = small_batch({}, {130, 40, 30, 40, 200, 150, 20, 48, 30, 10, 250, 20});
  short_ones.q_len = 110;
  calls.push_back({"attention_sm90_split_in_turns", dense, short_ones, hopper, kSms});

  AttentionSchedule shared = hopper;
  shared.math_warpgroups = 3;
  shared.kv_ring = KvRing::kShared;
  shared.num_kv_stages = 5;
  AttentionProblem causal = dense;
  causal.mask.kind = MaskKind::kCausal;
  causal.lse = true;
  short_ones.q_len = 190;
  calls.push_back({"attention_sm90_causal_shared", causal, short_ones, shared, kSms});

  // Packed heads: four rows for each query, so that most of the items have rows for one warpgroup alone.
  AttentionProblem ragged = causal;
  ragged.heads = {4, 1};
  ragged.q_layout = QLayout::kRagged;
  ragged.kv_layout = {KvLayoutKind::kPaged, 16};
  AttentionSchedule packed = hopper;
  packed.pack_gqa = true;
  calls.push_back({"attention_sm90_packed_pages", ragged,
                   small_batch({90, 1, 1, 1, 0, 40, 1, 32, 1, 33, 1, 30, 1, 1},
                               {200, 70, 1, 3, 60, 20, 5, 10, 150, 17, 2, 3, 5, 9}),
                   packed, kSms});

  AttentionSchedule chunks = hopper;
  chunks.num_qk_stages = 2;
  chunks.num_kv_stages = 2;
  chunks.overlap = Overlap::kIntra;
  AttentionProblem window = small_problem({2, 1}, 128);
  window.mask = {MaskKind::kSlidingWindow, {150, 0}, 0, {}};
  window.sinks = true;
  AttentionShape cut = small_batch({}, {222, 40, 0, 129, 30, 20});
  cut.q_len = 110;
  calls.push_back({"attention_sm90_keys_in_chunks", window, cut, chunks, kSms});

  // Nothing but TMA's zeros behind the keys.
  AttentionSchedule one_slot = hopper;
  one_slot.q_stages = 1;
  calls.push_back({"attention_sm90_one_query_slot", causal, small_shape(500, 240), one_slot, kSms});
}

void add_hopper_decode(std::vector<AttentionCall>& calls) {
  constexpr int kSms = 2;
  AttentionSchedule hopper;
  hopper.family = Family::kHopper;
  hopper.token_gen = true;
  hopper.splits = 3;
  hopper.num_warps = 2;
  hopper.block_n = 64;
  hopper.num_stages = 2;
  hopper.merge = Merge::kInKernel;
  AttentionProblem decode = small_problem({4, 1});
  decode.max_q_len = 1;
  decode.lse = true;
  calls.push_back({"attention_decode_sm90_merged", decode, small_shape(1, 1000), hopper, kSms});
  // The first tile is cleaned as well, and its slot filled again.
  AttentionProblem pages = decode;
  pages.kv_layout = {KvLayoutKind::kPaged, 16};
  pages.mask = {MaskKind::kSlidingWindow, {900, 0}, 0, {}};
  calls.push_back({"attention_decode_sm90_pages", pages, small_shape(1, 1000), hopper, kSms});
  hopper.splits = 2;
  hopper.merge = Merge::kCombine;
  calls.push_back({"attention_decode_sm90_combined", decode, small_shape(1, 1000), hopper, kSms});
}

/// attention_sm90 with items from a queue, in clusters, and with keys that threads gather.
void add_hopper_schedulers(std::vector<AttentionCall>& calls) {
  constexpr int kSms = 2;
  AttentionSchedule hopper;
  hopper.family = Family::kHopper;
  hopper.math_warpgroups = 2;
  hopper.block_n = 48;
  AttentionProblem causal = small_problem({1, 1});
  causal.mask.kind = MaskKind::kCausal;
  // Many items of one tile, so that records and slots of queries go round; the last one of each CTA has several.
  AttentionShape short_ones = small_batch({}, {130, 40, 30, 40, 200, 150, 20, 48, 30, 250, 240, 260});
  short_ones.q_len = 110;
  AttentionSchedule queued = hopper;
  queued.scheduler = Scheduler::kQueued;
  queued.q_stages = 2;
  calls.push_back({"attention_sm90_queued", small_problem({1, 1}), short_ones, queued, kSms});
  AttentionProblem pages = causal;
  pages.kv_layout = {KvLayoutKind::kPaged, 1};
  calls.push_back({"attention_sm90_gathered", pages, short_ones, hopper, kSms});
  AttentionSchedule cluster = hopper;
  cluster.block_n = 64;
  cluster.cluster = ClusterShape{2, 1};
  AttentionShape pairs = small_batch({}, {130, 0, 30, 200, 60, 30, 250, 260});
  pairs.q_len = 230;
  calls.push_back({"attention_sm90_cluster", small_problem({1, 1}), pairs, cluster, kSms});
}

/// attention_sm100 in the forms whose synchronisation differs: query tiles, rings, chunks of keys; a tile of values
/// that is cleaned. Sequences of one tile, of as many as a ring has slots, and of several laps.
void add_blackwell(std::vector<AttentionCall>& calls) {
  AttentionSchedule two;
  two.family = Family::kBlackwell;
  two.num_q = 2;
  two.block_n = 64;
  two.kv_ring = KvRing::kShared;
  two.num_kv_stages = 3;
  two.rescale = Rescale::kAlways;
  AttentionShape shape = small_batch({}, {300, 64, 170});
  shape.q_len = 200;
  calls.push_back({"attention_sm100_two_query_tiles", small_problem({1, 1}), shape, two});

  AttentionSchedule pair = two;
  pair.cta_group = 2;
  shape.q_len = 300;
  calls.push_back({"attention_sm100_pair", small_problem({1, 1}), shape, pair});

  AttentionSchedule one = two;
  one.num_q = 1;
  one.kv_ring = KvRing::kSplit;
  one.num_kv_stages = 2;
  one.num_qk_stages = 2;
  shape = small_batch({}, {384, 60, 300});
  shape.q_len = 70;
  calls.push_back({"attention_sm100_one_query_tile", small_problem({1, 1}, 128), shape, one});
}

std::vector<AttentionCall> attention_calls() {
  std::vector<AttentionCall> calls;
  add_portable(calls);
  add_hopper_prefill(calls);
  add_hopper_decode(calls);
  add_hopper_schedulers(calls);
  add_blackwell(calls);
  return calls;
}

/// gemm_sm100 in the forms whose synchronisation differs: a CTA by itself, a pair, CTAs that load for each other, tiles
/// that come by cluster launch control to pairs, scales that are copied to tensor memory or gathered first, slabs that
/// threads add up, and parts of k.
void add_blackwell(std::vector<GemmCall>& calls) {
  GemmSchedule plain;
  plain.family = Family::kBlackwell;
  plain.block_n = 64;
  plain.stages = 3;
  plain.cta_group = 1;
  plain.cluster = ClusterShape{1, 1};
  plain.scheduler = Scheduler::kPersistent;
  GemmProblem problem;
  problem.n = 200;
  problem.k = 328;
  const auto of = [&](DType operands, int n, int k) {
    GemmProblem scaled = problem;
    scaled.n = n;
    scaled.k = k;
    scaled.dtype = {operands, operands, DType::kBf16, DType::kBf16};
    scaled.scales = ScaleKind::kPerBlock;
    return scaled;
  };
  calls.push_back({"gemm_sm100_plain", problem, 200, plain});
  GemmSchedule pair = plain;
  pair.cta_group = 2;
  pair.cluster = ClusterShape{2, 1};
  calls.push_back({"gemm_sm100_pair", problem, 300, pair});
  GemmSchedule cluster = plain;
  cluster.cluster = ClusterShape{2, 2};
  calls.push_back({"gemm_sm100_cluster", problem, 300, cluster, 4});
  GemmSchedule queued = pair;
  queued.scheduler = Scheduler::kQueued;
  queued.clc_depth = 2;
  calls.push_back({"gemm_sm100_queued_pair", problem, 500, queued, 4});
  calls.push_back({"gemm_sm100_block_scaled", of(DType::kMxfp8, 200, 544), 200, plain});
  GemmSchedule narrow = plain;
  narrow.block_n = 32;
  narrow.swap_ab = true;
  calls.push_back({"gemm_sm100_gathered", of(DType::kMxfp4, 200, 1120), 130, narrow});
  GemmSchedule slabs = plain;
  slabs.accumulator_stages = 2;
  calls.push_back({"gemm_sm100_slabs", of(DType::kE4m3, 200, 656), 200, slabs});
  GemmSchedule parts = plain;
  parts.split_k = 2;
  problem.k = 584;  // rings go round within a part
  calls.push_back({"gemm_sm100_parts_of_k", problem, 200, parts});
}

/// gemm_sm90 in the forms whose synchronisation differs: products waited for at once or behind the next, groups of
/// slots, warpgroups that take turns, clusters, parts of k in either way, scales that come with a slot, of rows or of
/// columns. A CTA walks several tiles and its ring goes round within one; the last tiles end inside m, n and k.
std::vector<GemmCall> gemm_calls() {
  GemmSchedule plain;
  plain.family = Family::kHopper;
  plain.block_m = plain.block_n = 64;
  plain.stages = 3;
  plain.math_warpgroups = 1;
  plain.roles = Roles::kCooperative;
  GemmProblem problem;
  problem.n = 136;
  problem.k = 392;
  std::vector<GemmCall> calls;
  calls.push_back({"gemm_sm90_plain", problem, 200, plain});
  GemmSchedule groups = plain;
  groups.k_group = 2;
  groups.stages = 6;
  groups.mma_in_flight = 0;
  calls.push_back({"gemm_sm90_groups", problem, 200, groups});
  GemmSchedule turns = plain;
  turns.roles = Roles::kPingPong;
  turns.math_warpgroups = 2;
  calls.push_back({"gemm_sm90_ping_pong", problem, 300, turns});
  GemmSchedule cluster = plain;
  cluster.cluster = ClusterShape{2, 1};
  calls.push_back({"gemm_sm90_cluster", problem, 300, cluster});
  GemmSchedule parts = plain;
  parts.block_n = 128;
  parts.split_k = 2;
  calls.push_back({"gemm_sm90_parts_of_k", problem, 100, parts});
  GemmSchedule turnstile = plain;
  turnstile.split_k = 2;
  turnstile.split_mode = SplitMode::kTurnstile;
  GemmProblem deep = problem;
  deep.k = 520;  // the ring goes round within a part
  calls.push_back({"gemm_sm90_turnstile", deep, 100, turnstile});
  GemmProblem blocks;
  blocks.n = 256;
  blocks.k = 656;
  blocks.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16, DType::kBf16};
  blocks.scales = ScaleKind::kPerBlock;
  GemmSchedule wide = plain;
  wide.block_n = 128;
  calls.push_back({"gemm_sm90_block_scales", blocks, 200, wide});
  // Scales in the slot are read as products are added.
  GemmSchedule swapped = plain;
  swapped.block_n = 32;
  swapped.swap_ab = true;
  calls.push_back({"gemm_sm90_block_scales_swapped", blocks, 200, swapped});
  add_blackwell(calls);
  return calls;
}

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
    device_case.poison();
    device_case.launch();
    run.output = device_case.download().d;
    if (!device_case.guards_are_intact()) run.failure = "memory beside d was written";
  };
  const bool blackwell = test.schedule.family == Family::kBlackwell;
  return {test.name, launch, blackwell ? Arch::kSm100a : EmulatorBackendOptions{}.arch, test.num_sms};
}

std::vector<EngineCall> engine_calls(const std::string& filter) {
  std::vector<EngineCall> calls;
  const auto add = [&](const auto& tests) {
    for (const auto& test : tests)
      if (test.name.find(filter) != std::string::npos) calls.push_back(engine_call(test));
  };
  add(attention_calls());
  add(gemm_calls());
  return calls;
}

/// All kernels of one call, joined: a subject has one text, so that each kernel gets a subject of its own.
std::vector<Subject> engine_subjects(Compiler& compiler, const EngineCall& test) {
  /// Notes what the engine asks for, with lines.
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
  // NVRTC puts a folder of its own before the names that it was given. Of names that fit, the longest: a kernel's unit
  // may be a line that includes it.
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
  const std::vector<HopperCase> cases = hopper_cases();
  for (const char* name : kHopperCases) {
    if (std::string(name).find(filter) == std::string::npos) continue;
    const auto found = std::find_if(cases.begin(), cases.end(), [&](const auto& test) { return test.name == name; });
    if (found == cases.end()) throw Error(std::string("there is no Hopper case ") + name);
    subjects.push_back(hopper_subject(compiler, *found));
  }
  for (const EngineCall& test : engine_calls(filter))
    for (Subject& subject : engine_subjects(compiler, test)) subjects.push_back(std::move(subject));
  return subjects;
}

}  // namespace kernelwright::test
