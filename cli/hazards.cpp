#include "cli/hazards.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/terminal.h"

namespace kernelwright::cli {
namespace {

JsonValue to_json(const emulator::HazardSide& side) {
  JsonValue cta = JsonValue::array();
  for (const std::uint32_t index : side.cta) cta.push(index);
  JsonValue object = JsonValue::object();
  object.set("cta", std::move(cta)).set("warp", side.warp).set("lane", side.lane).set("role", side.role);
  return object.set("ptx_line", side.ptx_line).set("instruction", side.instruction).set("source", side.source);
}

}  // namespace

JsonValue to_json(const std::vector<emulator::KernelHazard>& hazards) {
  JsonValue list = JsonValue::array();
  for (const auto& [kernel, report] : hazards) {
    JsonValue object = JsonValue::object();
    object.set("kernel", kernel).set("kind", emulator::name_of(report.kind)).set("what", report.what);
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
