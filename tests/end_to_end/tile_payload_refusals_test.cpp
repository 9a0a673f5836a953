// A user's payload that is no TilePayload (templates/pipeline/tile_payload.cuh): the compiler names the missing member,
// as in a user's kernel. Needs NVRTC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/template_library.h"
#include "kernelwright/runtime/compile/compiler.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;
using testing::Not;

class TilePayloadOfOnesOwn : public testing::Test {
 protected:
  void SetUp() override {
    if (compiler_.path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }

  /// The compiler's errors for a kernel with a ring of two tiles whose payload has `members`; "" if there are none.
  std::string log_of(const std::string& members) {
    const std::string_view header = "pipeline/tile_pipeline.cuh";
    SourceUnit unit;
    unit.kernel = unit.entry = "own_payload";
    unit.spec_header = unit.spec_text = "#pragma once\n";
    for (const TemplateFile& file : template_closure(header).files) unit.headers.push_back(file);
    unit.source = "#include \"" + std::string(header) + "\"\nusing namespace kernelwright;\nstruct Payload {\n" +
                  members +
                  "\nuint32_t base;\n};\nusing Input = pipeline::InputTilePipeline<Payload, 2>;\n"
                  "extern \"C\" __global__ void own_payload(uint32_t* out) {\n"
                  "auto producer = Input(0, Payload{}).producer();\n"
                  "const auto stage = producer.acquire();\n"
                  "stage.expect_bytes(Input::group_bytes);\n"
                  "*out = stage.full();\n}\n";
    unit.arch = "sm_90a";
    unit.options = {"--gpu-architecture=sm_90a", "--std=c++17", "-default-device", "--minimal"};
    try {
      compiler_.compile(unit);
      return "";
    } catch (const CompileError& error) {
      return error.what();
    }
  }

  Compiler compiler_;
  const std::string tiles_ = "static constexpr int num_tiles = 2;\n";
  const std::string bytes_ = "static constexpr uint32_t bytes_per_tile = 1024;\n";
  const std::string get_tile_ = "__device__ uint32_t get_tile(int tile) const { return base + tile * 1024; }\n";
};

TEST_F(TilePayloadOfOnesOwn, CompilesWithAllMembersAndIsRefusedByNameWithoutOne) {
  EXPECT_EQ(log_of(tiles_ + bytes_ + get_tile_), "");
  const std::string no_tiles = log_of(bytes_ + get_tile_);
  EXPECT_THAT(no_tiles, HasSubstr("a TilePayload has a constant num_tiles: tiles of each kind"));
  EXPECT_THAT(no_tiles, Not(HasSubstr("bytes_per_tile:")));
  EXPECT_THAT(log_of(tiles_ + get_tile_),
              HasSubstr("a TilePayload has a constant bytes_per_tile: what TMA brings for one of each kind"));
  EXPECT_THAT(log_of(tiles_ + bytes_),
              HasSubstr("a TilePayload has get_tile(int) const: addresses of the tiles with one number"));
  EXPECT_THAT(log_of("static constexpr int num_tiles = 3;\n" + bytes_ + get_tile_),
              HasSubstr("a payload has the ring's tiles"));
}

}  // namespace
}  // namespace kernelwright
