/// The toolkit's disassembler, if this machine has one.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace kernelwright::cli {

struct Disassembler {
  std::string path;
  std::vector<std::string> flags;  // words before the cubin's path
};

/// Searches nvdisasm, then cuobjdump, in $CUDA_HOME/bin, /usr/local/cuda/bin and $PATH.
std::optional<Disassembler> find_disassembler();

}  // namespace kernelwright::cli
