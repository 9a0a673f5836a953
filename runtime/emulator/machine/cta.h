/// A CTA and its cluster while they run: shared memory, named barriers, warps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/machine/async.h"
#include "kernelwright/runtime/emulator/machine/memory.h"
#include "kernelwright/runtime/emulator/machine/warp.h"
#include "kernelwright/runtime/emulator/program/shared_layout.h"

namespace kernelwright::emulator {

class DeviceHeap;
class GlobalShadow;
struct TensorMapEdits;
class Hazards;
class Timeline;
struct Cluster;
struct Program;
struct Warpgroup;  // ops/matrix/warpgroup.h
class TensorMemory;
struct TensorCollectors;  // ops/matrix/

/// A shared::cluster address is the CTA's rank << kRankShift | offset; a CTA's own symbols carry its rank.
inline constexpr int kRankShift = 24;
inline constexpr std::uint32_t kSharedOffsetMask = (1u << kRankShift) - 1;
inline constexpr int kNumNamedBarriers = 16;

/// What a launch prints at most. A GPU's buffer has as many bytes (cudaLimitPrintfFifoSize).
inline constexpr std::size_t kMostPrinted = std::size_t{1} << 20;

/// bar.sync / bar.arrive (PTX ISA "bar"): threads arrive by whole warps.
struct NamedBarrier {
  std::uint32_t arrived = 0, expected = 0;  // threads; the first arrival of a phase sets expected
  std::uint32_t generation = 0;             // phases completed
  std::uint32_t reduction_and = 1, reduction_or = 0, reduction_popc = 0;  // barrier.red, of the phase under way
  std::uint32_t result_and = 1, result_or = 0, result_popc = 0;           // of the phase completed last
  std::vector<std::uint32_t> waiting;                                     // warps, for reports
};

struct Cta {
  Cta();
  ~Cta();
  Cluster* cluster = nullptr;
  std::uint32_t rank = 0;          // in its cluster
  std::uint32_t position[3] = {};  // in its cluster, per dimension
  std::uint32_t id[3] = {};        // %ctaid
  std::vector<std::byte> shared;   // [0, kSharedBase) is unused, but for a kernel that reads %reserved_smem_offset_1
  std::uint32_t shared_begin = kSharedBase;  // the first byte that loads and stores may touch
  /// Zeroes the part of the reserved memory that cooperative groups use, and lets loads and stores touch this part.
  void open_reserved_shared() {
    shared_begin = kReservedSharedBegin;
    std::fill(shared.begin() + kReservedSharedBegin, shared.begin() + kSharedBase, std::byte{0});
  }
  NamedBarrier barriers[kNumNamedBarriers];
  std::vector<Warp> warps;
  std::vector<std::shared_ptr<Warpgroup>> warpgroups;  // made when the first wgmma is issued
  std::shared_ptr<TensorMemory> tensor;                // made at its first use: tensor_memory()
  std::shared_ptr<TensorCollectors> collectors;        // made by the first tcgen05.mma
  std::uint32_t live_warps = 0;
  std::uint32_t pool_registers = 0;  // registers that belong to no warp; see setmaxnreg
};

struct Cluster {
  Cluster(Completion completion, std::uint64_t seed) : async(completion, seed) {}
  std::uint32_t id = 0;            // in launch order
  std::uint32_t position[3] = {};  // %clusterid
  std::vector<std::unique_ptr<Cta>> ctas;
  AsyncQueue async;
  std::uint32_t barrier_arrived = 0, barrier_generation = 0;  // threads; barrier.cluster
  std::uint32_t live_threads = 0;
  std::uint64_t mma_operations = 0;  // 2 per multiply-add, of mma.sync, wgmma and tcgen05.mma
  std::uint64_t copied_bytes = 0;    // by TMA and bulk copies
  std::string printed;               // by vprintf, kMostPrinted bytes at most
  Hazards* hazards = nullptr;        // null: not checked
  Timeline* timeline = nullptr;      // null: not kept
  /// clusterlaunchcontrol: takes the next cluster that has not begun out of the launch. Returns the cluster's number in
  /// launch order.
  std::function<std::optional<std::uint32_t>()> cancel_next;
};

/// What all warps of one launch share. Read-only while clusters run, except where a comment says otherwise.
struct Launch {
  const Program* program = nullptr;
  std::uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
  std::uint32_t dynamic_shared_bytes = 0;
  std::span<const std::byte> parameters;  // 64-byte aligned, lives for the launch; generic addresses may point into it
  const GlobalMemory::View* memory = nullptr;
  DeviceHeap* heap = nullptr;              // null unless the program uses it
  std::uint32_t registers_per_thread = 0;  // allocated to every warp at the beginning, in eights; setmaxnreg needs it
  bool registers_known = false;            // false: registers_per_thread is the most that fits
  std::uint32_t number = 0;                // number of this launch on its device: later launches have larger numbers
  std::uint64_t grid_workspace = 0;        // through which CTAs of a cooperative launch synchronise; 0: none
  std::uint32_t rounds_per_turn = 256;     // in which each warp of a cluster runs, before another cluster has its turn
  std::uint32_t depends_on = 0;            // griddepcontrol: the launch ahead of it in its stream (0: none)
  bool depends_on_all = false;             // the checker assumes that the launch ahead uses all of memory
  GlobalShadow* exchange = nullptr;        // for hazards, if clusters communicate through global memory; else null
  TensorMapEdits* map_edits = nullptr;     // for hazards: the tensor maps that launches of this device have edited
};

}  // namespace kernelwright::emulator
