// GEMMs with random problem, schedule and rows, on the emulator with every check on. Each is either refused with
// reasons, or right, and on exact data right to the bit. KERNELWRIGHT_RANDOM_GEMMS sets the number of draws,
// KERNELWRIGHT_RANDOM_SEED the first seed. A failure prints the config, which `kernelwright run` accepts. Needs NVRTC
// and no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/generator/problem/epilogue.h"
#include "kernelwright/verify/random.h"
#include "support/emulated_gemm.h"

namespace kernelwright {
namespace {

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

class Draw {
 public:
  Draw(std::uint64_t seed, Arch arch) : random_(seed, 77), arch_(arch) {}

  GemmConfig config() {
    GemmConfig config;
    config.name = "drawn";
    config.problem = problem();
    config.schedule = schedule(config.problem);
    GemmGroups& groups = config.problem.groups;
    if (arch_ == Arch::kSm90a && chance(25)) groups = {.kind = GroupKind::kBatch, .count = one_of({1, 2, 3, 5})};
    config.shapes = {{"drawn", (rows() + groups.count - 1) / groups.count * groups.count, true}};
    return config;
  }
  bool chance(int percent) { return static_cast<int>(random_.below(100)) < percent; }

 private:
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[random_.below(list.size())];
  }
  /// A multiple of `step` up to about `most`.
  int multiple(int step, int most) {
    return step * (1 + static_cast<int>(random_.below(static_cast<std::uint64_t>(most / step))));
  }
  int rows() { return chance(30) ? 1 + static_cast<int>(random_.below(8)) : 1 + static_cast<int>(random_.below(280)); }

  GemmProblem problem() {
    GemmProblem problem;
    DType a = one_of({DType::kBf16, DType::kF16, DType::kE4m3, DType::kE5m2});
    if (arch_ != Arch::kSm90a && chance(50)) a = one_of({DType::kTf32, DType::kMxfp8, DType::kMxfp4, DType::kNvfp4});
    const bool scaled = is_block_scaled(a), fp8 = bits_of(a) == 8 && !scaled;
    problem.dtype.a = a;
    problem.dtype.b = fp8 ? one_of({DType::kE4m3, DType::kE5m2}) : a;
    problem.dtype.d = one_of({DType::kBf16, DType::kF16, DType::kF32, DType::kE4m3, DType::kE5m2});
    problem.dtype.c = one_of({DType::kBf16, DType::kF16, DType::kF32});
    problem.n = multiple(128 / bits_of(problem.dtype.d), 300);
    problem.k = chance(3) ? 0 : multiple(scaled ? 32 : 128 / bits_of(a), chance(20) ? 1500 : 400);
    if (scaled) problem.scales = ScaleKind::kPerBlock;
    if (bits_of(a) == 16 && chance(40))
      problem.layout = one_of({OperandLayout::kNn, OperandLayout::kTn, OperandLayout::kTt});
    if (problem.layout == OperandLayout::kNn || problem.layout == OperandLayout::kTn) problem.n = multiple(16, 300);
    if (fp8) {
      problem.scales = one_of({ScaleKind::kNone, ScaleKind::kPerTensor, ScaleKind::kPerToken, ScaleKind::kPerBlock});
      problem.fast_accumulation = chance(30);
    }
    problem.batch_invariant = chance(20);
    const bool hopper = arch_ == Arch::kSm90a, gated = hopper && chance(20);
    problem.epilogue = gated ? gates(problem) : epilogue();
    if (hopper && bits_of(problem.dtype.d) == 8 && chance(50)) quantize(problem, gated);
    return problem;
  }

  /// Quantises the result. Makes the columns fit that.
  void quantize(GemmProblem& problem, bool gated) {
    problem.n = multiple(gated ? 256 : 128, 600);
    problem.epilogue = fmt::format("d = quantize({}, {}, per=token_group(128), scale=s{})", problem.epilogue,
                                   to_string(problem.dtype.d), chance(50) ? ", round=power_of_two" : "");
  }

  /// A product of gates and ups. Makes the columns fit it.
  std::string gates(GemmProblem& problem) {
    const int step = bits_of(problem.dtype.d) == 8 ? 32 : 16;
    problem.n = (problem.n + step - 1) / step * step;
    const std::string line = chance(50) ? " + bias" : "", gate = "gate" + line, up = "up" + line;
    if (chance(30))
      return fmt::format("(clamp({}, -5, 5) + 1) * min({}, 5) * sigmoid(1.5 * min({}, 5))", up, gate, gate);
    return fmt::format("{}({}) * ({})", one_of({"relu", "silu", "gelu", "gelu_tanh"}), gate, up);
  }

  std::string epilogue() {
    std::string text = chance(30) ? "alpha * acc" : "acc";
    if (chance(40)) text += " + bias";
    if (chance(40)) text = fmt::format("{}({})", one_of({"relu", "silu", "gelu", "gelu_tanh"}), text);
    if (chance(40)) text += chance(50) ? " + beta * c" : " + c";
    return text;
  }

