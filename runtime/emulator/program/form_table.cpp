#include "kernelwright/runtime/emulator/program/form_table.h"

#include <algorithm>

#include "kernelwright/runtime/emulator/program/program.h"

namespace kernelwright::emulator {
namespace {

constexpr std::string_view kIgnoredHints[] = {
    "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate",
    "L2::evict_normal", "L2::evict_first",     "L2::evict_last",  "L2::64B",        "L2::128B",
    "L2::256B",         "L2::cache_hint",
};

}  // namespace

bool is_hint(std::string_view part) {
  return std::find(std::begin(kIgnoredHints), std::end(kIgnoredHints), part) != std::end(kIgnoredHints);
}

FormTable::FormTable() {
  using Forms = std::span<const Form> (*)();
  static constexpr Forms kFamilies[] = {
      call_forms,           integer_forms,    logic_forms,      float_forms,     packed_float_forms, half_forms,
      compare_forms,        convert_forms,    move_forms,       memory_forms,    address_forms,      atomic_forms,
      warp_forms,           control_forms,    barrier_forms,    mbarrier_forms,  cluster_forms,      store_async_forms,
      cluster_launch_forms, fence_forms,      copy_async_forms, bulk_copy_forms, tensor_copy_forms,  tensor_map_forms,
      matrix_move_forms,    mma_forms,        wgmma_forms,      tcgen05_forms,   tcgen05_move_forms, tcgen05_copy_forms,
      tcgen05_mma_forms,    scaled_mma_forms, sparse_mma_forms, cache_forms,     video_forms,        wmma_forms};
  for (const Forms family : kFamilies)
    for (const Form& form : family()) {
      const auto row = std::make_shared<Row>(Row{Pattern(form.pattern), &form});
      for (const std::string_view root : row->pattern.roots()) rows_[root].push_back(row);
    }
}

const FormTable& form_table() {
  static const FormTable& made = *new FormTable;  // never destroyed: threads may decode while the process exits
  return made;
}

std::span<const std::string_view> ignored_hints() { return kIgnoredHints; }

namespace {

/// The parts of an opcode in an order that a row of the table has, hints last. Empty if they have this order already,
/// or no row has them.
std::vector<std::string_view> respelt(const std::vector<std::string_view>& parts) {
  std::vector<std::string_view> plain, hints;
  for (const std::string_view part : parts) (is_hint(part) ? hints : plain).push_back(part);
  if (plain.empty() || form_table().find(plain).form) return {};
  std::vector<std::string_view> spelt = form_table().respell(plain);
  if (!spelt.empty()) spelt.insert(spelt.end(), hints.begin(), hints.end());
  return spelt;
}

/// Whether `{%r1}` means the same as `%r1` for this operand. In all other instructions, ptxas does not accept one for
/// the other.
bool takes_vector_of_one(const Instruction& instruction, std::size_t operand) {
  const std::string_view root = instruction.parts[0];
  if (root == "ld" || root == "st" || root == "mov") return true;
  const auto& parts = instruction.parts;
  return root == "tcgen05" && operand == 1 && parts.size() > 2 && parts[1] == "ld" && parts[2] == "red";
}

}  // namespace

void respell(Module& module) {
  std::unordered_map<std::string_view, std::vector<std::string_view>> known;
  const auto respell_body = [&](Body& body) {
    for (Instruction& instruction : body.instructions) {
      const auto [found, fresh] = known.try_emplace(instruction.opcode);
      if (fresh) found->second = respelt(instruction.parts);
      if (!found->second.empty()) instruction.parts = found->second;
      for (std::size_t i = 0; i < instruction.operands.size(); ++i) {
        Operand& operand = instruction.operands[i];
        if (operand.kind == Operand::Kind::kVector && operand.elements.size() == 1 &&
            takes_vector_of_one(instruction, i))
          operand = Operand(operand.elements.front());
      }
    }
  };
  for (Entry& entry : module.entries) respell_body(entry);
  for (Function& function : module.functions) respell_body(function);
}

}  // namespace kernelwright::emulator
