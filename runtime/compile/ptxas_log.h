/// Reads what `ptxas -v` says of one entry in a compiler's log.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/runtime/binary/binary.h"

namespace kernelwright {

struct PtxasReport {
  bool found = false;  // whether the log mentions the entry at all
  ResourceUsage usage;
  std::vector<std::string> warnings;  // each one once: spills, local memory, serialised wgmma
};

/// Understands the logs of CUDA 12.8 to 13.x. Lines that it does not know are skipped.
PtxasReport read_ptxas_log(std::string_view log, std::string_view entry);

/// The first `count` lines of `text` that are not empty, with a line "... (37 more)" if there were more.
std::string first_lines(std::string_view text, int count);

}  // namespace kernelwright
