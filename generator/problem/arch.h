/// A row for each architecture that we compile for: the facts that the planner, validation and launch plans need.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernelwright/generator/problem/enums.h"

namespace kernelwright {

struct ArchInfo {
  Arch arch;
  std::string_view name;     // "sm_90a": NVRTC's --gpu-architecture=sm_90a, and the .target of its PTX
  int major, minor;          // the compute capability whose devices run its binaries
  int shared_bytes_per_cta;  // dynamic and static together, after the opt-in
  int shared_bytes_per_sm;   // of which each resident CTA also takes reserved_shared_bytes_per_cta
  int max_threads_per_sm;
  int max_ctas_per_sm;
  int tensor_memory_columns;      // of 128 lanes x 32 bits; 0: none
  bool fp8_cvt, fp8_mma_sync;     // cvt between fp8 and f16x2; mma.sync with fp8 operands
  bool tma, multicast, clusters;  // cp.async.bulk.tensor; its .multicast::cluster at speed; CTA clusters
  bool setmaxnreg, pdl;           // registers moved between warpgroups; programmatic dependent launch
  bool wgmma, tcgen05;
  std::optional<Family> own;  // the family that is written for it alone, or for its generation
  bool mma_sync = true, cp_async = true;
  int registers_per_sm = 65536;
  int max_registers_per_thread = 255;
  int reserved_shared_bytes_per_cta = 1024;
  int max_threads_per_cta = 1024;

  int max_warps_per_sm() const { return max_threads_per_sm / 32; }
};

/// All rows, oldest architecture first.
std::span<const ArchInfo> all_archs();

const ArchInfo& arch_info(Arch arch);

/// The row whose binaries run on a device of that compute capability; nullopt if there is none. An 8.7 (Orin) runs
/// binaries for sm_80, and has the same shared memory. Binaries for an `a` architecture run on that very compute
/// capability alone, so 10.1 and 12.1 have no row.
std::optional<Arch> arch_for_compute_capability(int major, int minor);

/// The architecture of a class of devices. generator/plan/machine.h has the facts of each class.
constexpr Arch arch_of(DeviceClass device) {
  switch (device) {
    case DeviceClass::kA100: return Arch::kSm80;
    case DeviceClass::kRtx3090: return Arch::kSm86;
    case DeviceClass::kRtx4090: return Arch::kSm89;
    case DeviceClass::kH100:
    case DeviceClass::kH200: return Arch::kSm90a;
    case DeviceClass::kB200: return Arch::kSm100a;
    case DeviceClass::kB300: return Arch::kSm103a;
    case DeviceClass::kRtx5090: return Arch::kSm120a;
  }
  return Arch::kSm80;  // no enumerator is left
}

/// CTAs that an SM of `arch` holds at once, and what stops it from holding more.
struct Occupancy {
  int ctas = 0;
  std::string_view limit;  // "shared memory", "threads", "registers", "CTAs per SM"
};
/// `shared_bytes` of a CTA, static and dynamic; `registers` of a thread, 0 if they are not known.
Occupancy occupancy(const ArchInfo& arch, int shared_bytes, int threads, int registers);

/// The family that runs on every architecture.
inline constexpr Family kGeneralFamily = Family::kPortable;

/// Whether `family`'s instructions exist on `arch`: it is the architecture's own, or no architecture's.
bool family_exists_on(Family family, Arch arch);

/// The family that is written for `arch` alone, or for its generation; nullopt if portable is the only one.
std::optional<Family> own_family(Arch arch);

/// The architectures of the devices that run `family`: "sm_90a" for hopper, for messages.
std::string archs_of(Family family);

}  // namespace kernelwright
