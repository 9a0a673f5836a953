#include "cli/tune/row_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/options.h"
#include "kernelwright/generator/error.h"

namespace kernelwright::cli {

std::vector<AnyTunedRow> read_row_folder(const std::string& folder) {
  std::error_code code;
  if (!std::filesystem::is_directory(folder, code)) throw ConfigError(folder, "is no folder of rows");
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  std::ranges::sort(paths);
  std::vector<AnyTunedRow> rows;
  for (const std::string& path : paths) try {
      std::ifstream in(path, std::ios::binary);
      rows.push_back(read_tuned_row(std::string(std::istreambuf_iterator<char>(in), {})));
    } catch (const ConfigError& error) {
      throw in_file(path, error);
    }
  return rows;
}

}  // namespace kernelwright::cli
