// What a cluster says of itself: its statistics, its fault, and where its warps stand if none can go on.
#include <fmt/format.h>

#include "kernelwright/runtime/emulator/checker/location.h"
#include "kernelwright/runtime/emulator/run/cluster_run.h"

namespace kernelwright::emulator {

void ClusterRun::add_to(Statistics& statistics) const {
  statistics.warp_instructions += instructions_;
  statistics.thread_instructions += thread_instructions_;
  statistics.mma_operations += cluster_.mma_operations;
  statistics.copied_bytes += cluster_.copied_bytes;
}

HazardReport ClusterRun::report_of(const Fault& fault) const {
  HazardReport report;
  report.kind = fault.kind();
  report.rule = fault.rule();
  report.what = fault.what();
  if (running_ && running_->current) {
    const int lane = count_lanes(running_->current_lanes) == 1 ? first_lane(running_->current_lanes) : -1;
    report.first = side_of(notes_, *running_, lane, running_->current->index);
  }
  return report;
}

std::string ClusterRun::explain(const Fault& fault) const {
  const HazardReport report = report_of(fault);
  if (report.first.warp < 0) return fault.what();
  return fmt::format("{}\n  by     {}", fault.what(), text_of(report.first));
}

void ClusterRun::report_deadlock() const {
  // Warps of a CTA that wait for the same thing at the same instruction share a line.
  struct Group {
    std::string who, what;
    std::uint32_t first, last;
  };
  std::vector<Group> groups;
  for (const auto& cta : cluster_.ctas)
    for (const Warp& warp : cta->warps)
      for (const Split& split : warp.splits) {
        HazardSide side = side_of(notes_, warp, -1, launch_.program->ops[split.pc].index);
        side.warp = -1;
        const std::string who = fmt::format("CTA ({}, {}, {})", side.cta[0], side.cta[1], side.cta[2]);
        std::string what = text_of(side).substr(who.size());
        if (split.lanes != kAllLanes) what += fmt::format(", lanes {:#010x}", split.lanes);
        what += split.wait.describe ? ", waits for " + split.wait.describe(warp, split.wait) : std::string(", polls");
        if (!groups.empty() && groups.back().who == who && groups.back().what == what &&
            groups.back().last + 1 == warp.index)
          groups.back().last = warp.index;
        else
          groups.push_back({who, what, warp.index, warp.index});
      }
  std::string text = fmt::format("deadlock: no warp of cluster {} can go on", cluster_.id);
  for (const Group& group : groups)
    text += fmt::format("\n  {} {}{}", group.who,
                        group.first == group.last ? fmt::format("warp {}", group.first)
                                                  : fmt::format("warps {} to {}", group.first, group.last),
                        group.what);
  throw Fault(text, HazardKind::kDeadlock);
}

}  // namespace kernelwright::emulator
