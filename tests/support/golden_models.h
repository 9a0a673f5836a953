/// The models whose plans are golden: tests/golden/models/NAME.config.json, written from published numbers.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "kernelwright/generator/models/models_markdown.h"

namespace kernelwright::test {

inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<NamedModel> golden_models(const std::filesystem::path& root) {
  std::vector<NamedModel> models;
  const std::string ending = ".config.json";
  for (const auto& entry : std::filesystem::directory_iterator(root / "tests/golden/models"))
    if (const std::string name = entry.path().filename(); name.ends_with(ending))
      models.push_back({name.substr(0, name.size() - ending.size()), file_text(entry.path())});
  std::ranges::sort(models, {}, &NamedModel::name);
  return models;
}

}  // namespace kernelwright::test
