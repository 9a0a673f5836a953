/// How fast a machine is at what an attention kernel does: the constants of the timeline (predicted.h). The table in
/// machine_rates.cpp gives each its source.
#pragma once

#include "kernelwright/generator/problem/enums.h"

namespace kernelwright {

struct MachineRates {
  Arch arch;
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

/// nullptr where the timeline knows no machine.
const MachineRates* machine_rates(Arch arch);

}  // namespace kernelwright
