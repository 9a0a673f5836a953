/// What a policy that is a user's own source is held to: the reference that its config names (docs/policies.md).
#pragma once

#include "kernelwright/verify/attention/case.h"

namespace kernelwright {

/// Gives `call`, which is laid out, the references of its problem's sources: its functions, or its arrays. A source
/// without one leaves its field and the reason in AttentionCase::unchecked. Throws ConfigError for a library, a symbol
/// or an array that is not there or does not fit. A library stays open for as long as the process lives: its code runs.
void load_references(AttentionCase& call);

}  // namespace kernelwright
