// The contents of every shipped gemm_sm100 kernel, counted in its PTX and derived from its Spec: products, copies of
// scales, commits, boxes, the life of tensor memory, and no instruction of older tensor cores. For sm_100a and sm_103a.
#include "contract/gemm_sm100.h"
#include "contract/shared_slab.h"
#include "kernelwright/generator/gemm/planner.h"
#include "support/census.h"

namespace kernelwright {
namespace {

using test::Census;

/// What a kernel of this Spec must contain. The code for slabs of a group is repeated; everything else of a role is a
/// loop of one pass.
Census expected_of(const GemmSpec& spec) {
  const contract::BlackwellGemmShape shape = blackwell_gemm_shape_of(spec);
  const contract::BlackwellGemmBoxes boxes = contract::blackwell_gemm_boxes(shape);
  const int products = 4 * spec.k_group;  // of 32 bytes of k, or 16 rows of it
  Census census;
  census["tcgen05.mma"] = products;
  for (const int ctas : {1, 2})
    census[fmt::format("tcgen05.mma.cta_group::{}", ctas)] = spec.cta_group == ctas ? products : 0;
  const auto kind = [&](const char* opcode, bool is_it) { census[opcode] = is_it ? products : 0; };
  kind(".kind::f16", bits_of(spec.a) == 16);
  kind(".kind::tf32", spec.a == DType::kTf32);
  kind(".kind::f8f6f4", spec.a == DType::kE4m3 || spec.a == DType::kE5m2);
  kind(".kind::mxf8f6f4.block_scale.scale_vec::1X", spec.a == DType::kMxfp8);
  kind(".kind::mxf4.block_scale.scale_vec::2X", spec.a == DType::kMxfp4);
  kind(".kind::mxf4nvf4.block_scale.scale_vec::4X", spec.a == DType::kNvfp4);
  census["tcgen05.cp"] = spec.k_group * shape.scale_atoms * (1 + contract::blackwell_gemm_column_atoms(shape));
  // A slot's, and a tile's; where slabs have scales of their own each of a group's.
  census["tcgen05.commit"] = 1 + (spec.promotion > 0 ? spec.k_group : 1);
  census["tcgen05.alloc"] = census["tcgen05.relinquish_alloc_permit"] = census["tcgen05.dealloc"] = 1;
  // Weights, the problem's b, are loaded in two places: the first ones ahead of the launch before. With parts of k the
  // whole CTA has waited for that one by then, and with bounds too.
  const int places = spec.split_k > 1 || spec.has_bounds() ? 1 : 2;
  const auto a_is_mn_major = [&] { return spec.layout == OperandLayout::kTn || spec.layout == OperandLayout::kTt; };
  const auto b_is_mn_major = [&] { return spec.layout == OperandLayout::kNn || spec.layout == OperandLayout::kTn; };
  const bool rows_mn = spec.swap_ab ? b_is_mn_major() : a_is_mn_major();
  const bool columns_mn = spec.swap_ab ? a_is_mn_major() : b_is_mn_major();
  const int rows = rows_mn ? shared_slab(spec, TileSide::kRows).parts() : 1;
  const int columns = columns_mn ? shared_slab(spec, TileSide::kColumns).parts() : 1;
  const int scales_a = shape.scale_atoms > 0 ? 1 : 0;
  const int scales_b = scales_a > 0 && !contract::blackwell_gemm_gathers(shape) && !spec.gather ? 1 : 0;
  const int matrices = spec.swap_ab ? rows : columns, weights = spec.pointers ? 0 : matrices,
            sources = spec.swap_ab ? columns : rows;
  const int others = spec.gather ? 0 : sources;
  // Of slices of k, rows of both operands are gathered in loops.
  census["global.tile::gather4"] = spec.k_group * (spec.slices_k() ? 2 : spec.gather ? sources : 0);
  census["global.tile.mbarrier"] = spec.k_group * (places * weights + others + scales_a + scales_b);
  const auto shared_in_pairs = [&](int sharers, int of, bool constant) {
    return spec.cta_group == 2 && sharers > 1 ? spec.k_group * of * (constant ? places : 1) : 0;
  };
  census["multicast::cluster.cta_group"] =
      shared_in_pairs(boxes.a_sharers, rows, spec.swap_ab) + shared_in_pairs(boxes.b_sharers, columns, !spec.swap_ab);
  census["clusterlaunchcontrol.try_cancel"] = spec.scheduler == Scheduler::kQueued ? 1 : 0;
  census["atom."] = spec.split_k > 1 ? 1 : 0;  // the cluster's first item
  // Two warps copy 8 lines of 128 bytes at a time.
  const contract::SharedSlab matrix = shared_slab(spec, spec.swap_ab ? TileSide::kRows : TileSide::kColumns);
  census["cp.async.cg"] = spec.pointers ? spec.k_group * matrix.parts() * ((matrix.part_bytes() / 128 + 7) / 8) : 0;
  for (const char* none : {"wgmma.", "mma.sync", "cp.async.ca", "ld.local", "st.local"}) census[none] = 0;
  return census;
}

class BlackwellGemmCensus : public test::BlackwellCensusTest {};

TEST_P(BlackwellGemmCensus, OfEveryShippedKernelIsWhatItsSpecSays) {
  const auto specs_of = [](const GemmProblem& problem, const GemmSchedule& schedule, Arch arch) {
    std::vector<GemmSpec> specs;
    for (const GemmVariant& variant : plan_gemm(problem, schedule, arch).variants) specs.push_back(variant.spec);
    return specs;
  };
  expect_census(test::shipped_blackwell_kernels<GemmConfig>(GetParam(), specs_of), expected_of);
}

INSTANTIATE_TEST_SUITE_P(, BlackwellGemmCensus, testing::Values(Arch::kSm100a, Arch::kSm103a),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace kernelwright
