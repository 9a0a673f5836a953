#include "kernelwright/generator/problem/arch.h"

namespace kernelwright {
namespace {

constexpr int kKiB = 1024;

constexpr ArchInfo kArchs[] = {
    {.arch = Arch::kSm80,
     .name = "sm_80",
     .major = 8,
     .minor = 0,
     .shared_bytes_per_cta = 163 * kKiB,
     .shared_bytes_per_sm = 164 * kKiB,
     .max_threads_per_sm = 2048,
     .max_ctas_per_sm = 32,
     .tensor_memory_columns = 0},
    {.arch = Arch::kSm86,
     .name = "sm_86",
     .major = 8,
     .minor = 6,
     .shared_bytes_per_cta = 99 * kKiB,
     .shared_bytes_per_sm = 100 * kKiB,
     .max_threads_per_sm = 1536,
     .max_ctas_per_sm = 16,
     .tensor_memory_columns = 0},
    {.arch = Arch::kSm89,
     .name = "sm_89",
     .major = 8,
     .minor = 9,
     .shared_bytes_per_cta = 99 * kKiB,
     .shared_bytes_per_sm = 100 * kKiB,
     .max_threads_per_sm = 1536,
     .max_ctas_per_sm = 24,
     .tensor_memory_columns = 0,
     .fp8_cvt = true,
     .fp8_mma_sync = true},
    {.arch = Arch::kSm90a,
     .name = "sm_90a",
     .major = 9,
     .minor = 0,
     .shared_bytes_per_cta = 227 * kKiB,
     .shared_bytes_per_sm = 228 * kKiB,
     .max_threads_per_sm = 2048,
     .max_ctas_per_sm = 32,
     .tensor_memory_columns = 0,
     .fp8_cvt = true,
     .fp8_mma_sync = true,
     .tma = true,
     .multicast = true,
     .clusters = true,
     .setmaxnreg = true,
     .pdl = true,
     .wgmma = true,
     .own = Family::kHopper},
    {.arch = Arch::kSm100a,
     .name = "sm_100a",
     .major = 10,
     .minor = 0,
     .shared_bytes_per_cta = 227 * kKiB,
     .shared_bytes_per_sm = 228 * kKiB,
     .max_threads_per_sm = 2048,
     .max_ctas_per_sm = 32,
     .tensor_memory_columns = 512,
     .fp8_cvt = true,
     .fp8_mma_sync = true,
     .tma = true,
     .multicast = true,
     .clusters = true,
     .setmaxnreg = true,
     .pdl = true,
     .tcgen05 = true,
     .own = Family::kBlackwell},
    {.arch = Arch::kSm103a,
     .name = "sm_103a",
     .major = 10,
     .minor = 3,
     .shared_bytes_per_cta = 227 * kKiB,
     .shared_bytes_per_sm = 228 * kKiB,
     .max_threads_per_sm = 2048,
     .max_ctas_per_sm = 32,
     .tensor_memory_columns = 512,
     .fp8_cvt = true,
     .fp8_mma_sync = true,
     .tma = true,
     .multicast = true,
     .clusters = true,
     .setmaxnreg = true,
     .pdl = true,
     .tcgen05 = true,
     .own = Family::kBlackwell},
    {.arch = Arch::kSm120a,
     .name = "sm_120a",
     .major = 12,
     .minor = 0,
     .shared_bytes_per_cta = 99 * kKiB,
     .shared_bytes_per_sm = 100 * kKiB,
     .max_threads_per_sm = 1536,
     .max_ctas_per_sm = 24,
     .tensor_memory_columns = 0,
     .fp8_cvt = true,
     .fp8_mma_sync = true,
     .tma = true,
     .multicast = false,
     .clusters = true,
     .setmaxnreg = true,
     .pdl = true},
};

}  // namespace

std::span<const ArchInfo> all_archs() { return kArchs; }

const ArchInfo& arch_info(Arch arch) {
  for (const ArchInfo& row : kArchs)
    if (row.arch == arch) return row;
  return kArchs[0];  // unreachable: a test holds the table to the enum
}

std::optional<Arch> arch_for_compute_capability(int major, int minor) {
  if (major == 8 && minor == 7) return Arch::kSm80;
  for (const ArchInfo& row : kArchs)
    if (row.major == major && row.minor == minor) return row.arch;
  return std::nullopt;
}

Occupancy occupancy(const ArchInfo& arch, int shared_bytes, int threads, int registers) {
  Occupancy result{arch.max_ctas_per_sm, "CTAs per SM"};
  const auto limit = [&](int ctas, std::string_view what) {
    if (ctas < result.ctas) result = {ctas, what};
  };
  const int warps = threads > 32 ? (threads + 31) / 32 : 1;
  limit(arch.shared_bytes_per_sm / (shared_bytes + arch.reserved_shared_bytes_per_cta), "shared memory");
  limit(arch.max_warps_per_sm() / warps, "threads");
  // registers are handed out to warps in blocks of 256
  if (registers > 0) limit(arch.registers_per_sm / ((registers * 32 + 255) / 256 * 256) / warps, "registers");
  return result;
}

bool family_exists_on(Family family, Arch arch) {
  const std::optional<Family> own = own_family(arch);
  for (const ArchInfo& row : kArchs)
    if (row.own == family) return own == family;
  return true;  // no architecture owns it
}

std::optional<Family> own_family(Arch arch) { return arch_info(arch).own; }

std::string archs_of(Family family) {
  std::string names;
  for (const ArchInfo& row : kArchs)
    if (row.own == family) names.append(names.empty() ? "" : ", ").append(row.name);
  return names.empty() ? "every architecture" : names;
}

}  // namespace kernelwright
