#include "cli/sarif.h"

#include <fmt/format.h>

#include "kernelwright/runtime/emulator/checker/location.h"

namespace kernelwright::cli {
namespace {

using emulator::HazardGrade;
using emulator::HazardRuleRow;
using emulator::HazardSide;

const char* level_of(HazardGrade grade) {
  switch (grade) {
    case HazardGrade::kError: return "error";
    case HazardGrade::kIsa: return "warning";
    case HazardGrade::kNote: break;
  }
  return "note";
}

JsonValue text_object(std::string text) { return JsonValue::object().set("text", std::move(text)); }

JsonValue location_of(const std::string& kernel, const HazardSide& side) {
  std::string file = kernel + ".ptx";
  std::int64_t line = std::max(side.ptx_line, 1);
  if (const std::size_t colon = side.source.rfind(':'); colon != std::string::npos) {
    file = side.source.substr(0, colon);
    line = std::max(std::stoi(side.source.substr(colon + 1)), 1);
  }
  JsonValue physical = JsonValue::object();
  physical.set("artifactLocation", JsonValue::object().set("uri", file));
  physical.set("region", JsonValue::object().set("startLine", line));
  JsonValue logical =
      JsonValue::object().set("name", side.function.empty() ? kernel : side.function).set("kind", "function");
  JsonValue object = JsonValue::object();
  object.set("physicalLocation", std::move(physical));
  object.set("logicalLocations", JsonValue::array().push(std::move(logical)));
  return object.set("message", text_object(emulator::text_of(side)));
}

JsonValue result_of(const emulator::KernelHazard& hazard, const std::string* reason) {
  const auto& [kernel, report] = hazard;
  const HazardRuleRow& row = emulator::row_of(report.rule);
  JsonValue object = JsonValue::object();
  object.set("ruleId", row.name).set("ruleIndex", static_cast<int>(report.rule)).set("level", level_of(row.grade));
  object.set("message", text_object(report.text()));
  object.set("locations", JsonValue::array().push(location_of(kernel, report.first)));
  if (report.second.ptx_line > 0)
    object.set("relatedLocations", JsonValue::array().push(location_of(kernel, report.second)));
  object.set("occurrenceCount", report.count);
  if (reason)
    object.set("suppressions",
               JsonValue::array().push(JsonValue::object().set("kind", "external").set("justification", *reason)));
  return object;
}

}  // namespace

JsonValue sarif_of(const std::vector<emulator::KernelHazard>& hazards,
                   const std::vector<SuppressedHazard>& suppressed) {
  JsonValue rules = JsonValue::array(), results = JsonValue::array();
  for (const HazardRuleRow& row : emulator::hazard_rules()) {
    JsonValue rule = JsonValue::object();
    rule.set("id", row.name).set("shortDescription", text_object(std::string(emulator::name_of(row.kind))));
    std::string help = "Mend: " + std::string(row.mend);
    if (!row.section.empty()) help += fmt::format(". PTX ISA: {}", row.section);
    rule.set("help", text_object(std::move(help)));
    rules.push(rule.set("defaultConfiguration", JsonValue::object().set("level", level_of(row.grade))));
  }
  for (const emulator::KernelHazard& hazard : hazards) results.push(result_of(hazard, nullptr));
  for (const SuppressedHazard& one : suppressed) results.push(result_of(one.hazard, &one.reason));
  JsonValue driver = JsonValue::object().set("name", "kernelwright").set("rules", std::move(rules));
  JsonValue run = JsonValue::object().set("tool", JsonValue::object().set("driver", std::move(driver)));
  run.set("results", std::move(results));
  JsonValue log = JsonValue::object().set("$schema", "https://json.schemastore.org/sarif-2.1.0.json");
  return log.set("version", "2.1.0").set("runs", JsonValue::array().push(std::move(run)));
}

}  // namespace kernelwright::cli
