#include "kernelwright/runtime/emulator/machine/async.h"

#include <algorithm>

namespace kernelwright::emulator {

std::uint32_t AsyncQueue::random(std::uint32_t below) {
  // splitmix64. Any seed works, and equal seeds give equal runs.
  random_ += 0x9e3779b97f4a7c15u;
  std::uint64_t bits = random_;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return static_cast<std::uint32_t>(((bits ^ (bits >> 31)) >> 32) % below);
}

std::size_t AsyncQueue::pick() {
  if (completion_ != Completion::kRandom) return 0;
  std::size_t at = random(static_cast<std::uint32_t>(pending_.size()));
  if (const void* chain = pending_[at].chain)
    at = static_cast<std::size_t>(
        std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) { return pending.chain == chain; }) -
        pending_.begin());
  return at;
}

bool AsyncQueue::perform_one() {
  if (pending_.empty()) return false;
  const std::size_t at = pick();
  const std::function<void()> work = std::move(pending_[at].work);
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(at));
  work();
  return true;
}

bool AsyncQueue::turn() {
  bool performed = false;
  while (completion_ == Completion::kRandom && !pending_.empty() && random(2) == 0) performed |= perform_one();
  return performed;
}

CopyGroups::Ticket CopyGroups::issue(int lane) {
  const Ticket ticket{lane, committed(lane)};
  copies_.push_back({ticket});
  return ticket;
}

namespace {
template <class Copies>
auto find_copy(Copies& copies, const CopyGroups::Ticket& ticket, bool unread) {
  return std::find_if(copies.begin(), copies.end(), [&](const auto& copy) {
    return copy.ticket.lane == ticket.lane && copy.ticket.group == ticket.group && (!unread || !copy.read);
  });
}
}  // namespace

// A wait treats all copies of one lane and group alike, so any of them may stand for the ticket's copy.
void CopyGroups::reads_done(const Ticket& ticket) { find_copy(copies_, ticket, true)->read = true; }

void CopyGroups::done(const Ticket& ticket) {
  auto copy = std::find_if(copies_.begin(), copies_.end(), [&](const Copy& c) {
    return c.ticket.lane == ticket.lane && c.ticket.group == ticket.group && c.read;
  });
  if (copy == copies_.end()) copy = find_copy(copies_, ticket, false);
  *copy = copies_.back();
  copies_.pop_back();
}

void CopyGroups::commit(std::uint32_t lanes) {
  for (; lanes != 0; lanes &= lanes - 1) ++committed_[static_cast<std::size_t>(__builtin_ctz(lanes))];
}

bool CopyGroups::complete(std::uint32_t lanes, std::uint32_t allowed, bool reads_only) const {
  return std::none_of(copies_.begin(), copies_.end(), [&](const Copy& copy) {
    const auto [lane, group] = copy.ticket;
    const std::uint32_t committed_groups = committed(lane);
    // Group g is one of the newest `allowed` that are committed, or is still open, if g + allowed >= committed.
    return (lanes >> lane & 1) && !(reads_only && copy.read) && group + allowed < committed_groups;
  });
}

}  // namespace kernelwright::emulator
