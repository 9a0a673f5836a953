/// Groups of a GEMM call, for inputs and verdicts. GemmCase has what a group is.
#pragma once

#include <cstdint>
#include <vector>

#include "kernelwright/verify/gemm/case.h"

namespace kernelwright {

/// The bounds of a shape's groups, as GemmProblem::groups says. Empty if the problem has none. With starts, rows that
/// belong to no group lie on both sides of the groups.
std::vector<std::int32_t> draw_bounds(const GemmProblem& problem, const GemmShape& shape, std::uint64_t seed);

/// Draws GemmCase::gather where the problem has it: a row of a for each row of d, and for some none.
void draw_gather(GemmCase& call, const GemmShape& shape, std::uint64_t seed);

/// Draws GemmCase::scatter where the problem has it: rows of d in any order, for some rows none, and for rows of no
/// group an index that d does not have.
void draw_scatter(GemmCase& call, const GemmShape& shape, std::uint64_t seed);

/// Makes the rows of a and c that belong to no group, or become no row of d, NaN, and their scales. Of kind k, rows of
/// a and b.
void hide_rows_outside_groups(GemmCase& call);

}  // namespace kernelwright
