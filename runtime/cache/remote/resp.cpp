#include "kernelwright/runtime/cache/remote/resp.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace kernelwright {
namespace {

constexpr std::size_t kMaxLineBytes = 1024;

RespReply broken(std::string why) { return {.kind = RespReply::Kind::kBroken, .text = std::move(why)}; }

std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

/// The bytes of a bulk string, and its end of line. `held` has the first of them.
RespReply read_bulk(const RespSource& source, std::string_view held, std::size_t size) {
  RespReply reply{.kind = RespReply::Kind::kBulk};
  source.expect(size);
  if (held.size() > size + 2) return broken("the server sent more than it was asked for");
  reply.bytes.resize(size + 2);
  std::ranges::transform(held, reply.bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
  for (std::size_t have = held.size(); have < reply.bytes.size();) {
    std::string reason;
    const std::size_t count = source.receive(std::span(reply.bytes).subspan(have), reason);
    if (count == 0) return broken(reason);
    have += count;
  }
  if (reply.bytes[size] != std::byte{'\r'} || reply.bytes[size + 1] != std::byte{'\n'})
    return broken("a value does not end where its size says");
  reply.bytes.resize(size);
  return reply;
}

}  // namespace

std::vector<std::byte> resp_command(std::span<const std::string_view> words) {
  std::string text = fmt::format("*{}\r\n", words.size());
  for (const std::string_view word : words) {
    text += fmt::format("${}\r\n", word.size());
    text += word;
    text += "\r\n";
  }
  const std::span bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

RespReply read_resp_reply(const RespSource& source, std::size_t max_bytes) {
  std::array<char, kMaxLineBytes> held;
  std::size_t have = 0, line = std::string_view::npos;
  while (line == std::string_view::npos) {
    if (have == held.size()) return broken("the reply's first line is too long");
    std::string reason;
    const std::size_t count = source.receive(std::as_writable_bytes(std::span(held).subspan(have)), reason);
    if (count == 0) return broken(reason);
    have += count;
    line = std::string_view(held.data(), have).find("\r\n");
  }
  const std::string_view first(held.data(), line), rest(held.data() + line + 2, have - line - 2);
  if (first.empty()) return broken("the reply is empty");
  const std::string_view text = first.substr(1);
  const std::optional<std::int64_t> number = number_of(text);
  if (first[0] == '$' && number) {
    if (*number == -1 && rest.empty()) return {.kind = RespReply::Kind::kNull};
    if (*number < 0) return broken("a value has no size");
    if (static_cast<std::uint64_t>(*number) > max_bytes)
      return broken(fmt::format("a value of {} bytes is above the limit of {}", *number, max_bytes));
    return read_bulk(source, rest, static_cast<std::size_t>(*number));
  }
  if (!rest.empty()) return broken("the server sent more than it was asked for");
  if (first[0] == '+') return {.kind = RespReply::Kind::kStatus, .text = std::string(text)};
  if (first[0] == '-') return {.kind = RespReply::Kind::kError, .text = std::string(text)};
  if (first[0] == ':' && number) return {.kind = RespReply::Kind::kNumber, .number = *number};
  return broken("the reply is not one of RESP2");
}

}  // namespace kernelwright
