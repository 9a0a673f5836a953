/// The transports, one for each protocol. make_remote_transport() chooses by the address.
#pragma once

#include <memory>

#include "kernelwright/runtime/cache/remote/address.h"
#include "kernelwright/runtime/cache/remote/transport.h"

namespace kernelwright {

std::unique_ptr<RemoteTransport> make_redis_transport(RemoteAddress address);
/// Throws MissingError if no libcurl can be opened, or if it lacks TLS and the address asks for it.
std::unique_ptr<RemoteTransport> make_http_transport(RemoteAddress address, RemoteTls tls);

}  // namespace kernelwright
