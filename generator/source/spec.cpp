#include "kernelwright/generator/source/spec.h"

#include <fmt/format.h>

#include "contract/attention_latent_record.h"
#include "contract/attention_sm100.h"
#include "contract/attention_sm90.h"
#include "contract/gemm_params.h"
#include "kernelwright/generator/digest.h"

namespace kernelwright {
namespace {

std::string value_text(int value) { return std::to_string(value); }
std::string value_text(float value) { return fmt::format("{:a}", value); }
std::string value_text(bool value) { return value ? "true" : "false"; }
std::string value_text(const SpecSource& source) {
  return source.exists() ? source.type + " " + sha256(source.text).hex() : "none";
}
template <Enum E>
std::string value_text(E value) {
  const std::string_view word = to_string(value);
  return word == "?" ? std::to_string(static_cast<int>(value)) : std::string(word);
}

/// Whether the products of a step follow each other: with fp8 queries, attention_sm90.
bool is_one_product(Overlap overlap) { return overlap == Overlap::kNone || overlap == Overlap::kPingPong; }

}  // namespace

int GemmSpec::product_columns() const {
  return contract::gemm_product_columns(block_m, block_n, math_warpgroups, roles == Roles::kPingPong, mma_in_flight,
                                        promotion);
}

AttentionForm AttentionSpec::form() const {
  using enum AttentionForm;
  if (family == Family::kHopper) return latent ? kHopperLatent : token_gen ? kHopperDecode : kHopperPrefill;
  if (family == Family::kBlackwell) return latent ? kBlackwellLatent : kBlackwellPrefill;
  return latent ? kPortableLatent : token_gen ? kPortableDecode : kPortablePrefill;
}

bool AttentionSpec::shares_maxima() const {
  const bool in_warps = family == Family::kPortable || form() == AttentionForm::kHopperDecode;
  return in_warps && bits_of(q) == 16 && rescale == Rescale::kLazy;
}

bool AttentionSpec::promotes() const {
  return form() == AttentionForm::kHopperPrefill && bits_of(q) == 8 && pv_promote == 1;
}

bool AttentionSpec::splits_q() const {
  return form() == AttentionForm::kHopperPrefill && q == DType::kBf16 && bits_of(kv) == 8;
}

bool AttentionSpec::promotes_runs() const {
  return form() == AttentionForm::kHopperPrefill && bits_of(q) == 8 && pv_promote > 1;
}

bool AttentionSpec::shares_scores() const {
  return promotes() && contract::shares_scores(is_one_product(overlap), block_n, head_dim_v);
}

bool AttentionSpec::parts_take_turns() const {
  return promotes() && contract::parts_take_turns(is_one_product(overlap), block_n, head_dim_v);
}

int AttentionSpec::record_bytes() const { return contract::latent_key(head_dim_qk, head_dim_v, true).bytes; }

int AttentionSpec::threads() const {
  switch (form()) {
    case AttentionForm::kHopperPrefill: return 128 * (1 + math_warpgroups);
    case AttentionForm::kBlackwellPrefill: return contract::kBlackwellThreads;
    default: return 32 * num_warps;
  }
}

std::string kernel_name(const Spec& spec) {
  if (std::holds_alternative<CombineSpec>(spec)) return "attention_combine";
  if (std::holds_alternative<QuantizeSpec>(spec)) return "quantize";
  if (std::holds_alternative<KvWriteSpec>(spec)) return "kv_write";
  if (std::holds_alternative<RowOpSpec>(spec)) return "row_op";
  if (std::holds_alternative<RouteSpec>(spec)) return "route";
  if (std::holds_alternative<MoeCombineSpec>(spec)) return "moe_combine";
  if (std::holds_alternative<RouteSortSpec>(spec)) return "route_sort";
  if (const auto* gemm = std::get_if<GemmSpec>(&spec)) {
    if (!gemm->kernel.empty()) return std::string(gemm->kernel);
    switch (gemm->family) {
      case Family::kPortable: return gemm->writes_kv ? "gemm_portable_kv" : "gemm_portable";
      case Family::kHopper: return gemm->writes_kv ? "gemm_sm90_kv" : "gemm_sm90";
      case Family::kBlackwell: return gemm->writes_kv ? "gemm_sm100_kv" : "gemm_sm100";
    }
  }
  switch (std::get<AttentionSpec>(spec).form()) {
    case AttentionForm::kPortablePrefill: break;
    case AttentionForm::kPortableDecode: return "attention_decode_portable";
    case AttentionForm::kHopperPrefill: return "attention_sm90";
    case AttentionForm::kHopperDecode: return "attention_decode_sm90";
    case AttentionForm::kHopperLatent: return "attention_latent_sm90";
    case AttentionForm::kBlackwellLatent: return "attention_latent_sm100";
    case AttentionForm::kPortableLatent: return "attention_latent_portable";
    case AttentionForm::kBlackwellPrefill: return "attention_sm100";
  }
  return "attention_portable";
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
