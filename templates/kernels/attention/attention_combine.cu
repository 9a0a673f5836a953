/// Merges the parts of split keys behind the kernel that made them: policy/merge_parts.cuh. A warp merges one row, or
/// 128 columns of a row of more than 256.
#include "spec.h"

#include "contract/attention_params.h"
#include "contract/words.h"
#include "policy/attention_item.cuh"
#include "policy/merge_parts.cuh"
#include "policy/score_mod.cuh"
#include "ptx/launch.cuh"

namespace kernelwright {
namespace spec_defaults {
enum : bool { kLseApart = false };  // as in attention_defaults.cuh
}  // namespace spec_defaults
namespace spec {
using namespace spec_defaults;
}  // namespace spec
enum : int { kColumns = contract::combined_columns(spec::kHeadDimV), kRowWarps = spec::kHeadDimV / kColumns };
}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(128)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::CombineParams params) {
  using namespace kernelwright;
  // The grid ahead made the parts. It has waited for the grids ahead of it, so this grid may write to the memory that
  // they read.
  if constexpr (spec::kArch >= 90) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();  // the whole kernel is short
  }
  const int warp = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = warp / kRowWarps, first = warp % kRowWarps * kColumns;  // the warp's first column
  if (row >= params.rows) return;

  const int q_head = row % params.q_heads;
  const int64_t token = row / params.q_heads;  // over the whole batch
  if (params.q_len == 0) {                     // rows of no sequence have no parts
    const policy::RaggedRows owned = policy::all_rows(params.q_offsets, params.batch, params.rows / params.q_heads);
    if (token < owned.start || token >= owned.start + owned.count) return;
  }

  const policy::MergedRow<kColumns, spec::kHeadDimV> merged(
      params.partial_o + static_cast<int64_t>(row) * spec::kHeadDimV + first, params.partial_lse + row, params.rows,
      params.num_splits, lane);
  const int64_t batch = params.q_len > 0 ? token / params.q_len : 0;
  const int64_t query = token - batch * params.q_len;
  const int64_t offset =
      batch * params.o_strides.batch + query * params.o_strides.token + q_head * params.o_strides.head;
  merged.store<spec::kOutDType>(params.o, offset + first, lane);
  if constexpr (spec::kLse) {
    const float log2_sum = policy::merged_log2_sum<spec::kLseApart>(merged, params.partial_lse + row, params.rows,
                                                                    params.num_splits, lane);
    if (lane != 0 || first != 0) return;
    const int64_t index =
        params.q_len > 0 ? (batch * params.q_heads + q_head) * params.q_len + query : token * params.q_heads + q_head;
    params.lse[index] = log2_sum * policy::kLn2;
  }
}
