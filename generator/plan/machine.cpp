#include "kernelwright/generator/plan/machine_rates.h"

namespace kernelwright {
namespace {

// "Fitted": by bench/timeline_bench.cpp to every other shape of bench/results/attention/2026-11-21-h100-peers.csv, all
// kernels together; bench/results/attention/2026-11-21-h100-predicted.md shows how the other half comes out.
constexpr MachineRates kH100 = {
    .arch = Arch::kSm90a,
    .device = "H100 80GB HBM3",
    .measured = true,
    .sms = 132,
    .clock_ghz = 1.98,    // NVML, idle to lightly loaded
    .mma_flops = 4096,    // data sheet: 989 TFLOP/s / (132 SMs x 1.83 GHz)
    .mma_share = 0.94,    // fitted
    .exp2 = 16,           // CUDA programming guide, throughput of arithmetic instructions, 9.0
    .shared_bytes = 128,  // 32 banks of 4 bytes
    .l2_bytes = 46,       // 64 bytes an SM, and about 6150 of the whole L2: nothing here waits for it
    .tensor_bytes = 0,
    .issue_clocks = 4.1,      // fitted; ncu: 2.3 fixed latency + 1 issue + 0.8 dispatch, d128 dense 2k
    .neighbour_clocks = 0.8,  // fitted; ncu: 0.8 not selected
    .stream_clocks = 2.5,     // assumed: two to three instructions in flight hide half of what a chain waits for
    .mma_latency = 35,        // fitted
    .barrier = 20,            // fitted
    .l2_latency = 1050,       // fitted
    .memory_latency = 1700,   // fitted
    .tile_clocks = 740,       // fitted
    .item_clocks = 1240,      // fitted
    .burst_clocks = 1800,     // fitted
    .copy_clocks = 20,        // assumed: one instruction and its address
    .read_gb_s = 3094,        // a kernel that only reads: bench/read_stream.py
    .write_gb_s = 2000,       // a copy of 2 GiB at 2431 GB/s beside that: 2 / 2431 - 1 / 3094
    .launch_us = 8,           // the read-only kernel takes 18.6 us for 33.5 MB, of which 10.8 at its rate
    .merge_us = 2,            // fitted
    .cool_share = 0.41,       // fitted, to times and to the clock that NVML showed beside them
    .idle_us = 90,            // 256 MiB of zeros
};

// No B200 has run any of it. What its data sheet does not say is the H100's, or assumed.
constexpr MachineRates b200(Arch arch, double exp2) {
  MachineRates rates = kH100;
  rates.arch = arch;
  rates.device = arch == Arch::kSm103a ? "B300" : "B200";
  rates.measured = false;
  rates.sms = 148;
  rates.clock_ghz = 1.965;   // the highest that is listed
  rates.mma_flops = 8192;    // data sheet: 2250 TFLOP/s / (148 SMs x 1.85 GHz)
  rates.exp2 = exp2;         // CUDA programming guide: 10.0 as 9.0, 10.3 twice that
  rates.tensor_bytes = 512;  // assumed: a word for each of 128 lanes
  rates.issue_clocks = 3.4;  // FlashAttention-4's published 1.6 PFLOP/s, three and a half instructions a score: about 4
  rates.tile_clocks = 200;   // assumed: a thread has a row, and no shuffles
  rates.read_gb_s = 7400;    // data sheet: 8000, and the H100's share of its own, 0.92
  rates.write_gb_s = 4780;   // likewise
  rates.cool_share = 0.6;    // assumed: 1000 W
  return rates;
}
constexpr MachineRates kMachines[] = {kH100, b200(Arch::kSm100a, 16), b200(Arch::kSm103a, 32)};

}  // namespace

const MachineRates* machine_rates(Arch arch) {
  for (const MachineRates& machine : kMachines)
    if (machine.arch == arch) return &machine;
  return nullptr;
}

}  // namespace kernelwright
