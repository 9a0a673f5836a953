#include "kernelwright/runtime/gemm/launch.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "contract/gemm_kv_write.h"
#include "contract/gemm_params.h"
#include "contract/gemm_portable.h"
#include "contract/gemm_sm100.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/epilogue.h"
#include "kernelwright/runtime/gemm/arguments.h"
#include "kernelwright/runtime/gemm/tensor_maps.h"
#include "kernelwright/runtime/launch/packing.h"

namespace kernelwright::detail {
namespace {

[[gnu::noinline]] void check_each(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors,
                                  const GemmMatrices& matrices) {
  if (auto violations = broken_rules(kernel, spec, tensors, matrices); !violations.empty())
    throw ConfigError(std::move(violations));
}

/// Operands without a single element as ones of a zero, and past it TMA brings zeros. So are scales: of blocks one
/// number for all of b, of formats that have atoms of them the same few for all rows.
void stand_in(DevicePtr zero, const GemmSpec& spec, GemmMatrices& of, GemmTensors& tensors) {
  for (Matrix* matrix : {&of.a, &of.b})
    matrix->address = zero, matrix->rows = matrix->columns = matrix->stride = matrix->count = 1;
  if (spec.scales != ScaleKind::kPerBlock) return;
  tensors.scale_a = tensors.scale_b = zero;
  of.scale_a_stride = is_block_scaled(spec.a) ? 0 : 4, of.scale_b_stride = 0;
}
constexpr std::size_t kZeroBytes = 4 * contract::kScaleAtomBytes;  // a slab has so many atoms at most

/// What both kinds of kernel take alike.
template <class Params>
void set_common(Params& params, const GemmTensors& tensors, const GemmMatrices& of, const contract::TileBands& bands,
                bool bands_of_n) {
  params.c = pointer<const void>(tensors.c);
  params.bias = pointer<const void>(tensors.bias);
  params.c_stride = of.c.stride;
  params.alpha = tensors.alpha;
  params.beta = tensors.beta;
  params.launch.bands = bands;
  params.launch.bands_of_n = bands_of_n;
}

/// Of kernels that quantise, which have it behind the parameters of their family.
template <class Params>
void set_scales(contract::GemmWithScales<Params>& params, const GemmMatrices& of) {
  params.scale_d = pointer<float>(of.scale_d.address);
  params.scale_d_stride = of.scale_d.stride;
}

/// Of kernels that store a quantised result themselves: in a block-scaled format, or Blackwell's.
template <class Params>
void set_blocks(contract::GemmWithBlocks<Params>& params, const GemmTensors& tensors, const GemmMatrices& of) {
  params.elements = pointer<void>(of.d.address);
  params.row_bytes = of.d.stride_bytes();
  params.scale_d = pointer<std::uint8_t>(of.scale_d.address);
  params.scale_d_stride = of.scale_d.dtype == DType::kF32 ? of.scale_d.stride : of.scale_d_stride;
  params.tensor_scale = tensors.tensor_scale;
}

/// Of kernels that write a cache, which have it behind the parameters of their family.
template <class Params>
void set_kv_write(contract::GemmWithKvWrite<Params>& params, const LoadedGemm& kernel, const GemmTensors& tensors,
                  const GemmMatrices& of) {
  params.kv = params_of(*kernel.kv, kv_tensors_of(kernel, tensors, of.d));
}

/// What kernels take whose groups have matrices d at strides, behind the parameters of their family.
template <class Params>
void set_batch(contract::GemmWithBatch<Params>& params, const GemmMatrices& of) {
  params.batch = {static_cast<std::int32_t>(of.d.count), of.a.batch_stride, of.b.batch_stride, of.c.batch_stride,
                  of.d.batch_stride};
}

/// Rows of the product, or of a group's if groups have matrices d of their own.
std::int32_t rows_of(const LoadedGemm& kernel, const GemmTensors& tensors, const GemmMatrices& of) {
  return kernel.groups.scatter ? tensors.m : static_cast<std::int32_t>(of.d.rows);
}

/// What kernels take that have groups with bounds.
void set_groups(contract::GemmGroupsParams& params, const LoadedGemm& kernel, const GemmTensors& tensors,
                const GemmMatrices& of) {
  if (!kernel.groups.has_bounds()) return;
  params.bounds = pointer<const std::int32_t>(tensors.bounds);
  params.status = pointer<std::int32_t>(tensors.status);
  params.count = kernel.groups.count;
  params.rows = kernel.groups.slices_k() ? tensors.source_rows : tensors.m;
  params.capacity = tensors.m / kernel.groups.count;
  params.d = pointer<void>(of.d.address);
  params.d_stride = of.d.stride;
  params.gather = pointer<const std::int32_t>(tensors.gather);
  params.source_rows = tensors.source_rows;
  params.a = pointer<const void>(of.a.address);
  params.a_stride = of.a.stride;
  params.scatter = pointer<const std::int32_t>(tensors.scatter);
  params.result_rows = tensors.result_rows;
  if (kernel.groups.pointers) params.pointers = pointer<const std::int64_t>(tensors.b);
  params.b_stride = of.b.stride;
}

void set_operands(contract::GemmPortableParams& params, const LoadedGemm& kernel, const GemmTensors& tensors,
                  const GemmMatrices& of) {
  params.a = pointer<const void>(of.a.address);
  params.b = pointer<const void>(of.b.address);
  params.d = pointer<void>(of.d.address);
  params.scale_a = pointer<const float>(tensors.scale_a);
  params.scale_b = pointer<const float>(tensors.scale_b);
  params.a_stride = of.a.stride;
  params.b_stride = of.b.stride;
  params.d_stride = of.d.stride;
  params.scale_a_stride = of.scale_a_stride;
  params.scale_b_stride = of.scale_b_stride;
  params.m = rows_of(kernel, tensors, of);
  params.n = kernel.n;
  params.k = kernel.k;
  set_groups(params.groups, kernel, tensors, of);
}

/// What kernels that read through tensor maps take alike: the kernel's view, where swap_ab changes a and b.
template <class Params>
void set_mapped(Params& params, const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors,
                const GemmMatrices& of) {
  const bool swap = spec.swap_ab;
  params.scale_a = pointer<const float>(swap ? tensors.scale_b : tensors.scale_a);
  params.scale_b = pointer<const float>(swap ? tensors.scale_a : tensors.scale_b);
  params.scale_a_stride = swap ? of.scale_b_stride : of.scale_a_stride;
  params.scale_b_stride = swap ? of.scale_a_stride : of.scale_b_stride;
  const std::int32_t rows = rows_of(kernel, tensors, of);
  params.m = swap ? kernel.n : rows;
  params.n = swap ? rows : kernel.n;
  params.k = std::max(1, kernel.k);
  params.launch.constant_b = tensors.pdl && tensors.constant_b;
}

void set_operands(contract::GemmParams& params, const LoadedGemm& kernel, const GemmSpec& spec,
                  const GemmTensors& tensors, const GemmMatrices& of) {
  const GemmTensorMaps maps = tensor_maps_of(spec, tensors, of, kernel.groups);
  if (maps.has_a) encode(*kernel.device, params.a, maps.a);
  if (maps.has_b) encode(*kernel.device, params.b, maps.b);
  if (maps.has_scales) encode(*kernel.device, params.scales, maps.scales);
  if (maps.has_whole) encode(*kernel.device, params.d, maps.d);
  if (maps.has_tail) encode(*kernel.device, params.d_tail, maps.d_tail);
  set_mapped(params, kernel, spec, tensors, of);
  set_groups(params.groups, kernel, tensors, of);
  if (kernel.groups.any()) params.k = kernel.k;  // without k there is no slab, and nothing of a stand-in is read
}

/// Params: contract::BlackwellGemmParams, or what has them and more.
template <class Params>
void set_blackwell_operands(Params& params, const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors,
                            const GemmMatrices& of) {
  const BlackwellGemmTensorMaps maps = blackwell_tensor_maps_of(spec, tensors, of, kernel.groups);
  if (maps.has_a) encode(*kernel.device, params.a, maps.a);
  if (maps.has_b) encode(*kernel.device, params.b, maps.b);
  if (maps.has_d) encode(*kernel.device, params.d, maps.d);
  if (maps.has_scales_a) encode(*kernel.device, params.scales_a, maps.scales_a);
  if (maps.has_scales_b) encode(*kernel.device, params.scales_b, maps.scales_b);
  if constexpr (std::is_base_of_v<contract::BlackwellGemmSlicesParams, Params>) {
    encode(*kernel.device, params.a_rows, maps.a_rows);
    encode(*kernel.device, params.b_rows, maps.b_rows);
  }
  set_mapped(params, kernel, spec, tensors, of);
  // Sums that are added slab by slab are zeros where there is no slab, and no scale is read then.
  if (spec.promotion > 0) params.k = kernel.k;
}

/// Calls launch(params) with the parameters of a kernel that are Params, or where it has outputs beside d or factors of
/// rows with those and more.
template <class Params, class Launch>
void with_statistics(const GemmSpec& spec, const GemmTensors& tensors, const GemmMatrices& of, const Launch& launch) {
  if (!spec.measures() && !spec.rstd) {
    Params params{};
    return launch(params);
  }
  contract::GemmWithStatistics<Params> params{};
  params.statistics = {pointer<std::uint32_t>(tensors.amax),
                       pointer<float>(tensors.squares),
                       pointer<const float>(tensors.squares_a),
                       of.squares.stride,
                       of.squares_a.stride,
                       tensors.rms_eps};
  launch(params);
}

/// The same of a kernel that, where it quantises, stores the result itself.
template <class Params, class Launch>
void with_quantized(const GemmSpec& spec, const GemmTensors& tensors, const GemmMatrices& of, const Launch& launch) {
  if (!spec.quantizes) return with_statistics<Params>(spec, tensors, of, launch);
  with_statistics<contract::GemmWithBlocks<Params>>(spec, tensors, of, [&](auto& params) {
    set_blocks(params, tensors, of);
    launch(params);
  });
}

/// Calls launch(params, bytes) with the parameters of a kernel that are Params, and in a batch, with a quantised d or
/// with statistics more.
template <class Params, class Launch>
void with_parameters(const LoadedGemm& kernel, const GemmSpec& spec, const GemmTensors& tensors, const GemmMatrices& of,
                     const Launch& launch) {
  if (spec.makes_blocks())
    return with_statistics<contract::GemmWithBlocks<Params>>(spec, tensors, of, [&](auto& params) {
      set_blocks(params, tensors, of);
      launch(params, sizeof params);
    });
  if (spec.writes_kv)
    return with_statistics<contract::GemmWithKvWrite<Params>>(spec, tensors, of, [&](auto& params) {
      set_kv_write(params, kernel, tensors, of);
      launch(params, sizeof params);
    });
  if (spec.measures() || spec.rstd) {  // without groups
    if (!spec.quantizes)
      return with_statistics<Params>(spec, tensors, of, [&](auto& params) { launch(params, sizeof params); });
    return with_statistics<contract::GemmWithScales<Params>>(spec, tensors, of, [&](auto& params) {
      set_scales(params, of);
      launch(params, sizeof params);
    });
  }
  const auto with = [&](auto& params, std::size_t without_scales) {
    set_scales(params, of);
    launch(params, spec.quantizes ? sizeof params : without_scales);
  };
  if (kernel.groups.stacks_d()) {
    contract::GemmWithScales<contract::GemmWithBatch<Params>> params{};
    set_batch(params, of);
    with(params, sizeof(contract::GemmWithBatch<Params>));
  } else {
    contract::GemmWithScales<Params> params{};
    with(params, sizeof(Params));
  }
}

/// Clears the words that say whose turn it is, ahead of the launch.
void set_workspace(contract::TurnstileParams& params, const LoadedGemm& kernel, const GemmTensors& tensors,
                   const GemmWorkspace& workspace, Stream stream) {
  if (workspace.bytes == 0) return;
  params.begun = pointer<std::uint32_t>(tensors.workspace);
  params.turns = pointer<std::uint32_t>(tensors.workspace + workspace.turns);
  params.partials = pointer<float>(tensors.workspace + workspace.partials);
  kernel.device->fill(tensors.workspace, 0, workspace.zeros, stream);
}

}  // namespace

LoadedGemm describe(const GemmProblem& problem, const GemmPlan& plan, const DeviceInfo& device) {
  LoadedGemm loaded;
  loaded.n = problem.n;
  loaded.k = problem.k;
  loaded.d_columns = result_columns(problem);
  loaded.groups = problem.groups;
  loaded.num_sms = device.num_sms;
  if (problem.kv_write) {
    loaded.kv.emplace();
    loaded.kv->spec = plan.variants.back().spec.kv;
    loaded.kv->eps = static_cast<float>(problem.kv_write->qk_norm.eps);
    loaded.kv->least = static_cast<float>(problem.kv_write->scales.least);
  }
  for (const GemmVariant& variant : plan.variants)
    loaded.variants.push_back({variant.most_m, variant.spec, variant.bands_of_n, 0, nullptr, nullptr});
  loaded.has_pdl = arch_info(plan.variants.back().spec.arch).pdl;
  return loaded;
}

std::vector<Spec> specs_of(const GemmPlan& plan) {
  std::vector<Spec> specs;
  for (const GemmVariant& variant : plan.variants) specs.push_back(variant.spec);
  return specs;
}

void attach(LoadedGemm& loaded, std::vector<const LoadedKernel*> kernels,
            std::vector<std::shared_ptr<const Binary>> binaries) {
  if (loaded.k == 0) {
    Device& device = *loaded.device;
    loaded.zero = {new DevicePtr(device.allocate(kZeroBytes)), [&device](const DevicePtr* address) {
                     device.free(*address);
                     delete address;
                   }};
    const std::byte zeros[kZeroBytes] = {};
    device.copy_to_device(*loaded.zero, zeros, kZeroBytes);
  }
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    LoadedGemm::Variant& variant = loaded.variants[i];
    variant.kernel = kernels[i];
    variant.binary = std::move(binaries[i]);
    const GemmSpec& spec = variant.spec;
    const int threads = spec.threads();
    if (spec.cluster() > 1)
      variant.max_clusters = loaded.device->max_active_clusters(
          *kernels[i], config_of_cluster(spec.cluster(), threads, shared_bytes(spec)));
    else if (shares_sms(spec))
      variant.max_clusters = loaded.num_sms * loaded.device->max_ctas_per_sm(
                                                  *kernels[i], static_cast<std::uint32_t>(threads), shared_bytes(spec));
  }
}

