/// Rows that several machines measured become one set. The rule needs no order: any grouping of any files gives the
/// same set, and merging a set with itself changes nothing.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/generator/tuned/row.h"

namespace kernelwright {

/// What two rows must share to be rivals: problem, architecture, class of devices, and of a GEMM the SM count and the
/// range of rows.
std::string rivalry(const AnyTunedRow& row);

/// Whether `a` is kept rather than its rival `b`: the one with the greater lower bound of its speedup. Of equal bounds
/// it is the confirmed one, then the older one, then the one whose text comes first.
bool is_kept_before(const AnyTunedRow& a, const AnyTunedRow& b);

/// The kept row of each rivalry, sorted by it.
std::vector<AnyTunedRow> merge_rows(const std::vector<AnyTunedRow>& rows);

/// The row of a winner that won on another GPU too: the GPUs of both, and the lesser speedup and bound. Throws
/// ConfigError unless the two are rivals with one schedule, of different GPUs (kUnknownGpu is none). The times stay
/// those of `first`.
TunedRow confirmed_row(const TunedRow& first, const TunedRow& again);
GemmTunedRow confirmed_row(const GemmTunedRow& first, const GemmTunedRow& again);

}  // namespace kernelwright
