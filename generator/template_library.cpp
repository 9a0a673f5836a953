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
  const char* includes;  // a line each
  unsigned char sha256[32];
};
extern const EmbeddedFile embedded_templates[];
extern const std::size_t embedded_template_count;
}  // namespace detail

namespace {

const detail::EmbeddedFile* find_embedded(std::string_view path) noexcept {
  for (std::size_t i = 0; i < detail::embedded_template_count; ++i)
    if (path == detail::embedded_templates[i].path) return &detail::embedded_templates[i];
  return nullptr;
}

const detail::EmbeddedFile& embedded(std::string_view path) {
  if (const detail::EmbeddedFile* const file = find_embedded(path)) return *file;
  throw Error("templates/" + std::string(path) + " is not in this build");
}

void collect(const std::string& path, std::set<std::string>& seen, std::vector<TemplateFile>& files) {
  if (!seen.insert(path).second) return;
  const detail::EmbeddedFile& file = embedded(path);
  files.push_back({path, file.text, {}});
  std::copy(std::begin(file.sha256), std::end(file.sha256), files.back().digest.bytes.begin());
  for (std::string_view rest = file.includes; !rest.empty();) {
    const std::string_view included = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(included.size() + 1);
    if (included != "spec.h") collect(std::string(included), seen, files);  // the generator makes spec.h
  }
}

}  // namespace

bool is_template(std::string_view path) noexcept { return find_embedded(path) != nullptr; }

std::string_view kernel_template(std::string_view kernel) {
  const std::string file = "/" + std::string(kernel) + ".cu";
  for (std::size_t i = 0; i < detail::embedded_template_count; ++i) {
    const std::string_view path = detail::embedded_templates[i].path;
    if (path.starts_with("kernels/") && path.ends_with(file)) return path;
  }
  throw Error("templates/kernels/ has no " + std::string(kernel) + ".cu in this build");
}

const TemplateClosure& template_closure(std::string_view path) {
  static std::mutex mutex;
  using Closures = std::map<std::string, TemplateClosure, std::less<>>;
  static Closures& closures = *new Closures;  // never destroyed: compile threads read it while the process exits
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
