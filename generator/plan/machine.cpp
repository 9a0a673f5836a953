#include "kernelwright/generator/plan/machine.h"

#include "kernelwright/generator/problem/arch.h"

namespace kernelwright {
namespace {

// "Fitted": by bench/timeline_bench.cpp to every other shape of bench/results/attention/2026-11-21-h100-peers.csv, all
// kernels together; bench/results/attention/2026-11-21-h100-predicted.md shows how the other half comes out.
constexpr MachineRates kH100 = {
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
constexpr MachineRates b200(std::string_view device, double exp2) {
  MachineRates rates = kH100;
  rates.device = device;
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
constexpr MachineRates kB200 = b200("B200", 16), kB300 = b200("B300", 32);

// An H100 with faster memory. No time of one was fitted to: the memory's rates are the H100's shares of the data
// sheets'.
constexpr MachineRates h200() {
  MachineRates rates = kH100;
  rates.device = "H200";
  rates.measured = false;
  rates.read_gb_s = 4433;   // data sheet: 4800, of which an H100 reads 3094 / 3350
  rates.write_gb_s = 2866;  // likewise
  return rates;
}
constexpr MachineRates kH200 = h200();

constexpr GemmRates kHopperGemm = {
    .clock_mhz = 1600,      // an H100 under products, by bench/results/gemm/steps/gemm-tiles.txt
    .bytes_per_us = 3.0e6,  // fitted to the same
    .launch_us = 2,         // fitted
    .l2_bytes = 50,         // fitted
    .shared_bytes = 128,    // 32 banks of 4 bytes
    .store_bytes = 32,      // fitted
};
constexpr GemmRates kBlackwellGemm = {
    .clock_mhz = 1750,      // assumed: what power allows under products of 1000 W
    .bytes_per_us = 7.0e6,  // data sheet: 8 TB/s, and the share of its own that an H100 gives
    .launch_us = 2,         // as on an H100
    .l2_bytes = 60,         // assumed: 256 x 256 pairs at the best published rate read 53
    .shared_bytes = 128,    // 32 banks of 4 bytes, which tensor cores read at
    .store_bytes = 32,      // as on an H100
};
constexpr GemmRates kPortableGemm = {
    .clock_mhz = 1500,      // assumed
    .bytes_per_us = 1.5e6,  // about an A100's, to all SMs
    .launch_us = 2,         // as on an H100
    .l2_bytes = 40,         // assumed
    .shared_bytes = 128,    // 32 banks of 4 bytes
    .store_bytes = 32,      // as on an H100
};

// Half of an H100's L2 of 50 MB. The other classes have the same until one is measured.
constexpr std::int64_t kSharedKeys = 24 << 20;
// An H100 reads 3.35 TB/s over 132 SMs, 25 KB an SM and microsecond, and an answer takes 1 to 1.5 of those under load.
// The estimate ranks schedules of one problem; the other classes have the same until one is measured.
constexpr double kBytesInFlight = 40e3;
constexpr double kWarpsInFlight = 8;  // two for each of the four tensor cores of an SM

// mma.sync: 60 % of wgmma's rate on an H100 (microbenchmarks); no microbenchmark of a B200 is public, so an A100's.
// A GeForce's tensor cores are a quarter as wide per SM as an A100's and have half its rate. Copies: the L2's measured
// bandwidth over SMs and clock. Latencies are rounded from public microbenchmarks.
constexpr TraceRates kA100Trace = {
    .wgmma_macs = 0, .mma_sync_macs = 1024, .copy_bytes = 32, .copy_latency = 500, .store_latency = 100};
constexpr TraceRates kGeForceTrace = {
    .wgmma_macs = 0, .mma_sync_macs = 512, .copy_bytes = 24, .copy_latency = 500, .store_latency = 100};
constexpr TraceRates kHopperTrace = {.wgmma_macs = static_cast<int>(kH100.mma_flops) / 2,
                                     .mma_sync_macs = 1280,
                                     .copy_bytes = 32,
                                     .copy_latency = 600,
                                     .store_latency = 100};
constexpr TraceRates slower_to_copy(TraceRates rates) {
  rates.copy_latency = kHopperTrace.copy_latency;
  return rates;
}
constexpr TraceRates kBlackwellTrace = slower_to_copy(kA100Trace), kRtx5090Trace = slower_to_copy(kGeForceTrace);

constexpr MachineClass row(DeviceClass device, std::string_view name, std::string_view word, int sms, double tflops,
                           double tb_s, TraceRates trace, const MachineRates* timeline = nullptr,
                           const GemmRates* gemm = nullptr) {
  return {.device = device,
          .name = name,
          .word = word,
          .arch = arch_of(device),
          .sms = sms,
          .matrix_operations_per_s = tflops * 1e12,
          .bytes_per_s = tb_s * 1e12,
          .shared_keys_bytes = kSharedKeys,
          .bytes_in_flight = kBytesInFlight,
          .warps_in_flight = kWarpsInFlight,
          .trace = trace,
          .timeline = timeline,
          .gemm = gemm};
}
// Vendor data sheets: SMs, dense 16-bit matrix rate and memory bandwidth. The SM counts of sm_86 and sm_89 are those of
// an A40 and an L40: plans without a device are made for them. An RTX 3090 has 82 SMs, an RTX 4090 has 128.
constexpr MachineClass kClasses[] = {
    row(DeviceClass::kA100, "A100 80GB", "", 108, 312, 2.039, kA100Trace),
    row(DeviceClass::kRtx3090, "RTX 3090", "", 84, 71, 0.936, kGeForceTrace),
    row(DeviceClass::kRtx4090, "RTX 4090", "", 142, 165, 1.008, kGeForceTrace),
    row(DeviceClass::kH100, "H100 SXM", "", kH100.sms, 989, 3.35, kHopperTrace, &kH100, &kHopperGemm),
    // The model's choices are the H100's, as long as none was measured to be better on an H200.
    row(DeviceClass::kH200, "H200", " H200", kH200.sms, 989, 4.8, kHopperTrace, &kH200, &kHopperGemm),
    row(DeviceClass::kB200, "B200", "", kB200.sms, 2250, 8, kBlackwellTrace, &kB200, &kBlackwellGemm),
    row(DeviceClass::kB300, "B300", "", kB300.sms, 2500, 8, kBlackwellTrace, &kB300, &kBlackwellGemm),
    row(DeviceClass::kRtx5090, "RTX 5090", "", 170, 210, 1.792, kRtx5090Trace),
};

}  // namespace

std::span<const MachineClass> machine_classes() noexcept { return kClasses; }

const MachineClass& usual_machine(Arch arch) noexcept {
  for (const MachineClass& machine : kClasses)
    if (machine.arch == arch) return machine;
  return kClasses[0];  // unreachable: a test holds the table to the enum
}

const MachineClass& machine_of(std::string_view device, Arch arch) noexcept {
  for (const MachineClass& machine : kClasses)
    if (machine.arch == arch && !machine.word.empty() && device.find(machine.word) != device.npos) return machine;
  return usual_machine(arch);
}

const MachineRates* machine_rates(Arch arch) noexcept { return usual_machine(arch).timeline; }

const GemmRates& portable_gemm_rates() noexcept { return kPortableGemm; }

}  // namespace kernelwright
