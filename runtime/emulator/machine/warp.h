/// A warp: its register file, the instructions at which its lanes stand, and what they wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/machine/async.h"
#include "kernelwright/runtime/emulator/program/op.h"

namespace kernelwright::emulator {

struct CallStacks;
struct Cta;
struct Launch;

/// Why lanes cannot go on. Each family of instructions brings its own functions, so no file lists all of them.
struct Wait {
  bool (*holds)(const Warp& warp, const Wait& wait) = nullptr;  // whether lanes can go on; null: no wait
  /// Runs in place of the instruction once holds() is true. Null: the instruction runs again.
  Step (*wake)(Warp& warp, const Op& op, LaneMask lanes, const Wait& wait) = nullptr;
  /// "phase 3 of the mbarrier at shared 1040 (2 of 3 arrivals, 0 of 16384 bytes missing)"
  std::string (*describe)(const Warp& warp, const Wait& wait) = nullptr;
  Cta* cta = nullptr;         // the CTA in whose shared memory `address` is
  std::uint32_t address = 0;  // byte offset in shared memory, barrier number, …
  std::uint64_t value = 0;    // parity, generation, groups
};

/// Lanes that stand at one instruction.
struct Split {
  LaneMask lanes = 0;
  std::uint32_t pc = 0;
  Wait wait = {};
  bool yielded = false;  // the split had its turn: the others go first
};

struct Warp {
  Warp();
  ~Warp();
  Warp(Warp&&) noexcept;
  template <class T>
  T* lanes(Slot slot) {
    return reinterpret_cast<T*>(registers + slot);
  }
  template <class T>
  const T* lanes(Slot slot) const {
    return reinterpret_cast<const T*>(registers + slot);
  }
  LaneMask& predicate(Slot slot) { return *reinterpret_cast<LaneMask*>(registers + slot); }
  LaneMask predicate(Slot slot) const { return *reinterpret_cast<const LaneMask*>(registers + slot); }
  /// Sets the bits of `lanes` in a predicate to those of `value`.
  void set_predicate(Slot slot, LaneMask value, LaneMask lanes) {
    LaneMask& place = predicate(slot);
    place = (place & ~lanes) | (value & lanes);
  }

  std::byte* registers = nullptr;  // 64-byte aligned
  Cta* cta = nullptr;
  const Launch* launch = nullptr;
  std::uint32_t index = 0;      // in its CTA
  LaneMask live = 0;            // lanes that have not exited
  std::vector<Split> splits;    // disjoint; their union is `live`
  Wait wait;                    // set by a handler that returns kWait
  LaneMask carry = 0;           // CC.CF of add.cc and its like
  const Op* current = nullptr;  // the instruction that runs now
  LaneMask current_lanes = 0;
  std::vector<std::byte> local;       // 32 x the program's stack bytes, lane after lane
  std::unique_ptr<CallStacks> calls;  // made by the first call of a function
  CopyGroups copy_groups;             // cp.async
  CopyGroups bulk_groups;             // cp.async.bulk to global memory
  /// A tcgen05.ld that is issued but not performed.
  struct TensorLoad {
    const Op* op = nullptr;
    std::uint32_t number = 0;
    std::function<void()> perform;
  };
  std::vector<TensorLoad> tensor_loads;  // oldest first
  std::uint32_t tensor_loads_issued = 0;
  std::uint32_t tensor_stores = 0;  // tcgen05.st that are issued but not performed
  std::uint64_t instructions = 0, thread_instructions = 0;
  std::uint32_t registers_each = 0;      // per thread: what setmaxnreg last set
  bool cluster_arrived = false;          // at barrier.cluster: the warp has arrived and has not waited yet
  std::uint32_t cluster_generation = 0;  // the phase at which the warp arrived
  /// The live allocation that a lookup found last. Most accesses go to the same allocation as the one before.
  struct {
    std::uint64_t begin = 0, end = 0;
    bool writable = false;
  } last_allocation;
};

inline int first_lane(LaneMask lanes) { return __builtin_ctz(lanes); }
inline int count_lanes(LaneMask lanes) { return lanes == kAllLanes ? 32 : __builtin_popcount(lanes); }

/// Calls `body(lane)` for each lane of `lanes`, in order.
template <class Body>
inline void for_each_lane(LaneMask lanes, Body&& body) {
  if (lanes == kAllLanes) {
    for (int lane = 0; lane < 32; ++lane) body(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) body(__builtin_ctz(lanes));
  }
}

/// d[lane] = compute(lane) for each lane of `lanes`. If `lanes` is full, the loop covers the whole warp, and the
/// compiler vectorises it. An output may also be an input, because both are indexed by the same lane.
template <class T, class Compute>
inline void assign_lanes(T* d, LaneMask lanes, Compute&& compute) {
  if (lanes == kAllLanes) {
#pragma GCC ivdep
    for (int lane = 0; lane < 32; ++lane) d[lane] = compute(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) {
      const int lane = __builtin_ctz(lanes);
      d[lane] = compute(lane);
    }
  }
}

}  // namespace kernelwright::emulator
