// Config -> JSON, over the same field lists as the reader.
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/json/value.h"

namespace kernelwright {
namespace {

template <class KindConfig>
JsonValue envelope(const char* kind, KindConfig config) {
  using detail::to_json;
  JsonValue json = JsonValue::object();
  json.set("version", 1).set("kind", kind).set("name", config.name).set("problem", to_json(config.problem));
  if (config.schedule != decltype(config.schedule){}) json.set("schedule", to_json(config.schedule));
  if (!config.shapes.empty()) json.set("shapes", to_json(config.shapes));
  return json;
}

}  // namespace

JsonValue config_to_json(const Config& config) {
  return std::visit([]<class KindConfig>(const KindConfig& kind) { return envelope(kKindWord<KindConfig>, kind); },
                    config);
}

std::string write_config(const Config& config) { return config_to_json(config).dump() + "\n"; }

}  // namespace kernelwright
