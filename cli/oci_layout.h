/// A bundle as an artifact of the Open Container Initiative, for registries and image volumes.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace kernelwright::cli {

inline constexpr const char* kOciArtifact = "application/vnd.kernelwright.pack.v1";
inline constexpr const char* kOciLayer = "application/vnd.kernelwright.pack.v1+zip";

/// Writes an image layout (OCI image specification 1.1) with one manifest and one layer, the bundle. The folder must be
/// new or empty. Throws ConfigError.
void write_oci_layout(const std::string& folder, std::span<const std::byte> bundle);

}  // namespace kernelwright::cli
