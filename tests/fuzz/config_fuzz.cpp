// libFuzzer over the config reader: any text gives a Config that survives writing and reading, or a ConfigError of
// bounded size. Configs in configs/problems/ make a good first corpus.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/kernels.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kernelwright;
  try {
    const Config config = read_config(std::string_view(reinterpret_cast<const char*>(data), size));
    if (read_config(write_config(config)) != config) std::abort();
    for (const Arch arch : {Arch::kSm80, Arch::kSm100a}) validate(config, arch);
  } catch (const ConfigError& error) {
    if (error.violations().empty() || std::string_view(error.what()).size() > 200000) std::abort();
  }
  return 0;
}
