// RESP2: replies in pieces of any size, and what is refused.
#include "kernelwright/runtime/cache/remote/resp.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kernelwright::resp_test {
namespace {

using Kind = RespReply::Kind;

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The reply to `text`, which arrives `piece` bytes at a time.
RespReply read(std::string_view text, std::size_t piece = 1, std::size_t max_bytes = 100) {
  return read_resp_reply({.receive =
                              [&](std::span<std::byte> into, std::string& reason) {
                                const std::size_t count = std::min({piece, into.size(), text.size()});
                                if (count == 0) reason = "closed";
                                std::ranges::copy(std::as_bytes(std::span(text.substr(0, count))), into.begin());
                                text.remove_prefix(count);
                                return count;
                              }},
                         max_bytes);
}

TEST(Resp, ACommandIsAnArrayOfBulkStrings) {
  const std::string_view words[] = {"SET", "a", std::string_view("\0\r\n", 3)};
  EXPECT_EQ(text_of(resp_command(words)), std::string("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$3\r\n\0\r\n\r\n", 29));
}

TEST(Resp, RepliesAreReadInPiecesOfAnySize) {
  for (const std::size_t piece : {1, 2, 3, 7, 100}) {
    EXPECT_EQ(read("+OK\r\n", piece).text, "OK");
    EXPECT_EQ(read("-NOAUTH no\r\n", piece).kind, Kind::kError);
    EXPECT_EQ(read(":42\r\n", piece).number, 42);
    EXPECT_EQ(read("$-1\r\n", piece).kind, Kind::kNull);
    EXPECT_EQ(text_of(read("$4\r\na\r\nb\r\n", piece).bytes), "a\r\nb");
    EXPECT_EQ(read("$0\r\n\r\n", piece).kind, Kind::kBulk);
  }
}

TEST(Resp, WhatIsNoReplyIsToldByName) {
  EXPECT_EQ(read("$4\r\nab").text, "closed");
  EXPECT_EQ(read("$2\r\nabcd").text, "a value does not end where its size says");
  EXPECT_EQ(read("$2\r\nab\r\n+OK\r\n", 100).text, "the server sent more than it was asked for");
  EXPECT_EQ(read("$101\r\n").text, "a value of 101 bytes is above the limit of 100");
  EXPECT_EQ(read("$-2\r\n").text, "a value has no size");
  EXPECT_EQ(read("HTTP/1.1 400\r\n").text, "the reply is not one of RESP2");
  EXPECT_EQ(read("*1\r\n").text, "the reply is not one of RESP2");
  EXPECT_EQ(read("\r\n").text, "the reply is empty");
  EXPECT_EQ(read(std::string(2000, 'x'), 100).text, "the reply's first line is too long");
}

}  // namespace
}  // namespace kernelwright::resp_test
