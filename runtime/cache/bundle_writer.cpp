#include <fmt/format.h>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cache/bundle.h"
#include "kernelwright/runtime/cache/bundle_manifest.h"

namespace kernelwright {

void BundleWriter::add(const std::string& problem, const CacheKey& key, const Binary& binary) {
  if (key.compiler.empty()) throw Error(fmt::format("{}: a bundle names the compiler of its kernels", key.entry_stem));
  if (entries_.empty()) manifest_.compiler = key.compiler, manifest_.abi = key.abi;
  if (key.compiler != manifest_.compiler || key.abi != manifest_.abi)
    throw Error(fmt::format("{}: the kernels of a bundle come from one compiler and one library", key.entry_stem));
  const Digest digest = key.digest();
  problems_[{problem, key.arch}].insert(digest);
  if (entries_.contains(digest)) return;
  Binary timeless = binary;
  timeless.compile_ms = 0;
  std::vector<std::byte> bytes = encode_entry(key, timeless);
  BundledEntry entry{digest, sha256(bytes), key.entry_stem, key.arch, bytes.size(), binary.cubin.size()};
  entries_.emplace(digest, std::pair(std::move(entry), std::move(bytes)));
}

std::vector<std::byte> BundleWriter::finish(const SigningKey* key) const {
  BundleManifest manifest = manifest_;
  std::map<std::string, std::vector<std::byte>> members;
  for (const auto& [digest, entry] : entries_) {
    manifest.entries.push_back(entry.first);
    members.emplace(bundled_entry_name(digest), entry.second);
  }
  for (const auto& [where, kernels] : problems_)
    manifest.problems.push_back({where.first, where.second, {kernels.begin(), kernels.end()}});
  const std::string text = manifest.to_json().dump() + "\n";
  const auto bytes = std::as_bytes(std::span(text));
  members.emplace(detail::kManifestName, std::vector<std::byte>(bytes.begin(), bytes.end()));
  if (key) {
    const Signature signature = key->sign(detail::kManifestDomain, bytes);
    members.emplace(detail::kManifestSignatureName, std::vector<std::byte>(signature.begin(), signature.end()));
  }
  return write_archive(members);
}

}  // namespace kernelwright
