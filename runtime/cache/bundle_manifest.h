/// Names that the files of a bundle share.
#pragma once

#include <string_view>

namespace kernelwright::detail {

inline constexpr std::string_view kManifestName = "manifest.json", kManifestSignatureName = "manifest.sig";
inline constexpr std::string_view kManifestDomain = "kernelwright bundle manifest";  // of SigningKey::sign()
inline constexpr int kManifestSchema = 1;

}  // namespace kernelwright::detail
