// The contents of every shipped attention_sm100 kernel, counted in its PTX and derived from its Spec: products,
// commits, copies, the life of tensor memory, and no instruction of older tensor cores. For sm_100a and sm_103a.
#include "contract/attention_sm100.h"
#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/attention/planner.h"
#include "support/census.h"

namespace kernelwright {
namespace {

using test::Census;

/// What a kernel of this Spec must contain. A step of a product takes 32 bytes of k. Code that runs once per key tile
/// is in a loop of one pass.
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

class BlackwellCensus : public test::BlackwellCensusTest {};

TEST_P(BlackwellCensus, OfEveryShippedKernelIsWhatItsSpecSays) {
  const auto specs_of = [](const AttentionProblem& problem, const AttentionSchedule& schedule, Arch arch) {
    return std::vector{plan_attention(problem, schedule, arch).main};
  };
  expect_census(test::shipped_blackwell_kernels<AttentionConfig>(GetParam(), specs_of), expected_of);
}

INSTANTIATE_TEST_SUITE_P(, BlackwellCensus, testing::Values(Arch::kSm100a, Arch::kSm103a),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace kernelwright
