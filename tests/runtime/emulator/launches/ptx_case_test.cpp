// A description of launches: buffers, arguments and how results compare.
#include "runtime/emulator/launches/ptx_case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kernelwright/generator/error.h"
#include "runtime/emulator/ptx_kernel.h"

namespace kernelwright::test {
namespace {

using testing::ElementsAre;

/// A case whose only argument is a struct with the addresses of `out` and `in`.
std::string case_json(const std::string& buffers, const std::string& argument) {
  return R"({"cases": [{"name": "copy", "ptx": "copy.ptx", "numbers": {"n": 2}, "buffers": {)" + buffers +
         R"(}, "launches": [{"entry": "test", "block": [32], "arguments": [)" + argument + "]}]}]}";
}

/// Reads the case from a folder of its own, runs it, and removes the folder.
PtxCaseRun run(const std::string& body, const std::string& json) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("kernelwright-ptx-case-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "copy.ptx") << emulator::test::ptx_kernel(body);
  std::ofstream(folder / "launches.json") << json;
  const std::vector<PtxCase> cases = read_ptx_cases(folder / "launches.json");
  std::filesystem::remove_all(folder);
  EXPECT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases.at(0).number("n"), 2);
  return run_ptx_case(cases.at(0), cases.at(0).ptx, {.hazards = true, .threads = 1});
}

constexpr const char* kPointers = R"({"struct": [[0, {"buffer": "out"}], [8, {"buffer": "in", "offset": 4}]]})";
constexpr const char* kCopyWord = "ld.global.b32 %r10, [%rd1]; st.global.b32 [%rd0], %r10;";

TEST(PtxCases, WriteAddressesIntoStructs) {
  const PtxCaseRun ran = run(kCopyWord, case_json(R"("in": {"values": [5, -7], "dtype": "i32"},
                                                     "out": {"zeros": [2], "dtype": "i32", "output": "bits"})",
                                                  kPointers));
  EXPECT_EQ(ran.fault, "");
  EXPECT_THAT(ran.after.at("out").values(), ElementsAre(-7, 0));
  EXPECT_EQ(ran.outputs(), ran.after.at("out").bytes);
}

TEST(PtxCases, PutAddressesIntoBuffers) {
  const PtxCaseRun ran = run("ld.global.b64 %rd2, [%rd1]; ld.global.b32 %r10, [%rd2]; st.global.b32 [%rd0], %r10;",
                             case_json(R"("in": {"addresses": ["data", ["data", 4]]},
                                          "data": {"values": [1.5, 2.5], "dtype": "f32"},
                                          "out": {"zeros": [1], "dtype": "f32", "output": "bits"})",
                                       R"({"struct": [[0, {"buffer": "out"}], [8, {"buffer": "in", "offset": 8}]]})"));
  EXPECT_THAT(ran.after.at("out").values(), ElementsAre(2.5));
}

TEST(PtxCases, DrawNumbersWithinTheirRange) {
  const PtxCaseRun ran = run("", case_json(R"("in": {"random": [200], "dtype": "i8", "seed": 3, "low": -2, "high": 2},
                                              "out": {"random": [200], "dtype": "bf16", "low": 2, "high": 3})",
                                           kPointers));
  EXPECT_THAT(ran.before.at("in").values(), testing::Each(testing::AllOf(testing::Ge(-2), testing::Le(2))));
  EXPECT_THAT(ran.before.at("in").values(), testing::IsSupersetOf({-2.0, -1.0, 0.0, 1.0, 2.0}));
  EXPECT_THAT(ran.before.at("out").values(), testing::Each(testing::AllOf(testing::Ge(2), testing::Le(3))));
}

TEST(PtxCases, CompareBitsOrAllowAnotherOrderOfSums) {
  PtxBuffer sums{"f32", {2}, OutputKind::kClose, std::vector<std::byte>(8)}, other = sums;
  const float values[] = {1000, 1}, near[] = {1000, 1.00005f}, far[] = {1000, 1.01f};
  const auto agrees = [&](const float(&with)[2], OutputKind kind) {
    std::memcpy(sums.bytes.data(), values, 8);
    std::memcpy(other.bytes.data(), with, 8);
    sums.output = kind;
    return agree({{"sums", sums}}, {{"sums", other}});
  };
  EXPECT_TRUE(agrees(near, OutputKind::kClose));
  EXPECT_FALSE(agrees(far, OutputKind::kClose));
  EXPECT_FALSE(agrees(near, OutputKind::kBits));
  EXPECT_TRUE(agrees(far, OutputKind::kNone));
}

TEST(PtxCases, RefuseWhatTheyDoNotKnow) {
  const std::string buffers = R"("in": {"zeros": [8], "dtype": "i32"}, "out": {"zeros": [8], "dtype": "i32"})";
  EXPECT_THROW(run("", case_json(buffers, R"({"buffer": "missing"})")), Error);
  EXPECT_THROW(run("", case_json(buffers, R"({"i31": 5})")), Error);
  EXPECT_THROW(run("", case_json(buffers, "null, null")), Error);
  EXPECT_THROW(run("", case_json(buffers, R"({"struct": [[16, {"i32": 5}]]})")), Error);
}

}  // namespace
}  // namespace kernelwright::test
