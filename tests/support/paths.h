/// Where a test finds the repository's files and space to write. Binaries of the portable build contain no path of the
/// machine that built them. They use the environment, or else the current folder.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace kernelwright::test {

/// The repository: $KERNELWRIGHT_SOURCE_DIR, else the folder for which the build was configured, else the nearest
/// folder at or above the current one that contains templates/contract. Throws std::runtime_error if there is none.
inline std::filesystem::path source_dir() {
  if (const char* named = std::getenv("KERNELWRIGHT_SOURCE_DIR")) return named;
#ifdef KERNELWRIGHT_SOURCE_DIR
  return KERNELWRIGHT_SOURCE_DIR;
#else
  for (auto folder = std::filesystem::current_path();; folder = folder.parent_path()) {
    if (std::filesystem::exists(folder / "templates" / "contract")) return folder;
    if (folder == folder.root_path()) break;
  }
  throw std::runtime_error("no repository at or above the current folder; set KERNELWRIGHT_SOURCE_DIR to one");
#endif
}

/// The build tree: $KERNELWRIGHT_BINARY_DIR, else the configured one, else the parent of the folder of this test's
/// binary.
inline std::filesystem::path binary_dir() {
  if (const char* named = std::getenv("KERNELWRIGHT_BINARY_DIR")) return named;
#ifdef KERNELWRIGHT_BINARY_DIR
  return KERNELWRIGHT_BINARY_DIR;
#else
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
#endif
}

}  // namespace kernelwright::test
