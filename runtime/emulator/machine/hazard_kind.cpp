#include "kernelwright/runtime/emulator/machine/hazard_kind.h"

namespace kernelwright::emulator {

std::string_view name_of(HazardKind kind) {
  switch (kind) {
    case HazardKind::kRace: return "race";
    case HazardKind::kLaneRace: return "race between lanes";
    case HazardKind::kProxyFence: return "missing proxy fence";
    case HazardKind::kUnwritten: return "read of unwritten memory";
    case HazardKind::kMbarrier: return "mbarrier misuse";
    case HazardKind::kRegister: return "register of a wgmma or tcgen05.ld in flight";
    case HazardKind::kOutstanding: return "work outstanding at exit";
    case HazardKind::kDivergence: return "divergence";
    case HazardKind::kBarrier: return "barrier misuse";
    case HazardKind::kRegisterPool: return "register pool";
    case HazardKind::kGridDependency: return "missing griddepcontrol.wait";
    case HazardKind::kTensorMemory: return "tensor memory";
    case HazardKind::kTensorFence: return "missing tcgen05 fence";
    case HazardKind::kData: return "bad data";
    case HazardKind::kOutOfBounds: return "out of bounds";
    case HazardKind::kDeadlock: return "deadlock";
    case HazardKind::kFault: return "fault";
  }
  return "fault";
}

}  // namespace kernelwright::emulator
