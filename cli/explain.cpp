// kernelwright explain: which kernels a config comes to, why, and what they take.
#include "explain_parts.h"
#include "verbs.h"

namespace kernelwright::cli {

int explain(const Options& options) {
  const NamedConfig named = read_one_config(options.configs);
  return std::visit([&](const auto& config) { return explain(options, named, config); }, named.config);
}

}  // namespace kernelwright::cli
