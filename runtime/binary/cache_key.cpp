// The name of a binary: every field that can change it, hashed in a fixed order. A change to the order, to the meaning
// of a field or to the list needs a new kKeySchema. Older entries then cannot be found any more (and are evicted in
// time).
#include "kernelwright/runtime/binary/cache_key.h"

#include <fmt/format.h>

#include <map>
#include <string_view>

namespace kernelwright {
namespace {

constexpr std::uint64_t kKeySchema = 1;

std::string_view view(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

void hash_all_but_compiler(DigestBuilder& hash, const CacheKey& key) {
  hash.field(key.entry_stem).field(key.spec).field(view(key.closure));
  hash.field(static_cast<std::uint64_t>(key.options.size()));
  for (const std::string& option : key.options) hash.field(option);
  hash.field(key.arch).field(static_cast<std::uint64_t>(static_cast<std::int64_t>(key.abi)));
}

// "num_stages = 2", "num_stages: 2" and "num_stages 2" -> name and value; a line without a value is its own name.
std::map<std::string_view, std::string_view> lines_by_name(std::string_view spec) {
  std::map<std::string_view, std::string_view> lines;
  while (!spec.empty()) {
    const std::string_view line = spec.substr(0, spec.find('\n'));
    spec.remove_prefix(std::min(spec.size(), line.size() + 1));
    if (line.empty()) continue;
    const std::size_t end = std::min(line.find_first_of("=: "), line.size());
    std::string_view value = line.substr(end);
    value.remove_prefix(std::min(value.find_first_not_of("=: "), value.size()));
    lines.emplace(line.substr(0, end), value);
  }
  return lines;
}

std::string spec_difference(std::string_view a, std::string_view b) {
  const auto before = lines_by_name(a), after = lines_by_name(b);
  std::string text;
  auto say = [&](std::string_view name, std::string_view from, std::string_view to) {
    text += fmt::format("{}{} {} -> {}", text.empty() ? "" : ", ", name, from, to);
  };
  for (const auto& [name, value] : before) {
    const auto other = after.find(name);
    if (other == after.end())
      say(name, value, "(absent)");
    else if (other->second != value)
      say(name, value, other->second);
  }
  for (const auto& [name, value] : after)
    if (!before.contains(name)) say(name, "(absent)", value);
  return text.empty() ? "the same fields in another order or spelling" : text;
}

std::vector<std::string> without_seed(std::vector<std::string> options) {
  std::erase_if(options, [](const std::string& option) { return option.starts_with("--frandom-seed="); });
  return options;
}

std::string options_difference(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  // The seed is derived from the Spec, whose own fields say more.
  if (without_seed(a) != without_seed(b)) {
    if (const auto kept = without_seed(a); kept != a) return options_difference(kept, without_seed(b));
  }
  std::size_t at = 0;
  while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
  auto option = [&](const std::vector<std::string>& list) { return at < list.size() ? list[at] : "(absent)"; };
  return fmt::format("{} -> {}", option(a), option(b));
}

}  // namespace

Digest CacheKey::digest() const {
  DigestBuilder hash;
  hash.field("kernelwright binary").field(kKeySchema);
  hash_all_but_compiler(hash, *this);
  return hash.field(compiler).finish();
}

Digest CacheKey::digest_without_compiler() const {
  DigestBuilder hash;
  hash.field("kernelwright binary of any compiler").field(kKeySchema);
  hash_all_but_compiler(hash, *this);
  return hash.finish();
}

std::string difference(const CacheKey& a, const CacheKey& b) {
  std::string text;
  auto say = [&](const std::string& words) { text += (text.empty() ? "" : "; ") + words; };
  auto short_hex = [](const Digest& digest) { return digest.hex().substr(0, 8); };
  if (a.entry_stem != b.entry_stem) say(fmt::format("kernel: {} -> {}", a.entry_stem, b.entry_stem));
  if (a.spec != b.spec) say("spec: " + spec_difference(a.spec, b.spec));
  if (a.closure != b.closure) say(fmt::format("templates: {} -> {}", short_hex(a.closure), short_hex(b.closure)));
  if (without_seed(a.options) != without_seed(b.options) || (a.options != b.options && a.spec == b.spec))
    say("options: " + options_difference(a.options, b.options));
  if (a.arch != b.arch) say(fmt::format("arch: {} -> {}", a.arch, b.arch));
  if (a.abi != b.abi) say(fmt::format("abi: {} -> {}", a.abi, b.abi));
  auto named = [](const std::string& compiler) { return compiler.empty() ? "(none)" : compiler; };
  if (a.compiler != b.compiler) say(fmt::format("compiler: {} -> {}", named(a.compiler), named(b.compiler)));
  return text;
}

}  // namespace kernelwright
