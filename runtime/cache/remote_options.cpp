// A remote cache from options and environment: its server, the keys that it trusts, and whether it writes.
#include <fmt/format.h>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cache/environment.h"
#include "kernelwright/runtime/cache/remote_layer.h"

namespace kernelwright {

std::unique_ptr<RemoteLayer> RemoteLayer::of_options(const RemoteOptions& options, EventSink report,
                                                     std::string& fault) try {
  return open(options, std::move(report), "remote");
} catch (const Error& error) {
  fault = error.what();
  return nullptr;
}

std::unique_ptr<RemoteLayer> RemoteLayer::open(const RemoteOptions& options, EventSink report,
                                               const std::string& field) {
  const std::string address = text_or_environment(options.address, "KERNELWRIGHT_REMOTE");
  if (address.empty() || options.off) return nullptr;
  const RemoteTls tls{
      .ca = text_or_environment(options.ca, "KERNELWRIGHT_REMOTE_CA"),
      .certificate = text_or_environment(options.certificate, "KERNELWRIGHT_REMOTE_CERTIFICATE"),
      .certificate_key = text_or_environment(options.certificate_key, "KERNELWRIGHT_REMOTE_CERTIFICATE_KEY")};
  for (const std::string& path : {tls.ca, tls.certificate})
    if (!path.empty()) check_key_file(path, KeyFile::kPublic);
  if (!tls.certificate_key.empty()) check_key_file(tls.certificate_key, KeyFile::kPrivate);
  auto transport = make_remote_transport(address, field, tls);
  Access access;
  for (const std::string& path : paths_or_environment(options.keys, "KERNELWRIGHT_REMOTE_KEYS"))
    access.trust.keys.push_back(read_public_key(path));
  const std::string signing = text_or_environment(options.signing_key, "KERNELWRIGHT_REMOTE_SIGNING_KEY");
  if (!signing.empty()) access.key.emplace(read_signing_key(signing));
  if (access.key && access.trust.keys.empty()) access.trust.keys.push_back(access.key->public_key());
  const bool keyless = access.trust.keys.empty();
  if (!keyless && !can_sign()) throw MissingError("this build has no libsodium, by which it would check signatures");
  access.trust.allow_unsigned = options.allow_unsigned || (keyless && transport->is_local());
  access.writes = access.key.has_value() || access.trust.allow_unsigned;
  if (keyless && !access.trust.allow_unsigned)
    throw ConfigError(field, "no public key is given, and the server is not on this host; name the builder's key");
  if (options.allow_unsigned && report)
    report({EventKind::kCacheDegraded, "", transport->name(),
            fmt::format(
                "remote cache {}: binaries without a signature are used; a person who can write to it chooses what "
                "runs here",
                transport->name())});
  return std::make_unique<RemoteLayer>(std::move(transport), std::move(access), std::move(report));
}

}  // namespace kernelwright
