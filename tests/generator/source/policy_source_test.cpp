// Policies that are a user's own source: they are read beside their config, refused with a reason, and are part of a
// kernel's key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/generator/source/specialize.h"

namespace kernelwright {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kHeader = "#include \"policy/place.cuh\"\nstruct Mine {};\n";

class PolicySourceConfig : public testing::Test {
 protected:
  PolicySourceConfig() {
    std::string pattern = fs::temp_directory_path() / "kernelwright_policy_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    write("mine.cuh", kHeader);
  }
  ~PolicySourceConfig() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }

  static std::string config(const std::string& fields) {
    return R"({"version": 1, "kind": "attention", "name": "mine", "problem": {"head_dim": {"qk": 64, "v": 64},
               "heads": {"q": 2, "kv": 1}, )" +
           fields + "}}";
  }
  AttentionConfig read(const std::string& fields) {
    write("mine.json", config(fields));
    return std::get<AttentionConfig>(read_config_file(folder_ / "mine.json"));
  }
  /// The complaint about a config in the folder, without the folder; or about its text.
  std::string complaint(const std::string& fields, bool as_file = true) {
    std::string text;
    try {
      const Config made = as_file ? Config(read(fields)) : read_config(config(fields));
      for (const Violation& violation : validate(std::get<AttentionConfig>(made)))
        text += (text.empty() ? "" : "\n") + violation.text();
    } catch (const ConfigError& error) {
      text = error.what();
    }
    for (std::size_t at; (at = text.find(folder_.string() + "/")) != text.npos;)
      text.erase(at, folder_.string().size() + 1);
    return text;
  }
  static SourceUnit unit_of(const AttentionProblem& problem) {
    return specialize(plan_by_model(problem, {}, Arch::kSm80).main);
  }
  fs::path folder_;
};

TEST_F(PolicySourceConfig, ReadsHeadersAndFindsReferencesBesideIt) {
  const AttentionConfig made = read(
      R"("mask": {"kind": "and", "operands": [{"kind": "causal"}, {"kind": "source", "file": "mine.cuh", "type": "Mine"}]},
         "score_mod": {"kind": "source", "text": "struct Other {};", "type": "a::Other",
                       "reference": {"library": "lib.so", "symbol": "other"}})");
  const PolicySource& mask = made.problem.mask.operands[1].source;
  EXPECT_EQ(mask.text, kHeader);
  EXPECT_EQ(mask.file, "mine.cuh");
  EXPECT_EQ(made.problem.score_mod.source.text, "struct Other {};");
  EXPECT_EQ(made.problem.score_mod.source.reference.library, (folder_ / "lib.so").string());
  // The written config contains the text, so it needs no folder any more.
  EXPECT_EQ(std::get<AttentionConfig>(read_config(write_config(made))), made);
  for (const Violation& violation : validate(made)) ADD_FAILURE() << violation.text();
}

TEST_F(PolicySourceConfig, KeepsThePlaceOfItsReferenceWhenItIsWrittenAndReadElsewhere) {
  const std::string fields =
      R"("mask": {"kind": "source", "file": "mine.cuh", "type": "Mine", "reference": {"array": "seen.npy"}})";
  const std::string relative = fs::relative(folder_);
  const auto array_of = [](const Config& config) {
    return std::get<AttentionConfig>(config).problem.mask.source.reference.array;
  };
  const Config made = read_config(config(fields), relative);
  EXPECT_EQ(fs::weakly_canonical(array_of(made)), fs::weakly_canonical(folder_ / "seen.npy"));
  EXPECT_EQ(array_of(read_config(write_config(std::get<AttentionConfig>(made)), relative)), array_of(made));
}

