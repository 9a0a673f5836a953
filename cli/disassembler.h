/// The toolkit's disassembler, if this machine has one.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace kernelwright::cli {

struct Disassembler {
  std::string path;
  std::vector<std::string> flags;  // before the cubin's path
};

/// nvdisasm, else cuobjdump, from $CUDA_HOME/bin, /usr/local/cuda/bin or $PATH.
std::optional<Disassembler> find_disassembler();

}  // namespace kernelwright::cli
