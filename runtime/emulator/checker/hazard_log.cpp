#include "kernelwright/runtime/emulator/checker/hazard_log.h"

#include <fmt/format.h>

#include "kernelwright/runtime/emulator/checker/location.h"

namespace kernelwright::emulator {

std::string HazardReport::text() const {
  const HazardRuleRow& row = row_of(rule);
  std::string lines = fmt::format("{}: {}", name_of(kind), what);
  lines += fmt::format("\n  rule   {}, {}", row.name, name_of(row.grade));
  if (!row.section.empty()) lines += fmt::format(", PTX ISA \"{}\"", row.section);
  if (!where.empty()) lines += fmt::format("\n  at     {}", where);
  if (first.warp >= 0 || first.ptx_line > 0) lines += fmt::format("\n  by     {}", text_of(first));
  if (second.ptx_line > 0)
    lines += fmt::format("\n  {}  {}", rule == HazardRule::kMbarrierMayRunAhead ? "ahead" : "after", text_of(second));
  lines += fmt::format("\n  mend   {}", row.mend);
  if (count > 1) lines += fmt::format("\n  seen   {} times", count);
  return lines;
}

void HazardLog::add(HazardReport report) {
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = reports_.try_emplace({report.rule, report.first.ptx_line, report.second.ptx_line}, report);
  if (fresh) return;
  HazardReport& known = at->second;
  const std::uint64_t count = known.count + report.count;
  // Among equal reports, keep the one of the first CTA: the report shown must not depend on the host's threads.
  const auto place = [](const HazardReport& r) {
    return std::tie(r.first.cta[2], r.first.cta[1], r.first.cta[0], r.first.warp, r.what);
  };
  if (place(report) < place(known)) known = std::move(report);
  known.count = count;
}

void HazardLog::add_count(HazardRule rule, int first_line, int second_line, std::uint64_t times) {
  const std::lock_guard lock(mutex_);
  if (const auto at = reports_.find({rule, first_line, second_line}); at != reports_.end())
    at->second.count += times - 1;
}

std::vector<HazardReport> HazardLog::take() {
  const std::lock_guard lock(mutex_);
  std::vector<HazardReport> all;
  for (auto& [key, report] : reports_) all.push_back(std::move(report));
  reports_.clear();
  return all;
}

}  // namespace kernelwright::emulator
