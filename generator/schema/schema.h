/// Texts about configs for people and editors, generated from the field lists so that they cannot become outdated. The
/// results are shipped; kernelwright_generate_docs rewrites them and a test compares.
#pragma once

#include <string>

namespace kernelwright {

/// A JSON Schema (draft 2020-12) of the config format: configs/kernelwright.schema.json. It states each field's own
/// rule; validate() has the rules between fields.
std::string json_schema();

/// The page about the format: docs/config.md.
std::string config_markdown();

}  // namespace kernelwright
