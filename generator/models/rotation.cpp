// How a model normalises and rotates its queries and keys, from the fields of its config.json. Models of Hugging Face
// turn element i of a head with i + width / 2, whatever their checkpoints were trained with.
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/json/reader.h"
#include "kernelwright/generator/message.h"
#include "kernelwright/generator/models/families.h"

namespace kernelwright::detail {
namespace {

/// The scalings of angles that transformers knows. A kernel reads the angles from a table, so that none of them changes
/// a problem.
constexpr std::string_view kScalings[] = {"default",  "dynamic",      "linear", "llama3",
                                          "longrope", "proportional", "su",     "yarn"};
constexpr double kUsualEps = 1e-6;

/// The object with a model's angles, and its JSON pointer; null where the file has none.
struct Angles {
  const JsonValue* json = nullptr;
  std::string path;
};

Angles find_angles(const ModelFields& fields, std::string_view type) {
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const JsonValue* json = fields.find(name);
    if (!json) continue;
    Angles angles{json, fields.pointer(name)};
    if (!json->is_object()) throw ConfigError(angles.path, found(*json) + " does not fit; it takes an object");
    if (const JsonValue* own = json->find(std::string(type)); own && own->is_object())
      angles = {own, angles.path + "/" + std::string(type)};
    return angles;
  }
  return {};
}

std::string scaling_of(const ModelFields& angles) {
  for (const char* name : {"rope_type", "type"}) {
    const std::string word = angles.word(name);
    if (word.empty()) continue;
    if (std::ranges::find(kScalings, word) == std::ranges::end(kScalings))
      throw ConfigError(angles.pointer(name),
                        quoted_for_message(word) + " is no scaling that is known here; it takes one of " +
                            join(std::vector<std::string_view>(std::begin(kScalings), std::end(kScalings))));
    return word;
  }
  return "default";
}

std::string text_of(double number) { return fmt::format("{}", number); }

/// "rope_theta 500000, rope_type llama3, factor 8"
std::string words_of(const ModelFields& fields, const ModelFields* angles, bool is_local) {
  std::string theta_field = "rope_theta";
  std::optional<double> theta = angles ? angles->number_if_given(theta_field) : std::nullopt;
  if (!theta && is_local && (theta = fields.number_if_given("rope_local_base_freq"))) {
    return "rope_local_base_freq " + text_of(*theta);  // of layers with a window, without a scaling
  }
  if (!theta) theta = fields.number_if_given(theta_field);
  std::string words = theta ? theta_field + " " + text_of(*theta) : "no rope_theta is given";
  if (!angles) return words;
  words += ", rope_type " + scaling_of(*angles);
  if (const auto factor = angles->number_if_given("factor")) words += ", factor " + text_of(*factor);
  return words;
}

/// The share of a head that turns, and the field that says so.
Fact width_of(const ModelFields& fields, const ModelFields* angles, const FamilyRow& family, const Fact& head_dim) {
  constexpr const char* kField = "partial_rotary_factor";
  const std::optional<double> given =
      angles && angles->find(kField) ? angles->number_if_given(kField) : fields.number_if_given(kField);
  const double share = given.value_or(family.rotary_share);
  const std::string at = angles && angles->find(kField) ? angles->pointer(kField) : fields.pointer(kField);
  if (share > 1) throw ConfigError(at, text_of(share) + " does not fit; it takes a number in (0, 1]");
  if (share == 1) return head_dim;
  const auto width = static_cast<std::int64_t>(static_cast<double>(head_dim.value()) * share);
  return Fact(width, at,
              head_dim.formula() + " * " + kField + " " + text_of(share) +
                  (given ? "" : " (default of " + std::string(fields.model_type()) + ")") + " = " +
                  std::to_string(width));
}

}  // namespace

void fill_norm_and_rotation(const ModelFields& fields, const FamilyRow& family, std::string_view type,
                            AttentionLayer& layer) {
  const Angles found = find_angles(fields, type);
  std::optional<ModelFields> angles;
  if (found.json) angles.emplace(*found.json, found.path, fields.model_type(), std::span<const FieldDefault>());
  layer.rope_width = width_of(fields, angles ? &*angles : nullptr, family, layer.qk);
  layer.rope_words = words_of(fields, angles ? &*angles : nullptr, layer.window > 0);

  const std::string model_type = "model_type " + std::string(fields.model_type());
  const bool if_used = family.qk_norm == NormRule::kIfUsed, used = if_used && fields.flag("use_qk_norm", false);
  layer.norm_words = if_used ? "none; use_qk_norm is false" : "none; " + model_type + " has none";
  if (family.qk_norm == NormRule::kNever || (if_used && !used)) return;
  layer.qk_norm = {.kind = NormKind::kRms, .weight_offset = family.norm_offset};
  const std::optional<double> eps = fields.number_if_given("rms_norm_eps");
  layer.qk_norm.eps = eps.value_or(kUsualEps);
  layer.norm_words = "rms of each head, " + (if_used ? std::string("use_qk_norm") : model_type) + "; rms_norm_eps " +
                     text_of(layer.qk_norm.eps) + (eps ? "" : " (default)");
}

}  // namespace kernelwright::detail
