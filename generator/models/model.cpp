// The fields of a config.json -> what one rank computes. Families differ by a row of model_families.cpp alone; this
// file has the formulas, each once.
#include "kernelwright/generator/models/model.h"

#include <algorithm>
#include <set>

#include "kernelwright/generator/json/reader.h"
#include "kernelwright/generator/message.h"
#include "kernelwright/generator/models/families.h"

namespace kernelwright {
namespace {

using detail::BiasRule;
using detail::ExpertRow;
using detail::FamilyRow;
using detail::WindowRule;

constexpr int kMostLayers = 1024;
constexpr const char *kSlidingLayer = "sliding_attention", *kFullLayer = "full_attention";  // words of layer_types
constexpr int kVocabularyStep = 64;  // servers pad the rows of the language model's head to it
constexpr int kExpertBlock = 32;     // of mxfp4 elements that share a scale

Layers all_layers(int count) {
  Layers layers(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) layers[static_cast<std::size_t>(i)] = i;
  return layers;
}

/// Builds the model of one file.
class ModelReader {
 public:
  ModelReader(const ModelFields& fields, const FamilyRow& family, Sharding& sharding, Model& model)
      : fields_(fields), family_(family), sharding_(sharding), model_(model) {
    const Fact layers = fields.whole("num_hidden_layers");
    if (layers.value() > kMostLayers)
      throw ConfigError(layers.field(),
                        std::to_string(layers.value()) + " is outside [1, " + std::to_string(kMostLayers) + "]");
    model.layers = static_cast<int>(layers.value());
    model.hidden = fields.whole("hidden_size");
    if (const auto most = fields.whole_if_given("max_position_embeddings"))
      model.most_positions = static_cast<int>(most->value());
  }

  void read() {
    if (family_.latent)
      add_latent_attention();
    else
      add_attention();
    add_feed_forward();
    Linear head{.name = "lm-head", .k = model_.hidden, .split = Split::kN, .quantizes = false, .last_rows = true};
    const Fact words = fields_.whole("vocab_size");
    const std::int64_t padded = (words.value() + kVocabularyStep - 1) / kVocabularyStep * kVocabularyStep;
    const Fact rows = padded == words.value() ? words : Fact(padded, words.field(), words.formula() + " padded to 64");
    head.parts = {{"lm-head", "lm_head", sharding_.split(rows)}};
    model_.linears.push_back(std::move(head));
  }

 private:
  bool has_bias(BiasRule rule) const {
    return rule == BiasRule::kAlways || (rule == BiasRule::kAttentionBias && fields_.flag("attention_bias", false)) ||
           (rule == BiasRule::kQkvBias && fields_.flag("qkv_bias", true));
  }

  Fact head_dim(const Fact& heads) {
    if (const auto given = fields_.whole_if_given("head_dim")) return *given;
    if (model_.hidden.value() % heads.value() != 0)
      throw ConfigError(heads.field(),
                        heads.text() + " does not divide " + model_.hidden.text() + ", and no head_dim is given");
    return model_.hidden / heads;
  }

  void add_attention() {
    if (fields_.flag("use_bidirectional_attention", false))
      throw ConfigError(fields_.pointer("use_bidirectional_attention"),
                        "true: only causal attention is planned; false is accepted");
    const Fact heads = fields_.whole("num_attention_heads");
    const Fact kv_heads = fields_.whole_if_given("num_key_value_heads").value_or(heads);
    if (heads.value() % kv_heads.value() != 0)
      throw ConfigError(kv_heads.field(), kv_heads.text() + " does not divide " + heads.text());
    const Fact d = head_dim(heads), q = sharding_.split(heads), kv = sharding_.kv_heads(kv_heads);
    const Layers layers = all_layers(model_.layers);
    const bool fused = family_.fused;
    const auto module = [&](const char* name) { return std::string("self_attn.") + (fused ? "qkv_proj" : name); };
    model_.linears.push_back(
        {.name = "qkv",
         .parts = {{"q", module("q_proj"), q * d}, {"kv", module("k_proj"), kv * d}, {"kv", module("v_proj"), kv * d}},
         .k = model_.hidden,
         .split = Split::kN,
         .layers = layers,
         .bias = has_bias(family_.qkv_bias),
         .always_fused = fused});
    model_.linears.push_back({.name = "o",
                              .parts = {{"o", "self_attn.o_proj", model_.hidden}},
                              .k = q * d,
                              .split = Split::kK,
                              .layers = layers,
                              .bias = has_bias(family_.o_bias)});
    AttentionLayer attention{.q_heads = q, .kv_heads = kv, .qk = d, .v = d, .sinks = family_.sinks};
    attention.scale = "head_dim^-1/2";
    if (family_.scalar) attention.scale = fields_.whole("query_pre_attn_scalar").formula() + ", to the power -1/2";
    if (family_.softcap) attention.softcap = fields_.number_if_given("attn_logit_softcapping").value_or(0);
    add_by_window(std::move(attention));
  }

