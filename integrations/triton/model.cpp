// Models and their engines: config.pbtxt and problem.json are read, and events go to the server's log.
#include "model.h"

#include <filesystem>
#include <utility>

#include "errors.h"
#include "kernelwright/generator/message.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"

namespace kernelwright::triton {
namespace {

TRITONSERVER_LogLevel server_level(EventLevel level) {
  switch (level) {
    case EventLevel::kDebug: return TRITONSERVER_LOG_VERBOSE;
    case EventLevel::kInfo: return TRITONSERVER_LOG_INFO;
    case EventLevel::kWarning: return TRITONSERVER_LOG_WARN;
    case EventLevel::kError: return TRITONSERVER_LOG_ERROR;
  }
  return TRITONSERVER_LOG_ERROR;  // no enumerator is left
}

void log_event(const Event& event) noexcept {
  if (TRITONSERVER_Error* failed = guarded([&] {
        std::string text = "kernelwright: " + std::string(to_string(event.kind));
        for (const std::string& part : {event.name, event.detail})
          if (!part.empty()) text += " " + part;
        if (event.milliseconds > 0) text += " (" + std::to_string(static_cast<int>(event.milliseconds)) + " ms)";
        log(server_level(event.level()), text);
      }))
    TRITONSERVER_ErrorDelete(failed);
}

void log_hazard(const emulator::KernelHazard& hazard) noexcept {
  if (TRITONSERVER_Error* failed = guarded([&] {
        log(TRITONSERVER_LOG_ERROR, "kernelwright: hazard in " + hazard.kernel + ": " + hazard.report.text());
      }))
    TRITONSERVER_ErrorDelete(failed);
}

/// The model's configuration, config.pbtxt with the server's defaults.
JsonValue config_of(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* message = nullptr;
  check(TRITONBACKEND_ModelConfig(model, 1, &message));
  const auto remove = [](TRITONSERVER_Message* each) {
    log_failure(TRITONSERVER_MessageDelete(each), "TRITONSERVER_MessageDelete");
  };
  const std::unique_ptr<TRITONSERVER_Message, decltype(remove)> owner(message, remove);
  const char* text = nullptr;
  std::size_t bytes = 0;
  check(TRITONSERVER_MessageSerializeToJson(message, &text, &bytes));
  return JsonValue::parse({text, bytes});
}

struct Parameters {
  DeviceOptions device;
  WeightsFile weights;  // its path as it is given
};

constexpr std::string_view kTensorPrefix = "tensor.";

Parameters read_parameters(const JsonValue& config) {
  Parameters given;
  DeviceOptions& options = given.device;
  std::vector<Violation> found;
  bool has_arch = false;
  const JsonValue* parameters = config.find("parameters");
  for (const auto& [name, parameter] : parameters ? parameters->members() : JsonValue::Object{}) {
    const JsonValue* text = parameter.find("string_value");
    const std::string value = text ? text->as_string() : "";
    const auto refuse = [&, &place = name](const std::string& accepted) {
      found.push_back({pointer_to("/parameters", place), quoted_for_message(value) + " is given; " + accepted});
    };
    if (name == "device") {
      options.emulated = value == "emulator";
      if (!options.emulated && value != "cuda") refuse("cuda and emulator are accepted");
    } else if (name == "arch") {
      has_arch = true;
      if (const auto arch = from_string<Arch>(value))
        options.arch = *arch;
      else
        refuse("accepted are " + all_words<Arch>());
    } else if (name == "hazards") {
      options.hazards = value == "true";
      if (!options.hazards && value != "false") refuse("true and false are accepted");
    } else if (name == "cache_directory") {
      options.cache_directory = value;
    } else if (name == "weights") {
      given.weights.path = value;
      if (value.empty()) refuse("the name of a file is accepted");
    } else if (name.starts_with(kTensorPrefix)) {
      given.weights.names[name.substr(kTensorPrefix.size())] = value;
    } else {
      found.push_back({pointer_to("/parameters", name),
                       "is no parameter here; the parameters are device, arch, hazards, cache_directory, weights and "
                       "tensor.NAME"});
    }
  }
  if (!options.emulated && has_arch)
    found.push_back({"/parameters/arch", "is the GPU's own; only an emulator takes it"});
  if (!options.emulated && options.hazards)
    found.push_back({"/parameters/hazards", "a GPU finds none; only an emulator does"});
  if (!found.empty()) throw ConfigError(std::move(found));
  return given;
}

std::string name_of(TRITONBACKEND_Model* model) {
  const char* name = nullptr;
  check(TRITONBACKEND_ModelName(model, &name));
  return name;
}

std::string version_of(TRITONBACKEND_Model* model) {
  std::uint64_t version = 0;
  check(TRITONBACKEND_ModelVersion(model, &version));
  return std::to_string(version);
}

/// The folder of the model's version.
std::string folder_of(TRITONBACKEND_Model* model) {
  TRITONBACKEND_ArtifactType type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  const char* folder = nullptr;
  check(TRITONBACKEND_ModelRepository(model, &type, &folder));
  return std::string(folder) + "/" + version_of(model) + "/";
}

/// The path that is given, from the version's folder on; else that of weights.safetensors if it is there.
std::string weights_path(const std::string& folder, const std::string& given) {
  if (!given.empty()) return std::filesystem::path(folder) / given;
  const std::string usual = folder + "weights.safetensors";
  return std::filesystem::exists(usual) ? usual : "";
}

}  // namespace

std::shared_ptr<Engine> Engines::engine(const DeviceOptions& options) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<Engine>& known = engines_[options];
  std::shared_ptr<Engine> engine = known.lock();
  if (!engine) {
    EngineOptions made{.backend = options.emulated ? "emulator" : "cuda", .sink = log_event};
    if (options.emulated) made.emulator = {.arch = options.arch, .hazards = options.hazards, .on_report = log_hazard};
    if (!options.cache_directory.empty()) made.cache.directory = options.cache_directory;
    known = engine = std::make_shared<Engine>(std::move(made));
  }
  return engine;
}

Model::Model(TRITONBACKEND_Model* model, Engines& engines) {
  const JsonValue config = config_of(model);
  Parameters parameters = read_parameters(config);
  const DeviceOptions& options = parameters.device;
  const std::string folder = folder_of(model);
  operation_ = read_operation(folder + "problem.json");
  parameters.weights.path = weights_path(folder, parameters.weights.path);
  weights_ = std::make_unique<Weights>(parameters.weights, operation_->operands());
  if (std::vector<Violation> found = mismatches(config, operation_->operands()); !found.empty())
    throw ConfigError(std::move(found));
  engine_ = engines.engine(options);
  emulated_ = options.emulated;
  const std::string name = name_of(model), version = version_of(model);
  prepare_ = std::make_unique<Gauge>(engines.metrics().prepare(), name, version);
  of_buffers_ = std::make_unique<Gauge>(engines.metrics().memory(), name, version, "buffers");
  of_weights_ = std::make_unique<Gauge>(engines.metrics().memory(), name, version, "weights");
}

const std::vector<DevicePtr>& Model::weights_on(Device& device) const {
  const std::vector<DevicePtr>& addresses = weights_->on(device);
  of_weights_->set(static_cast<double>(weights_->bytes()));
  return addresses;
}

}  // namespace kernelwright::triton
