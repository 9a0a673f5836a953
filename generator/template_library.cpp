#include "kernelwright/generator/template_library.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <mutex>
#include <set>

#include "kernelwright/generator/error.h"

namespace kernelwright {
namespace detail {
struct EmbeddedFile {
  const char* path;
  const char* text;
  unsigned char sha256[32];
};
extern const EmbeddedFile embedded_templates[];
extern const std::size_t embedded_template_count;
}  // namespace detail

namespace {

const detail::EmbeddedFile& embedded(std::string_view path) {
  for (std::size_t i = 0; i < detail::embedded_template_count; ++i)
    if (path == detail::embedded_templates[i].path) return detail::embedded_templates[i];
  throw Error("templates/" + std::string(path) + " is not in this build");
}

/// The "..." of each #include "..." line of `text`, but for spec.h, which is the generator's.
std::vector<std::string> included_paths(std::string_view text) {
  static constexpr std::string_view directive = "#include \"";
  std::vector<std::string> paths;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with(directive)) {
      const std::string_view path = line.substr(directive.size(), line.find('"', directive.size()) - directive.size());
      if (path != "spec.h") paths.emplace_back(path);
    }
    at = end + 1;
  }
  return paths;
}

void collect(const std::string& path, std::set<std::string>& seen, std::vector<TemplateFile>& files) {
  if (!seen.insert(path).second) return;
  const detail::EmbeddedFile& file = embedded(path);
  files.push_back({path, file.text, {}});
  std::copy(std::begin(file.sha256), std::end(file.sha256), files.back().digest.bytes.begin());
  for (const std::string& included : included_paths(file.text)) collect(included, seen, files);
}

}  // namespace

const TemplateClosure& template_closure(std::string_view path) {
  static std::mutex mutex;
  static std::map<std::string, TemplateClosure, std::less<>> closures;
  const std::lock_guard lock(mutex);
  if (const auto found = closures.find(path); found != closures.end()) return found->second;
  TemplateClosure closure;
  std::set<std::string> seen;
  collect(std::string(path), seen, closure.files);
  DigestBuilder digest;
  for (const TemplateFile& file : closure.files) {
    const auto* bytes = reinterpret_cast<const char*>(file.digest.bytes.data());
    digest.field(file.path).field(std::string_view(bytes, file.digest.bytes.size()));
  }
  closure.digest = digest.finish();
  return closures.emplace(path, std::move(closure)).first->second;
}

}  // namespace kernelwright
