/// How a cache shares binaries with other hosts.
#pragma once

#include <string>
#include <vector>

namespace kernelwright {

struct RemoteOptions {
  /// The server: "redis://[USER:PASSWORD@]HOST[:PORT]" or "redis+unix:///PATH". "": that of $KERNELWRIGHT_REMOTE, if
  /// it is set; else there is no remote cache.
  std::string address;
  /// Files of public keys (PEM, Ed25519). A binary is taken only if one of them has signed it. Empty: those of
  /// $KERNELWRIGHT_REMOTE_KEYS, which a colon separates; else the public half of `signing_key`.
  std::vector<std::string> keys;
  /// The file of a private key (PEM, Ed25519), with which this cache signs what it compiles, and sends it. "": that of
  /// $KERNELWRIGHT_REMOTE_SIGNING_KEY; else this cache only reads.
  std::string signing_key;
  /// Binaries need no signature, and are sent without one if there is no signing key. Whoever can write to the server
  /// then chooses what runs here, so this is an event. Without keys, a server on this host is trusted in any case.
  bool allow_unsigned = false;
};

}  // namespace kernelwright
