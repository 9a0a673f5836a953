// The contents of every shipped attention_sm100 kernel, counted in its PTX and derived from its Spec: products,
// commits, copies, the life of tensor memory, and no instruction of older tensor cores. For sm_100a and sm_103a. This
// test makes the machine code of sm_103a and checks it for spills; shipped_kernels_test.cpp makes that of sm_100a.
// Needs NVRTC.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "contract/attention_sm100.h"
#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/verify/parallel.h"
#include "support/paths.h"

namespace kernelwright {
namespace {

/// Instructions of a PTX text, by how they begin.
int count(const std::string& ptx, const std::string& opcode) {
  int found = 0;
  for (std::size_t at = ptx.find(opcode); at != ptx.npos; at = ptx.find(opcode, at + 1)) ++found;
  return found;
}

using Census = std::map<std::string, int>;

/// Counts places in the text, not executions: code that runs once per key tile is in a loop of one pass.
Census census_of(const std::string& ptx) {
  Census census;
  for (const char* opcode :
       {"tcgen05.mma", "tcgen05.mma.cta_group::1.kind::f16", "tcgen05.mma.cta_group::1.kind::f8f6f4",
        "tcgen05.mma.cta_group::2.kind::f16", "tcgen05.mma.cta_group::2.kind::f8f6f4", "tcgen05.commit",
        "tcgen05.alloc", "tcgen05.relinquish_alloc_permit", "tcgen05.dealloc", "cp.async.bulk.tensor", "wgmma.",
        "mma.sync", "ldmatrix", "cp.async.ca", "cp.async.cg", "setmaxnreg", "ld.local", "st.local"})
    census[opcode] = count(ptx, opcode);
  return census;
}

/// What a kernel of this Spec must contain. A step of a product takes 32 bytes of k.
Census expected_of(const AttentionSpec& spec) {
  const auto steps = [](int elements, DType type) { return (elements * bits_of(type) / 8 + 31) / 32; };
  const contract::BlackwellShape shape = detail::blackwell_shape_of(spec);
  const int scores = steps(spec.plain_depth(), spec.q), outputs = steps(spec.block_n, spec.q);
  const int rope = steps(spec.rope_width, spec.rope);
  // With two query tiles the first and the last products of an item are outside of the loop over key tiles; one
  // query tile has one place for each product.
  const int places = spec.num_q == 2 ? 4 : 1;
  const int k_places = spec.num_q == 2 ? 2 : 1, v_places = spec.num_q == 2 ? 2 : 1;  // places that release slots
  const int products = places * (scores + rope + outputs);
  Census census;
  census["tcgen05.mma"] = products;
  const bool narrow = bits_of(spec.q) == 8;
  for (const int ctas : {1, 2}) {
    const std::string opcode = fmt::format("tcgen05.mma.cta_group::{}.kind::", ctas);
    census[opcode + "f16"] = ctas != spec.cta_group ? 0 : narrow ? places * rope : products;
    census[opcode + "f8f6f4"] = ctas == spec.cta_group && narrow ? places * (scores + outputs) : 0;
  }
  census["tcgen05.commit"] = 2 * places + k_places * spec.num_qk_stages + v_places;
  census["tcgen05.alloc"] = census["tcgen05.relinquish_alloc_permit"] = census["tcgen05.dealloc"] = 1;
  const bool gathers = contract::hopper_gathers_kv(spec.page_size);
  const int of_queries = spec.num_q * contract::qk_slabs(shape),
            of_keys = contract::qk_slabs(shape) + contract::v_slabs(shape);
  census["cp.async.bulk.tensor"] = of_queries + (gathers ? 0 : of_keys);
  census["setmaxnreg"] = 3;
  for (const char* none : {"wgmma.", "mma.sync", "ldmatrix", "cp.async.ca", "ld.local", "st.local"}) census[none] = 0;
  census["cp.async.cg"] = gathers ? 4 * of_keys : 0;  // of four groups of rows in a pass
  return census;
}

struct Shipped {
  std::string name;
  AttentionSpec spec;
};

/// The kernels of attention_sm100 that configs/problems asks for, each once.
std::vector<Shipped> shipped_kernels(Arch arch) {
  std::map<std::string, Shipped> kernels;  // by entry
  for (const auto& file : std::filesystem::directory_iterator(test::source_dir() / "configs" / "problems")) {
    const Config config = read_config_file(file.path());
    const auto* attention = std::get_if<AttentionConfig>(&config);
    if (!attention || attention->schedule.family.value_or(Family::kPortable) != Family::kBlackwell) continue;
    AttentionSchedule schedule = attention->schedule;
    schedule.arch = arch;
    const Spec main = plan_attention(attention->problem, schedule, arch).main;
    kernels[specialize(main).entry] = {attention->name, std::get<AttentionSpec>(main)};
  }
  std::vector<Shipped> list;
  for (auto& [entry, kernel] : kernels) list.push_back(std::move(kernel));
  return list;
}

class BlackwellCensus : public testing::TestWithParam<Arch> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

TEST_P(BlackwellCensus, OfEveryShippedKernelIsWhatItsSpecSays) {
  const bool with_machine_code = GetParam() == Arch::kSm103a;
  const std::vector<Shipped> kernels = shipped_kernels(GetParam());
  EXPECT_GE(kernels.size(), 12u) << "configs/problems has shrunk, or was not found";
  Compiler compiler;
  std::vector<std::string> ptx(kernels.size());
  std::vector<ResourceUsage> usage(kernels.size());
  parallel_for(kernels.size(), [&](std::size_t i) {
    const SourceUnit unit = specialize(kernels[i].spec);
    if (with_machine_code) {
      const Binary binary = compiler.compile(unit);
      ptx[i] = binary.ptx, usage[i] = binary.usage;
    } else {
      ptx[i] = compiler.compile_with_lines(unit);
    }
  });
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    SCOPED_TRACE(kernels[i].name);
    EXPECT_EQ(census_of(ptx[i]), expected_of(kernels[i].spec));
    EXPECT_NE(ptx[i].find(fmt::format(".target {}", to_string(GetParam()))), std::string::npos);
    if (!with_machine_code) continue;
    EXPECT_GT(usage[i].registers, 0);
    EXPECT_EQ(usage[i].spill_stores + usage[i].spill_loads, 0);
    EXPECT_EQ(usage[i].stack, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(, BlackwellCensus, testing::Values(Arch::kSm100a, Arch::kSm103a),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace kernelwright
