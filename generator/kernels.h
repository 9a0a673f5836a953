/// Questions to a kernel of any kind. This is the one place that switches over kinds; each kind gives its own answer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernelwright/generator/attention/validate.h"
#include "kernelwright/generator/gemm/validate.h"
#include "kernelwright/generator/kv_write/plan.h"
#include "kernelwright/generator/moe_combine/plan.h"
#include "kernelwright/generator/plan/memory_map.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/route/plan.h"
#include "kernelwright/generator/row_op/plan.h"
#include "kernelwright/generator/source/spec.h"
#include "kernelwright/generator/tuned/row.h"

namespace kernelwright {

/// The violations of a config of any kind.
std::vector<Violation> validate(const Config& config, std::optional<Arch> arch = std::nullopt);

/// Whether the architecture and the family of the config's schedule are those of `arch`, or left open. validate() says
/// why not.
bool is_for(const Config& config, Arch arch);

/// Throws ConfigError for a row whose schedule does not fit the very problem that it is for. A table of rows from a
/// folder takes this function as its check.
void require_usable(const AnyTunedRow& row);

/// Dynamic shared bytes of one CTA.
std::uint32_t shared_bytes(const Spec& spec);

/// The regions of its shared memory, and the roles of its warps. Both are empty for a kernel whose warps are alike and
/// that uses no shared memory.
std::vector<SharedRegion> shared_map(const Spec& spec);
std::vector<KernelRole> roles(const Spec& spec);

}  // namespace kernelwright
