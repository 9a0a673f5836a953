#include "cli/oci_layout.h"

#include <filesystem>

#include "cli/output_file.h"
#include "kernelwright/generator/digest.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"

namespace kernelwright::cli {
namespace {

constexpr const char* kManifestType = "application/vnd.oci.image.manifest.v1+json";
constexpr const char* kEmptyType = "application/vnd.oci.empty.v1+json";
constexpr const char* kTitle = "org.opencontainers.image.title";

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// Writes a blob, and returns what describes it.
JsonValue add_blob(const std::string& folder, const char* type, std::span<const std::byte> bytes) {
  const std::string hex = sha256(bytes).hex();
  write_output_file(folder + "/blobs/sha256/" + hex, bytes);
  return JsonValue::object().set("mediaType", type).set("digest", "sha256:" + hex).set("size", bytes.size());
}

}  // namespace

void write_oci_layout(const std::string& folder, std::span<const std::byte> bundle) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (!std::filesystem::is_directory(folder, code)) throw ConfigError(folder, "cannot be made a folder");
  if (!std::filesystem::is_empty(folder, code)) throw ConfigError(folder, "is not empty; a new folder would do");
  std::filesystem::create_directories(folder + "/blobs/sha256", code);
  if (code) throw ConfigError(folder, "cannot be written: " + code.message());

  const JsonValue config = add_blob(folder, kEmptyType, bytes_of("{}"));
  JsonValue layer = add_blob(folder, kOciLayer, bundle);
  layer.set("annotations", JsonValue::object().set(kTitle, "model.kwpack"));
  const std::string manifest = JsonValue::object()
                                   .set("schemaVersion", 2)
                                   .set("mediaType", kManifestType)
                                   .set("artifactType", kOciArtifact)
                                   .set("config", config)
                                   .set("layers", JsonValue::array({std::move(layer)}))
                                   .dump();
  JsonValue described = add_blob(folder, kManifestType, bytes_of(manifest));
  described.set("artifactType", kOciArtifact);
  const std::string index = JsonValue::object()
                                .set("schemaVersion", 2)
                                .set("mediaType", "application/vnd.oci.image.index.v1+json")
                                .set("manifests", JsonValue::array({std::move(described)}))
                                .dump();
  write_output_file(folder + "/index.json", bytes_of(index));
  write_output_file(folder + "/oci-layout", bytes_of(R"({"imageLayoutVersion": "1.0.0"})"));
}

}  // namespace kernelwright::cli
