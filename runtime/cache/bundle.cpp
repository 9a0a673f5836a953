// A bundle as a layer: open, find, verify. bundle_manifest.cpp reads and writes manifests, bundle_writer.cpp files.
#include "kernelwright/runtime/cache/bundle.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <mutex>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cache/bundle_manifest.h"

namespace kernelwright {
namespace {

constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{64} << 20;

}  // namespace

BundleTrust BundleTrust::of_files(const std::vector<std::string>& paths) {
  BundleTrust trust;
  for (const std::string& path : paths) try {
      trust.keys.push_back(read_public_key(path));
    } catch (const ConfigError& error) {
      trust.fault = error.violations().front().text();
    }
  return trust;
}

Bundle::Bundle(std::string path, Payload payload, EventSink report, const BundleTrust& trust)
    : path_(std::move(path)), payload_(payload), report_(std::move(report)) {
  std::string reason = open(trust);
  if (reason.empty()) return;
  fault_ = path_ + ": " + reason;
  archive_ = {}, manifest_ = {}, file_ = Fd(), is_signed_ = false, signer_.reset();
  if (report_) report_({EventKind::kCacheDegraded, "", path_, fault_ + "; its kernels are not used"});
}

std::string Bundle::open(const BundleTrust& trust) {
  if (!trust.fault.empty()) return "cannot be checked by its signature: " + trust.fault;
  TrustedFile file = open_trusted_file(path_, Trust::kOwnOrRoot, kMaxArchiveBytes);
  if (!file.fd) return file.reason;
  file_ = std::move(file.fd), file_bytes_ = file.bytes;
  archive_ =
      read_archive(file_bytes_, [this](std::uint64_t at, std::span<std::byte> bytes) { return read_at(at, bytes); });
  return archive_.reason.empty() ? read_manifest(trust) : archive_.reason;
}

std::vector<std::byte> Bundle::contents(const ArchiveMember& member, std::string& reason) const {
  std::vector<std::byte> bytes(static_cast<std::size_t>(member.bytes));
  if (!read_at(member.offset, bytes))
    reason = "cannot be read";
  else if (crc32(bytes) != member.crc)
    reason = fmt::format("{} was altered", member.name);
  return bytes;
}

std::string Bundle::check_signature(std::span<const std::byte> manifest, const BundleTrust& trust) {
  const ArchiveMember* member = archive_.find(detail::kManifestSignatureName);
  is_signed_ = member != nullptr;
  if (!member) return trust.keys.empty() ? "" : "is not signed, and a signature is asked for";
  if (member->bytes != kSignatureBytes) return fmt::format("{} is no signature", detail::kManifestSignatureName);
  std::string reason;
  const std::vector<std::byte> bytes = contents(*member, reason);
  if (!reason.empty()) return reason;
  Signature signature;
  std::ranges::copy(bytes, signature.begin());
  try {
    for (const PublicKey& key : trust.keys)
      if (is_signed_by(key, detail::kManifestDomain, manifest, signature)) {
        signer_ = key;
        return "";
      }
  } catch (const MissingError& error) {
    return std::string("cannot be checked by its signature: ") + error.what();
  }
  return trust.keys.empty() ? "" : "is signed by none of the keys that are trusted";
}

/// Reads the manifest. Its entries must be the archive's, no more and no less.
std::string Bundle::read_manifest(const BundleTrust& trust) {
  const ArchiveMember* member = archive_.find(detail::kManifestName);
  if (!member) return fmt::format("has no {}", detail::kManifestName);
  if (member->bytes > kMaxManifestBytes) return fmt::format("{} is too large", detail::kManifestName);
  std::string reason;
  const std::vector<std::byte> bytes = contents(*member, reason);
  if (reason.empty()) reason = check_signature(bytes, trust);
  if (!reason.empty()) return reason;
  try {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    manifest_ = BundleManifest::of_json(JsonValue::parse(text));
  } catch (const ConfigError& error) {
    return fmt::format("{}: {}", detail::kManifestName, error.violations().front().text());
  }
  if (archive_.members.size() != manifest_.entries.size() + (is_signed_ ? 2 : 1))
    return fmt::format("{} does not name the files that it has", detail::kManifestName);
  for (const BundledEntry& entry : manifest_.entries) {
    const ArchiveMember* found = archive_.find(bundled_entry_name(entry.key));
    if (!found || found->bytes != entry.bytes)
      return fmt::format("{} names {}, which is missing or of another size", detail::kManifestName,
                         bundled_entry_name(entry.key));
  }
  return "";
}

bool Bundle::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;  // the file may have become shorter
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return true;
}

DecodeResult Bundle::read(const BundledEntry& entry, Payload payload) const {
  if (entry.bytes > kMaxEntryBytes) return {std::nullopt, "is too large"};
  const ArchiveMember* member = archive_.find(bundled_entry_name(entry.key));
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry.bytes));
  if (!member || !read_at(member->offset, bytes)) return {std::nullopt, "cannot be read"};
  if (sha256(bytes) != entry.sha256) return {std::nullopt, "was altered"};
  const std::size_t size = bytes.size();
  DecodeResult result = decode_entry(std::move(bytes), size, payload);
  if (result.entry && result.entry->key.digest() != entry.key)
    return {std::nullopt, "foreign: its key's digest is not its name"};
  return result;
}

std::optional<Binary> Bundle::find(const CacheKey& key) {
  if (!fault_.empty()) return std::nullopt;
  CacheKey own = key;
  own.compiler = manifest_.compiler;
  const Digest digest = own.digest();
  const auto entry = std::ranges::lower_bound(manifest_.entries, digest, {}, &BundledEntry::key);
  if (entry == manifest_.entries.end() || entry->key != digest) return std::nullopt;
  std::string reason;
  try {
    DecodeResult result = read(*entry, payload_);
    if (result.entry) return std::move(result.entry->binary);
    reason = std::move(result.reason);
  } catch (const std::exception& error) {
    reason = error.what();
  }
  {
    std::lock_guard hold(mutex_);
    if (!reported_.insert(digest).second) return std::nullopt;
  }
  if (report_)
    report_({EventKind::kCacheDegraded, digest.hex(), entry->kernel,
             fmt::format("{}: {} {}; it is looked for elsewhere", path_, bundled_entry_name(digest), reason)});
  return std::nullopt;
}

std::vector<std::pair<Digest, std::string>> Bundle::verify() const {
  std::vector<std::pair<Digest, std::string>> bad;
  for (const BundledEntry& entry : manifest_.entries) {
    const DecodeResult result = read(entry, Payload::kUnpack);
    if (!result.entry) bad.emplace_back(entry.key, result.reason);
  }
  return bad;
}

std::string Bundle::status() const {
  if (!fault_.empty()) return "bundle: off: " + fault_;
  return fmt::format("bundle: {}: {} kernel{}", path_, manifest_.entries.size(),
                     manifest_.entries.size() == 1 ? "" : "s");
}

std::string bundled_entry_name(const Digest& key) {
  return fmt::format("entries/{}.kw{}", key.hex(), kEntryFormatVersion);
}

}  // namespace kernelwright
