/// The kernels of this folder as cases that any device can run: seeded inputs, a launch, and a comparison with a host
/// reference in fp64. They test the emulator, and a GPU tests them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/device/backend.h"
#include "runtime/emulator/kernels/hopper_params.h"

namespace kernelwright::test {

/// The result of one run of a case.
struct HopperOutcome {
  std::string failure;            // what is wrong and where; "" if all is right
  double worst_ratio = 0;         // largest |error| / bound; where bits must be equal, 0
  std::vector<std::byte> output;  // everything that was written, to compare runs and devices bit by bit
};

struct HopperCase {
  std::string name;    // "gemm_cluster2_k_major": letters, digits and underscores
  std::string kernel;  // the file: "gemm_sm90"
  std::string entry;   // one of its entries; a case may launch others of the same file as well
  std::string spec;    // text of its spec.h
  KernelNotes notes;   // roles, and the layout of shared memory, for reports
  /// Allocates, launches and compares; frees all. Inputs and outputs follow from `seed` alone.
  std::function<HopperOutcome(Device& device, const KernelImage& image, std::uint64_t seed)> run;
  bool of_templates = false;       // the file is one of templates/kernels/gemm/sm90, not of this folder
  std::string folder = "kernels";  // of tests/runtime/emulator, where the file is
  Arch arch = Arch::kSm90a;
};
inline void PrintTo(const HopperCase& test, std::ostream* out) { *out << test.name; }

/// All cases: small enough for an emulator, large enough that rings wrap and edges are ragged. They are made once a
/// process. Tests take pointers as parameters, because gtest copies each parameter in every process that lists tests.
const std::vector<HopperCase>& hopper_cases();
std::vector<const HopperCase*> pointers_to_hopper_cases();

/// D = A B^T with gemm_sm90, of a size of the caller's own.
struct HopperGemm {
  GemmVariant variant = {64, 128, 4, 1, false, false, 0, false};
  int m = 256, n = 256, k = 256;
  int ctas = 4;       // persistent; a multiple of the cluster
  bool exact = true;  // small integers, so that any order of summation gives the same bits; else normal values
};
HopperCase hopper_gemm(const std::string& name, const HopperGemm& gemm);

/// O = softmax(scale Q K^T + bias) V with attention_sm90.
struct HopperAttention {
  AttentionVariant variant = {128, 64, 2, false, false};
  int batch_heads = 2;
  int q_len = 256, kv_len = 256;
};
HopperCase hopper_attention(const std::string& name, const HopperAttention& attention);

/// The source of a case for NVRTC, read from this folder. `line_info`: the PTX names the lines that its instructions
/// come from, and has the same instructions.
SourceUnit hopper_source(const HopperCase& test, bool line_info = false);

/// The PTX and the cubin of a case, compiled once a test run. With `line_info` the PTX alone is that of
/// hopper_source(test, true). Throws the errors of Compiler::compile(), and Error if ptxas warned: of spills, or of
/// wgmma that it had to serialise.
Binary compile_hopper(Compiler& compiler, const HopperCase& test, bool line_info = false);

/// The best image of `binary` for `device`, with the notes of `test`. It is a view of both.
KernelImage hopper_image(const Device& device, const HopperCase& test, const Binary& binary);

}  // namespace kernelwright::test
