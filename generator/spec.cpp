#include "kernelwright/generator/spec.h"

namespace kernelwright {
namespace {

std::string value_text(int value) { return std::to_string(value); }
std::string value_text(bool value) { return value ? "true" : "false"; }
template <Enum E>
std::string value_text(E value) {
  return std::string(to_string(value));
}

}  // namespace

std::string kernel_name(const Spec& spec) {
  if (std::holds_alternative<CombineSpec>(spec)) return "attention_combine";
  const auto& attention = std::get<AttentionSpec>(spec);
  if (attention.family == Family::kHopper) return attention.token_gen ? "attention_decode_sm90" : "attention_sm90";
  return attention.token_gen ? "attention_decode_portable" : "attention_portable";
}

std::string canonical_text(const Spec& spec) {
  std::string lines;
  std::visit(
      [&](auto fields) {
        visit_fields(fields, [&](const char* name, auto& value, const auto&, const char*) {
          lines.append(name).append(" ").append(value_text(value)).append("\n");
        });
      },
      spec);
  return lines;
}

Arch arch_of(const Spec& spec) {
  return std::visit([](const auto& fields) { return fields.arch; }, spec);
}

}  // namespace kernelwright
