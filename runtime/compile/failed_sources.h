/// Sources that a compiler rejected, kept for people in one folder that does not grow: at most kMostFailedSources files
/// of at most kMostFailedBytes in all; the oldest go first.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kernelwright {

inline constexpr std::size_t kMostFailedSources = 32;
inline constexpr std::size_t kMostFailedBytes = std::size_t{16} << 20;

/// Writes `text` to a new file of `directory`, named by `stem`, that only this user can read. Returns its path, or ""
/// if that fails: nothing depends on it. The directory is made if it is absent. A directory that others could write is
/// not used. "" means kernelwright-failed-UID in $TMPDIR, else /tmp.
std::string keep_failed_source(std::string directory, std::string stem, std::string_view text) noexcept;

}  // namespace kernelwright
