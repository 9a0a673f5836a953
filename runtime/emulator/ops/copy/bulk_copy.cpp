#include "kernelwright/runtime/emulator/ops/copy/bulk_copy.h"

#include <fmt/format.h>

#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/ops/mbarrier.h"

namespace kernelwright::emulator {

void require_multiple(const char* what, std::uint64_t value, std::uint32_t alignment) {
  if (value % alignment != 0) throw Fault(fmt::format("{}, {:#x}, is not a multiple of {}", what, value, alignment));
}

SignalledPlace signalled_place(Warp& warp, std::uint64_t to, std::uint64_t mbarrier, std::uint64_t reach,
                               std::uint32_t alignment, bool pair) {
  SignalledPlace place{
      .to = shared_place(warp, static_cast<std::uint32_t>(to), static_cast<std::uint32_t>(reach), alignment),
      .mbarrier = shared_place(warp, static_cast<std::uint32_t>(mbarrier), 8)};
  require_multiple("the destination in shared memory", place.to.offset, alignment);
  const std::uint32_t far = pair ? ~1u : ~0u;  // rank bits in which the two CTAs must agree
  if ((place.to.cta->rank & far) != (place.mbarrier.cta->rank & far))
    throw Fault(
        fmt::format("a copy into the CTA of rank {} is to complete on an mbarrier of the CTA of rank {}; they "
                    "must be in one {}",
                    place.to.cta->rank, place.mbarrier.cta->rank, pair ? "pair of CTAs" : "CTA"));
  mbarrier_state(*place.mbarrier.cta, place.mbarrier.offset);  // throws if there is no mbarrier
  return place;
}

void check_signalled_write(Warp& warp, int lane, Cta& cta, std::uint32_t offset, std::uint32_t mbarrier,
                           std::uint32_t bytes, Cta* signalled) {
  Hazards* hazards = warp.cta->cluster->hazards;
  if (!hazards) return;
  Cta& of_mbarrier = signalled ? *signalled : cta;
  hazards->mbarrier_use(warp, lane, of_mbarrier, mbarrier, /*async=*/true);
  hazards->mbarrier_attach(warp, lane, of_mbarrier, mbarrier);
  hazards->access_async(warp, lane, Access::kWrite, Proxy::kAsync, hazards->completes_on(of_mbarrier, mbarrier), cta,
                        offset, bytes);
}

void fault_of_absent_cta(std::uint32_t rank, std::size_t size) {
  throw Fault(rank >= size ? fmt::format("a multicast to the CTA of rank {} of a cluster of {}", rank, size)
                           : fmt::format("a multicast to the CTA of rank {}, which has exited", rank));
}

}  // namespace kernelwright::emulator
