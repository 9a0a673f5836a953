/// A Spec from its canonical text: what one host tells another about a kernel that it wants built.
#pragma once

#include <optional>
#include <string_view>

#include "kernelwright/generator/source/spec.h"

namespace kernelwright {

/// The Spec whose kernel_name() is `kernel` and whose canonical_text() is `text`, byte for byte. Nothing if there is
/// none: any bytes have an answer. A Spec with a user's own sources is not read, because its text has only their
/// digests.
std::optional<Spec> read_spec(std::string_view kernel, std::string_view text);

}  // namespace kernelwright
