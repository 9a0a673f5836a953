// Rewrites the shipped files that are generated from the field lists:
//   kernelwright_generate_docs [SOURCE_DIR]
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "kernelwright/generator/models/models_markdown.h"
#include "kernelwright/generator/schema/schema.h"
#include "support/golden_models.h"

namespace {

bool write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  std::fprintf(file ? stdout : stderr, "%s %s\n", file ? "wrote" : "cannot write", path.c_str());
  return static_cast<bool>(file);
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path root = argc > 1 ? argv[1] : KERNELWRIGHT_SOURCE_DIR;
  const bool schema = write(root / "configs/kernelwright.schema.json", kernelwright::json_schema());
  const bool page = write(root / "docs/config.md", kernelwright::config_markdown());
  const bool models =
      write(root / "docs/models.md", kernelwright::models_markdown(kernelwright::test::golden_models(root)));
  return schema && page && models ? 0 : 1;
}
