// The list of all cases, and how their sources are compiled.
#include "runtime/emulator/kernels/hopper_cases.h"

#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>

#include "kernelwright/generator/error.h"
#include "runtime/emulator/kernels/hopper_case_lists.h"
#include "support/paths.h"

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

}  // namespace

std::vector<HopperCase> hopper_cases() {
  std::vector<HopperCase> all;
  for (auto* list : {gemm_cases, attention_cases, copy_cases, kv_pipeline_cases, tile_gemm_cases})
    for (HopperCase& test : list()) all.push_back(std::move(test));
  return all;
}

SourceUnit hopper_source(const HopperCase& test, bool line_info) {
  const std::filesystem::path folder = source_dir() / "tests" / "runtime" / "emulator" / "kernels";
  SourceUnit unit;
  unit.kernel = test.kernel;
  unit.entry = test.entry;
  unit.spec_header = unit.spec_text = test.spec;
  unit.source = text_of(test.of_templates ? source_dir() / "templates" / "kernels" / (test.kernel + ".cu")
                                          : folder / (test.kernel + ".cu"));
  unit.headers.push_back({"hopper_params.h", text_of(folder / "hopper_params.h"), {}});
  for (const char* header : {"contract/integers.h",
                             "contract/spec_words.h",
                             "contract/tensor_map.h",
                             "ptx/barrier.cuh",
                             "ptx/cluster.cuh",
                             "ptx/launch.cuh",
                             "ptx/math.cuh",
                             "ptx/mbarrier.cuh",
                             "ptx/memory.cuh",
                             "ptx/tma.cuh",
                             "ptx/wgmma.cuh",
                             "pipeline/staged_pipeline.cuh",
                             "pipeline/kv_rings.cuh",
                             "pipeline/tma_producer_pipeline.cuh",
                             "pipeline/kv_consumer_pipeline.cuh",
                             "pipeline/tile_pipeline.cuh",
                             "contract/gemm_params.h",
                             "kernels/gemm_sm90_store.cuh",
                             "kernels/gemm_sm90_tiles.cuh",
                             "policy/tile_raster.cuh",
                             "policy/turns.cuh",
                             "tile/element.cuh",
                             "tile/staged_store.cuh"})
    unit.headers.push_back({header, text_of(source_dir() / "templates" / header), {}});
  unit.arch = "sm_90a";
  unit.options = {"--gpu-architecture=sm_90a",
                  "--std=c++17",
                  "--frandom-seed=" + test.kernel,
                  "--no-cache",
                  "-default-device",
                  "--minimal",
                  "--ptxas-options=-v",
                  "--ptxas-options=--warn-on-spills",
                  "--ptxas-options=--warn-on-local-memory-usage"};
  if (line_info) unit.options.push_back("-lineinfo");
  return unit;
}

Binary compile_hopper(Compiler& compiler, const HopperCase& test, bool line_info) {
  Binary binary = compiler.compile(hopper_source(test, line_info));
  if (!binary.warnings.empty()) throw Error(test.name + ": ptxas warns: " + binary.warnings.front());
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
