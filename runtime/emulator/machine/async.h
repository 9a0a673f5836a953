/// Work that an instruction starts and that completes later: copies, reductions, matrix multiplies. A policy decides
/// when it completes, so that tests can run a kernel whose synchronisation depends on luck with bad luck.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "kernelwright/runtime/device/completion.h"

namespace kernelwright::emulator {

/// The asynchronous operations of one cluster that are issued but not performed.
class AsyncQueue {
 public:
  AsyncQueue(Completion completion, std::uint64_t seed) : completion_(completion), random_(seed * 2 + 1) {}

  /// Performs `work` now or later. Works of one non-null `chain` are performed in the order of issue. `work` reads its
  /// sources, writes its destinations and signals its barriers when it is performed.
  template <class Work>
  void issue(const void* chain, Work&& work) {
    if (performs_at_once()) {
      work();
    } else {
      pending_.push_back({chain, std::forward<Work>(work)});
    }
  }
  /// Whether issue() performs the work itself. Then tickets and groups need not be kept.
  bool performs_at_once() const { return completion_ == Completion::kEager; }
  bool empty() const { return pending_.empty(); }
  std::size_t size() const { return pending_.size(); }

  /// Called when no warp can go on. Performs one operation; returns false if there is none.
  bool perform_one();
  /// Called between the turns of warps. Under kRandom, performs some operations or none. Returns whether it performed
  /// one.
  bool turn();

 private:
  struct Pending {
    const void* chain;
    std::function<void()> work;
  };
  std::size_t pick();  // the oldest operation (lazy), or a random one that is the first of its chain
  std::uint32_t random(std::uint32_t below);

  Completion completion_;
  std::uint64_t random_;
  std::deque<Pending> pending_;
};

/// The groups into which threads commit their cp.async or bulk copies, for the 32 lanes of a warp. A copy belongs to
/// the group that its lane commits next; wait_group counts the groups that a lane has committed.
class CopyGroups {
 public:
  /// What a copy that is performed later keeps.
  struct Ticket {
    int lane = 0;
    std::uint32_t group = 0;
  };
  Ticket issue(int lane);
  void reads_done(const Ticket& ticket);  // the copy's sources have been read
  void done(const Ticket& ticket);        // the copy's writes are done too; the ticket is spent
  void commit(std::uint32_t lanes);
  /// Whether all but the newest `allowed` groups that each lane of `lanes` committed are complete (or, for
  /// `reads_only`, have read their sources).
  bool complete(std::uint32_t lanes, std::uint32_t allowed, bool reads_only) const;
  /// Copies that are not performed yet, of any lane, committed or not.
  std::size_t outstanding() const { return copies_.size(); }
  /// How many groups the lane has committed; also the number of the group that is open.
  std::uint32_t committed(int lane) const { return committed_[static_cast<std::size_t>(lane)]; }

 private:
  struct Copy {
    Ticket ticket;
    bool read = false;
  };
  std::vector<Copy> copies_;
  std::array<std::uint32_t, 32> committed_{};
};

}  // namespace kernelwright::emulator
