// quantization_config in its dialects: fp8 of transformers, compressed-tensors, ModelOpt, and mxfp4, which is for
// experts alone.
#include "kernelwright/generator/models/quantization.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/reader.h"
#include "kernelwright/generator/message.h"

namespace kernelwright {
namespace {

using detail::found;

constexpr std::size_t kMostKept = 4096, kMostPattern = 256;
constexpr int kBlock = 128;  // of e4m3 weights that have scales per block

/// Whether `text` is what `pattern` describes: * stands for any letters, ? for one. Time is their lengths' product.
bool is_like(std::string_view text, std::string_view pattern) {
  std::size_t at = 0, in = 0, star = pattern.npos, from = 0;
  while (at < text.size()) {
    if (in < pattern.size() && pattern[in] == '*') {
      star = in++, from = at;
    } else if (in < pattern.size() && (pattern[in] == '?' || pattern[in] == text[at])) {
      ++in, ++at;
    } else if (star != pattern.npos) {
      in = star + 1, at = ++from;
    } else {
      return false;
    }
  }
  return in >= pattern.size() || pattern.find_first_not_of('*', in) == pattern.npos;
}

/// The pattern of is_like() for "re:" and a regular expression of letters, dots and ".*" alone. Other expressions are
/// refused: they could take any time.
std::string pattern_of(std::string_view expression, const std::string& at) {
  std::string pattern;
  std::string_view rest = expression;
  if (rest.starts_with('^')) rest.remove_prefix(1);
  const bool whole = rest.ends_with('$');
  if (whole) rest.remove_suffix(1);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const char c = rest[i];
    if (rest.substr(i).starts_with(".*")) {
      pattern += '*', ++i;
    } else if (rest.substr(i).starts_with("\\.")) {
      pattern += '.', ++i;
    } else if (c == '.') {
      pattern += '?';
    } else if (std::string_view("[](){}|+?*\\^$").find(c) != std::string_view::npos) {
      throw ConfigError(at,
                        quoted_for_message(expression) +
                            " is an expression that is not read here; letters, digits, \"\\\\.\", \".*\" and a last "
                            "\"$\" are");
    } else {
      pattern += c;
    }
  }
  return whole ? pattern : pattern + "*";
}

void read_kept(const JsonValue& json, const std::string& at, Quantization& quantization) {
  if (!json.is_array()) throw ConfigError(at, found(json) + " does not fit; it takes a list of modules");
  if (json.elements().size() > kMostKept)
    throw ConfigError(at, found(json) + " does not fit; it takes at most " + std::to_string(kMostKept));
  quantization.kept_field = at;
  for (std::size_t i = 0; i < json.elements().size(); ++i) {
    const JsonValue& entry = json.elements()[i];
    const std::string place = pointer_to(at, i);
    if (!entry.is_string() || entry.as_string().empty() || entry.as_string().size() > kMostPattern)
      throw ConfigError(place, found(entry) + " does not fit; it takes a module's name");
    const std::string& name = entry.as_string();
    quantization.kept.push_back(name.starts_with("re:") ? pattern_of(std::string_view(name).substr(3), place)
                                                        : "*." + name + ".*");
  }
}

/// Modules that ModelOpt leaves out: names, or patterns in which * stands for any letters.
void read_excluded(const JsonValue& json, const std::string& at, Quantization& quantization) {
  read_kept(json, at, quantization);
  for (std::size_t i = 0; i < json.elements().size(); ++i) {
    const std::string& name = json.elements()[i].as_string();
    if (name.find('*') == name.npos || name.starts_with("re:")) continue;
    quantization.kept[quantization.kept.size() - json.elements().size() + i] =
        name.starts_with("*.") ? name + (name.ends_with('*') ? "" : ".*") : name;
  }
}

/// [128, 128], which is the only size of blocks that a GEMM here takes.
void read_block(const JsonValue& json, const std::string& at, Quantization& quantization) {
  const auto size = [&](std::size_t i) {
    const JsonValue::Array& sizes = json.elements();
    return sizes.size() == 2 && sizes[i].is_int64() ? sizes[i].as_int() : 0;
  };
  if (!json.is_array() || size(0) < 1 || size(1) < 1)
    throw ConfigError(at, found(json) + " does not fit; it takes two whole numbers");
  if (size(0) != kBlock || size(1) != kBlock) {
    quantization.unsupported = "blocks of " + std::to_string(size(0)) + " x " + std::to_string(size(1)) +
                               " elements share a scale; a GEMM here takes blocks of 128 x 128";
    return;
  }
  quantization.scales = ScaleKind::kPerBlock;
  quantization.block_n = quantization.block_k = kBlock;
}

void read_fp8(const JsonValue& json, const std::string& at, Quantization& quantization) {
  if (const JsonValue* block = json.find("weight_block_size"); block && !block->is_null()) {
    read_block(*block, at + "/weight_block_size", quantization);
  } else {
    const JsonValue* scheme = json.find("activation_scheme");
    const bool is_static = scheme && scheme->is_string() && scheme->as_string() == "static";
    quantization.scales = is_static ? ScaleKind::kPerTensor : ScaleKind::kPerToken;
  }
  for (const char* field : {"modules_to_not_convert", "ignored_layers"})
    if (const JsonValue* kept = json.find(field); kept && !kept->is_null())
      read_kept(*kept, at + "/" + field, quantization);
}

/// What ModelOpt calls its ways to quantise, and the scales of e4m3 operands that a GEMM here takes for it.
struct ModelOptAlgorithm {
  std::string_view word;
  ScaleKind scales;
};
constexpr ModelOptAlgorithm kModelOptAlgorithms[] = {{"FP8", ScaleKind::kPerTensor},
                                                     {"FP8_PER_CHANNEL_PER_TOKEN", ScaleKind::kPerToken}};

void read_modelopt(const JsonValue& json, const std::string& at, Quantization& quantization) {
  const JsonValue* algorithm = json.find("quant_algo");
  if (!algorithm || !algorithm->is_string())
    throw ConfigError(at + "/quant_algo", "is missing or no text; ModelOpt says there how it quantises");
  const auto row = std::ranges::find(kModelOptAlgorithms, algorithm->as_string(), &ModelOptAlgorithm::word);
  if (row != std::end(kModelOptAlgorithms))
    quantization.scales = row->scales;
  else
    quantization.unsupported =
        "a plan has no GEMM for what ModelOpt calls " + quoted_for_message(algorithm->as_string());
  for (const char* field : {"ignore", "exclude_modules"})
    if (const JsonValue* kept = json.find(field); kept && !kept->is_null())
      read_excluded(*kept, at + "/" + field, quantization);
}

/// A word of a group's weights or activations; "" where it has none.
std::string word_of(const JsonValue* json, const char* field) {
  const JsonValue* value = json ? json->find(field) : nullptr;
  return value && value->is_string() ? value->as_string() : "";
}

bool is_e4m3(const JsonValue* json) {
  const JsonValue* bits = json ? json->find("num_bits") : nullptr;
  return bits && bits->is_int64() && bits->as_int() == 8 && word_of(json, "type") == "float";
}

void read_compressed_tensors(const JsonValue& json, const std::string& at, Quantization& quantization) {
  if (const JsonValue* kept = json.find("ignore"); kept && !kept->is_null())
    read_kept(*kept, at + "/ignore", quantization);
  const JsonValue* groups = json.find("config_groups");
  if (!groups || !groups->is_object() || groups->members().empty())
    throw ConfigError(at + "/config_groups",
                      "is missing or no object; compressed-tensors says there what it quantises");
  if (groups->members().size() > 1) {
    quantization.unsupported = "compressed-tensors with several config_groups";
    return;
  }
  const auto& [name, group] = groups->members().front();
  const JsonValue *weights = group.find("weights"), *inputs = group.find("input_activations");
  const std::string strategy = word_of(weights, "strategy");
  if (!is_e4m3(weights) || !is_e4m3(inputs))
    quantization.unsupported = "compressed-tensors whose weights and activations are not both 8-bit floats";
  else if (const JsonValue* block = weights->find("block_structure"); strategy == "block" && block)
    read_block(*block, pointer_to(at + "/config_groups", name) + "/weights/block_structure", quantization);
  else if (strategy == "tensor" && word_of(inputs, "strategy") == "tensor")
    quantization.scales = ScaleKind::kPerTensor;
  else if (strategy == "tensor" || strategy == "channel")
    quantization.scales = ScaleKind::kPerToken;
  else
    quantization.unsupported = "compressed-tensors with the strategy " + quoted_for_message(strategy);
}

}  // namespace

