/// A model's config.json -> every distinct attention problem, cache write and GEMM of one rank, and the kernels of its
/// experts, as configs, and what is missing.
/// plan_file.h writes and reads plans as JSON.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/models/model.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/tuned/row.h"

namespace kernelwright {

/// How a server calls attention and linear layers.
struct ServerRow {
  std::string_view word;  // "vllm"
  int page_size;          // keys in a page unless the caller says otherwise; 0: the cache has no pages
  bool ragged;            // a prefill's queries are ragged
  bool fuses;             // one GEMM serves q, k and v, and one gate and up
  bool keeps_latents;     // latent attention caches latents
  bool has_fp8_cache;
  bool left_pads;            // batches of prompts of several lengths are padded on the left
  std::string_view prefill;  // "mixed": decodes ride along
};
/// vllm, sglang, hf.
std::span<const ServerRow> server_rows();

/// What a config.json does not say.
struct ServingOptions {
  int tp = 1, ep = 1;
  std::string kv;                // bf16, f16 or e4m3; "": the model's dtype
  std::string kv_scales;         // of an e4m3 cache: a word of cache_scales(); "": per_tensor
  int max_seqs = 256;            // sequences of a batch
  int max_tokens = 8192;         // tokens of a batch
  std::string server = "vllm";   // a word of server_rows()
  std::optional<int> page_size;  // keys in a page; else the server's usual number
  std::string name;              // of the model; "": made of its type and size
  std::vector<Arch> archs{Arch::kSm90a};
};

/// A part of the model that a problem serves.
struct ServedLayer {
  std::string layer, layers;  // "o", "0-31"
  bool operator==(const ServedLayer&) const = default;
};

struct PlannedProblem {
  Config config;
  std::optional<RowRange> rows;  // of a GEMM's launches
  std::vector<ServedLayer> serves;
  std::vector<std::string> from;  // which fields and formulas gave each number
};

struct ModelPlan {
  std::string name, type;
  int layers = 0;
  ServingOptions serving;  // with kv, kv_scales, page_size and name filled in
  std::vector<PlannedProblem> problems;
  std::vector<MissingLayer> missing;
};

/// Plans the model of a config.json's text. A problem that no kernel takes on any of the architectures is missing, with
/// the reason; one that some take stays, and is missing on the others. Throws ConfigError for options that do not fit
/// the model, with the nearest tp or ep that does, and as read_model() does.
ModelPlan plan_model(std::string_view config_json, const ServingOptions& options);

}  // namespace kernelwright
