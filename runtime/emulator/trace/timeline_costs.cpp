#include "kernelwright/runtime/emulator/trace/timeline_costs.h"

#include <algorithm>
#include <charconv>

namespace kernelwright::emulator {

namespace {

/// The number at the beginning of `text`; 0 if there is none.
std::uint32_t leading_number(std::string_view text) {
  std::uint32_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

bool has(const Instruction& instruction, std::string_view part) {
  return std::ranges::find(instruction.parts, part) != instruction.parts.end();
}

bool in_shared_memory(const Instruction& instruction) {
  return std::ranges::any_of(instruction.parts, [](std::string_view part) { return part.starts_with("shared"); });
}

/// Bits of a type such as b32, f16x2 or bf16; 0 for a part that is no type.
std::uint32_t type_bits(std::string_view part) {
  const std::size_t digit = part.find_first_of("0123456789");
  if (digit == 0 || digit == part.npos || digit > 2 || part[0] == 'v' || part[0] == 'm' || part[0] == 'x') return 0;
  return leading_number(part.substr(digit)) * (part.ends_with("x2") ? 2 : 1);
}

/// Bytes per lane of an ld, st or atom.
std::uint32_t access_bytes(const Instruction& instruction) {
  std::uint32_t bits = 32, count = 1;
  for (const std::string_view part : instruction.parts) {
    if (part == "v2") count = 2;
    if (part == "v4") count = 4;
    if (const std::uint32_t found = type_bits(part)) bits = found;
  }
  return std::max(1u, bits * count / 8);
}

/// The product of rows, columns and depth in "m16n8k32".
std::uint32_t multiply_adds(std::string_view shape) {
  const std::size_t n = shape.find('n'), k = shape.find('k');
  if (n == shape.npos || k == shape.npos) return 0;
  return leading_number(shape.substr(1)) * leading_number(shape.substr(n + 1)) * leading_number(shape.substr(k + 1));
}

/// How many quarters of a 16-bit multiply-add one multiply-add of this instruction costs. A tensor core is twice as
/// fast for bytes and half as fast for tf32.
std::uint32_t quarters_per_multiply_add(const Instruction& instruction) {
  for (const std::string_view part : instruction.parts) {
    if (part == "e4m3" || part == "e5m2" || part == "s8" || part == "u8") return 2;
    if (part == "tf32") return 8;
    if (part == "f64") return 32;
  }
  return 4;
}

std::uint32_t divide_up(std::uint64_t value, std::uint32_t by) {
  return static_cast<std::uint32_t>((value + by - 1) / std::max(1u, by));
}

InstructionCost matrix_cost(const Instruction& instruction, const MachineCosts& machine, bool wgmma) {
  InstructionCost cost{.kind = wgmma ? CostKind::kMultiply : CostKind::kMma};
  const auto shape = std::ranges::find_if(instruction.parts, [](std::string_view part) {
    return part.starts_with("m8n8") || part.starts_with("m16n8") || part.starts_with("m64n");
  });
  if (shape != instruction.parts.end()) cost.shape = *shape;
  const std::uint64_t quarters = std::uint64_t{multiply_adds(cost.shape)} * quarters_per_multiply_add(instruction);
  cost.tensor = wgmma ? divide_up(quarters, 4 * machine.wgmma_macs) : divide_up(quarters, machine.mma_sync_macs);
  return cost;
}

/// The instructions named cp.async.*, which a warp or the copy engine performs.
InstructionCost copy_cost(const Instruction& instruction) {
  const bool bulk = has(instruction, "bulk");
  InstructionCost cost;
  cost.issue = bulk ? 8 : 4;
  const auto immediate = [&](std::size_t operand) {
    return operand < instruction.operands.size() ? static_cast<std::uint32_t>(instruction.operands[operand].immediate)
                                                 : 0;
  };
  if (has(instruction, "commit_group")) {
    cost.kind = bulk ? CostKind::kBulkCommit : CostKind::kCopyCommit;
    cost.issue = 1;
  } else if (has(instruction, "wait_group")) {
    cost.kind = bulk ? CostKind::kBulkWait : CostKind::kCopyWait;
    cost.number = immediate(0);
    cost.issue = 1;
  } else if (has(instruction, "wait_all")) {
    cost.kind = CostKind::kCopyWaitAll;
    cost.issue = 1;
  } else if (has(instruction, "mbarrier")) {
    cost.issue = 0;  // kArriveCycles accounts for it
  } else if (!bulk) {
    cost.kind = CostKind::kCopy;
    cost.number = immediate(2);
  }
  return cost;
}

/// Issue cycles by the first word of the opcode, if they are not 1.
struct Row {
  std::string_view word;
  std::uint32_t cycles;
};
constexpr Row kRows[] = {
    // ptxas folds these into the instructions that use them.
    {"mov", 0},
    {"cvta", 0},
    // The special function unit takes 4 lanes per cycle.
    {"ex2", 8},
    {"lg2", 8},
    {"sin", 8},
    {"cos", 8},
    {"rcp", 8},
    {"rsqrt", 8},
    {"sqrt", 8},
    {"tanh", 8},
    {"div", 16},
    {"cvt", 2},
    // Between lanes: 8 lanes per cycle.
    {"shfl", 4},
    {"redux", 4},
    {"match", 4},
    {"vote", 2},
    // Per scheduler, 32 bytes per cycle of shared memory's 128.
    {"ldmatrix", 4},
    {"stmatrix", 4},
    // kArriveCycles and kWakeCycles account for these.
    {"mbarrier", 0},
    {"bar", 0},
    {"barrier", 0},
    {"wgmma", 1},
    {"fence", 16},
    {"membar", 32},
    {"setmaxnreg", 16},
};

constexpr std::uint32_t kGlobalAccess = 32;  // a latency of about 500 cycles, of which kernels hide all but a sixteenth
constexpr std::uint32_t kSharedBytes = 32;   // per cycle and scheduler

std::uint32_t access_cycles(const Instruction& instruction) {
  if (has(instruction, "param") || has(instruction, "const")) return 1;
  if (in_shared_memory(instruction)) return std::max(1u, access_bytes(instruction) * 32 / kSharedBytes);
  return instruction.parts[0] == "st" ? kGlobalAccess / 4 : kGlobalAccess;
}

}  // namespace

InstructionCost instruction_cost(const Instruction& instruction, const MachineCosts& machine) {
  if (instruction.parts.empty()) return {};
  const std::string_view word = instruction.parts[0];
  if (word == "mma") return matrix_cost(instruction, machine, false);
  if (word == "wgmma") {
    InstructionCost cost;
    if (has(instruction, "mma_async")) return matrix_cost(instruction, machine, true);
    if (has(instruction, "commit_group")) cost.kind = CostKind::kMultiplyCommit;
    if (has(instruction, "wait_group") && !instruction.operands.empty()) {
      cost.kind = CostKind::kMultiplyWait;
      cost.number = static_cast<std::uint32_t>(instruction.operands[0].immediate);
    }
    return cost;
  }
  if (word == "cp") return copy_cost(instruction);
  InstructionCost cost;
  if (word == "ld" || word == "st" || word == "atom" || word == "red" || word == "ldu") {
    cost.issue = access_cycles(instruction);
  } else if (const auto* row = std::ranges::find(kRows, word, &Row::word); row != std::end(kRows)) {
    cost.issue = row->cycles;
    if (word == "ldmatrix" || word == "stmatrix")
      cost.issue *= has(instruction, "x4") ? 4u : has(instruction, "x2") ? 2u : 1u;
    if (has(instruction, "rn") && cost.issue == 8)
      cost.issue = 32;  // rcp.rn and similar instructions are short
                        // programs
    if (word == "bar" && has(instruction, "warp")) cost.issue = 2;
  } else if ((word == "mul" || word == "mad") && !has(instruction, "f32") && !has(instruction, "f16") &&
             !has(instruction, "f16x2") && !has(instruction, "bf16x2")) {
    cost.issue = 2;  // integers, at half rate
  }
  return cost;
}

}  // namespace kernelwright::emulator