void attach(LoadedGemm& loaded, const LoadedGemm& twin) {
  loaded.zero = twin.zero;
  for (std::size_t i = 0; i < loaded.variants.size(); ++i) {
    loaded.variants[i].kernel = twin.variants[i].kernel;
    loaded.variants[i].binary = twin.variants[i].binary;
    loaded.variants[i].max_clusters = twin.variants[i].max_clusters;
  }
}

void launch_gemm(const LoadedGemm& kernel, const GemmTensors& tensors, Stream stream) {
  if (tensors.m == 0) return;  // null operands are fine: there are no rows
  const LoadedGemm::Variant& variant = kernel.variant_for(tensors);
  const GemmSpec& spec = variant.spec;
  GemmMatrices of = matrices_of(kernel, spec, tensors);
  if (!surely_fine(kernel, spec, tensors, of)) check_each(kernel, spec, tensors, of);
  if (has_no_sources(kernel, tensors)) {  // nothing is read of what stands in
    if (kernel.groups.slices_k()) of.b.address = of.d.address;
    of.a.address = of.b.address;
  }

  const GemmExtent extent = kernel.extent_of(tensors);
  const LaunchPlan plan = plan_launch(spec, extent, kernel.num_sms, variant.max_clusters);
  const LaunchConfig config = config_of(plan, tensors.pdl);
  const auto launch = [&](auto& params, std::size_t bytes) {
    const bool of_n = variant.bands_of_n;
    set_common(params, tensors, of, choose_bands(spec, extent, kernel.num_sms, variant.max_clusters, of_n), of_n);
    kernel.device->launch(*variant.kernel, config, &params, bytes, stream);
  };
  if (spec.family == Family::kPortable) {
    with_parameters<contract::GemmPortableParams>(kernel, spec, tensors, of, [&](auto& params, std::size_t bytes) {
      set_operands(params, kernel, tensors, of);
      launch(params, bytes);
    });
    return;
  }
  GemmTensors given = tensors;
  if (kernel.zero) stand_in(*kernel.zero, spec, of, given);
  if (spec.family == Family::kBlackwell) {
    const auto queue = [&](auto& params) {
      set_blackwell_operands(params, kernel, spec, given, of);
      set_workspace(params.turnstile, kernel, tensors, plan_workspace(spec, extent), stream);
      launch(params, sizeof params);
    };
    const auto queue_groups = [&](auto& params) {
      set_groups(params.groups, kernel, given, of);
      queue(params);
    };
    const auto queue_batch = [&](auto& params) {
      set_batch(params, of);
      queue(params);
    };
    using Params = contract::BlackwellGemmParams;
    if (spec.slices_k()) {
      contract::GemmWithBatch<contract::BlackwellGemmSlicesParams> params{};
      set_batch(params, of);
      return queue_groups(params);
    }
    if (spec.writes_kv)
      return with_statistics<contract::GemmWithKvWrite<Params>>(spec, tensors, of, [&](auto& params) {
        set_kv_write(params, kernel, tensors, of);
        queue(params);
      });
    if (spec.is_batched()) return with_quantized<contract::GemmWithBatch<Params>>(spec, tensors, of, queue_batch);
    if (!spec.has_bounds()) return with_quantized<Params>(spec, tensors, of, queue);
    return with_quantized<contract::BlackwellGemmGroupedParams>(spec, tensors, of, queue_groups);
  }
  with_parameters<contract::GemmParams>(kernel, spec, tensors, of, [&](auto& params, std::size_t bytes) {
    set_operands(params, kernel, spec, given, of);
    params.groups.d = pointer<void>(of.d.address);
    params.groups.d_stride = of.d.stride;
    set_workspace(params.turnstile, kernel, tensors, plan_workspace(spec, extent), stream);
    launch(params, bytes);
  });
}

}  // namespace kernelwright::detail