TEST_F(PolicySourceConfig, IsRefusedWithItsFieldItsReasonAndWhatWouldDo) {
  EXPECT_EQ(complaint(R"("mask": {"kind": "source", "file": "none.cuh", "type": "Mine"})"),
            "/problem/mask/file: \"none.cuh\": cannot be read: No such file or directory");
  EXPECT_EQ(complaint(R"("mask": {"kind": "source", "file": ".", "type": "Mine"})"),
            "/problem/mask/file: \".\": is a directory; a header is a text");
  EXPECT_EQ(
      complaint(R"("mask": {"kind": "source", "file": "mine.cuh", "type": "Mine"})", false),
      "/problem/mask/file: \"mine.cuh\" has not been read, or is empty; a config that is no file has no folder to find "
      "it in: give the header's \"text\"");
  EXPECT_EQ(
      complaint(R"("score_mod": {"kind": "source"})"),
      "/problem/score_mod/type: is missing for kind \"source\"; it takes the name of the header's type that is the "
      "policy\n/problem/score_mod/file: is missing for kind \"source\"; it takes a header, relative to the config, or "
      "\"text\" the header itself");
  EXPECT_EQ(complaint(R"("mask": {"kind": "source", "file": "mine.cuh", "type": "Mine; int x"})"),
            "/problem/mask/type: \"Mine; int x\" is no name of a type; a name with its namespaces, as "
            "\"mine::MyMask\", would "
            "do");
  EXPECT_EQ(complaint(R"("mask": {"kind": "causal", "type": "Mine"})"),
            "/problem/mask/type: has no meaning for kind \"causal\"; leave it out, or make the kind \"source\"");
  EXPECT_EQ(
      complaint(R"("mask": {"kind": "source", "file": "mine.cuh", "type": "Mine", "reference": {"symbol": "f"}})"),
      "/problem/mask/reference: has a library or a symbol without the other; it takes both, or an array");
  EXPECT_EQ(complaint(R"("mask": {"kind": "or", "operands": [{"kind": "causal"},
                          {"kind": "source", "file": "mine.cuh", "type": "Mine"}]})"),
            "/problem/mask/operands/1/kind: \"source\" as a part of an \"or\" is not built yet for the portable "
            "family; it has "
            "it alone or as a part of an \"and\"");
  EXPECT_EQ(complaint(R"("mask": {"kind": "and", "operands": [{"kind": "tensor"}, {"kind": "tensor"}]})"),
            "/problem/mask/operands/1/kind: a second mask of kind \"tensor\" is not built yet for the portable family; "
            "it has "
            "one of them");
  EXPECT_EQ(complaint(R"("score_mod": {"kind": "tensor", "dtype": "e4m3"})"),
            "/problem/score_mod/dtype: \"e4m3\" does not fit; it takes f16, bf16 or f32");
}

// A kernel's key has the digest of the header's text. If a header included other files, a change there would give
// another kernel under the same key.
TEST_F(PolicySourceConfig, IncludesFilesOfTemplatesAlone) {
  const auto refusal = [&](const std::string& text) {
    write("other.cuh", text);
    return complaint(R"("mask": {"kind": "source", "file": "other.cuh", "type": "Mine"})");
  };
  const auto of = [](const std::string& name) {
    return "/problem/mask/file: \"other.cuh\" includes \"" + name +
           "\"; \"policy/place.cuh\" and other files of templates/ would do, for no other is part of the kernel's key";
  };
  for (const char* line : {"#include \"/tmp/a.h\"", " # include</tmp/a.h>", "#inc\\\nlude \"/tmp/a.h\"",
                           "/* \" */ #include /**/ \"/tmp/a.h\" // b", "%:include \"/tmp/a.h\"",
                           "#include_next \"/tmp/a.h\"", "char c = '\"'; /*\n*/\n#import \"/tmp/a.h\""})
    EXPECT_EQ(refusal(std::string(kHeader) + line), of("/tmp/a.h")) << line;
  EXPECT_EQ(refusal("#include \"spec.h\"\n"), of("spec.h"));
  EXPECT_EQ(refusal("#define A \"/tmp/a.h\"\n#include A\n"), of("A"));
  EXPECT_EQ(refusal("#include\n"), of("nothing"));
  for (const char* text :
       {"#include \"ptx/math.cuh\"\r\nstruct Mine {};", "// #include \"/tmp/a.h\"\n/*\n#include \"b\"\n*/",
        "const char* s = \"//\\\"/*\";\n#include <policy/place.cuh>", "#define B #include", "#", "/*", "//"})
    EXPECT_EQ(refusal(text), "") << text;
}

