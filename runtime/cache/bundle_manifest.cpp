// A bundle's manifest as JSON, and back.
#include "kernelwright/runtime/cache/bundle_manifest.h"

#include <algorithm>
#include <limits>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/message.h"
#include "kernelwright/runtime/cache/bundle.h"
#include "kernelwright/runtime/cache/names.h"

namespace kernelwright {
namespace {

constexpr std::size_t kMostText = 4096;

/// Reads an object's members; each throws ConfigError that names the place.
class Members {
 public:
  Members(const JsonValue& json, std::string path) : json_(json), path_(std::move(path)) {
    if (!json.is_object()) refuse("", "is no object");
  }

  std::string text(const char* name) const {
    const JsonValue& value = at(name);
    if (!value.is_string() || value.as_string().size() > kMostText) refuse(name, "is no text, or too long");
    return value.as_string();
  }

  std::int64_t number(const char* name, std::int64_t most) const {
    const JsonValue& value = at(name);
    if (!value.is_int64() || value.as_int() < 0 || value.as_int() > most) refuse(name, "is no number that fits");
    return value.as_int();
  }

  Digest digest(const char* name) const { return digest_of(at(name), name); }

  Digest digest_of(const JsonValue& value, const std::string& name) const {
    const std::string hex = value.is_string() ? value.as_string() : "";
    std::optional<Digest> digest;
    if (hex.size() == 64) digest = digest_of_name(hex.substr(0, 2), hex.substr(2) + std::string(kEntrySuffix));
    if (!digest) refuse(name, "is no SHA-256 in hex digits");
    return *digest;
  }

  const JsonValue::Array& list(const char* name) const {
    const JsonValue& value = at(name);
    if (!value.is_array() || value.elements().size() > kMaxArchiveMembers) refuse(name, "is no list, or too long");
    return value.elements();
  }

 private:
  const JsonValue& at(const char* name) const {
    const JsonValue* found = json_.find(name);
    if (!found) refuse(name, "is missing");
    return *found;
  }
  [[noreturn]] void refuse(const std::string& name, const char* why) const {
    throw ConfigError(name.empty() ? path_ : path_ + "/" + name, why);
  }
  const JsonValue& json_;
  const std::string path_;
};

/// Throws ConfigError unless `list` ascends without repeats.
template <class T, class Project>
void require_ascending(const std::vector<T>& list, const char* path, Project project) {
  const auto same_or_less = [&](const T& a, const T& b) { return !(project(a) < project(b)); };
  if (std::ranges::adjacent_find(list, same_or_less) != list.end())
    throw ConfigError(path, "is not in order, or names one twice");
}

}  // namespace

JsonValue BundleManifest::to_json() const {
  JsonValue kernels = JsonValue::array(), served = JsonValue::array();
  for (const BundledEntry& entry : entries)
    kernels.push(JsonValue::object()
                     .set("key", entry.key.hex())
                     .set("sha256", entry.sha256.hex())
                     .set("kernel", entry.kernel)
                     .set("arch", entry.arch)
                     .set("bytes", entry.bytes)
                     .set("cubin_bytes", entry.cubin_bytes));
  for (const BundledProblem& problem : problems) {
    JsonValue keys = JsonValue::array();
    for (const Digest& key : problem.kernels) keys.push(key.hex());
    served.push(
        JsonValue::object().set("name", problem.name).set("arch", problem.arch).set("kernels", std::move(keys)));
  }
  return JsonValue::object()
      .set("schema", detail::kManifestSchema)
      .set("library", library)
      .set("abi", abi)
      .set("compiler", compiler)
      .set("entries", std::move(kernels))
      .set("problems", std::move(served));
}

BundleManifest BundleManifest::of_json(const JsonValue& json) {
  const Members top(json, "");
  if (top.number("schema", std::numeric_limits<int>::max()) != detail::kManifestSchema)
    throw ConfigError("/schema", "is of another version of the library");
  BundleManifest manifest;
  manifest.library = top.text("library");
  manifest.compiler = top.text("compiler");
  manifest.abi = static_cast<int>(top.number("abi", std::numeric_limits<int>::max()));
  if (manifest.compiler.empty()) throw ConfigError("/compiler", "is empty");
  for (const JsonValue& each : top.list("entries")) {
    const Members entry(each, pointer_to("/entries", manifest.entries.size()));
    manifest.entries.push_back({entry.digest("key"), entry.digest("sha256"), entry.text("kernel"), entry.text("arch"),
                                static_cast<std::uint64_t>(entry.number("bytes", kMaxEntryBytes)),
                                static_cast<std::uint64_t>(entry.number("cubin_bytes", kMaxEntryBytes))});
  }
  require_ascending(manifest.entries, "/entries", [](const BundledEntry& entry) { return entry.key; });
  for (const JsonValue& each : top.list("problems")) {
    const Members problem(each, pointer_to("/problems", manifest.problems.size()));
    BundledProblem served{problem.text("name"), problem.text("arch"), {}};
    for (const JsonValue& key : problem.list("kernels")) {
      served.kernels.push_back(problem.digest_of(key, "kernels"));
      if (!std::ranges::binary_search(manifest.entries, served.kernels.back(), {}, &BundledEntry::key))
        throw ConfigError(pointer_to("/problems", manifest.problems.size()) + "/kernels",
                          "names a kernel that is absent");
    }
    manifest.problems.push_back(std::move(served));
  }
  require_ascending(manifest.problems, "/problems",
                    [](const BundledProblem& problem) { return std::pair(problem.name, problem.arch); });
  return manifest;
}

}  // namespace kernelwright
