/// What is asked of a kernel of any kind: the one place that switches over kinds. Each answer is the kind's own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernelwright/generator/attention/validate.h"
#include "kernelwright/generator/gemm/validate.h"
#include "kernelwright/generator/plan/memory_map.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/source/spec.h"
#include "kernelwright/generator/tuned/row.h"

namespace kernelwright {

/// The violations of a config of either kind.
std::vector<Violation> validate(const Config& config, std::optional<Arch> arch = std::nullopt);

/// Throws ConfigError for a row whose schedule does not fit the very problem that it is for. What a table of rows from
/// a folder takes as its check.
void require_usable(const AnyTunedRow& row);

/// Dynamic shared bytes of one CTA.
std::uint32_t shared_bytes(const Spec& spec);

/// What lies where in its shared memory, and what its warps do; empty where warps are alike and a kernel takes none.
std::vector<SharedRegion> shared_map(const Spec& spec);
std::vector<KernelRole> roles(const Spec& spec);

}  // namespace kernelwright
