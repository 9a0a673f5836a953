/// The address of a remote cache, as its users write it.
#pragma once

#include <string>

namespace kernelwright {

enum class RemoteScheme { kRedis, kRedisUnix, kHttp, kHttps };

struct RemoteAddress {
  RemoteScheme scheme = RemoteScheme::kRedis;
  std::string host;  // a name or a number, without brackets; kRedisUnix: the socket's path
  int port = 0;
  std::string path;            // kHttp, kHttps: "" or "/PREFIX", without a slash at its end
  std::string user, password;  // "" if there are none
  std::string name;            // the address without user and password

  /// Whether the server is on this host: a socket of the file system, "localhost", 127.0.0.0/8 or ::1.
  bool is_local() const;
  bool is_http() const { return scheme == RemoteScheme::kHttp || scheme == RemoteScheme::kHttps; }
};

/// Throws ConfigError that names `field`. Its text has no part of `text` that may be a password.
RemoteAddress parse_remote_address(const std::string& text, const std::string& field);

}  // namespace kernelwright
