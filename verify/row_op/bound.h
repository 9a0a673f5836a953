/// Compares what a kernel wrote with the reference. f32 gives a value within the error that reference.h derives; an
/// element has to be what one of those values rounds to. So it is the right code, or one beside it near a tie. A sum
/// with the residual is right to the bit, and so is a scale of values that no arithmetic precedes. Other scales are
/// what one of the largest magnitudes within the error gives. Elements are read with the scale that the kernel wrote.
///
/// Every byte between the rows has to hold what it held before. Scales past the end, in whole atoms, have to be 0.
#pragma once

#include "kernelwright/verify/row_op/case.h"
#include "kernelwright/verify/rows_verdict.h"

namespace kernelwright {

using RowOpVerdictOptions = RowsVerdictOptions;
using RowOpVerdict = RowsVerdict;
RowOpVerdict verify(const RowOpCase& call, const RowOpOutput& output, const RowOpVerdictOptions& options = {});

}  // namespace kernelwright
