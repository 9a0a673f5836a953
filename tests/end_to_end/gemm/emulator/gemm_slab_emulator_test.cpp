// Slots of every depth and swizzle of the three GEMM families on the emulator, with every check on. They must be right
// to the bit on exact data and cause no report. By default a few of each run, which cover every depth, swizzle, layout
// and width of elements; KERNELWRIGHT_EVERY_SLAB=1 runs all combinations. Needs NVRTC and no GPU.
#include <gtest/gtest.h>

#include <cstdlib>

#include "fmt/format.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/problem/enums.h"
#include "support/emulated_gemm.h"

namespace kernelwright::gemm_slab_emulator_test {
namespace {

struct Case {
  std::string name;
  Arch arch;
  GemmProblem problem;
  GemmSchedule schedule;
};
void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

constexpr Family kFamilies[] = {Family::kPortable, Family::kHopper, Family::kBlackwell};
constexpr Arch kArchs[] = {Arch::kSm89, Arch::kSm90a, Arch::kSm100a};
constexpr Swizzle kSwizzles[] = {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B};
constexpr int kWidths[] = {16, 32, 64, 128};
constexpr OperandLayout kLayouts[] = {OperandLayout::kNt, OperandLayout::kNn, OperandLayout::kTn, OperandLayout::kTt};

/// Case `number` of its family; the number also selects the kernel's other options.
Case case_of(Family family, DType dtype, OperandLayout layout, int bytes, int swizzle, int number) {
  const int at = static_cast<int>(family);
  Case test;
  test.arch = kArchs[at];
  // Edges in every extent; k is several laps of the ring, and ends amid a slab.
  test.problem = test::gemm_problem(dtype, DType::kF32, 136, 208);
  test.problem.layout = layout;
  test.problem.fast_accumulation = bits_of(dtype) == 8;
  if (dtype == DType::kE4m3) test.problem.scales = ScaleKind::kPerTensor;
  GemmSchedule& schedule = test.schedule;
  schedule.family = family;
  schedule.block_n = 64;
  schedule.block_k = bytes * 8 / bits_of(dtype);
  schedule.swizzle = kSwizzles[swizzle];
  schedule.stages = 4;
  if (family == Family::kPortable) {
    schedule.block_m = number % 2 == 0 ? 16 : 64;  // of the smaller one few threads load
    schedule.stages = 3;
  } else if (family == Family::kHopper) {
    schedule.block_m = 128;  // two products of 64 rows
    schedule.math_warpgroups = 1;
    schedule.k_group = 1 + number % 2;
    schedule.swap_ab = number % 3 == 0;
    if (number % 4 == 1) schedule.cluster = ClusterShape{2, 1};
  } else {
    schedule.k_group = 1 + number % 2;
    schedule.scheduler = Scheduler::kPersistent;
    schedule.cta_group = 1 + number % 3 % 2;
    schedule.cluster = ClusterShape{schedule.cta_group.value(), 1};
    if (schedule.cta_group.value() == 2) schedule.block_n = 128;
  }
  test.name = fmt::format("{}_{}_{}_{}_bytes_swizzle_{}", to_string(family), to_string(dtype), to_string(layout), bytes,
                          to_string(kSwizzles[swizzle]));
  return test;
}

std::vector<Case> cases() {
  const bool every = std::getenv("KERNELWRIGHT_EVERY_SLAB") != nullptr;
  std::vector<Case> cases;
  for (const Family family : kFamilies) {
    int number = 0;
    for (const int bytes : {32, 64, 128})
      for (int swizzle = 0; swizzle < 4; ++swizzle)
        for (int layout = 0; layout < 4; ++layout) {
          // With k innermost, the swizzle divides the slab. All other tests have whole slabs of 128 bytes.
          const bool divides = kWidths[swizzle] <= bytes, along_m_and_n = kLayouts[layout] == OperandLayout::kTn;
          if ((!divides && !along_m_and_n) || (bytes == 128 && kSwizzles[swizzle] == Swizzle::k128B)) continue;
          ++number;
          const bool drawn = divides ? layout == (swizzle + bytes / 32) % 4 : bytes == 32;
          if (every || drawn) cases.push_back(case_of(family, DType::kBf16, kLayouts[layout], bytes, swizzle, number));
          if (layout != 0) continue;
          const bool in_eights = every || (bytes == 64 && kSwizzles[swizzle] == Swizzle::k32B) ||
                                 (bytes == 32 && kSwizzles[swizzle] == Swizzle::kNone);
          if (in_eights) cases.push_back(case_of(family, DType::kE4m3, OperandLayout::kNt, bytes, swizzle, number));
          if (family == Family::kBlackwell && bytes > 32 && (every || (bytes == 64 && swizzle == 2)))
            cases.push_back(case_of(family, DType::kTf32, OperandLayout::kNt, bytes, swizzle, number));
        }
  }
  return cases;
}

class GemmSlabs : public test::OnTheEmulator<Case> {};

TEST_P(GemmSlabs, AreRightToTheBit) {
  const Case& test = GetParam();
  Engine engine = test::make_checking_engine(3, emulator::Completion::kRandom, 1, test.arch);
  const GemmCase call = make_gemm_inputs(test.problem, {"exact", 83, true}, {.seed = 4, .exact = true});
  const GemmSpec& spec = plan_gemm(test.problem, test.schedule, test.arch).variants.front().spec;
  EXPECT_EQ(spec.swizzle, test.schedule.swizzle.value());
  EXPECT_EQ(spec.slab_bytes * 8, test.schedule.block_k.value() * bits_of(test.problem.dtype.a));
  test::expect_right(call, test::run_checked(engine, call, test.schedule));
}

INSTANTIATE_TEST_SUITE_P(Cases, GemmSlabs, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kernelwright::gemm_slab_emulator_test
