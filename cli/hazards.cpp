#include "cli/hazards.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "cli/terminal.h"
#include "kernelwright/generator/error.h"

namespace kernelwright::cli {
namespace {

JsonValue to_json(const emulator::HazardSide& side) {
  JsonValue cta = JsonValue::array();
  for (const std::uint32_t index : side.cta) cta.push(index);
  JsonValue object = JsonValue::object();
  object.set("cta", std::move(cta)).set("warp", side.warp).set("lane", side.lane).set("role", side.role);
  object.set("function", side.function);
  return object.set("ptx_line", side.ptx_line).set("instruction", side.instruction).set("source", side.source);
}

std::string text_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in) throw ConfigError("--hazard-suppressions", fmt::format("{} cannot be read", path));
  return text;
}

}  // namespace

HazardReview::HazardReview(const Options& options)
    : options_(options),
      least_(options.hazards == "error" ? emulator::HazardGrade::kError
             : options.hazards == "isa" ? emulator::HazardGrade::kIsa
                                        : emulator::HazardGrade::kNote) {
  const auto needs_hazards = [&](const char* option, const std::string& given) {
    if (!given.empty() && options.hazards.empty())
      throw ConfigError(option, "is about the reports of --hazards, which is not given");
  };
  needs_hazards("--hazard-suppressions", options.hazard_suppressions);
  needs_hazards("--sarif", options.sarif);
  if (!options.hazard_suppressions.empty())
    suppressions_ = emulator::Suppressions(text_of_file(options.hazard_suppressions), options.hazard_suppressions);
}

std::vector<emulator::KernelHazard> HazardReview::judge(std::vector<emulator::KernelHazard> found) {
  std::vector<emulator::KernelHazard> kept;
  for (emulator::KernelHazard& hazard : found) {
    if (emulator::row_of(hazard.report.rule).grade > least_) continue;
    if (const emulator::Suppression* by = suppressions_.match(hazard.kernel, hazard.report))
      suppressed_.push_back({std::move(hazard), by->reason});
    else
      kept.push_back(std::move(hazard));
  }
  if (!options_.sarif.empty()) judged_.insert(judged_.end(), kept.begin(), kept.end());
  return kept;
}

void HazardReview::finish() const {
  for (const emulator::Suppression& one : suppressions_.all())
    if (one.matches == 0)
      fmt::print(stderr, "kernelwright: {}:{}: this suppression matches no report: {} {} {} {}\n",
                 options_.hazard_suppressions, one.line, one.rule, one.kernel, one.place, one.reason);
  if (options_.sarif.empty()) return;
  std::ofstream out(options_.sarif, std::ios::binary);
  out << sarif_of(judged_, suppressed_).dump() << '\n';
  if (!out.flush()) throw ConfigError("--sarif", fmt::format("{} cannot be written", options_.sarif));
}

JsonValue to_json(const std::vector<emulator::KernelHazard>& hazards) {
  JsonValue list = JsonValue::array();
  for (const auto& [kernel, report] : hazards) {
    JsonValue object = JsonValue::object();
    const emulator::HazardRuleRow& row = emulator::row_of(report.rule);
    object.set("kernel", kernel).set("kind", emulator::name_of(report.kind)).set("rule", row.name);
    object.set("grade", emulator::name_of(row.grade)).set("section", row.section).set("mend", row.mend);
    object.set("what", report.what);
    object.set("where", report.where).set("count", report.count).set("first", to_json(report.first));
    if (report.second.ptx_line > 0) object.set("second", to_json(report.second));
    list.push(object.set("text", report.text()));
  }
  return list;
}

std::string hazards_text(const std::vector<emulator::KernelHazard>& hazards) {
  if (hazards.empty()) return "";
  const Style style(stdout);
  std::string text =
      "  " + style.bad(fmt::format("{} hazard{}", hazards.size(), hazards.size() == 1 ? "" : "s")) + "\n";
  for (std::size_t i = 0; i < std::min(hazards.size(), kMostLines); ++i) {
    const auto& [kernel, report] = hazards[i];
    std::string lines = report.text();
    for (std::size_t at = 0; (at = lines.find('\n', at)) != lines.npos; at += 5) lines.replace(at, 1, "\n    ");
    text += fmt::format("    {}\n      {}   {}\n", lines, style.dim("in"), kernel);
  }
  return text + more_text(style, hazards.size());
}

JsonValue to_json(const emulator::Statistics& statistics) {
  return JsonValue::object()
      .set("warp_instructions", statistics.warp_instructions)
      .set("thread_instructions", statistics.thread_instructions)
      .set("mma_operations", statistics.mma_operations)
      .set("copied_bytes", statistics.copied_bytes)
      .set("seconds", statistics.seconds);
}

}  // namespace kernelwright::cli
