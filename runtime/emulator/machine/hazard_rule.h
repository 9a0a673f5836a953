/// The rules of the machine and the checker: one row says how grave a report is, where the PTX ISA asks for what is
/// missing, and what would mend it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernelwright/runtime/emulator/machine/hazard_kind.h"

namespace kernelwright::emulator {

enum class HazardGrade : std::uint8_t {
  kError,  // a legal schedule gives another result
  kIsa,    // the letter of the PTX ISA asks for it; hardware is known to tolerate it
  kNote,   // worth a look; the result is the same under every schedule
};
std::string_view name_of(HazardGrade grade);  // "error", "isa", "note"

/// In the order of their kinds. hazard_rule.cpp has the row of each.
enum class HazardRule : std::uint8_t {
  kSharedRace,
  kGlobalRace,
  kTensorRace,
  kLaneRelease,
  kEqualValues,
  kLaneRace,
  kProxyFence,
  kAllocationProxyFence,
  kAnswerProxyFence,
  kMapProxyFence,
  kMapInUse,
  kUnwrittenShared,
  kUnwrittenTensor,
  kUnwrittenUnused,
  kMbarrierMissing,
  kMbarrierInitOrder,
  kMbarrierInitFence,
  kMbarrierInitAgain,
  kMbarrierMayRunAhead,
  kMbarrierRanAhead,
  kMbarrierCount,
  kWgmmaFence,
  kWgmmaRegister,
  kWgmmaFragment,
  kTensorLoadRegister,
  kTensorLoadTwice,
  kCopyAtExit,
  kBulkStoreAtExit,
  kWgmmaAtExit,
  kTensorWorkAtExit,
  kTensorLoadAtExit,
  kTensorStoreAtExit,
  kMbarrierCopyAtExit,
  kMbarrierPhaseAtExit,
  kBarrierArrivalsAtExit,
  kClusterAtExit,
  kClusterAfterExit,
  kDivergence,
  kShuffleSource,
  kBarrierArrivalsAlone,
  kBarrierCount,
  kRegisterPool,
  kGridDependency,
  kTensorLeak,
  kTensorLanes,
  kTensorFreedInUse,
  kTensorMemoryUse,
  kTensorFenceBefore,
  kTensorFenceAfter,
  kBadData,
  kOutOfBounds,
  kDeviceHeap,
  kStackOverflow,
  kWrongCall,
  kTrap,
  kDeadlock,
  kFault,
};

struct HazardRuleRow {
  HazardRule rule;
  std::string_view name;  // "shared-race"
  HazardKind kind;
  HazardGrade grade;
  std::string_view section;  // of the PTX ISA, by its title; "" where the ISA has none
  std::string_view mend;     // "a barrier between the two accesses"
};
std::span<const HazardRuleRow> hazard_rules();  // all, in the order of HazardRule
const HazardRuleRow& row_of(HazardRule rule);
const HazardRuleRow* find_hazard_rule(std::string_view name);  // null: there is none
HazardRule rule_of_fault(HazardKind kind);                     // of a fault that ends a launch

}  // namespace kernelwright::emulator
