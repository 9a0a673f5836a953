/// The arguments of a launch that need no code of their own: operands that some problems have and others lack, and
/// numbers with rules of their own. Each is a row, which the quick check and the worded rules walk (arguments.h).
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

#include "kernelwright/generator/source/spec.h"
#include "kernelwright/runtime/attention/kernel.h"
#include "kernelwright/runtime/attention/launch.h"

namespace kernelwright::detail {

/// What a kernel does with an operand that some problems lack.
struct OperandUse {
  bool taken, needed;
  const char* taker;  // what a problem has that takes the operand, in the words of a refusal
};

constexpr OperandUse may_have(bool taken, const char* taker) { return {taken, false, taker}; }
constexpr OperandUse must_have(bool taken, const char* taker) { return {taken, taken, taker}; }

/// Scales of keys and values. Records hold their own.
inline OperandUse scales_beside_keys(const AttentionSpec& spec) {
  if (spec.has_records()) return may_have(false, "scales beside its records");
  return must_have(spec.scales != ScaleKind::kNone, "\"scales\"");
}

/// Where the rules of an operand stand that a problem takes. For one that it does not take, extras() has the rule.
enum class OperandRules {
  kExtras,    // in extras() of arguments.cpp: 4 bytes are its alignment
  kRotary,    // with those of q and k
  kPerScore,  // in per_score(), taken or not
};

struct OptionalOperand {
  const char* path;
  DevicePtr AttentionTensors::*address;
  OperandUse (*use)(const AttentionSpec& spec);
  OperandRules rules = OperandRules::kExtras;
};

/// The one list of the operands that some problems lack. Messages follow its order.
inline constexpr OptionalOperand kOptionalOperands[] = {
    {"/lse", &AttentionTensors::lse, [](const AttentionSpec& spec) { return may_have(spec.lse, "\"lse\": true"); }},
    {"/q_offsets", &AttentionTensors::q_offsets,
     [](const AttentionSpec& spec) { return must_have(spec.q_layout == QLayout::kRagged, "ragged queries"); }},
    {"/kv_offsets", &AttentionTensors::kv_offsets,
     [](const AttentionSpec& spec) { return must_have(spec.kv_layout == KvLayoutKind::kRagged, "ragged keys"); }},
    {"/kv_lengths", &AttentionTensors::kv_lengths,
     [](const AttentionSpec& spec) {
       const bool not_ragged = spec.kv_layout != KvLayoutKind::kRagged;
       return spec.cache_length == CacheLength::kPrompt ? must_have(not_ragged, "cache_length \"prompt\"")
                                                        : may_have(not_ragged, "padded or paged keys");
     }},
    {"/kv_starts", &AttentionTensors::kv_starts,
     [](const AttentionSpec& spec) { return may_have(spec.kv_starts, "\"kv_starts\": true"); }},
    {"/page_table", &AttentionTensors::page_table,
     [](const AttentionSpec& spec) { return must_have(spec.kv_layout == KvLayoutKind::kPaged, "paged keys"); }},
    {"/sinks", &AttentionTensors::sinks,
     [](const AttentionSpec& spec) { return must_have(spec.sinks, "\"sinks\": true"); }},
    {"/alibi_slopes", &AttentionTensors::alibi_slopes,
     [](const AttentionSpec& spec) { return may_have(spec.score_mod == ScoreModKind::kAlibi, "score_mod alibi"); }},
    {"/k_scale", &AttentionTensors::k_scale, scales_beside_keys},
    {"/v_scale", &AttentionTensors::v_scale, scales_beside_keys},
    {"/q_scale", &AttentionTensors::q_scale,
     [](const AttentionSpec& spec) {
       return must_have(spec.scales_queries(), "scales \"per_token\" of e4m3 queries");
     }},
    {"/q_rope", &AttentionTensors::q_rope,
     [](const AttentionSpec& spec) { return must_have(spec.rope_width > 0, "a rotary part"); }, OperandRules::kRotary},
    {"/k_rope", &AttentionTensors::k_rope,
     [](const AttentionSpec& spec) { return must_have(spec.rope_width > 0, "a rotary part"); }, OperandRules::kRotary},
    {"/mask", &AttentionTensors::mask,
     [](const AttentionSpec& spec) { return must_have(spec.mask_tensor, "mask \"tensor\""); }, OperandRules::kPerScore},
    {"/bias", &AttentionTensors::bias,
     [](const AttentionSpec& spec) {
       return must_have(spec.score_mod == ScoreModKind::kTensor, "score_mod \"tensor\"");
     },
     OperandRules::kPerScore},
};
static_assert(std::size(kOptionalOperands) <= 32);  // each has a bit of LoadedAttention::takes and needs

/// Its row in the list.
consteval const OptionalOperand& optional_operand(DevicePtr AttentionTensors::*address) {
  for (const OptionalOperand& operand : kOptionalOperands)
    if (operand.address == address) return operand;
  throw "no row has that address";  // the compiler evaluates the call, and stops here
}

/// A rule that depends on one number or flag.
struct NumberRule {
  const char* path;
  bool (*broken)(const LoadedAttention& kernel, const AttentionTensors& tensors);
  std::string (*words)(const AttentionTensors& tensors);  // asked if the rule is broken
};

/// The one list of them. Messages follow its order.
inline constexpr NumberRule kNumberRules[] = {
    {"/num_pages", [](const LoadedAttention&, const AttentionTensors& t) { return t.num_pages < 0; },
     [](const AttentionTensors& t) {
       return fmt::format("{} is negative; give the pages that k and v have", t.num_pages);
     }},
    {"/num_pages",
     [](const LoadedAttention& kernel, const AttentionTensors& t) {
       return t.num_pages > 0 && kernel.spec.kv_layout != KvLayoutKind::kPaged;
     },
     [](const AttentionTensors&) {
       return std::string("is given, and the problem does not have paged keys; leave it 0");
     }},
    {"/scale", [](const LoadedAttention&, const AttentionTensors& t) { return t.scale && !std::isfinite(*t.scale); },
     [](const AttentionTensors& t) { return fmt::format("{} is not finite", *t.scale); }},
};

/// Calls `look(bit, address)` for each of kOptionalOperands. Unrolled: a loop over the table would read it at run time.
template <class Look>
void visit_optional_operands(const AttentionTensors& t, Look&& look) noexcept {
  const auto each = [&]<std::size_t... i>(std::index_sequence<i...>) {
    (look(1u << i, t.*kOptionalOperands[i].address), ...);
  };
  each(std::make_index_sequence<std::size(kOptionalOperands)>{});
}

/// Whether one of kNumberRules is broken. Unrolled likewise.
inline bool breaks_number_rule(const LoadedAttention& kernel, const AttentionTensors& t) noexcept {
  const auto any = [&]<std::size_t... i>(std::index_sequence<i...>) {
    return (kNumberRules[i].broken(kernel, t) || ...);
  };
  return any(std::make_index_sequence<std::size(kNumberRules)>{});
}

}  // namespace kernelwright::detail
