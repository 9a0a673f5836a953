// Every kernel that a shipped config needs, and a matrix of combined options, compiled to machine code: right ELF,
// entry in place, no spill, no local memory, no serialised wgmma. Needs NVRTC and no GPU; skipped by name if there is
// no NVRTC.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "contract/attention_sm90.h"
#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/generator/kv_write/plan.h"
#include "kernelwright/generator/moe_combine/plan.h"
#include "kernelwright/generator/quantize/plan.h"
#include "kernelwright/generator/route/plan.h"
#include "kernelwright/generator/row_op/plan.h"
#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/cache/cubin_cache.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/store/kernel_store.h"
#include "kernelwright/verify/parallel.h"
#include "support/command.h"
#include "support/paths.h"
#include "support/ptx_lint.h"
#include "support/run_cache.h"

namespace kernelwright::shipped_kernels_test {
namespace {

/// A kernel to build, and the config that needs it, for messages.
struct Wanted {
  std::string name;
  Spec spec;
};

/// The config's kernels for `arch`: the main one and the one that merges split keys.
void add_kernels(const std::string& name, const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch,
                 std::vector<Wanted>& wanted) {
  const AttentionPlan plan = plan_attention(problem, schedule, arch);
  wanted.push_back({name, plan.main});
  if (plan.combine) wanted.push_back({name + " (combine)", *plan.combine});
}

/// The kernels of a GEMM, one for each range of rows; none if no family computes the GEMM.
void add_kernels(const GemmConfig& config, Arch arch, std::vector<Wanted>& wanted) {
  if (!validate(config, arch).empty()) return;
  for (const GemmVariant& variant : plan_gemm(config.problem, config.schedule, arch).variants)
    wanted.push_back({config.name, variant.spec});
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The compute capability in an ELF header's flags: 90 for sm_90 and sm_90a. Its place moved with ABI version 8.
int elf_sm(const std::vector<std::byte>& cubin) {
  std::uint32_t flags = 0;
  std::memcpy(&flags, cubin.data() + 48, sizeof flags);
  const auto abi = static_cast<int>(cubin[8]);
  return static_cast<int>(abi >= 8 ? flags >> 8 & 0xffff : flags & 0xff);
}

/// What is wrong with the kernel, one line per fault; "" if nothing is.
std::string faults(const SourceUnit& unit, const Binary& binary) {
  std::string found;
  const auto fault = [&](const std::string& text) { found += "\n    " + text; };
  if (binary.cubin.size() < 64 || !text_of(binary.cubin)
                                       .starts_with("\x7f"
                                                    "ELF"))
    return "\n    the cubin is no ELF";
  std::uint16_t machine = 0;
  std::memcpy(&machine, binary.cubin.data() + 18, sizeof machine);
  if (machine != 190) fault(fmt::format("the ELF is for machine {}, not 190, CUDA", machine));
  const int wanted_sm = std::atoi(unit.arch.c_str() + 3);
  if (elf_sm(binary.cubin) != wanted_sm) fault(fmt::format("the ELF is for sm_{}", elf_sm(binary.cubin)));
  if (text_of(binary.cubin).find(".text." + unit.entry) == std::string_view::npos) fault("the cubin lacks the entry");
  if (binary.ptx.find(".entry " + unit.entry) == std::string::npos) fault("the PTX lacks the entry");
  if (binary.ptx.find(".target " + unit.arch) == std::string::npos) fault("the PTX has another target");
  const ResourceUsage& usage = binary.usage;
  if (usage.registers <= 0) fault("ptxas reported no registers");
  if (usage.spill_stores || usage.spill_loads)
    fault(fmt::format("spills {} bytes and loads {} back", usage.spill_stores, usage.spill_loads));
  if (usage.stack) fault(fmt::format("uses {} bytes of stack", usage.stack));
  for (const std::string& warning : binary.warnings) fault("ptxas warns: " + warning);
  for (const std::string& line : test::guarded_reductions(binary.ptx))
    fault("ptxas 12.9 and 13.0 may skip a reduction that a condition guards: PTX " + line);
  return found;
}

class ShippedKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (store.compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }

  /// Compiles each Spec once a test run, on all cores, and reports those that are at fault; of `parts` parts of them,
  /// one. Returns how many Specs there were in all.
  std::size_t expect_sound(const std::vector<Wanted>& wanted, std::size_t part = 0, std::size_t parts = 1) {
    std::map<std::string, std::pair<SourceUnit, std::string>> distinct;  // by entry: what to compile, for which config
    for (const Wanted& one : wanted) {
      SourceUnit unit = specialize(one.spec);
      std::string& names = distinct.try_emplace(unit.entry, unit, "").first->second.second;
      names += (names.empty() ? "" : ", ") + one.name;
    }
    std::vector<const std::pair<SourceUnit, std::string>*> units;
    std::size_t number = 0;
    for (const auto& [entry, unit] : distinct)
      if (number++ % parts == part) units.push_back(&unit);
    std::vector<std::string> wrong(units.size());
    parallel_for(units.size(), [&](std::size_t i) {
      const auto& [unit, names] = *units[i];
      std::string found;
      try {
        found = faults(unit, *store.compile({unit, store.compiler().key(unit)}));
      } catch (const Error& error) {
        found = std::string("\n    ") + error.what();
      }
      if (!found.empty())
        wrong[i] = fmt::format("{} {}, of {}:{}\n{}", unit.arch, unit.kernel, names, found, unit.spec_text);
    });
    for (const std::string& text : wrong)
      if (!text.empty()) ADD_FAILURE() << text;
    return distinct.size();
  }

  KernelStore store{test::cache_of_run()};
};

/// In parts, so that no test takes minutes.
class ShippedKernelsOnArch : public ShippedKernels,
                             public ::testing::WithParamInterface<std::tuple<Arch, std::size_t>> {};
constexpr std::size_t kParts = 3;

TEST_P(ShippedKernelsOnArch, OfEveryConfigCompileWithoutSpills) {
  const auto [arch, part] = GetParam();
  std::vector<Wanted> wanted;
  for (const auto& file : std::filesystem::directory_iterator(test::source_dir() / "configs" / "problems")) {
    const Config config = read_config_file(file.path());
    const auto* attention = std::get_if<AttentionConfig>(&config);
    if (attention && attention->schedule.arch.value_or(arch) == arch)
      add_kernels(attention->name, attention->problem, attention->schedule, arch, wanted);
    if (const auto* gemm = std::get_if<GemmConfig>(&config)) add_kernels(*gemm, arch, wanted);
    if (const auto* write = std::get_if<KvWriteConfig>(&config))
      wanted.push_back({write->name, plan_kv_write(write->problem, write->schedule, arch).spec});
    if (const auto* rows = std::get_if<RowOpConfig>(&config))
      wanted.push_back({rows->name, plan_row_op(rows->problem, rows->schedule, arch).spec});
    if (const auto* sums = std::get_if<MoeCombineConfig>(&config))
      wanted.push_back({sums->name, plan_moe_combine(sums->problem, sums->schedule, arch).spec});
    if (const auto* route = std::get_if<RouteConfig>(&config)) {
      const RoutePlan plan = plan_route(route->problem, route->schedule, arch);
      wanted.push_back({route->name, plan.spec});
      if (plan.sort) wanted.push_back({route->name, *plan.sort});
    }
  }
  const bool has_gemm = std::any_of(wanted.begin(), wanted.end(),
                                    [](const Wanted& kernel) { return std::holds_alternative<GemmSpec>(kernel.spec); });
  EXPECT_TRUE(has_gemm || arch != Arch::kSm90a);
  EXPECT_GE(expect_sound(wanted, part, kParts), 15u) << "configs/problems has shrunk, or was not found";
}

INSTANTIATE_TEST_SUITE_P(, ShippedKernelsOnArch,
                         ::testing::Combine(::testing::Values(Arch::kSm80, Arch::kSm90a, Arch::kSm100a, Arch::kSm120a),
                                            ::testing::Range(std::size_t{0}, kParts)),
                         [](const auto& info) {
                           return fmt::format("{}_part_{}", to_string(std::get<0>(info.param)),
                                              std::get<1>(info.param) + 1);
                         });

/// The gemm_portable kernel with the most registers: the shipped configs do not have it on all architectures.
TEST_F(ShippedKernels, LargestPortableGemmsCompileWithoutSpills) {
  GemmProblem halves;
  halves.n = halves.k = 4096;
  halves.layout = OperandLayout::kTn;
  halves.epilogue = "gelu(alpha * acc + bias) + beta * c";
  GemmProblem blocks = halves;
  blocks.layout = OperandLayout::kNt;
  blocks.dtype = {DType::kE4m3, DType::kE5m2, DType::kE4m3, DType::kF32};
  blocks.scales = ScaleKind::kPerBlock;
  GemmSchedule schedule;
  schedule.family = Family::kPortable;
  schedule.block_m = schedule.block_n = 128;
  std::vector<Wanted> wanted;
  for (const ArchInfo& arch : all_archs()) {
    add_kernels({"halves", halves, schedule, {}}, arch.arch, wanted);
    add_kernels({"blocks", blocks, schedule, {}}, arch.arch, wanted);
  }
  EXPECT_EQ(expect_sound(wanted), 12u) << "two of each but sm_80 and sm_86, which have no fp8";
}

TEST_F(ShippedKernels, QuantisersOfEveryArchCompileWithoutSpills) {
  constexpr DType from[] = {DType::kF32, DType::kBf16, DType::kF16},
                  to[] = {DType::kMxfp8, DType::kMxfp4, DType::kNvfp4};
  std::vector<Wanted> wanted;
  for (const ArchInfo& arch : all_archs())
    for (const DType format : to) {
      const QuantizeProblem problem{from[wanted.size() / 3 % std::size(from)], format};
      wanted.push_back({"quantize", plan_quantize(problem, arch.arch).spec});
    }
  EXPECT_EQ(expect_sound(wanted), 21u);
}

// ---- A fault of ptxas that no run on the emulator shows ------------------------------------------------------------

TEST(GuardedReductions, AreFoundBehindPredicatesAndInShortBlocks) {
  using test::guarded_reductions;
  EXPECT_TRUE(guarded_reductions("redux.sync.max.s32 %r1, %r2, 0xffffffff;\n").empty());
  EXPECT_EQ(guarded_reductions("mov.u32 %r1, 0;\n@%p1 redux.sync.max.s32 %r1, %r2, 0xffffffff;\n").size(), 1u);
  const std::string skipped = "@%p1 bra $L1;\n\tld.shared.u32 %r2, [%r3];\n\tredux.sync.max.s32 %r1, %r2, -1;\n$L1:\n";
  ASSERT_EQ(guarded_reductions(skipped + "ret;\n").size(), 1u);
  EXPECT_EQ(guarded_reductions(skipped + "ret;\n")[0], "line 3: redux.sync.max.s32 %r1, %r2, -1;");
  const std::string other =
      "@%p1 bra $L1;\nadd.s32 %r1, %r1, 1;\nbra.uni $L2;\n$L1:\n"
      "redux.sync.max.s32 %r1, %r2, -1;\n$L2:\nret;\n";
  EXPECT_EQ(guarded_reductions(other).size(), 1u) << "the other way of an if with else";
  const std::string loop = "$L1:\nredux.sync.max.s32 %r1, %r2, -1;\n@%p1 bra $L1;\nret;\n";
  EXPECT_TRUE(guarded_reductions(loop).empty()) << "a loop is no predicated block";
}

// ---- What can be combined ----------------------------------------------------------------------------------------

/// One choice of each factor below, by index.
constexpr std::array<int, 9> kLevels = {4, 3, 5, 5, 5, 4, 2, 2, 2};
enum Factor { kMask, kMod, kLayout, kDTypes, kHead, kRows, kSinks, kLse, kStarts };
using Row = std::array<int, kLevels.size()>;

AttentionProblem problem_of(const Row& row) {
  constexpr MaskKind masks[] = {MaskKind::kNone, MaskKind::kCausal, MaskKind::kSlidingWindow, MaskKind::kChunked};
  constexpr DType dtypes[][3] = {{DType::kBf16, DType::kBf16, DType::kBf16},
                                 {DType::kF16, DType::kF16, DType::kF16},
                                 {DType::kBf16, DType::kE4m3, DType::kBf16},
                                 {DType::kF16, DType::kE5m2, DType::kF32},
                                 {DType::kBf16, DType::kBf16, DType::kF32}};
  // 80 and pages of 64 are among the shipped configs; another level here would cost five rows.
  constexpr HeadDim heads[] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
  AttentionProblem problem;
  problem.mask.kind = masks[row[kMask]];
  if (problem.mask.kind == MaskKind::kChunked) problem.mask.chunk = 8192;
  if (row[kMod] == 2) problem.score_mod.kind = ScoreModKind::kAlibi;
  if (row[kMod] == 1) problem.score_mod = {ScoreModKind::kSoftcap, 30.0};
  if (row[kLayout] == 1) {
    problem.q_layout = QLayout::kRagged;
    problem.kv_layout.kind = KvLayoutKind::kRagged;
  } else if (row[kLayout] >= 2) {
    problem.q_layout = row[kLayout] % 2 ? QLayout::kRagged : QLayout::kPadded;
    problem.kv_layout = {KvLayoutKind::kPaged, std::array{1, 16, 256}[row[kLayout] - 2]};
  }
  const auto& dtype = dtypes[row[kDTypes]];
  problem.dtype = {dtype[0], dtype[1], dtype[2]};
  if (dtype[1] == DType::kE4m3) problem.scales = ScaleKind::kPerHead;
  if (dtype[1] == DType::kE5m2) problem.scales = ScaleKind::kPerTensor;
  problem.head_dim = heads[row[kHead]];
  // Rows of a KV head: any number; one; a group of 4; 4 queries of a group of 8.
  problem.heads = {std::array{8, 2, 8, 16}[row[kRows]], 2};
  problem.max_q_len = std::array{0, 1, 1, 4}[row[kRows]];
  problem.sinks = row[kSinks];
  problem.lse = row[kLse];
  problem.kv_starts = row[kStarts] && problem.kv_layout.kind != KvLayoutKind::kRagged;
  return problem;
}

using Pair = std::array<int, 4>;  // factor, level, factor, level

std::set<Pair> pairs_of(const Row& row) {
  std::set<Pair> pairs;
  for (int a = 0; a < static_cast<int>(row.size()); ++a)
    for (int b = a + 1; b < static_cast<int>(row.size()); ++b) pairs.insert({a, row[a], b, row[b]});
  return pairs;
}

/// Rows in which each pair of levels of any two factors occurs: greedily, the best of some seeded random rows that
/// begin with a pair that is still missing.
std::vector<Row> covering_rows() {
  std::set<Pair> missing;
  for (int a = 0; a < static_cast<int>(kLevels.size()); ++a)
    for (int b = a + 1; b < static_cast<int>(kLevels.size()); ++b)
      for (int i = 0; i < kLevels[a]; ++i)
        for (int j = 0; j < kLevels[b]; ++j) missing.insert({a, i, b, j});
  std::uint64_t state = 7;
  const auto random = [&](int below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int>((state >> 33) % static_cast<std::uint64_t>(below));
  };
  std::vector<Row> rows;
  while (!missing.empty()) {
    Row best{};
    int best_new = -1;
    for (int attempt = 0; attempt < 1000; ++attempt) {
      auto first = missing.begin();
      std::advance(first, random(static_cast<int>(missing.size())));
      Row row;
      for (std::size_t f = 0; f < row.size(); ++f) row[f] = random(kLevels[f]);
      row[(*first)[0]] = (*first)[1];
      row[(*first)[2]] = (*first)[3];
      int fresh = 0;
      for (const Pair& pair : pairs_of(row)) fresh += missing.contains(pair);
      if (fresh > best_new) best = row, best_new = fresh;
    }
    for (const Pair& pair : pairs_of(best)) missing.erase(pair);
    rows.push_back(best);
  }
  return rows;
}

std::string name_of(const AttentionProblem& problem) {
  return fmt::format("{}+{} q {} kv {} {} {}/{}/{} d{}x{} max_q_len {} group {} sinks {} lse {} starts {}",
                     to_string(problem.mask.kind), to_string(problem.score_mod.kind), to_string(problem.q_layout),
                     to_string(problem.kv_layout.kind), problem.kv_layout.page_size, to_string(problem.dtype.q),
                     to_string(problem.dtype.kv), to_string(problem.dtype.out), problem.head_dim.qk, problem.head_dim.v,
                     problem.max_q_len, problem.group(), problem.sinks, problem.lse, problem.kv_starts);
}

TEST_F(ShippedKernels, OfEveryPairOfFeaturesCompileWithoutSpills) {
  const std::vector<Row> rows = covering_rows();
  EXPECT_LE(rows.size(), 32u) << "the matrix has grown: it costs a second a row";
  std::vector<Wanted> wanted;
  for (const Row& row : rows) {
    const AttentionProblem problem = problem_of(row);
    wanted.push_back({name_of(problem), plan_attention(problem, {}, Arch::kSm90a).main});
    if (std::get<AttentionSpec>(wanted.back().spec).family == Family::kPortable) {
      // Pages whose rows hopper gathers when it is asked to.
      AttentionSchedule hopper;
      hopper.family = Family::kHopper;
      if (contract::hopper_gathers_kv(problem.kv_layout.page_size) && is_taken({"", problem, {}, hopper}, Arch::kSm90a))
        wanted.push_back({name_of(problem), plan_attention(problem, hopper, Arch::kSm90a).main});
      continue;
    }
    AttentionSchedule portable;
    portable.family = Family::kPortable;
    wanted.push_back({name_of(problem), plan_attention(problem, portable, Arch::kSm90a).main});
  }
  expect_sound(wanted);
}

// ---- Every tile of attention_sm90 -----------------------------------------------------------------------------------

// Head sizes of each tile, and those that the matrix above lacks; each once, under one mask and one bound on the
// queries, which choose tiles too. faults() counts ptxas' remarks: a wgmma that it serialises (C7510 to C7519) costs
// half the speed and no result.
TEST_F(ShippedKernels, OfEveryHopperTileCompileWithoutSpillsAndWithoutSerialisedProducts) {
  constexpr HeadDim heads[] = {{64, 64}, {72, 72}, {112, 112}, {128, 128}, {160, 160}, {192, 192}, {256, 256}};
  constexpr MaskKind masks[] = {MaskKind::kCausal, MaskKind::kNone, MaskKind::kSlidingWindow};
  std::vector<Wanted> wanted;
  for (std::size_t i = 0; i < std::size(heads); ++i) {
    AttentionProblem problem;
    problem.head_dim = heads[i];
    problem.heads = {8, 2};
    problem.mask.kind = masks[i % std::size(masks)];
    problem.max_q_len = i % 2 ? 0 : 512;
    problem.lse = i % 2;
    AttentionSchedule schedule;
    schedule.family = Family::kHopper;
    wanted.push_back({name_of(problem), plan_by_model(problem, schedule, Arch::kSm90a).main});
    // Also the form that gathers keys, whose warps have equally few registers.
    problem.q_layout = i % 2 ? QLayout::kPadded : QLayout::kRagged;
    problem.kv_layout = {KvLayoutKind::kPaged, i % 3 ? 4 : 1};
    wanted.push_back({name_of(problem) + " gathered", plan_by_model(problem, schedule, Arch::kSm90a).main});
    if (i % 3 != 0) continue;
    problem.kv_layout = {};
    schedule.cluster = ClusterShape{2, 1};
    wanted.push_back({name_of(problem) + " in clusters", plan_by_model(problem, schedule, Arch::kSm90a).main});
  }
  // fp8 products that stay in the tensor cores: the output is a product's accumulator, and takes part in every wait.
  for (const HeadDim head_dim : {HeadDim{64, 64}, HeadDim{96, 96}, HeadDim{128, 128}, HeadDim{256, 256}})
    for (const Overlap overlap : {Overlap::kNone, Overlap::kBoth}) {
      AttentionProblem problem;
      problem.head_dim = head_dim;
      problem.heads = {8, 2};
      problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
      problem.mask.kind = MaskKind::kCausal;
      AttentionSchedule schedule;
      schedule.family = Family::kHopper;
      schedule.pv_promote = 0;
      schedule.overlap = overlap;
      wanted.push_back({name_of(problem) + " unpromoted", plan_by_model(problem, schedule, Arch::kSm90a).main});
    }
  // Parts of fp8 products that take turns: two of them are beside the output and its probabilities.
  AttentionProblem wide;
  wide.head_dim = {256, 256};
  wide.heads = {8, 2};
  wide.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
  wide.scales = ScaleKind::kPerHead;
  wide.mask.kind = MaskKind::kCausal;
  wide.sinks = wide.lse = true;
  wide.kv_layout = {KvLayoutKind::kPaged, 64};
  AttentionSchedule in_turn;
  in_turn.pv_buffers = 2;
  wanted.push_back({name_of(wide) + " in turn", plan_by_model(wide, in_turn, Arch::kSm90a).main});
  wide.sinks = wide.lse = false;
  wanted.push_back({name_of(wide) + " in turn within scores", plan_by_model(wide, in_turn, Arch::kSm90a).main});
  // A queue's loading thread has more to remember.
  for (const QLayout layout : {QLayout::kPadded, QLayout::kRagged}) {
    AttentionProblem problem;
    problem.head_dim = {128, 128};
    problem.heads = {8, 2};
    problem.mask.kind = MaskKind::kCausal;
    problem.q_layout = layout;
    problem.kv_layout = {KvLayoutKind::kPaged, 64};
    AttentionSchedule schedule;
    schedule.family = Family::kHopper;
    schedule.scheduler = Scheduler::kQueued;
    wanted.push_back({name_of(problem) + " queued", plan_by_model(problem, schedule, Arch::kSm90a).main});
  }
  expect_sound(wanted);
}

// ---- The same bytes everywhere -----------------------------------------------------------------------------------

TEST_F(ShippedKernels, AreTheSameBytesFromAnotherThreadAndFromAnotherProcess) {
  const std::string path = test::source_dir() / "configs" / "problems" / "causal-d64.json";
  const Config config = read_config_file(path);
  const auto& attention = std::get<AttentionConfig>(config);
  const SourceUnit unit = specialize(plan_attention(attention.problem, attention.schedule, Arch::kSm90a).main);
  Compiler compiler;
  std::array<Binary, 2> here;
  parallel_for(
      2, [&](std::size_t i) { here[i] = compiler.compile(unit); }, 2);
  EXPECT_TRUE(here[0].cubin == here[1].cubin) << "two builds in one process differ";
  EXPECT_EQ(here[0].ptx, here[1].ptx);

  std::string folder = (std::filesystem::temp_directory_path() / "kernelwright-same-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  for (const char* name : {"first", "second"}) {
    const std::string cache_dir = folder + "/" + name;
    const CommandResult made =
        run_command({"compile", path, "--arch", "sm_90a"}, {"KERNELWRIGHT_CACHE_DIR=" + cache_dir});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    CacheOptions options;
    options.directory = cache_dir;
    const auto found = CubinCache(options).find(compiler.key(unit));
    ASSERT_NE(found, nullptr) << "another process has another key";
    EXPECT_TRUE(found->cubin == here[0].cubin) << "another process builds other bytes";
    EXPECT_EQ(found->ptx, here[0].ptx);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kernelwright::shipped_kernels_test