TEST_F(PolicySourceConfig, IsATextOfSomeLength) {
  const auto refusal = [&](const std::string& text) {
    write("other.cuh", text);
    return complaint(R"("mask": {"kind": "source", "file": "other.cuh", "type": "Mine"})");
  };
  EXPECT_EQ(refusal(std::string(65536, ' ')), "");
  EXPECT_EQ(refusal(std::string(65537, ' ')),
            "/problem/mask/file: \"other.cuh\": is 65537 bytes; a header has at most 65536");
  EXPECT_EQ(refusal(std::string(1, '\0')),
            "/problem/mask/file: \"other.cuh\" holds a zero byte; it takes lines of text");
  EXPECT_EQ(refusal("// a\n// caf\xe9\nstruct Mine {};\n"),
            "/problem/mask/file: \"other.cuh\" has a byte that is not UTF-8 in line 2; save it as UTF-8");
  EXPECT_EQ(refusal("\xEF\xBB\xBF// a\n"),
            "/problem/mask/file: \"other.cuh\" begins with a byte order mark; save it as UTF-8 without one");
  EXPECT_EQ(refusal("// caf\xc3\xa9\n"), "");
}

TEST_F(PolicySourceConfig, MayHaveBothTypesInOneHeader) {
  const AttentionProblem problem = read(R"("mask": {"kind": "source", "file": "mine.cuh", "type": "Mine"},
                                           "score_mod": {"kind": "source", "file": "mine.cuh", "type": "Other"})")
                                       .problem;
  const std::string text = unit_of(problem).flattened();
  EXPECT_EQ(text.find("struct Mine"), text.rfind("struct Mine"));
  AttentionProblem other = problem;
  other.score_mod.source.text = "struct Other {};";
  EXPECT_THAT(unit_of(other).flattened(), HasSubstr("struct Other {};"));
}

TEST_F(PolicySourceConfig, NamesAKernelByItsTextAlone) {
  const std::string fields = R"("mask": {"kind": "source", "file": "mine.cuh", "type": "Mine"})";
  const AttentionProblem problem = read(fields).problem;
  const SourceUnit unit = unit_of(problem);
  EXPECT_THAT(unit.spec_text, HasSubstr("mask_source Mine " + sha256(kHeader).hex()));
  AttentionProblem other = problem;
  other.mask.source.file = "elsewhere.cuh";
  EXPECT_EQ(unit_of(other).spec_text, unit.spec_text);
  other.mask.source.text += " ";
  EXPECT_NE(unit_of(other).entry, unit.entry);
  EXPECT_NE(unit_of(other).spec_text, unit.spec_text);
  // One file that compiles as it stands: a header comes after the file that it includes and before the file that
  // includes it.
  const std::string text = unit.flattened();
  EXPECT_LT(text.find("struct Place"), text.find("struct Mine"));
  EXPECT_LT(text.find("struct Mine"), text.find("using MaskSource = ::Mine;"));
  EXPECT_LT(text.find("using MaskSource"), text.find("class OpenRow"));
}

TEST_F(PolicySourceConfig, LeavesNoTraceInKernelsWithoutOne) {
  const SourceUnit unit = unit_of(read(R"("mask": {"kind": "causal"})").problem);
  EXPECT_THAT(unit.spec_text, Not(HasSubstr("source")));
  EXPECT_THAT(unit.spec_header, Not(HasSubstr("OPEN_SCORES")));
  // Both kinds of tensors are told apart from none, and from each other.
  const SourceUnit mask = unit_of(read(R"("mask": {"kind": "tensor"})").problem),
                   bias = unit_of(read(R"("score_mod": {"kind": "tensor", "dtype": "f32"})").problem);
  EXPECT_THAT(mask.spec_text, HasSubstr("mask_tensor true"));
  EXPECT_THAT(bias.spec_text, HasSubstr("mask_tensor false\nbias f32"));
}

}  // namespace
}  // namespace kernelwright
