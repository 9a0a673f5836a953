/// What the header of a policy that is a user's own may not hold, as far as its text tells before it is compiled.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kernelwright::detail {

/// "includes \"mine.h\"; ...": why `text` will not do, and what would. A kernel's key has the digest of the text alone,
/// and NVRTC would open any file that it names by its whole path.
std::optional<std::string> header_verdict(std::string_view text);

}  // namespace kernelwright::detail
