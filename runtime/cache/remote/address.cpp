#include "kernelwright/runtime/cache/remote/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/un.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "kernelwright/generator/error.h"

namespace kernelwright {
namespace {

constexpr std::string_view kAccepted = "redis://[USER:PASSWORD@]HOST[:PORT] and redis+unix:///PATH are accepted";
constexpr int kRedisPort = 6379;

std::optional<int> hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const auto high = i + 2 < text.size() ? hex_value(text[i + 1]) : std::nullopt;
    const auto low = i + 2 < text.size() ? hex_value(text[i + 2]) : std::nullopt;
    if (!high || !low) return std::nullopt;
    decoded += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return decoded;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// "", or what is wrong with "HOST[:PORT]". Sets host and port.
std::string parse_authority(std::string_view text, RemoteAddress& address) {
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == text.npos) return "its host has no closing bracket";
    address.host = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
    if (!text.empty() && !take_prefix(text, ":")) return "its host is followed by something that is no port";
    port = text;
  } else {
    const std::size_t colon = text.find(':');
    address.host = text.substr(0, colon);
    if (colon != text.npos) port = text.substr(colon + 1);
    if (colon != text.npos && port.empty()) return "its port is empty";
  }
  if (address.host.empty()) return "it names no host";
  for (const char c : address.host)
    if (static_cast<unsigned char>(c) <= ' ' || static_cast<unsigned char>(c) >= 127) return "its host is no name";
  address.port = kRedisPort;
  if (port.empty()) return "";
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size() || address.port < 1 || address.port > 65535)
    return "its port is outside [1, 65535]";
  return "";
}

}  // namespace

bool RemoteAddress::is_local() const {
  if (scheme == RemoteScheme::kRedisUnix || host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

RemoteAddress parse_remote_address(const std::string& text, const std::string& field) {
  const auto refuse = [&](std::string_view why) -> ConfigError {
    return ConfigError(field, fmt::format("the address cannot be used: {}; {}", why, kAccepted));
  };
  RemoteAddress address;
  std::string_view rest = text;
  if (take_prefix(rest, "redis+unix://")) {
    address.scheme = RemoteScheme::kRedisUnix;
    if (!rest.starts_with('/')) throw refuse("its path is not absolute");
    if (rest.size() >= sizeof(sockaddr_un::sun_path)) throw refuse("its path is too long for a socket");
    address.host = rest;
    address.name = text;
    return address;
  }
  if (rest.starts_with("rediss://")) throw refuse("there is no TLS for Redis here; let a local proxy add it");
  if (!take_prefix(rest, "redis://")) throw refuse("its scheme is unknown");
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (const std::size_t at = rest.rfind('@'); at != rest.npos) {
    const std::string_view secret = rest.substr(0, at);
    const std::size_t colon = secret.find(':');
    if (colon == secret.npos) throw refuse("there is a user and no password before the @");
    const auto user = percent_decoded(secret.substr(0, colon));
    const auto password = percent_decoded(secret.substr(colon + 1));
    if (!user || !password) throw refuse("a % in the user or the password is followed by no two hex digits");
    address.user = *user, address.password = *password;
    if (address.password.empty()) throw refuse("the password is empty");
    rest.remove_prefix(at + 1);
  }
  if (rest.find('/') != rest.npos) throw refuse("there is something behind the host");
  if (const std::string why = parse_authority(rest, address); !why.empty()) throw refuse(why);
  address.name = fmt::format("redis://{}", rest);
  return address;
}

}  // namespace kernelwright
