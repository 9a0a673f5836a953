/// Everything that can change a binary, in one struct. Paths, times, host names, the GPU and the driver are not in it.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/generator/digest.h"

namespace kernelwright {

struct CacheKey {
  std::string entry_stem;            // kernel template: "attention_portable"
  std::string spec;                  // the Spec's canonical text, a line per field
  Digest closure;                    // of the template and every file that it includes
  std::vector<std::string> options;  // the compiler's, in order
  std::string arch;                  // "sm_90a"
  int abi = 0;                       // version of the host/device contract
  std::string compiler;              // build ids of NVRTC and its builtins; "" without a compiler
  bool operator==(const CacheKey&) const = default;

  /// SHA-256 over the schema number and every field, each length-prefixed: the name of the entry.
  Digest digest() const;
  /// The digest without the compiler. It finds a kernel on a machine without a compiler.
  Digest digest_without_compiler() const;
};

/// The fields in which two keys differ, for people: "spec: num_stages 2 -> 3; compiler". Empty if the keys are equal.
std::string difference(const CacheKey& a, const CacheKey& b);

}  // namespace kernelwright