  /// One entry for the layers with a window, and one for those without.
  void add_by_window(AttentionLayer attention) {
    std::string why;
    Layers windowed = window_layers(why), full;
    for (int i = 0; i < model_.layers; ++i)
      if (!std::binary_search(windowed.begin(), windowed.end(), i)) full.push_back(i);
    if (!windowed.empty()) {
      const Fact window = fields_.whole("sliding_window");
      if (model_.most_positions > 0 && window.value() >= model_.most_positions) {
        why = window.formula() + " hides nothing of max_position_embeddings " + std::to_string(model_.most_positions);
        windowed.clear(), full = all_layers(model_.layers);
      } else {
        AttentionLayer narrow = attention;
        narrow.name = full.empty() ? "" : "window";
        narrow.window = static_cast<int>(window.value());
        narrow.window_words = window.formula() + ", " + why;
        narrow.layers = windowed;
        detail::fill_norm_and_rotation(fields_, family_, kSlidingLayer, narrow);
        model_.attention.push_back(std::move(narrow));
      }
    }
    if (full.empty()) return;
    attention.name = windowed.empty() ? "" : "full";
    attention.window_words = why;
    attention.layers = full;
    detail::fill_norm_and_rotation(fields_, family_, kFullLayer, attention);
    model_.attention.push_back(std::move(attention));
  }

  /// The layers with a sliding window, and which field says so.
  Layers window_layers(std::string& why) const {
    if (const JsonValue* types = fields_.find("layer_types")) return typed_layers(*types, why);
    const auto every = [&](const auto& is_in) {
      Layers layers;
      for (int i = 0; i < model_.layers; ++i)
        if (is_in(i)) layers.push_back(i);
      return layers;
    };
    switch (family_.windows) {
      case WindowRule::kNever: why = "no window"; return {};
      case WindowRule::kEveryLayerIfUsed:
        why = "use_sliding_window is false";
        if (!fields_.flag("use_sliding_window", false)) return {};
        [[fallthrough]];
      case WindowRule::kEveryLayer:
        why = "in every layer";
        if (fields_.whole_if_given("sliding_window")) return all_layers(model_.layers);
        why = "sliding_window is null";
        return {};
      case WindowRule::kUpperLayers: {
        why = "use_sliding_window is false";
        if (!fields_.flag("use_sliding_window", false)) return {};
        const auto below = fields_.whole_above_zero("max_window_layers");
        why = below ? "from " + below->formula() + " on" : "use_sliding_window";
        return every([&](int i) { return !below || i >= below->value(); });
      }
      case WindowRule::kLowerEvenLayers: {
        why = "use_sliding_window is false";
        if (!fields_.flag("use_sliding_window", false)) return {};
        const auto above = fields_.whole_above_zero("max_window_layers");
        why = "in layers of even number" + (above ? " below " + above->formula() : "");
        return every([&](int i) { return i % 2 == 0 && above && i < above->value(); });
      }
      case WindowRule::kEvenLayers: why = "in layers of even number"; return every([](int i) { return i % 2 == 0; });
      case WindowRule::kAllButEachNth: {
        const Fact nth = fields_.whole("sliding_window_pattern");
        why = nth.formula() + ": each layer of such a number is full";
        return every([&](int i) { return (i + 1) % nth.value() != 0; });
      }
    }
    return {};
  }

  Layers typed_layers(const JsonValue& types, std::string& why) const {
    const std::string at = fields_.pointer("layer_types");
    if (!types.is_array() || types.elements().size() != static_cast<std::size_t>(model_.layers))
      throw ConfigError(at, detail::found(types) + " does not fit; it takes a word for each of the " +
                                std::to_string(model_.layers) + " layers");
    Layers windowed;
    for (int i = 0; i < model_.layers; ++i) {
      const JsonValue& type = types.elements()[static_cast<std::size_t>(i)];
      if (type == JsonValue(kSlidingLayer))
        windowed.push_back(i);
      else if (type != JsonValue(kFullLayer))
        throw ConfigError(pointer_to(at, static_cast<std::size_t>(i)),
                          detail::found(type) +
                              " is no layer that is known here; it takes full_attention or "
                              "sliding_attention");
    }
    why = "layer_types";
    return windowed;
  }

