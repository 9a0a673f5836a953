/// Files that the command writes for people.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace kernelwright::cli {

/// Writes a file under another name beside `path`, and renames it: a reader finds the former file or the whole new one.
/// Throws ConfigError.
void write_output_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace kernelwright::cli
