#include "kernelwright/runtime/cache/remote/transport.h"

#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cache/remote/servers.h"

namespace kernelwright {

std::unique_ptr<RemoteTransport> make_remote_transport(const std::string& address, const std::string& field,
                                                       const RemoteTls& tls) {
  RemoteAddress parsed = parse_remote_address(address, field);
  const bool has_tls = !tls.ca.empty() || !tls.certificate.empty() || !tls.certificate_key.empty();
  if (has_tls && parsed.scheme != RemoteScheme::kHttps)
    throw ConfigError(field, "certificates are given, and only a server at https:// has a use for them");
  if (tls.certificate.empty() != tls.certificate_key.empty())
    throw ConfigError(field, tls.certificate.empty() ? "a certificate's key is given without the certificate"
                                                     : "a certificate is given without its private key");
  return parsed.is_http() ? make_http_transport(std::move(parsed), tls) : make_redis_transport(std::move(parsed));
}

}  // namespace kernelwright