bool Quantization::covers(const std::string& module) const {
  if (!linears) return false;
  const std::string between_dots = "." + module + ".";
  for (const std::string& pattern : kept)
    if (is_like(pattern.starts_with("*.") ? between_dots : module, pattern)) return false;
  return true;
}

Quantization read_quantization(const JsonValue& json) {
  Quantization quantization;
  const std::string at = "/quantization_config";
  const JsonValue* given = json.find("quantization_config");
  if (!given || given->is_null()) return quantization;
  if (!given->is_object()) throw ConfigError(at, found(*given) + " does not fit; it takes an object");
  const JsonValue* method = given->find("quant_method");
  if (!method || !method->is_string())
    throw ConfigError(at + "/quant_method", "is missing; it says how the checkpoint is quantised");
  quantization.method = method->as_string();
  quantization.linears = quantization.method != "mxfp4";
  if (quantization.method == "fp8")
    read_fp8(*given, at, quantization);
  else if (quantization.method == "compressed-tensors")
    read_compressed_tensors(*given, at, quantization);
  else if (quantization.method == "modelopt")
    read_modelopt(*given, at, quantization);
  else if (quantization.linears)
    quantization.unsupported = "no GEMM here takes weights of quant_method " + quoted_for_message(quantization.method);
  return quantization;
}

JsonValue quantization_config_of(const JsonValue& hf_quant_config) {
  const JsonValue* given = hf_quant_config.is_object() ? hf_quant_config.find("quantization") : nullptr;
  if (!given || !given->is_object())
    throw ConfigError("/quantization", "is missing or no object; ModelOpt says there how it quantises");
  Quantization unused;
  read_modelopt(*given, "/quantization", unused);
  JsonValue config = JsonValue::object().set("quant_method", "modelopt");
  for (const auto& [name, value] : given->members()) config.set(name, value);
  return config;
}

}  // namespace kernelwright
