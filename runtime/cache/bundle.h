/// A bundle: the kernels of a model in one file, model.kwpack, from which an engine serves without a compiler.
///
/// The file is an archive (archive.h) of
///   entries/<64 hex>.kw2   an entry of the cache (entry.h), by its key's digest
///   manifest.json          which library and compiler made them, each entry's SHA-256, and the problems that they
///   serve
///   manifest.sig           the manifest's signature (signature.h), if the bundle is signed
/// docs/cache.md describes the manifest.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/trusted_files.h"
#include "kernelwright/runtime/cache/archive.h"
#include "kernelwright/runtime/cache/entry.h"
#include "kernelwright/runtime/cache/layer.h"
#include "kernelwright/runtime/cache/signature.h"
#include "kernelwright/runtime/process/events.h"
#include "kernelwright/runtime/process/fork_guard.h"

namespace kernelwright {

/// A problem that a bundle serves on one architecture.
struct BundledProblem {
  std::string name, arch;
  std::vector<Digest> kernels;  // keys of its entries
  auto operator<=>(const BundledProblem&) const = default;
};

struct BundledEntry {
  Digest key, sha256;  // sha256: of the entry's bytes
  std::string kernel, arch;
  std::uint64_t bytes = 0, cubin_bytes = 0;
};

struct BundleManifest {
  std::string library;                   // version of the library that packed it
  std::string compiler;                  // CacheKey::compiler of all entries
  int abi = 0;                           // CacheKey::abi of all entries
  std::vector<BundledEntry> entries;     // by key
  std::vector<BundledProblem> problems;  // by name and architecture

  JsonValue to_json() const;
  /// Throws ConfigError.
  static BundleManifest of_json(const JsonValue& json);
};

/// Whose bundles are taken.
struct BundleTrust {
  std::vector<PublicKey> keys;  // a bundle is signed by one of them; none: signatures are not looked at
  std::string fault;            // why no bundle is taken: a key's file cannot be used; ""
  /// Reads files of public keys.
  static BundleTrust of_files(const std::vector<std::string>& paths);
};

/// Collects kernels, and writes them as a bundle.
class BundleWriter {
 public:
  explicit BundleWriter(std::string library) { manifest_.library = std::move(library); }

  /// Adds a kernel of `problem`. The compile's time stays out: it differs between builds. Throws Error if the key has
  /// no compiler, or differs from that of other kernels in compiler or contract.
  void add(const std::string& problem, const CacheKey& key, const Binary& binary);

  /// The file's bytes, signed if there is a key. They depend on the key and on what was added alone, not on the order.
  /// Throws Error beyond kMaxArchiveBytes, and MissingError if there is a key and no libsodium.
  std::vector<std::byte> finish(const SigningKey* key = nullptr) const;

 private:
  BundleManifest manifest_;  // without entries
  std::map<Digest, std::pair<BundledEntry, std::vector<std::byte>>> entries_;
  std::map<std::pair<std::string, std::string>, std::set<Digest>> problems_;
};

/// A bundle as a layer of the cache. Only its headers and its manifest are in memory. An entry is read and checked when
/// it is asked for. Its kernels serve whatever compiler the host has: find() looks for the key with the bundle's own.
class Bundle : public CacheLayer {
 public:
  /// Opens `path`. A file is refused if it is no bundle, was altered, could be written by another user, or is not
  /// signed as `trust` asks. fault() then has the reason, and the layer has nothing. `report`, if set, gets an event
  /// for the file, and one for each entry that fails its checks.
  Bundle(std::string path, Payload payload, EventSink report = {}, const BundleTrust& trust = {});

  std::string status() const override;
  std::optional<Binary> find(const CacheKey& key) override;

  /// "/x/model.kwpack: was altered, or another program made it"; "" if the bundle is open.
  const std::string& fault() const { return fault_; }
  const BundleManifest& manifest() const { return manifest_; }
  std::uint64_t file_bytes() const { return file_bytes_; }
  bool is_signed() const { return is_signed_; }
  /// The key that checked the signature; nothing if `trust` had none.
  const std::optional<PublicKey>& signer() const { return signer_; }

  /// Reads every byte. Returns the keys of entries that fail their checks, and why.
  std::vector<std::pair<Digest, std::string>> verify() const;

 private:
  std::string open(const BundleTrust& trust);
  std::string read_manifest(const BundleTrust& trust);
  /// "", or why the bundle is not taken.
  std::string check_signature(std::span<const std::byte> manifest, const BundleTrust& trust);
  /// The contents of a file of the bundle, checked by their CRC-32. If they cannot be had, sets `reason`.
  std::vector<std::byte> contents(const ArchiveMember& member, std::string& reason) const;
  bool read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  DecodeResult read(const BundledEntry& entry, Payload payload) const;

  const std::string path_;
  const Payload payload_;
  const EventSink report_;
  Fd file_;
  std::uint64_t file_bytes_ = 0;
  ArchiveDirectory archive_;
  BundleManifest manifest_;
  bool is_signed_ = false;
  std::optional<PublicKey> signer_;
  std::string fault_;
  ForkSafeMutex mutex_;        // guards the next
  std::set<Digest> reported_;  // entries that failed their checks
};

/// The name of an entry in a bundle.
std::string bundled_entry_name(const Digest& key);

}  // namespace kernelwright
