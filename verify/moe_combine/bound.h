/// Compares what a kernel wrote with the reference. f32 gives a value within the error that reference.h derives; an
/// element has to be what one of those values rounds to. Every byte between the rows has to hold what it held before.
#pragma once

#include "kernelwright/verify/moe_combine/case.h"
#include "kernelwright/verify/rows_verdict.h"

namespace kernelwright {

using MoeCombineVerdictOptions = RowsVerdictOptions;
using MoeCombineVerdict = RowsVerdict;
MoeCombineVerdict verify(const MoeCombineCase& call, const MoeCombineOutput& output,
                         const MoeCombineVerdictOptions& options = {});

}  // namespace kernelwright
