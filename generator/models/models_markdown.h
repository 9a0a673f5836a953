/// The page about plans: docs/models.md. Its tables are made of plans, so that they cannot differ from the code.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/generator/models/model_plan.h"

namespace kernelwright {

/// A config.json and the name of its model.
struct NamedModel {
  std::string name, config_json;
};

/// The page, from these models in their order. kernelwright_generate_docs writes it, and a test compares.
std::string models_markdown(const std::vector<NamedModel>& models);

}  // namespace kernelwright
