/// How the C struct of a launch is filled, whatever form the values of a call have: objects of Python (call.cpp) or the
/// arguments of an operator of torch (operators.cpp). A class of values has, by the place of an argument:
///   bool absent(int argument) const                          nothing is given, or None
///   bool to_int64(int, std::int64_t&), to_int32(int, std::int32_t&), to_real(int, double&)   false: a miss
///   bool to_window(int, std::int32_t (&)[2])
///   bool write_operand(int index, Launch&)                   the tensor or address of rules.operands[index]
#pragma once

#include "fast/door.h"

namespace kernelwright::fast {

inline void set_override(const Rules& rules, const Number& number, Launch& launch) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, launch.bytes + rules.overrides_at, sizeof bits);
  put(launch, rules.overrides_at, bits | number.bit);
}

template <class Values>
bool write_number(const Rules& rules, const Number& number, Values& values, Launch& launch) {
  std::int32_t integer, window[2];
  double real;
  switch (number.kind) {
    case NumberKind::kInteger:
      if (!values.to_int32(number.argument, integer)) return false;
      put(launch, number.at, integer);
      break;
    case NumberKind::kFloat:
    case NumberKind::kPositive:
      if (!values.to_real(number.argument, real)) return false;
      if (number.kind == NumberKind::kPositive && !(real > 0)) return false;
      put(launch, number.at, static_cast<float>(real));
      break;
    case NumberKind::kWindow:
      if (!values.to_window(number.argument, window)) return false;
      for (int side = 0; side < 2; ++side) put(launch, number.at + 4 * side, window[side]);
      break;
  }
  if (number.bit) set_override(rules, number, launch);
  return true;
}

/// Reads what is given of the operands that do, or do not, settle sizes.
template <class Values>
bool write_operands(const Rules& rules, Values& values, bool settles, Launch& launch) {
  for (int i = 0; i < rules.num_operands; ++i) {
    const Operand& operand = rules.operands[i];
    if (operand.settles != settles) continue;
    if (values.absent(operand.argument)) {
      if (operand.required) return false;
      continue;
    }
    if (!values.write_operand(i, launch)) return false;
  }
  return true;
}

/// Whether each argument is one that the rules know. A newer argument without a rule is the slow path's.
template <class Values>
bool has_rules_for(const State& state, const Values& values) {
  for (int i = 0; i < state.num_arguments; ++i)
    if (!state.has_rule[i] && !values.absent(i)) return false;
  return true;
}

/// False: a miss.
template <class Values>
bool fill(const State& state, Values& values, Launch& launch) {
  const Rules& rules = state.rules;
  begin(rules, launch);
  if (!has_rules_for(state, values)) return false;
  for (int i = 0; i < rules.num_sizes; ++i) {
    std::int64_t size;
    if (rules.sizes[i].argument < 0 || values.absent(rules.sizes[i].argument)) continue;
    if (!values.to_int64(rules.sizes[i].argument, size)) return false;
    settle(launch, i, size);
  }
  if (!write_operands(rules, values, true, launch)) return false;
  settle_pages(rules, launch);
  if (!write_operands(rules, values, false, launch) || !write_sizes(rules, launch)) return false;
  for (int i = 0; i < rules.num_numbers; ++i)
    if (!values.absent(rules.numbers[i].argument) && !write_number(rules, rules.numbers[i], values, launch))
      return false;
  return true;
}

}  // namespace kernelwright::fast
