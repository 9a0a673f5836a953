/// The instructions of every shipped kernel of the Blackwell family, counted in its PTX. A test says for its kind which
/// kernels are shipped and what each must contain. This header compiles them, counts, and looks for spills.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/store/kernel_store.h"
#include "kernelwright/verify/parallel.h"
#include "support/paths.h"
#include "support/run_cache.h"

namespace kernelwright::test {

/// Instructions by how they begin, and how often each must stand in a PTX text.
using Census = std::map<std::string, int>;

/// Counts the instructions of `expected` in `ptx`: places in the text, not executions.
inline Census census_of(const std::string& ptx, const Census& expected) {
  Census census;
  for (const auto& [opcode, unused] : expected) {
    int& found = census[opcode];
    for (std::size_t at = ptx.find(opcode); at != ptx.npos; at = ptx.find(opcode, at + 1)) ++found;
  }
  return census;
}

template <class SpecOfKind>
struct ShippedKernel {
  std::string config;  // one that asks for it
  SpecOfKind spec;
};

/// The Blackwell kernels that configs/problems asks for on `arch`, each once. `specs_of(problem, schedule, arch)` gives
/// the Specs of one config.
template <class ConfigOfKind, class SpecsOf>
auto shipped_blackwell_kernels(Arch arch, SpecsOf&& specs_of) {
  using Specs = decltype(specs_of(ConfigOfKind().problem, ConfigOfKind().schedule, arch));
  using Kernel = ShippedKernel<typename Specs::value_type>;
  std::map<std::string, Kernel> kernels;  // by entry
  for (const auto& file : std::filesystem::directory_iterator(source_dir() / "configs" / "problems")) {
    const Config config = read_config_file(file.path());
    const auto* of_kind = std::get_if<ConfigOfKind>(&config);
    if (!of_kind || of_kind->schedule.family.value_or(Family::kPortable) != Family::kBlackwell) continue;
    auto schedule = of_kind->schedule;
    schedule.arch = arch;
    for (const auto& spec : specs_of(of_kind->problem, schedule, arch))
      kernels[specialize(spec).entry] = {of_kind->name, spec};
  }
  std::vector<Kernel> list;
  for (auto& [entry, kernel] : kernels) list.push_back(std::move(kernel));
  return list;
}

/// The test's parameter is sm_100a or sm_103a. shipped_kernels_test.cpp makes the kernels of sm_100a too, and the two
/// share the cache of a test run. Needs NVRTC.
class BlackwellCensusTest : public testing::TestWithParam<Arch> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }

  /// Expects of each kernel what `expected_of(spec)` says.
  template <class SpecOfKind, class ExpectedOf>
  void expect_census(const std::vector<ShippedKernel<SpecOfKind>>& kernels, ExpectedOf&& expected_of) {
    EXPECT_GE(kernels.size(), 12u) << "configs/problems has shrunk, or was not found";
    KernelStore store(cache_of_run());
    std::vector<std::shared_ptr<const Binary>> binaries(kernels.size());
    parallel_for(kernels.size(), [&](std::size_t i) { binaries[i] = store.compile(kernels[i].spec); });
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      SCOPED_TRACE(kernels[i].config);
      const Census expected = expected_of(kernels[i].spec);
      const Binary& binary = *binaries[i];
      EXPECT_EQ(census_of(binary.ptx, expected), expected);
      EXPECT_NE(binary.ptx.find(fmt::format(".target {}", to_string(GetParam()))), std::string::npos);
      EXPECT_GT(binary.usage.registers, 0);
      EXPECT_EQ(binary.usage.spill_stores + binary.usage.spill_loads, 0);
      EXPECT_EQ(binary.usage.stack, 0);
    }
  }
};

}  // namespace kernelwright::test
