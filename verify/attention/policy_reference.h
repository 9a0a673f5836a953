/// The reference to which a user's own policy source is compared; the config names it (docs/policies.md).
#pragma once

#include "kernelwright/verify/attention/case.h"

namespace kernelwright {

/// Gives `call`, which must be laid out, the references of its problem's sources: functions or arrays. A source without
/// a reference leaves its field empty, and AttentionCase::unchecked gets the reason. Throws ConfigError for a library,
/// a symbol or an array that does not exist or does not fit. A library stays open until the process ends, because its
/// code may run.
void load_references(AttentionCase& call);

}  // namespace kernelwright
