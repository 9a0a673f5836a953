/// What the header of a user's own policy may not hold, as far as its text shows before it is compiled.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kernelwright::detail {

/// "includes \"mine.h\"; ...": why `text` is refused, and what is accepted. A kernel's key has the digest of the text
/// alone, but NVRTC would open any file that the text names by its whole path.
std::optional<std::string> header_verdict(std::string_view text);

}  // namespace kernelwright::detail
