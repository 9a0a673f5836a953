/// What ranks compare, and the change from fallbacks to wanted kernels. docs/fleet.md has the protocol.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/value.h"
#include "kernelwright/runtime/engine/engine_state.h"
#include "kernelwright/runtime/engine/slot_contents.h"

namespace kernelwright {

using detail::KernelSlot;

namespace {

/// A problem or a schedule as JSON. A schedule without fields is "": no caller can give one.
template <class T>
std::string text_of(T fields) {
  if constexpr (FieldStruct<T>)
    return detail::to_json(fields).dump();
  else
    return "";
}

/// What launches take from a plan beside the cubins. Tuned rows, by which plans are made, may differ between hosts.
void add_launch_choices(DigestBuilder& digest, const AttentionPlan& plan) {
  digest.field(static_cast<std::uint64_t>(plan.splits));
}
void add_launch_choices(DigestBuilder& digest, const GemmPlan& plan) {
  for (const GemmVariant& variant : plan.variants)
    digest.field(static_cast<std::uint64_t>(variant.most_m)).field(std::uint64_t{variant.bands_of_n});
}
template <class Plan>
void add_launch_choices(DigestBuilder&, const Plan&) {}

/// Begins a digest with what was asked for. Launches also divide their work by the number of SMs.
template <class Kind>
DigestBuilder begin_digest(const KernelSlot<Kind>& slot) {
  DigestBuilder digest;
  digest.field("kernelwright prepared kernel 1")
      .field(detail::kind_of(slot))
      .field(text_of(slot.problem))
      .field(text_of(slot.schedule))
      .field(static_cast<std::uint64_t>(slot.twins))
      .field(static_cast<std::uint64_t>(slot.device->info().num_sms));
  return digest;
}

/// The digest of one of a slot's two kernels; `known` is its place in the slot. The caller holds the lock.
template <class Kind>
const Digest& digest_of(const KernelSlot<Kind>& slot, const typename Kind::Loaded& kernel,
                        std::optional<Digest>& known) {
  if (known) return *known;
  DigestBuilder digest = begin_digest(slot);
  add_launch_choices(digest, kernel.fallback ? *slot.fallback_plan : slot.plan);
  for (const auto& binary : detail::binaries_of(kernel)) digest.field(sha256(binary->cubin).hex());
  return known.emplace(digest.finish());
}

/// Moves a slot's launches to its wanted kernel. Returns false if there is nothing to move. The caller holds the lock.
template <class Kind>
bool promote_slot(KernelSlot<Kind>& slot) {
  const auto* serving = slot.serving.load(std::memory_order_relaxed);
  if (!slot.tuned || !serving || serving == slot.tuned.get()) return false;
  slot.serving.store(slot.tuned.get(), std::memory_order_release);
  return true;
}

}  // namespace

int Engine::promote() {
  state_->shared.refuse_after_fork("promote()");
  int promoted = 0;
  std::lock_guard lock(state_->shared.mutex);
  state_->each_slot([&](auto& slot) { promoted += promote_slot(slot); });
  state_->promotions += static_cast<std::uint64_t>(promoted);
  return promoted;
}

int Engine::promote(std::span<const Digest> expected) {
  state_->shared.refuse_after_fork("promote()");
  const std::set<Digest> wanted(expected.begin(), expected.end());
  std::set<Digest> missing = wanted;
  std::string unready;
  std::lock_guard lock(state_->shared.mutex);
  state_->each_slot([&](auto& slot) {
    if (slot.tuned)
      missing.erase(digest_of(slot, *slot.tuned, slot.tuned_digest));
    else
      unready += (unready.empty() ? "" : ", ") + slot.name;
  });
  if (!missing.empty())
    throw NotReadyError(
        fmt::format("promote() was given {} kernels, and {} of them are not ready here, so none is promoted; the first "
                    "is {}. Not ready here: {}",
                    wanted.size(), missing.size(), missing.begin()->hex(), unready.empty() ? "none" : unready));
  int promoted = 0;
  state_->each_slot([&](auto& slot) {
    if (slot.tuned && wanted.contains(*slot.tuned_digest)) promoted += promote_slot(slot);
  });
  state_->promotions += static_cast<std::uint64_t>(promoted);
  return promoted;
}

std::vector<Digest> Engine::ready_digests() const {
  state_->shared.refuse_after_fork("ready_digests()");
  std::vector<Digest> ready;
  {
    std::lock_guard lock(state_->shared.mutex);
    state_->each_slot([&](auto& slot) {
      if (slot.tuned) ready.push_back(digest_of(slot, *slot.tuned, slot.tuned_digest));
    });
  }
  std::sort(ready.begin(), ready.end());
  return ready;
}

Digest Engine::plan_digest() const {
  state_->shared.refuse_after_fork("plan_digest()");
  std::vector<std::pair<Digest, std::string_view>> rows;
  {
    std::lock_guard lock(state_->shared.mutex);
    state_->each_slot([&](auto& slot) {
      const auto* serving = slot.serving.load(std::memory_order_relaxed);
      if (!serving)
        rows.emplace_back(begin_digest(slot).finish(), "nothing");
      else if (serving == slot.tuned.get())
        rows.emplace_back(digest_of(slot, *serving, slot.tuned_digest), "kernel");
      else
        rows.emplace_back(digest_of(slot, *serving, slot.fallback_digest), "fallback");
    });
  }
  std::sort(rows.begin(), rows.end());
  DigestBuilder digest;
  digest.field("kernelwright plan 1");
  for (const auto& [kernel, role] : rows) digest.field(kernel.hex()).field(role);
  return digest.finish();
}

}  // namespace kernelwright