  GemmSchedule schedule(const GemmProblem& problem) {
    GemmSchedule schedule;
    schedule.arch = arch_;
    if (chance(15)) return schedule;
    if (arch_ != Arch::kSm90a) return blackwell(schedule, problem);
    schedule.roles = one_of({Roles::kCooperative, Roles::kPingPong});
    schedule.math_warpgroups = schedule.roles.value() == Roles::kPingPong ? 2 : one_of({1, 2});
    schedule.block_m = one_of({64, 128});
    schedule.block_n = multiple(8, chance(80) ? 128 : 256);
    if (chance(30)) schedule.k_group = one_of({1, 2});
    if (chance(50)) schedule.stages = schedule.k_group.value_or(1) * one_of({2, 3, 4});
    if (chance(20)) schedule.store_stages = one_of({1, 2, 3});
    if (chance(30)) schedule.mma_in_flight = one_of({0, 1});
    if (chance(30)) schedule.swap_ab = true;
    if (chance(15)) schedule.cluster = ClusterShape{one_of({2, 4}), 1};
    if (quantizes(problem)) {
      const int whole = result_columns(problem) < problem.n ? 256 : 128;
      if (schedule.swap_ab.value_or(false))
        schedule.block_m = whole, schedule.block_n = multiple(8, 100);
      else
        schedule.block_n = whole * (chance(70) ? 1 : 2);
    }
    if (!problem.batch_invariant && chance(15)) {
      schedule.split_k = one_of({2, 4});
      schedule.block_n = 64 * schedule.split_k.value();
    } else if (!problem.batch_invariant && chance(15)) {
      schedule.split_k = one_of({2, 3, 7, 16});
      schedule.split_mode = SplitMode::kTurnstile;
    }
    return schedule;
  }

  GemmSchedule blackwell(GemmSchedule schedule, const GemmProblem& problem) {
    schedule.family = Family::kBlackwell;
    const int ctas = one_of({1, 2});
    schedule.cta_group = ctas;
    schedule.block_n = one_of({16, 32, 64, chance(50) ? 128 : multiple(16, 256)});
    if (chance(50)) schedule.cluster = ClusterShape{ctas * one_of({1, 2}), one_of({1, 2})};
    if (chance(15)) schedule.cluster = one_of({ClusterShape{4, 2}, ClusterShape{2, 4}, ClusterShape{4, 1}});
    if (chance(60)) schedule.k_group = one_of({1, 2, 4});
    if (chance(60)) schedule.stages = schedule.k_group.value_or(1) * one_of({2, 3});
    if (chance(30)) schedule.store_stages = one_of({1, 2});
    if (chance(30)) schedule.accumulator_stages = one_of({1, 2, 3});
    if (chance(40)) schedule.swap_ab = true;
    if (chance(20)) schedule.raster = Raster::kAlongN;
    if (!problem.batch_invariant && chance(25))
      schedule.split_k = one_of({2, 4, 8});
    else if (chance(50))
      schedule.clc_depth = one_of({1, 2, 3});
    return schedule;
  }

  Random random_;
  Arch arch_;
};

/// Runs one draw. False if no kernel fits it.
bool run_one(std::uint64_t seed, Arch arch) {
  Draw draw(seed, arch);
  const GemmConfig config = draw.config();
  try {
    plan_gemm(config.problem, config.schedule, arch);
  } catch (const ConfigError& error) {
    EXPECT_FALSE(error.violations().empty());
    return false;
  }
  SCOPED_TRACE(fmt::format("seed {}:\n{}", seed, write_config(config)));
  const auto completion = seed % 3 == 0   ? emulator::Completion::kEager
                          : seed % 3 == 1 ? emulator::Completion::kLazy
                                          : emulator::Completion::kRandom;
  const int least_sms = arch == Arch::kSm90a ? 1 : 8;  // a cluster's
  Engine engine = test::make_checking_engine(least_sms + static_cast<int>(seed % 5), completion, seed, arch);
  for (const bool exact : {true, false}) {
    const GemmCase call = make_gemm_inputs(
        config.problem, config.shapes[0],
        {.seed = seed, .exact = exact, .padding = draw.chance(50) ? 9 : 0, .side_by_side = draw.chance(50)});
    try {
      test::expect_right(call, test::run_checked(engine, call, config.schedule));
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
      return true;
    }
  }
  return true;
}

void run_many(Arch arch) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  const std::uint64_t wanted = number_from_environment("KERNELWRIGHT_RANDOM_GEMMS", 12);
  const std::uint64_t first = number_from_environment("KERNELWRIGHT_RANDOM_SEED", 1);
  std::uint64_t run = 0, seed = first;
  for (; run < wanted && seed < first + 20 * wanted && !testing::Test::HasFailure(); ++seed) run += run_one(seed, arch);
  EXPECT_TRUE(run == wanted || testing::Test::HasFailure()) << run << " of " << wanted << ": most draws are refused";
  testing::Test::RecordProperty("refused", static_cast<int>(seed - first - run));
}

TEST(RandomGemms, AreRefusedOrRight) { run_many(Arch::kSm90a); }
TEST(RandomGemms, AreRefusedOrRightOnBlackwell) { run_many(Arch::kSm100a); }

}  // namespace
}  // namespace kernelwright
