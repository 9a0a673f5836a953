/// Shared by cases of templates/kernels/gemm/sm90/gemm_sm90.cu: a Spec, its text and notes, a launch.
#pragma once

#include <string>

#include "contract/gemm_params.h"
#include "kernelwright/generator/source/spec.h"
#include "runtime/emulator/kernels/hopper_case_lists.h"

namespace kernelwright::test {

struct TileGemmCase {
  GemmSpec spec;
  GemmSize size;
  int ctas = 2, band = 2;
  bool bands_of_n = false;
};

/// bf16, 128 x 128, three slots, two warpgroups that share a tile, no cluster.
GemmSpec tile_gemm_spec();
/// The kernel's shared memory, divided as the kernel does it.
contract::GemmLayout tile_gemm_layout(const GemmSpec& spec);

/// Allocates, launches and compares.
using TileGemmRun = HopperOutcome (*)(const TileGemmCase& gemm, Device& device, const KernelImage& image,
                                      std::uint64_t seed);
HopperCase tile_gemm(const std::string& name, const TileGemmCase& gemm, TileGemmRun run);

/// The maps of a row-major d. The others, and pointers, are the caller's.
void set_output(const TileGemmCase& gemm, Device& device, DevicePtr d, contract::GemmParams& params);
/// Launches with `operands`, in which the sizes and the order of tiles are set here.
void launch_tile_gemm(const TileGemmCase& gemm, Device& device, const KernelImage& image,
                      const contract::GemmParams& operands);

}  // namespace kernelwright::test
