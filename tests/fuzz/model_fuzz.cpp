// libFuzzer over a model's config.json and over plans: any text gives a plan that survives writing and reading, or a
// ConfigError of bounded size. The config.json files of tests/golden/models/ make a good first corpus.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "kernelwright/generator/models/plan_file.h"

namespace {

using namespace kernelwright;

void require_bounded(const ConfigError& error) {
  if (error.violations().empty() || std::string_view(error.what()).size() > 200000) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    read_plan(text);
  } catch (const ConfigError& error) {
    require_bounded(error);
  }
  // The last byte chooses the ranks, so that a model is divided in many ways.
  const int tp = size > 0 ? 1 + data[size - 1] % 16 : 1;
  for (const char* server : {"vllm", "hf"}) try {
      const ModelPlan plan = plan_model(text, {.tp = tp, .server = server});
      const std::vector<Config> configs = read_plan(write_plan(plan));
      if (configs.size() != plan.problems.size()) std::abort();
      for (std::size_t i = 0; i < configs.size(); ++i)
        if (configs[i] != plan.problems[i].config) std::abort();
    } catch (const ConfigError& error) {
      require_bounded(error);
    }
  return 0;
}