  /// Multi-head latent attention: queries and keys pass through narrow latents, and the cache keeps the latents.
  void add_latent_attention() {
    const Fact heads = fields_.whole("num_attention_heads"), rank = fields_.whole("kv_lora_rank");
    const Fact nope = fields_.whole("qk_nope_head_dim"), rope = fields_.whole("qk_rope_head_dim");
    const Fact v = fields_.whole("v_head_dim"), h = sharding_.split(heads), qk = nope + rope;
    const Layers layers = all_layers(model_.layers);
    const bool bias = fields_.flag("attention_bias", false);
    const Linear::Part kv_a{"kv-a", "self_attn.kv_a_proj_with_mqa", rank + rope};
    if (const auto q_rank = fields_.whole_if_given("q_lora_rank")) {
      model_.linears.push_back({.name = "qkv-a",
                                .parts = {{"q-a", "self_attn.q_a_proj", *q_rank}, kv_a},
                                .k = model_.hidden,
                                .layers = layers,
                                .bias = bias});
      add_one("q-b", "self_attn.q_b_proj", h * qk, *q_rank, Split::kN, layers);
    } else {
      add_one("q", "self_attn.q_proj", h * qk, model_.hidden, Split::kN, layers);
      model_.linears.push_back({.name = "kv-a", .parts = {kv_a}, .k = model_.hidden, .layers = layers, .bias = bias});
    }
    add_one("kv-b", "self_attn.kv_b_proj", h * (nope + v), rank, Split::kN, layers);
    add_one("o", "self_attn.o_proj", model_.hidden, h * v, Split::kK, layers).bias = bias;
    model_.attention.push_back({.q_heads = h,
                                .kv_heads = h,
                                .qk = qk,
                                .v = v,
                                .window_words = "no window",
                                .latent_qk = rank + rope,
                                .latent_v = rank,
                                .shared_rope = rope,
                                .nope = nope,
                                .scale = "(qk_nope_head_dim + qk_rope_head_dim)^-1/2, and mscale^2 of rope_scaling",
                                .layers = layers});
  }

  Linear& add_one(const char* name, const char* module, const Fact& n, const Fact& k, Split split,
                  const Layers& layers) {
    model_.linears.push_back({.name = name, .parts = {{name, module, n}}, .k = k, .split = split, .layers = layers});
    return model_.linears.back();
  }

  /// gate_up and down of a gated feed-forward layer whose inner size on this rank is `width`.
  void add_gated(const std::string& prefix, const std::string& module, const Fact& width, const Layers& layers) {
    const auto part = [&](const char* own) { return module + (family_.fused ? "gate_up_proj" : own); };
    const bool bias = family_.mlp_bias && fields_.flag("mlp_bias", false);
    model_.linears.push_back(
        {.name = prefix + "gate-up",
         .parts = {{prefix + "gate-up", part("gate_proj"), width}, {prefix + "gate-up", part("up_proj"), width}},
         .k = model_.hidden,
         .split = Split::kN,
         .layers = layers,
         .bias = bias,
         .always_fused = family_.fused});
    model_.linears.push_back({.name = prefix + "down",
                              .parts = {{prefix + "down", module + "down_proj", model_.hidden}},
                              .k = width,
                              .split = Split::kK,
                              .layers = layers,
                              .bias = bias});
  }

  std::set<std::int64_t> named_dense_layers() const {
    std::set<std::int64_t> layers;
    const JsonValue* named = fields_.find("mlp_only_layers");
    if (!named) return layers;
    const std::string at = fields_.pointer("mlp_only_layers");
    if (!named->is_array() || named->elements().size() > kMostLayers)
      throw ConfigError(at, detail::found(*named) + " does not fit; it takes a list of layers");
    for (std::size_t i = 0; i < named->elements().size(); ++i) {
      const JsonValue& layer = named->elements()[i];
      if (!layer.is_int64())
        throw ConfigError(pointer_to(at, i), detail::found(layer) + " does not fit; it takes a layer's number");
      layers.insert(layer.as_int());
    }
    return layers;
  }

  /// Layers without experts, of a model that has experts in others.
  Layers dense_layers() const {
    const auto number = [&](const char* field, std::int64_t otherwise) {
      const auto fact = fields_.whole_above_zero(field);
      return fact ? fact->value() : otherwise;
    };
    const std::int64_t first = number("first_k_dense_replace", 0), step = number("decoder_sparse_step", 1),
                       frequency = number("moe_layer_freq", 1);
    Layers dense;
    const std::set<std::int64_t> named = named_dense_layers();
    for (int i = 0; i < model_.layers; ++i) {
      if (i < first || (i + 1) % step != 0 || i % frequency != 0 || named.contains(i)) dense.push_back(i);
    }
    return dense;
  }

