// kernelwright explain: the kernels of a config, why they were chosen, and what they take.
#include <fmt/format.h>

#include <algorithm>

#include "cli/exit_code.h"
#include "cli/explain/explain_parts.h"
#include "cli/verbs/verbs.h"

namespace kernelwright::cli {

int explain(const Options& options) {
  // One object is printed with --json, so a plan needs --problem there.
  const std::vector<NamedConfig> configs =
      options.json ? std::vector<NamedConfig>{read_one_config(options)} : read_one_file(options);
  int code = kDone;
  for (const NamedConfig& named : configs) {
    if (&named != &configs.front()) fmt::print("\n");
    const int own = std::visit([&](const auto& config) { return explain(options, named, config); }, named.config);
    code = std::max(code, own);
  }
  return code;
}

}  // namespace kernelwright::cli
