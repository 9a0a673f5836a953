// What the templates keep to, beyond their includes (layering_test.cpp): synchronisation by mbarriers stands in
// templates/pipeline/, on the wrappers of templates/ptx/. A kernel names its barriers with their arrivals
// (pipeline/phased_barrier.cuh) and waits for a phase by its number. The rule is tried on made-up files first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/paths.h"
#include "support/template_anchors.h"

namespace kernelwright::templates_rules_test {
namespace {

namespace fs = std::filesystem;

/// Words of a template at `path` that only templates/pipeline/ and templates/ptx/ may have.
std::vector<std::string> raw_barriers(const std::string& path, std::string_view text) {
  if (path.starts_with("templates/pipeline/") || path.starts_with("templates/ptx/")) return {};
  std::vector<std::string> found;
  for (const std::string_view word : test::TemplateText::words_of(text))
    if (word[0] != '"' && (word.find("mbarrier") != word.npos || word.find("parity") != word.npos))
      found.push_back(path + ": " + std::string(word) + " belongs in templates/pipeline/");
  return found;
}

TEST(RawBarriers, AreFoundOutsideOfPipelineAndPtx) {
  const std::string kernel = "templates/kernels/a.cuh";
  const auto found_in_kernel = [&](std::string_view text) { return raw_barriers(kernel, text); };
  EXPECT_THAT(found_in_kernel("void f() { ptx::mbarrier_arrive(full); }"),
              testing::ElementsAre(kernel + ": mbarrier_arrive belongs in templates/pipeline/"));
  EXPECT_THAT(found_in_kernel("uint32_t parity_ = 0;"),
              testing::ElementsAre(kernel + ": parity_ belongs in templates/pipeline/"));
  EXPECT_THAT(raw_barriers("templates/policy/a.cuh", "ptx::fence_mbarrier_init();"), testing::SizeIs(1));
  EXPECT_THAT(found_in_kernel("#include \"ptx/mbarrier.cuh\"\n// An mbarrier.\nfull.wait(phase);  // not a parity"),
              testing::IsEmpty());
  EXPECT_THAT(raw_barriers("templates/pipeline/a.cuh", "ptx::mbarrier_arrive(full);"), testing::IsEmpty());
  EXPECT_THAT(raw_barriers("templates/ptx/a.cuh", "void mbarrier_arrive(uint32_t);"), testing::IsEmpty());
}

TEST(RawBarriers, AreInNoTemplateOfTheRepository) {
  const fs::path root = test::source_dir();
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root / "templates")) {
    if (!entry.is_regular_file() || entry.path().extension() == ".txt") continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    EXPECT_THAT(raw_barriers(fs::relative(entry.path(), root).generic_string(), text.str()), testing::IsEmpty());
    ++files;
  }
  EXPECT_GT(files, 80) << "templates/ has shrunk, or was not found";
}

}  // namespace
}  // namespace kernelwright::templates_rules_test
