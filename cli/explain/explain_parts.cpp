// Parts of explain's report that do not depend on the kind of config.
#include "cli/explain/explain_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/error.h"

namespace kernelwright::cli {

Compiled compile_if_possible(KernelStore& store, const Spec& spec) {
  try {
    return {store.compile(spec), ""};
  } catch (const MissingError& error) {
    return {nullptr, error.what()};
  } catch (const CompileError& error) {
    return {nullptr, error.what(), true};
  }
}

JsonValue to_json(const Binary& binary) {
  JsonValue warnings = JsonValue::array();
  for (const std::string& warning : binary.warnings) warnings.push(warning);
  const ResourceUsage& usage = binary.usage;
  return JsonValue::object()
      .set("entry", binary.entry)
      .set("registers", usage.registers)
      .set("spill_stores", usage.spill_stores)
      .set("spill_loads", usage.spill_loads)
      .set("stack", usage.stack)
      .set("static_shared", usage.static_shared)
      .set("barriers", usage.barriers)
      .set("cubin_bytes", binary.cubin.size())
      .set("compile_ms", binary.compile_ms)
      .set("compiler", binary.compiler)
      .set("warnings", std::move(warnings));
}

JsonValue to_json(const std::vector<Choice>& choices) {
  JsonValue list = JsonValue::array();
  for (const Choice& choice : choices)
    list.push(JsonValue::object()
                  .set("field", choice.field)
                  .set("value", choice.value)
                  .set("by", to_string(choice.by))
                  .set("reason", choice.reason));
  return list;
}

JsonValue to_json(const std::vector<SkippedRow>& rows) {
  JsonValue list = JsonValue::array();
  for (const SkippedRow& row : rows) list.push(JsonValue::object().set("row", row.name).set("reason", row.reason));
  return list;
}

JsonValue to_json(const std::vector<SharedRegion>& regions) {
  JsonValue map = JsonValue::array();
  for (const SharedRegion& region : regions)
    map.push(JsonValue::object()
                 .set("name", region.name)
                 .set("offset", region.offset)
                 .set("bytes", region.bytes)
                 .set("use", region.use));
  return map;
}

JsonValue to_json(const TensorMemoryMap& memory) {
  JsonValue map = JsonValue::array();
  for (const TensorMemoryRegion& region : memory.regions)
    map.push(JsonValue::object()
                 .set("name", region.name)
                 .set("column", region.column)
                 .set("columns", region.columns)
                 .set("use", region.use));
  return JsonValue::object().set("used", memory.used).set("allocated", memory.allocated).set("map", std::move(map));
}

JsonValue to_json(const std::string& shape, const PredictedBound& bound) {
  return JsonValue::object()
      .set("shape", shape)
      .set("operations", bound.operations)
      .set("bytes", bound.bytes)
      .set("microseconds", bound.microseconds())
      .set("limit", bound.by_memory() ? "memory" : "matrix");
}

std::string resources_text(const Style& style, const Compiled& compiled) {
  if (!compiled.binary) return "  not compiled: " + compiled.why_not + "\n";
  const ResourceUsage& usage = compiled.binary->usage;
  const int spills = usage.spill_stores + usage.spill_loads;
  std::string text = fmt::format("  {} registers a thread, {}, {} cubin, {} compiled in {}\n", usage.registers,
                                 spills ? style.bad(fmt::format("{} bytes spilled", spills)) : "no spills",
                                 size_text(static_cast<double>(compiled.binary->cubin.size())),
                                 compiled.binary->compiler, duration_text(compiled.binary->compile_ms));
  for (const std::string& warning : compiled.binary->warnings) text += "  " + style.bad("warning: " + warning) + "\n";
  return text;
}

std::string choices_text(const Style& style, const std::vector<Choice>& choices) {
  Table table({"choice", "value", "by", "because"});
  for (const Choice& choice : choices)
    table.row({choice.field, choice.value, std::string(to_string(choice.by)), choice.reason});
  return table.text(style);
}

std::string passed_over_text(const Style& style, const std::vector<SkippedRow>& rows) {
  std::string text;
  for (const SkippedRow& row : rows)
    text += fmt::format("  {} {}: {}\n", style.dim("row passed over"), row.name, row.reason);
  return text;
}

std::string spec_text(const Style& style, const Spec& spec) {
  std::string text = style.bold("Spec") + "\n", line = " ";
  const std::string fields = canonical_text(spec);
  for (std::size_t from = 0; from < fields.size();) {
    const std::size_t end = std::min(fields.find('\n', from), fields.size());
    std::string field = fields.substr(from, end - from);
    std::replace(field.begin(), field.end(), ' ', '=');
    if (line.size() + field.size() > 110) {
      text += line + "\n";
      line = " ";
    }
    line += " " + field;
    from = end + 1;
  }
  return text + line + "\n";
}

std::string shared_map_text(const Style& style, const std::vector<SharedRegion>& regions, int shared_bytes,
                            const ArchInfo& info) {
  Table map({"offset", "bytes", "what", ""});
  for (const SharedRegion& region : regions)
    map.row({std::to_string(region.offset), std::to_string(region.bytes), region.name, region.use});
  return style.bold(fmt::format("Shared memory: {} bytes of {}", shared_bytes, info.shared_bytes_per_cta)) + "\n" +
         (regions.empty() ? "" : map.text(style));
}

std::string tensor_memory_text(const Style& style, const TensorMemoryMap& memory, const ArchInfo& info) {
  std::string text = style.bold(fmt::format("Tensor memory: {} columns used, {} allocated of {}", memory.used,
                                            memory.allocated, info.tensor_memory_columns)) +
                     "\n";
  Table map({"column", "columns", "what", ""});
  for (const TensorMemoryRegion& region : memory.regions)
    map.row({std::to_string(region.column), std::to_string(region.columns), region.name, region.use});
  return text + map.text(style) + "\n";
}

std::string bounds_text(const Style& style, const std::vector<BoundOfShape>& bounds, std::string_view device) {
  if (bounds.empty()) return "";
  Table table({"shape", "operations", "bytes", "time", "limited by"});
  for (const auto& [shape, bound] : bounds)
    table.row({shape, fmt::format("{:.3g}", bound.operations), size_text(bound.bytes),
               duration_text(bound.microseconds() / 1e3), bound.by_memory() ? "memory" : "matrix rate"});
  return "\n" + style.bold(fmt::format("At best, on {}", device)) + "\n" + table.text(style);
}

}  // namespace kernelwright::cli
