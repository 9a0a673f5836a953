/// What a call of steps over rows computes, in fp64 from the definition, row by row.
#pragma once

#include <vector>

#include "kernelwright/verify/row_op/case.h"

namespace kernelwright {

/// A row ahead of quantisation, and how far f32 may be off, element by element. `sum` is x + residual, rounded to f32
/// and then to dtype.in; empty but for "add". `lse` is that of both rows of a merge, for each head, and `lse_error` how
/// far f32 may be off.
struct RowOpRow {
  std::vector<double> value, error;
  std::vector<float> sum;
  std::vector<double> lse, lse_error;
};
RowOpRow reference_row(const RowOpCase& call, std::int64_t row);

}  // namespace kernelwright
