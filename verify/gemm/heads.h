/// Queries, keys and values that a GEMM makes and kv_write's steps take to d and to a cache.
#pragma once

#include "kernelwright/verify/gemm/bound.h"

namespace kernelwright {

/// As verify(), of a call that writes a cache. Products are in fp64, with the bound of their errors, and rounding them
/// adds to it. kv_write's reference takes them and the bound through its steps.
GemmVerdict verify_heads(const GemmCase& call, const GemmOutput& output, const GemmVerdictOptions& options);

}  // namespace kernelwright
