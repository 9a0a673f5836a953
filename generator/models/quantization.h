/// What a checkpoint's quantization_config makes of its linear layers.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/problem/enums.h"

namespace kernelwright {

struct Quantization {
  std::string method;                   // quant_method; "" for none
  bool linears = false;                 // linear layers are quantised; mxfp4 quantises experts alone
  ScaleKind scales = ScaleKind::kNone;  // of e4m3 operands
  int block_n = 0, block_k = 0;         // for per_block
  std::string unsupported;              // why no GEMM of this library serves the linear layers; "" if one does
  std::vector<std::string> kept;        // modules that stay in 16 bits
  std::string kept_field;               // their JSON pointer

  /// Whether the linear layer `module` ("model.layers.3.self_attn.q_proj") is quantised.
  bool covers(const std::string& module) const;
};

/// Reads quantization_config of `json`, or "no quantisation" where there is none. Throws ConfigError.
Quantization read_quantization(const JsonValue& json);

/// The quantization_config that says what a hf_quant_config.json says. ModelOpt writes that file beside config.json.
/// Throws ConfigError, with places in that file.
JsonValue quantization_config_of(const JsonValue& hf_quant_config);

}  // namespace kernelwright
