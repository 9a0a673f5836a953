/// RESP2, the protocol of Redis and Valkey, as far as a cache needs it: commands are lists of texts, and replies are no
/// lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kernelwright {

/// A command's bytes: an array of bulk strings.
std::vector<std::byte> resp_command(std::span<const std::string_view> words);

struct RespReply {
  enum class Kind { kStatus, kError, kNumber, kBulk, kNull, kBroken };
  Kind kind = Kind::kBroken;
  std::string text{};              // kStatus, kError; kBroken: what is wrong
  std::int64_t number = 0;         // kNumber
  std::vector<std::byte> bytes{};  // kBulk
};

/// Where a reply comes from. receive() fills a part of its argument and returns how many bytes it filled; 0 ends the
/// reply, with `reason`.
struct RespSource {
  std::function<std::size_t(std::span<std::byte>, std::string& reason)> receive;
  std::function<void(std::size_t)> expect = [](std::size_t) {};  // called once with the size of a bulk string
};

/// Reads one reply, and no byte beyond it that the server sent unasked: such a byte makes it kBroken. Any bytes have an
/// answer. A bulk string of more than `max_bytes` is kBroken before memory is taken for it.
RespReply read_resp_reply(const RespSource& source, std::size_t max_bytes);

}  // namespace kernelwright
