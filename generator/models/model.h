/// What one rank computes for a model: its linear layers and its attention, with every number's formula.
/// read_model() makes it of a config.json; plan_model() (model_plan.h) makes problems of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/models/fact.h"
#include "kernelwright/generator/models/quantization.h"
#include "kernelwright/generator/models/sharding.h"
#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/kv_write.h"
#include "kernelwright/generator/problem/route.h"

namespace kernelwright {

/// A linear layer of one rank: [n, k]. A server may multiply by its parts together, as q, k and v.
struct Linear {
  struct Part {
    std::string name;    // "q"
    std::string module;  // "self_attn.q_proj": its name in the checkpoint, below the layer's
    Fact n;
  };
  std::string name;         // of the parts together: "qkv"
  std::vector<Part> parts;  // one or more
  Fact k;
  Split split = Split::kNone;
  Layers layers;
  bool bias = false;
  bool always_fused = false;  // the checkpoint has the parts as one
  bool quantizes = true;      // quantised checkpoints quantise it
  bool f32_result = false;
  bool last_rows = false;  // a row for each sequence, not for each token: the language model's head
};

/// Attention of one rank, in layers that are alike.
struct AttentionLayer {
  std::string name;  // "", or which layers of a model that has several kinds: "window", "full"
  Fact q_heads, kv_heads, qk, v;
  int window = 0;            // keys that a query sees, its own among them; 0: all
  std::string window_words;  // where the window, or its absence, comes from
  double softcap = 0;        // 0: none
  bool sinks = false;
  /// Of latent attention: elements of a key in the cache of latents, and of the value that it begins with; 0: keys and
  /// values themselves are kept.
  Fact latent_qk, latent_v;
  Fact shared_rope, nope;  // of latent attention: rotary elements of a key, which all heads share; the others
  bool is_latent() const { return latent_v.value() > 0; }
  std::string scale;  // of the scores, in words
  QkNorm qk_norm;
  std::string norm_words;  // where the norm, or its absence, comes from
  Fact rope_width;         // elements of a head that turn
  std::string rope_words;  // the fields that give the angles
  Layers layers;
};

/// A mixture of experts of one rank.
struct ExpertLayer {
  Fact count, own;      // experts, and those of this rank
  Fact width, top_k;    // the inner size of an expert on this rank, and experts that a token gets
  RouteProblem route;   // how they are chosen; its numbers of experts are those above
  std::string choice;   // the fields that say so
  std::string shape;    // "8 of w13 [28672, 4096] and w2 [4096, 14336]"
  std::string module;   // of a matrix of the first one, below the layer's: "mlp.experts.0.gate_proj"
  std::string gates;    // the epilogue of gates and ups
  bool biased = false;  // each of their products has a bias
  bool shared = false;  // a shared expert adds a row to each token
  Layers layers;
};

/// A part of the model that no problem serves.
struct MissingLayer {
  std::string layer, layers;
  std::string shape;  // "8 of [28672, 4096]"; "" where there is none to tell
  std::string reason;
  bool operator==(const MissingLayer&) const = default;
};

struct Model {
  std::string type;  // model_type
  Fact hidden;
  int layers = 0;
  int most_positions = 0;  // 0: the file does not say
  DType dtype = DType::kBf16;
  std::vector<AttentionLayer> attention;
  std::vector<Linear> linears;
  std::vector<ExpertLayer> experts;
  std::vector<MissingLayer> missing;
  Quantization quantization;
};

/// The model_type words that read_model() knows, sorted.
std::vector<std::string_view> known_model_types();

/// Reads the text of a config.json. What `sharding` cannot divide is added to its violations; the model's other numbers
/// are right all the same. Throws ConfigError for a text that is no JSON, an unknown model_type, and a field that is
/// missing or does not fit.
Model read_model(const JsonValue& json, Sharding& sharding);

/// The JSON of a config.json. A text that ends too early is refused with the last field that it has.
JsonValue parse_model_json(std::string_view text);

}  // namespace kernelwright
