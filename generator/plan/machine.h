/// The facts of machines: rates, memory speed, clocks, what fits a cache. One row for each class of devices, for an
/// architecture alone does not say them: an H200 has an H100's SMs and 4.8 TB/s. machine.cpp gives each number its
/// source. What limits a kernel (shared memory, registers, threads) is the architecture's: problem/arch.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernelwright/generator/problem/enums.h"

namespace kernelwright {

/// What an attention kernel's timeline counts with (attention/predicted.h).
struct MachineRates {
  std::string_view device;  // whose rates they are: "H100 80GB HBM3"
  bool measured;            // whether predictions were held to times of that device
  int sms;
  double clock_ghz;  // the highest

  // Of one SM, per clock.
  double mma_flops;         // 16-bit operands, dense: a multiply-add is two
  double mma_share;         // of it that products in flight reach
  double exp2;              // exponentials of the special-function units
  double shared_bytes;      // that products read of shared memory
  double l2_bytes;          // that copies bring from the L2
  double tensor_bytes;      // between tensor memory and registers; 0: there is none
  double issue_clocks;      // between two instructions of a softmax warp that has its scheduler alone
  double neighbour_clocks;  // more, for each other softmax warp of the scheduler
  double stream_clocks;     // between two that wait for nothing: masks, stores

  // In clocks.
  double mma_latency;     // of a product, beyond the time that it keeps the tensor cores busy
  double barrier;         // from an arrival to the waiter's next instruction
  double l2_latency;      // of a copy that the L2 has
  double memory_latency;  // of one that it has not, where many are under way
  double tile_clocks;     // of a softmax step, whatever its keys: shuffles, votes, branches
  double item_clocks;     // of an item's end, likewise
  double burst_clocks;    // that an SM is ahead of its share of the memory at most, having asked for less before
  double copy_clocks;     // to issue one box

  // Of the device.
  double read_gb_s;   // of its memory, if nothing is written
  double write_gb_s;  // likewise: a copy's rate lies between them
  double launch_us;   // from the launch to the first copy, and from the last store to the end
  double merge_us;    // of parts of split keys: written, counted, read again
  double cool_share;  // of the products' peak that power allows at the highest clock: above, the clock's cube falls
  double idle_us;     // what lies between two launches where times come from: the L2 is flushed
};

/// What the models that rank a GEMM's tiles count with.
struct GemmRates {
  double clock_mhz;     // that power allows under products
  double bytes_per_us;  // of the device's memory
  double launch_us;
  double l2_bytes;      // a clock and SM, that copies bring
  double shared_bytes;  // a clock and SM, that products read
  double store_bytes;   // a clock and SM, to the L2
};

/// What the emulator's timeline counts with, of one SM: rounded numbers, for pictures of a pipeline. An attention
/// kernel's predicted time counts with MachineRates, which are fitted to times.
struct TraceRates {
  int wgmma_macs;     // 16-bit multiply-adds a clock, of the four tensor cores together; 0: no wgmma
  int mma_sync_macs;  // the same for mma.sync
  int copy_bytes;     // a clock, between the L2 and shared memory, while all SMs copy
  int copy_latency;   // clocks of a copy, besides the clocks for its bytes
  int store_latency;  // clocks until a bulk store has read its source
};

/// One class of devices.
struct MachineClass {
  DeviceClass device;     // as tuned rows name it
  std::string_view name;  // "H100 SXM"
  std::string_view word;  // what a device of this class has in its name, and no other of its architecture; "": usual
  Arch arch;
  int sms;
  double matrix_operations_per_s;  // 16-bit operands, f32 sums, dense: a multiply-add is two
  double bytes_per_s;              // of the memory
  std::int64_t shared_keys_bytes;  // keys and values that may share the L2 between heads
  double bytes_in_flight;          // of keys and values, that an SM asks for so that the memory is busy
  double warps_in_flight;          // that multiply, so that an SM's tensor cores are busy
  TraceRates trace;
  const MachineRates* timeline;  // nullptr: the timeline knows no such machine
  const GemmRates* gemm;         // of the architecture's own family; nullptr: it has none
};

/// All of them; of an architecture the usual class first.
std::span<const MachineClass> machine_classes() noexcept;

/// The class that is meant where an architecture is all that is known. The planner's model counts with it on every
/// device of the architecture. Tuned rows are chosen by the device's own class.
const MachineClass& usual_machine(Arch arch) noexcept;

/// The class of a device by its name, "NVIDIA H200"; the usual one of `arch` where no word matches.
const MachineClass& machine_of(std::string_view device, Arch arch) noexcept;

/// Those of usual_machine(); nullptr where the timeline knows no machine.
const MachineRates* machine_rates(Arch arch) noexcept;

/// What the portable family's GEMM counts with, whatever the machine: only ratios count there.
const GemmRates& portable_gemm_rates() noexcept;

}  // namespace kernelwright