  void add_feed_forward() {
    if (!family_.experts)
      return add_gated("", "mlp.", sharding_.split(fields_.whole("intermediate_size")), all_layers(model_.layers));
    const Layers dense = dense_layers();
    if (!dense.empty()) add_gated("", "mlp.", sharding_.split(fields_.whole("intermediate_size")), dense);
    Layers sparse;
    for (int i = 0; i < model_.layers; ++i)
      if (!std::binary_search(dense.begin(), dense.end(), i)) sparse.push_back(i);
    if (!sparse.empty()) add_experts(*family_.experts, sparse);
  }

  /// The inner size of an expert on this rank. Ranks share mxfp4 elements in whole blocks.
  Fact expert_width(const Fact& width) {
    if (model_.quantization.method != "mxfp4" || sharding_.ep() > 1) return sharding_.expert_width(width);
    const std::int64_t blocks = (width.value() + kExpertBlock - 1) / kExpertBlock;
    const std::int64_t own = (blocks + sharding_.tp() - 1) / sharding_.tp() * kExpertBlock;
    return Fact(own, width.field(), width.formula() + " / tp " + std::to_string(sharding_.tp()) + " in blocks of 32");
  }

  void add_experts(const ExpertRow& row, const Layers& layers) {
    const Fact count = fields_.whole(row.count), own = sharding_.experts(count);
    const Fact width = expert_width(fields_.whole(row.width));
    require_blocks(width);
    const auto matrix = [&](const Fact& n, const Fact& k) {
      return "[" + std::to_string(n.value()) + ", " + std::to_string(k.value()) + "]";
    };
    ExpertLayer experts{.count = count, .own = own, .width = width, .layers = layers};
    experts.shape = std::to_string(own.value()) + " of w13 " + matrix(Fact(2) * width, model_.hidden) + " and w2 " +
                    matrix(model_.hidden, width);
    const auto top_k = fields_.whole_if_given("num_experts_per_tok");
    experts.gates = detail::gates_of_experts(fields_, row), experts.biased = row.clamped, experts.module = row.expert;
    if (top_k && !experts.gates.empty()) {
      experts.top_k = *top_k;
      experts.shared = !row.shared_count.empty() && fields_.whole_above_zero(row.shared_count);
      detail::fill_choice(fields_, row, row.f32_logits ? DType::kF32 : model_.dtype, experts);
      model_.experts.push_back(std::move(experts));
    } else {
      model_.missing.push_back({"experts", layers_text(layers), experts.shape,
                                (top_k ? "no GEMM has gates of hidden_act " + fields_.word("hidden_act")
                                       : std::string("the file has no num_experts_per_tok")) +
                                    "; the server's own serves"});
    }
    model_.linears.push_back({.name = "router",
                              .parts = {{"router", "mlp." + std::string(row.router), count}},
                              .k = model_.hidden,
                              .layers = layers,
                              .bias = row.router_bias,
                              .quantizes = false,
                              .f32_result = row.f32_logits});
    if (row.shared_width.empty()) return;
    Fact shared = fields_.whole(row.shared_width);
    if (!row.shared_count.empty()) {
      const auto copies = fields_.whole_above_zero(row.shared_count);
      if (!copies) return;
      shared = *copies * shared;
    }
    add_gated("shared-", "mlp.shared_experts.", sharding_.split(shared), layers);
    if (row.shared_gate)
      model_.missing.push_back({"shared expert's gate", layers_text(layers), matrix(Fact(1), model_.hidden),
                                "a GEMM here has 8 columns or more; the server's own serves"});
  }

  /// Experts of a rank have whole blocks of scales, as other linear layers do (plan_linears()).
  void require_blocks(const Fact& width) {
    const Quantization& quantization = model_.quantization;
    if (quantization.scales != ScaleKind::kPerBlock || sharding_.ep() > 1 || sharding_.tp() == 1) return;
    if (width.value() % quantization.block_n != 0) sharding_.refuse_block(width, quantization.block_n);
  }

  const ModelFields& fields_;
  const FamilyRow& family_;
  Sharding& sharding_;
  Model& model_;
};

}  // namespace

void detail::fill_model(const ModelFields& fields, const FamilyRow& family, Sharding& sharding, Model& model) {
  ModelReader(fields, family, sharding, model).read();
}

}  // namespace kernelwright
