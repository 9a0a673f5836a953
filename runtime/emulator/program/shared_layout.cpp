#include "kernelwright/runtime/emulator/program/shared_layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <vector>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "kernelwright/runtime/emulator/ptx/reader.h"

namespace kernelwright::emulator {
namespace {

constexpr std::uint64_t kDynamicAlignment = 16;

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t to) { return (bytes + to - 1) / to * to; }

void add_symbols(const Operand& operand, std::set<std::string_view>& names) {
  if (operand.kind == Operand::Kind::kSymbol) names.insert(operand.name);
  for (const Operand& element : operand.elements) add_symbols(element, names);
}

std::set<std::string_view> named_by(const Entry& entry) {
  std::set<std::string_view> names;
  for (const Instruction& instruction : entry.instructions) {
    if (!instruction.targets.empty()) continue;  // its symbols are labels
    for (const Operand& operand : instruction.operands) add_symbols(operand, names);
  }
  return names;
}

}  // namespace

SharedLayout lay_out_shared(const Module& module, const Entry& entry) {
  const std::set<std::string_view> named = named_by(entry);
  SharedLayout layout;
  const auto place = [&](std::string_view name, const Variable& variable) {
    const std::uint64_t offset = round_up(layout.static_bytes, variable.alignment);
    if (offset > kMaxSharedBytes || variable.bytes > kMaxSharedBytes - offset)
      throw PtxError(entry.line, fmt::format("the entry {} has {} bytes of shared variables; {} is the most",
                                             shown(entry.name), offset + variable.bytes, kMaxSharedBytes));
    layout.offsets.emplace(name, offset);
    layout.static_bytes = offset + variable.bytes;
  };

  std::vector<std::string_view> unnamed;
  for (const std::string_view name : entry.shared) {
    const Variable& variable = entry.variables.at(name);
    if (variable.dynamic) continue;
    if (named.contains(name))
      place(name, variable);
    else
      unnamed.push_back(name);
  }
  for (const std::string_view name : module.shared)
    if (const Variable& variable = module.variables.at(name); !variable.dynamic && named.contains(name))
      place(name, variable);

  std::uint64_t alignment = 0;  // 0: there is no dynamic variable
  bool begun = false;
  const std::uint64_t named_end = layout.static_bytes;
  const auto place_dynamic = [&](std::string_view name, const Variable& variable) {
    alignment = std::max({alignment, variable.alignment, kDynamicAlignment});
    if (!named.contains(name)) return;
    const std::uint64_t offset = round_up(named_end, alignment);
    layout.offsets.emplace(name, offset);
    if (!begun) layout.dynamic_begin = offset;
    begun = true;
  };
  for (const std::string_view name : module.shared)
    if (const Variable& variable = module.variables.at(name); variable.dynamic) place_dynamic(name, variable);
  for (const std::string_view name : entry.shared)
    if (const Variable& variable = entry.variables.at(name); variable.dynamic) place_dynamic(name, variable);

  for (const std::string_view name : unnamed) place(name, entry.variables.at(name));
  if (alignment != 0) layout.static_bytes = round_up(layout.static_bytes, alignment);
  if (!begun) layout.dynamic_begin = layout.static_bytes;
  return layout;
}

}  // namespace kernelwright::emulator
