/// Inside of the generator: what the rows, choices and maps of latent attention share.
#pragma once

#include "contract/attention_latent_portable.h"
#include "contract/attention_latent_sm100.h"
#include "contract/attention_latent_sm90.h"
#include "contract/key_range.h"
#include "kernelwright/generator/attention/family.h"

namespace kernelwright::detail {

/// Rows that share each KV head's keys, at most; 0: no bound is known.
inline int rows_of_a_kv_head(const AttentionProblem& problem) { return problem.max_q_len * problem.group(); }

inline contract::HopperLatentLayout hopper_latent_layout_of(const AttentionSpec& spec) {
  return contract::hopper_latent_layout(spec.head_dim_qk, converts_keys(spec), spec.has_records());
}
inline contract::PortableLatentLayout portable_latent_layout_of(const AttentionSpec& spec) {
  return contract::portable_latent_layout(spec.block_m, spec.block_n, spec.head_dim_qk, spec.num_stages,
                                          converts_keys(spec) ? spec.key_width() : 0);
}

}  // namespace kernelwright::detail
