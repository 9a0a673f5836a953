// Messages between a server and its workers.
#include "kernelwright/runtime/workers/messages.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace kernelwright::messages_test {
namespace {

// What a fault of the socket could leave: never a crash, and never a half-read message.
TEST(CompileMessages, CutOrChangedBytesAreRefusedOrReadWhole) {
  CompileRequest request;
  request.kernel = "fake";
  request.arch = "sm_90a";
  request.source = "source";
  request.headers = {{"a.cuh", "text"}, {"b.cuh", ""}};
  request.options = {"--one", ""};
  request.machine_code = false;
  const std::string bytes = encode(request);
  CompileRequest read;
  ASSERT_TRUE(decode(bytes, read));
  EXPECT_EQ(read.source, "source");
  EXPECT_EQ(read.headers, request.headers);
  EXPECT_EQ(read.options, request.options);
  EXPECT_FALSE(read.machine_code);
  EXPECT_FALSE(decode(bytes + "x", read));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    CompileRequest cut;
    EXPECT_FALSE(decode(std::string_view(bytes).substr(0, i), cut)) << i;
    std::string changed = bytes;
    changed[i] = '\xff';
    CompileRequest other;
    if (decode(changed, other)) EXPECT_EQ(encode(other).size(), bytes.size()) << i;
  }
}

}  // namespace
}  // namespace kernelwright::messages_test
