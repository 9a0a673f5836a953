// One rank's layers -> distinct problems. Attention first, then its cache, then GEMMs, then experts; equal problems
// join.
#include "kernelwright/generator/models/model_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/message.h"
#include "kernelwright/generator/models/plan_parts.h"
#include "kernelwright/generator/problem/field_rules.h"

namespace kernelwright {
namespace {

constexpr ServerRow kServers[] = {
    {.word = "vllm",
     .page_size = 16,
     .ragged = true,
     .fuses = true,
     .keeps_latents = true,
     .has_fp8_cache = true,
     .left_pads = false,
     .prefill = "mixed"},
    {.word = "sglang",
     .page_size = 1,
     .ragged = true,
     .fuses = true,
     .keeps_latents = true,
     .has_fp8_cache = true,
     .left_pads = false,
     .prefill = "prefill"},
    {.word = "hf",
     .page_size = 0,
     .ragged = false,
     .fuses = false,
     .keeps_latents = false,
     .has_fp8_cache = false,
     .left_pads = true,
     .prefill = "prefill"},
};
constexpr std::size_t kMostName = 32;  // of a model: the names of its problems begin with it
constexpr int kMostRanks = 1024;

const ServerRow& server_row(const std::string& word) {
  for (const ServerRow& row : kServers)
    if (row.word == word) return row;
  throw ConfigError("--server", quoted_for_message(word) + " is no server here; it takes vllm, sglang or hf");
}

void require_range(const char* option, int value, int most) {
  if (value < 1 || value > most) throw ConfigError(option, fmt::format("{} is outside [1, {}]", value, most));
}

void check_options(const ServingOptions& options) {
  require_range("--tp", options.tp, kMostRanks);
  require_range("--ep", options.ep, kMostRanks);
  require_range("--max-seqs", options.max_seqs, 1 << 20);
  require_range("--max-tokens", options.max_tokens, 1 << 20);
  if (options.page_size) require_range("--page-size", *options.page_size, 65536);
  if (options.name.empty()) return;
  if (auto why = name_verdict(options.name)) throw ConfigError("--name", *why);
  if (options.name.size() > kMostName)
    throw ConfigError("--name", fmt::format("has {} letters; it takes at most {}", options.name.size(), kMostName));
}

/// The violations of the model if it were divided so. Which layers are quantised does not depend on that.
std::vector<Violation> faults(const JsonValue& json, int tp, int ep, const detail::QuantizedLayers& quantized) {
  Sharding sharding(tp, ep);
  const Model model = read_model(json, sharding);
  detail::check_blocks(model, quantized, sharding);
  return sharding.violations();
}

/// "; tp 8 is accepted", or nothing where no number of ranks is.
std::string nearest_accepted(const JsonValue& json, const ServingOptions& options,
                             const detail::QuantizedLayers& quantized) {
  for (const bool is_tp : {true, false})
    for (int step = 1; step < kMostRanks; ++step)
      for (const int sign : {-1, 1}) {
        const int ranks = (is_tp ? options.tp : options.ep) + sign * step;
        if (ranks < 1 || ranks > kMostRanks) continue;
        if (faults(json, is_tp ? ranks : options.tp, is_tp ? options.ep : ranks, quantized).empty())
          return fmt::format("; {} {} is accepted", is_tp ? "tp" : "ep", ranks);
      }
  return "";
}

/// Latents have no heads, and records hold latents alone.
void check_scales(const ServingOptions& options, ScaleKind scales, bool latents) {
  const bool fits = scales == ScaleKind::kPerTensor || (scales == ScaleKind::kPerBlock) == latents;
  if (fits) return;
  throw ConfigError(
      "--kv-scales",
      fmt::format("{} does not fit a cache of {}; it takes per_tensor{}", quoted_for_message(options.kv_scales),
                  latents ? "latents" : "keys and values", latents ? " or per_block" : ", per_head or per_token"));
}

/// Fills what the caller left to the model and the server.
ServingOptions filled(ServingOptions options, const Model& model, const ServerRow& server) {
  const std::string own(to_string(model.dtype));
  if (options.kv.empty()) options.kv = own;
  if (options.kv != own && options.kv != "e4m3")
    throw ConfigError("--kv", fmt::format("{} does not fit a model of {}; it takes {} or e4m3",
                                          quoted_for_message(options.kv), own, own));
  if (options.kv == "e4m3" && !server.has_fp8_cache)
    throw ConfigError("--kv", fmt::format("e4m3: the cache of {} has no scales; {} is accepted", server.word, own));
  if (!options.kv_scales.empty() && options.kv != "e4m3")
    throw ConfigError("--kv-scales", fmt::format("{}: a cache of {} has no scales; leave it out, or give --kv e4m3",
                                                 quoted_for_message(options.kv_scales), options.kv));
  if (options.kv == "e4m3") {
    const ScaleKind scales = detail::cache_scales(options);
    check_scales(options, scales,
                 server.keeps_latents && std::ranges::any_of(model.attention, &AttentionLayer::is_latent));
    options.kv_scales = std::string(to_string(scales));
  }
  if (server.page_size == 0 && options.page_size)
    throw ConfigError("--page-size", fmt::format("the cache of {} has no pages; leave it out", server.word));
  options.page_size = options.page_size.value_or(server.page_size);
  if (options.name.empty()) {
    options.name = fmt::format("{}-h{}-l{}", model.type, model.hidden.value(), model.layers);
    std::ranges::replace(options.name, '_', '-');
  }
  return options;
}

}  // namespace

std::span<const ServerRow> server_rows() { return kServers; }

ModelPlan plan_model(std::string_view config_json, const ServingOptions& options) {
  check_options(options);
  const ServerRow& server = server_row(options.server);
  const JsonValue json = parse_model_json(config_json);
  Sharding sharding(options.tp, options.ep);
  const Model model = read_model(json, sharding);
  const detail::QuantizedLayers quantized = detail::quantized_layers(model);
  detail::check_blocks(model, quantized, sharding);
  if (!sharding.violations().empty()) {
    Violation first = sharding.violations().front();
    first.message += nearest_accepted(json, options, quantized);
    throw ConfigError({std::move(first)});
  }
  ModelPlan plan{.type = model.type, .layers = model.layers, .serving = filled(options, model, server)};
  plan.name = fmt::format("{}-tp{}", plan.serving.name, options.tp);
  if (options.ep > 1) plan.name += fmt::format("-ep{}", options.ep);
  detail::PlanBuilder builder(model, server, plan);
  builder.add_attention();
  builder.add_cache_writes();
  builder.add_linears(quantized);
  builder.add_experts();
  detail::add_missing(plan, model.missing);
  detail::judge(plan);
  return plan;
}

}  // namespace kernelwright
