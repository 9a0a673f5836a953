// The list of all cases, and how their sources are compiled.
#include "runtime/emulator/kernels/hopper_cases.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>

#include "kernelwright/generator/digest.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/runtime/cache/cubin_cache.h"
#include "runtime/emulator/kernels/hopper_case_lists.h"
#include "support/paths.h"
#include "support/run_cache.h"

namespace kernelwright::test {
namespace {

/// The text of a file of the repository, kept: TemplateFile views into it.
std::string_view text_of(const std::filesystem::path& path) {
  static std::mutex mutex;
  static std::deque<std::pair<std::filesystem::path, std::string>> read;
  const std::lock_guard lock(mutex);
  for (const auto& [known, text] : read)
    if (known == path) return text;
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("cannot read " + path.string());
  return read.emplace_back(path, std::string(std::istreambuf_iterator<char>(in), {})).second;
}

/// The files that `text` includes, directly or not: of templates/, or of this folder.
void add_headers(SourceUnit& unit, std::string_view text, const std::filesystem::path& folder) {
  constexpr std::string_view kInclude = "#include \"";
  for (std::size_t at = text.find(kInclude); at != std::string_view::npos; at = text.find(kInclude, at)) {
    at += kInclude.size();
    const std::string name(text.substr(at, text.find('"', at) - at));
    const auto known = [&](const auto& header) { return header.path == name; };
    if (name == "spec.h" || std::any_of(unit.headers.begin(), unit.headers.end(), known)) continue;
    const bool own = std::filesystem::exists(folder / name);
    unit.headers.push_back({name, text_of(own ? folder / name : source_dir() / "templates" / name), {}});
    add_headers(unit, unit.headers.back().text, folder);
  }
}

}  // namespace

const std::vector<HopperCase>& hopper_cases() {
  static const std::vector<HopperCase> cases = [] {
    std::vector<HopperCase> all;
    for (auto* list : {gemm_cases, attention_cases, copy_cases, kv_pipeline_cases, tile_gemm_cases,
                       tile_gemm_epilogue_cases, tile_gemm_fp8_cases})
      for (HopperCase& test : list()) all.push_back(std::move(test));
    return all;
  }();
  return cases;
}

std::vector<const HopperCase*> pointers_to_hopper_cases() {
  std::vector<const HopperCase*> pointers;
  for (const HopperCase& test : hopper_cases()) pointers.push_back(&test);
  return pointers;
}

SourceUnit hopper_source(const HopperCase& test, bool line_info) {
  const std::filesystem::path folder = source_dir() / "tests" / "runtime" / "emulator" / test.folder;
  SourceUnit unit;
  unit.kernel = test.kernel;
  unit.entry = test.entry;
  unit.spec_header = unit.spec_text = test.spec;
  unit.source =
      text_of(test.of_templates ? source_dir() / "templates" / "kernels" / "gemm" / "sm90" / (test.kernel + ".cu")
                                : folder / (test.kernel + ".cu"));
  add_headers(unit, unit.spec_header, folder);
  add_headers(unit, unit.source, folder);
  unit.arch = arch_info(test.arch).name;
  unit.options = {"--gpu-architecture=" + unit.arch,
                  "--std=c++17",
                  "--frandom-seed=" + test.kernel,
                  "--no-cache",
                  "-default-device",
                  "--minimal",
                  "--ptxas-options=-v",
                  "--ptxas-options=--warn-on-spills",
                  "--ptxas-options=--warn-on-local-memory-usage"};
  if (line_info) unit.options.push_back("-lineinfo");
  DigestBuilder closure;
  closure.field(unit.source);
  for (const TemplateFile& header : unit.headers) closure.field(header.path).field(header.text);
  unit.closure = closure.finish();
  return unit;
}

Binary compile_hopper(Compiler& compiler, const HopperCase& test, bool line_info) {
  static CubinCache cache(cache_of_run("hopper-cases"));
  const SourceUnit plain = hopper_source(test);
  Binary binary = *cache.get_or_compile(compiler.key(plain), [&] { return compiler.compile(plain); });
  if (!binary.warnings.empty()) throw Error(test.name + ": ptxas warns: " + binary.warnings.front());
  if (!line_info) return binary;
  const auto lined = cache.get_or_compile(compiler.key(hopper_source(test, /*line_info=*/true)), [&] {
    Binary made;
    made.entry = plain.entry;
    made.arch = plain.arch;
    made.ptx = compiler.compile_with_lines(plain);
    return made;
  });
  binary.ptx = lined->ptx;
  return binary;
}

KernelImage hopper_image(const Device& device, const HopperCase& test, const Binary& binary) {
  KernelImage image =
      device.info().wants == ImageKind::kPtx ? KernelImage(std::string_view(binary.ptx)) : KernelImage(binary.cubin);
  image.registers = static_cast<std::uint32_t>(binary.usage.registers);
  image.notes = &test.notes;
  return image;
}

}  // namespace kernelwright::test
