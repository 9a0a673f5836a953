/// What a sum over the rows of tokens' experts computes, in fp64 from the definition, token by token.
#pragma once

#include <vector>

#include "kernelwright/verify/moe_combine/case.h"

namespace kernelwright {

/// A token's row ahead of rounding, and how far f32 may be off, element by element.
struct MoeCombineRow {
  std::vector<double> value, error;
};
MoeCombineRow reference_row(const MoeCombineCase& call, std::int64_t token);

}  // namespace kernelwright
