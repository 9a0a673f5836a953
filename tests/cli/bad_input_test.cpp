// Wrong input of any kind gives exit code 2 and a message that names the place, and nothing is written.
#include <fmt/format.h>
#include <sys/stat.h>

#include "cli/command_fixture.h"
#include "kernelwright/verify/formats/npy.h"

namespace kernelwright {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using BadInput = Command;

TEST_F(BadInput, UnknownKey) {
  expect_refused({"run", write("a.json", config(R"(, "maskk": {"kind": "causal"})"))}, {"a.json: /problem/maskk"});
}
TEST_F(BadInput, WrongType) {
  expect_refused({"run", write("a.json", config(R"(, "lse": "yes")"))}, {"a.json: /problem/lse"});
}
TEST_F(BadInput, OutOfRange) {
  expect_refused({"compile", write("a.json", config("", R"(, "schedule": {"num_stages": 40})"))},
                 {"a.json: /schedule/num_stages: 40 is outside [1, 32]"});
}
TEST_F(BadInput, ContradictoryFields) {
  expect_refused({"explain", write("a.json", config(R"(, "kv_layout": {"kind": "padded", "page_size": 16})"))},
                 {"a.json: /problem/kv_layout/page_size"});
}
TEST_F(BadInput, ImpossibleOnTheArchitecture) {
  const std::string file = write("a.json", config("", R"(, "schedule": {"family": "hopper"})"));
  expect_refused({"compile", file, "--arch", "sm_80"},
                 {"a.json: /schedule/family", "hopper kernels do not run on sm_80"});
}
TEST_F(BadInput, EveryViolationAtOnce) {
  expect_refused({"run", write("a.json", config(R"(, "maskk": 1, "lse": 3)"))}, {"/problem/maskk", "/problem/lse"});
}
TEST_F(BadInput, TruncatedJson) { expect_refused({"run", write("a.json", config().substr(0, 60))}, {"a.json"}); }
TEST_F(BadInput, EmptyFile) { expect_refused({"run", write("a.json", "")}, {"a.json"}); }
TEST_F(BadInput, BytesBehindTheEnd) {
  for (const std::string& behind :
       {std::string("{}"), std::string("x"), std::string(1, '\0'), std::string("\0\0{}", 4)})
    expect_refused({"run", write("a.json", config() + behind)}, {"a.json: line 2, column"});
}
TEST_F(BadInput, HundredMegabytes) {
  const std::string file = write("a.json", "");
  std::filesystem::resize_file(file, 100'000'000);
  expect_refused({"run", file}, {"a.json", "100000000 bytes"});
}
TEST_F(BadInput, HundredThousandNestedArrays) {
  expect_refused({"run", write("a.json", std::string(100'000, '[') + std::string(100'000, ']'))}, {"a.json"});
}
TEST_F(BadInput, NumbersThatAreNone) {
  for (const char* number : {"NaN", "Infinity", "1e999", "99999999999999999999999", "1.5"})
    expect_refused({"run", write("a.json", config(fmt::format(R"(, "max_q_len": {})", number)))}, {"a.json"});
}
TEST_F(BadInput, NamesThatAreNotNames) {
  for (const char* name : {"../../etc/passwd", "a b", R"(x\"; rm)", "", R"(\u0000)"})
    expect_refused(
        {"run",
         write("a.json", fmt::format(R"({{"version": 1, "kind": "attention", "name": "{}", "problem": {{"head_dim":
      {{"qk": 64, "v": 64}}, "heads": {{"q": 4, "kv": 2}}}}}})",
                                     name))},
        {"a.json: /name"});
}
TEST_F(BadInput, MissingFile) { expect_refused({"run", path("none.json")}, {"none.json", "No such file"}); }
TEST_F(BadInput, UnreadableFile) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads every file";
  const std::string file = write("a.json", config());
  ::chmod(file.c_str(), 0);
  expect_refused({"run", file}, {"a.json", "Permission denied"});
}
TEST_F(BadInput, ADirectory) {
  std::filesystem::create_directory(path("empty"));
  expect_refused({"run", path("empty")}, {"empty", "holds no .json file"});
  expect_refused({"explain", path("empty")}, {"empty", "is a directory"});
}
TEST_F(BadInput, OneBrokenFileInAFolderOfGoodOnes) {
  std::filesystem::create_directory(path("configs"));
  write("configs/a.json", config());
  write("configs/b.json", config().substr(0, 60));
  write("configs/c.json", config());
  expect_refused({"compile", path("configs"), "--arch", "sm_80"}, {"b.json: line "});
}
TEST_F(BadInput, AFifo) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  expect_refused({"run", path("fifo")}, {"fifo", "is a FIFO"});
}
TEST_F(BadInput, AFieldThatAFamilyDoesNotHave) {
  const std::string file = write("a.json", R"({"version": 1, "kind": "gemm", "name": "a", "problem": {"n": 64, "k": 64},
                                               "schedule": {"family": "blackwell", "mma_in_flight": 1}, "shapes": []})");
  expect_refused({"compile", file, "--arch", "sm_100a"},
                 {"a.json: /schedule/mma_in_flight: the blackwell family has no mma_in_flight"});
}
TEST_F(BadInput, AKernelThatAGemmDoesNotHave) {
  const std::string file = test::source_dir() / "configs/problems/gemm-f16-ragged.json";
  expect_refused({"source", file, "--kernel", "combine"},
                 {"--kernel: combine is no kernel of gemm-f16-ragged; it has main"});
}
TEST_F(BadInput, GemmArraysThatDoNotFit) {
  const std::string file = write("gemm.json", gemm_config());
  std::filesystem::create_directory(path("arrays"));
  expect_refused({"run", file, "--inputs", path("arrays"), "--device", "emulator"}, {"a.npy", "b.npy"});
}
TEST_F(BadInput, AnUnknownShape) {
  expect_refused({"run", write("a.json", config()), "--shape", "big"}, {"--shape: big is no shape of", "it has check"});
}
TEST_F(BadInput, AnUnknownArchitecture) {
  expect_refused({"compile", write("a.json", config()), "--arch", "sm_42"}, {"--arch: sm_42", "sm_90a"});
}
TEST_F(BadInput, TwoArchitecturesWhereOneWouldDo) {
  expect_refused({"source", write("a.json", config()), "--arch", "sm_80", "--arch", "sm_90a"}, {"--arch: 2 are named"});
}
TEST_F(BadInput, CommandLinesThatDoNotParse) {
  expect_refused({}, {"names no verb", "compile", "--help"});
  expect_refused({"fly"}, {"fly"});
  expect_refused({"run"}, {"CONFIG"});
  expect_refused({"run", write("a.json", config()), "--fast"}, {"--fast"});
  expect_refused({"run", path("a.json"), "--device", "tpu"}, {"--device", "tpu"});
  expect_refused({"run", path("a.json"), "--seed", "x"}, {"--seed"});
  expect_refused({"cache", "burn"}, {"burn"});
  expect_refused({"cache", "ls", path("a.json")}, {"cache ls takes no CONFIG"});
}

