// kernelwright explain: the kernels of a config, why they were chosen, and what they take.
#include "cli/explain/explain_parts.h"
#include "cli/verbs/verbs.h"

namespace kernelwright::cli {

int explain(const Options& options) {
  const NamedConfig named = read_one_config(options);
  return std::visit([&](const auto& config) { return explain(options, named, config); }, named.config);
}

}  // namespace kernelwright::cli
