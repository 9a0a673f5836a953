/// kernelwright cache stats, and cache --max-size: the records that a cache directory keeps about itself.
#pragma once

#include <cstdint>
#include <string>

#include "kernelwright/runtime/cache/cubin_cache.h"

namespace kernelwright::cli {

/// Parses "512MB", "1.5G", "2GiB" or a number of bytes. K, M, G and T stand for thousands, Ki, Mi, Gi and Ti for 1024s,
/// with or without a B. Throws ConfigError.
std::uint64_t parse_size(const std::string& option, const std::string& text);

/// Prints what all users of the directory did, over all runs.
int cache_stats(CubinCache& cache, bool json);

/// Stores `size` in the directory as its limit ("none" removes the limit), and removes entries above the limit. Throws
/// ConfigError.
int cache_limit(CubinCache& cache, const std::string& size, bool json);

}  // namespace kernelwright::cli