TEST_F(BadInput, IsOneObjectWithJson) {
  const CommandResult result = run({"run", write("a.json", config(R"(, "maskk": 1)")), "--json"});
  EXPECT_EQ(result.exit_code, 2);
  const JsonValue object = JsonValue::parse(result.out);
  EXPECT_EQ(object.at("/verdict").as_string(), "error");
  EXPECT_THAT(object.at("/violations/0/path").as_string(), HasSubstr("/problem/maskk"));
  EXPECT_EQ(JsonValue::parse(run({"run", "--json"}).out).at("/exit_code").as_int(), 2);
}

// The arrays of --inputs are judged before the machine is asked for a GPU.
class BadArrays : public Command {
 protected:
  BadArrays() {
    file_ = write("a.json", config());
    std::filesystem::create_directory(path("in"));
    array("q", {2, 5, 4, 64});
    array("k", {2, 9, 2, 64});
    array("v", {2, 9, 2, 64});
  }
  void array(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::int64_t size = 1;
    for (const std::int64_t dim : shape) size *= dim;
    write_npy<float>(path("in/" + name + ".npy"), shape, std::vector<float>(static_cast<std::size_t>(size), 0.5f));
  }
  void expect_arrays_refused(const std::vector<std::string>& parts) {
    expect_refused({"run", file_, "--inputs", path("in"), "--outputs", path("out")}, parts);
  }
  std::string file_;
};

TEST_F(BadArrays, WrongShape) {
  array("k", {2, 9, 2, 32});
  expect_arrays_refused({"k.npy: shape [2, 9, 2, 32]; head_dim.qk is 64, so the last dimension would be 64"});
}
TEST_F(BadArrays, WrongBatch) {
  array("k", {3, 9, 2, 64});
  expect_arrays_refused({"k.npy: shape [3, 9, 2, 64]; q.npy has 2 sequences, so the first dimension would be 2"});
}
TEST_F(BadArrays, MissingArray) {
  std::filesystem::remove(path("in/v.npy"));
  expect_arrays_refused({"v.npy", "No such file"});
}
TEST_F(BadArrays, DirectoryInPlaceOfAnArray) {
  std::filesystem::remove(path("in/v.npy"));
  std::filesystem::create_directory(path("in/v.npy"));
  expect_arrays_refused({"v.npy", "is a directory"});
}
TEST_F(BadArrays, CutShort) {
  std::filesystem::resize_file(path("in/q.npy"), 200);
  expect_arrays_refused({"q.npy", "bytes of data and its shape [2, 5, 4, 64] takes 10240"});
}
TEST_F(BadArrays, NoArrayAtAll) {
  write("in/q.npy", "hello, this is no array");
  expect_arrays_refused({"q.npy", "does not begin as an .npy file does"});
}
TEST_F(BadArrays, MissingFolder) {
  expect_refused({"run", file_, "--inputs", path("nowhere")}, {"nowhere", "does not exist"});
}
TEST_F(BadArrays, OutputsThatAreAFile) {
  expect_refused({"run", file_, "--inputs", path("in"), "--outputs", file_}, {"is no folder"});
}
TEST_F(BadArrays, AShapeBesides) {
  expect_refused({"run", file_, "--inputs", path("in"), "--shape", "check"},
                 {"--shape: the arrays of --inputs give the shape"});
}

}  // namespace
}  // namespace kernelwright
