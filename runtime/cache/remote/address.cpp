#include "kernelwright/runtime/cache/remote/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <string_view>

#include "kernelwright/generator/error.h"

namespace kernelwright {
namespace {

constexpr std::string_view kAccepted =
    "redis://[USER:PASSWORD@]HOST[:PORT], redis+unix:///PATH, and http:// or "
    "https://[USER:PASSWORD@]HOST[:PORT]/PREFIX "
    "are accepted";

struct Scheme {
  std::string_view prefix;
  RemoteScheme scheme;
  int port;
};
constexpr Scheme kSchemes[] = {{"redis://", RemoteScheme::kRedis, 6379},
                               {"http://", RemoteScheme::kHttp, 80},
                               {"https://", RemoteScheme::kHttps, 443}};

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

/// Whether `text` has letters of ASCII, digits and characters of `more` alone.
bool has_only(std::string_view text, std::string_view more) {
  return std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || more.find(c) != more.npos;
  });
}

/// "", or what is wrong with "/PREFIX", the rest of an address of HTTP. Sets path.
std::string parse_prefix(std::string_view text, RemoteAddress& address) {
  while (text.ends_with('/')) text.remove_suffix(1);
  if (text.find('@') != text.npos)
    return "there is an @ behind the first slash; a slash in the user or the password is written %2F";
  if (!has_only(text, "-._~/"))  // RFC 3986: other characters would need an escape
    return "its prefix has a character other than letters, digits, - . _ ~ and /";
  for (const std::string_view piece : {"//", "/./", "/../"})
    if ((std::string(text) + '/').find(piece) != std::string::npos) return "its prefix has an empty part, or . or ..";
  address.path = text;
  return "";
}

/// "", or what is wrong with "HOST[:PORT]". Sets host, and port if it is there.
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
  if (!has_only(address.host, "-._:")) return "its host is no name";
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
  const auto* scheme =
      std::ranges::find_if(kSchemes, [&](const Scheme& known) { return rest.starts_with(known.prefix); });
  if (scheme == std::end(kSchemes)) throw refuse("its scheme is unknown");
  rest.remove_prefix(scheme->prefix.size());
  address.scheme = scheme->scheme, address.port = scheme->port;
  if (address.is_http()) {
    const std::string_view prefix = rest.substr(std::min(rest.find('/'), rest.size()));
    if (const std::string why = parse_prefix(prefix, address); !why.empty()) throw refuse(why);
    rest.remove_suffix(prefix.size());
  } else if (rest.ends_with('/')) {
    rest.remove_suffix(1);
  }
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
  address.name = fmt::format("{}{}{}", scheme->prefix, rest, address.path);
  return address;
}

}  // namespace kernelwright
