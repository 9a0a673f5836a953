// The output of the verbs, with and without a GPU and a compiler.
#include <sys/stat.h>

#include <set>

#include "cli/command_fixture.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/verify/formats/npy.h"
#include "support/paths.h"

namespace kernelwright::verbs_test {
namespace {

using testing::HasSubstr;
using testing::Not;

using Verbs = Command;

TEST_F(Verbs, HelpIsNoError) {
  const CommandResult result = run({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* verb : {"run", "compile", "bench", "explain", "source", "ptx", "sass", "trace", "cache", "doctor"})
    EXPECT_THAT(result.out, HasSubstr(verb));
  EXPECT_EQ(run({"run", "--help"}).exit_code, 0);
}

TEST_F(Verbs, RunOnCudaWithoutAGpuIsOneSentenceAndExit3) {
  if (has_gpu()) GTEST_SKIP() << "this machine has a GPU";
  const CommandResult result = run({"run", write("a.json", config()), "--device", "cuda"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_FALSE(std::filesystem::exists(path("cache"))) << "nothing was to be compiled";
}

TEST_F(Verbs, BenchWithoutAGpuIsExit3) {
  if (has_gpu()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(run({"bench", write("a.json", config()), "--device", "cuda"}).exit_code, 3);
}

TEST_F(Verbs, CompileNeedsNoGpu) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::vector<std::string> words{
      "compile", write("a.json", config()), "--arch", "sm_80", "--arch", "sm_90a", "--outputs", path("out"), "--json"};
  const CommandResult result = run(words);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const JsonValue object = JsonValue::parse(result.out);
  std::set<std::string> archs;
  for (const JsonValue& kernel : object.at("/kernels").elements()) {
    archs.insert(kernel.at("/arch").as_string());
    EXPECT_GT(kernel.at("/registers").as_int(), 0);
    EXPECT_EQ(kernel.at("/spill_bytes").as_int(), 0);
    EXPECT_FALSE(kernel.at("/cached").as_bool());
    EXPECT_EQ(kernel.at("/key").as_string().size(), 64u);
  }
  EXPECT_EQ(archs, (std::set<std::string>{"sm_80", "sm_90a"}));
  EXPECT_GT(std::filesystem::file_size(path("out/tiny.sm_80.cubin")), 1000u);
  EXPECT_THAT(run(words).out, HasSubstr("\"compiled\": 0"));  // all of it is cached now
}

TEST_F(Verbs, CompileSaysOnceThatNothingIsKept) {
  KERNELWRIGHT_NEEDS_COMPILER();
  write("file", "");
  for (const std::string& folder : {path("file"), std::string()}) {
    const CommandResult result =
        run_command({"compile", write("a.json", config()), "--arch", "sm_80", "--arch", "sm_90a"},
                    {"KERNELWRIGHT_CACHE_DIR=" + folder, "XDG_CACHE_HOME=", "HOME="});
    EXPECT_EQ(result.exit_code, 0) << "a cache that is off is no failure";
    EXPECT_THAT(result.err, HasSubstr(folder.empty() ? "names a directory" : folder + " is not a directory"));
    EXPECT_THAT(result.err, HasSubstr("kernels stay in memory"));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST_F(Verbs, CompileSkipsByNameWhatIsForAnotherArchitecture) {
  KERNELWRIGHT_NEEDS_COMPILER();
  std::filesystem::create_directory(path("configs"));
  write("configs/a.json", config());
  write("configs/gemm.json", gemm_config());
  write("configs/b.json", config("", R"(, "schedule": {"arch": "sm_90a"})"));
  const CommandResult result = run({"compile", path("configs"), "--arch", "sm_80"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("skipped " + path("configs/b.json") + ": its schedule is for sm_90a alone"));
  EXPECT_THAT(result.out, HasSubstr("skipped " + path("configs/gemm.json") + ": its schedule is for sm_90a alone"));
  EXPECT_THAT(result.out, HasSubstr("tiny"));
}

TEST_F(Verbs, CompileGoesOnPastWhatOneArchitectureCannotTakeAndRefusesWhatNoneTakes) {
  KERNELWRIGHT_NEEDS_COMPILER();
  std::filesystem::create_directory(path("configs"));
  write("configs/a.json", config());
  const std::string fp8 = config(R"(, "dtype": {"q": "e4m3", "kv": "e4m3"})");
  write("configs/fp8.json", fp8);
  const CommandResult both = run({"compile", path("configs"), "--arch", "sm_80", "--arch", "sm_100a"});
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("skipped " + path("configs/fp8.json") + ": not for sm_80: /problem/dtype"));
  EXPECT_THAT(both.out, HasSubstr("attention_sm100"));
  const CommandResult none = run({"compile", path("configs"), "--arch", "sm_80"});
  EXPECT_EQ(none.exit_code, 2) << none.out;
  EXPECT_THAT(none.err, HasSubstr("configs/fp8.json: /problem/dtype"));
  EXPECT_THAT(none.err, HasSubstr("sm_100a and sm_103a take this problem"));
  expect_refused({"compile", write("fp8.json", fp8), "--arch", "sm_80", "--arch", "sm_100a"},
                 {"fp8.json: /problem/dtype"});  // named itself, with both of them
}

TEST_F(Verbs, CompileDoesNotWriteTwoConfigsOfOneNameToOneFile) {
  const std::string a = write("a.json", config()), b = write("b.json", config(R"(, "lse": true)"));
  expect_refused({"compile", a, b, "--arch", "sm_80", "--outputs", path("out")},
                 {"b.json: /name: tiny is the name of " + a + " too", "another name"});
}

TEST_F(Verbs, LongListsAreCappedForPeopleAndWholeAsJson) {
  std::filesystem::create_directories(path("cache/aa"));
  std::filesystem::permissions(path("cache"), std::filesystem::perms::owner_all);
  const auto fill = [this] {  // a file that is no entry is listed and skipped
    for (int i = 0; i < 45; ++i)
      write("cache/aa/" + std::string(60, '0') + std::to_string(10 + i) + ".kw2", "no entry");
  };
  fill();
  const CommandResult listed = run({"cache", "ls"});
  EXPECT_EQ(std::count(listed.out.begin(), listed.out.end(), '\n'), 43) << "a head, 40 entries, the rest, the sum";
  EXPECT_THAT(listed.out, HasSubstr("and 5 more; --json has all"));
  fill();
  EXPECT_EQ(JsonValue::parse(run({"cache", "ls", "--json"}).out).at("/entries").elements().size(), 45u);
  std::string unknown;
  for (int i = 0; i < 60; ++i) unknown += ", \"no_field_" + std::to_string(i) + "\": 1";
  const CommandResult refused = run({"explain", write("a.json", config(unknown))});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 41);
  EXPECT_THAT(refused.err, HasSubstr("and 20 lines more; --json has all"));
}

TEST_F(Verbs, CacheThatCannotBeWrittenIsNeitherClearedNorPruned) {
  std::filesystem::create_directory(path("cache"));
  ::chmod(path("cache").c_str(), 0777);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"cache", "clear"}, {"cache", "prune", "--max-entries", "0"}}) {
    const CommandResult result = run(words);
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_THAT(result.err, HasSubstr("is writable by others (mode 0777); chmod go-w it"));
  }
  ::chmod(path("cache").c_str(), 0700);
  std::filesystem::create_directories(
      path("cache/aa/" + std::string(62, '0') + ".kw2/in the way"));  // no unlink() does
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"cache", "clear"}, {"cache", "prune", "--max-entries", "0"}}) {
    const CommandResult result = run(words);
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_THAT(result.err, HasSubstr(".kw2 cannot be removed: Is a directory (EISDIR)"));
  }
  EXPECT_EQ(run_command({"cache", "clear"}, {"KERNELWRIGHT_CACHE_DIR=", "XDG_CACHE_HOME=", "HOME="}).exit_code, 2);
}

TEST_F(Verbs, OutputThatIsNoTerminalIsPlain) {
  const CommandResult result = run({"explain", write("a.json", config()), "--arch", "sm_90a"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out + result.err, Not(HasSubstr("\x1b")));
}

TEST_F(Verbs, ExplainDrawsTensorMemory) {
  const std::string file = write("a.json", config());
  const CommandResult text = run({"explain", file, "--arch", "sm_100a"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* part : {"attention_sm100 for sm_100a, blackwell family",
                           "Tensor memory: 384 columns used, 512 allocated of 512", "S0", "P1", "O1", "over S0"})
    EXPECT_THAT(text.out, HasSubstr(part));
  const JsonValue object = JsonValue::parse(run({"explain", file, "--arch", "sm_100a", "--json"}).out);
  EXPECT_EQ(object.at("/tensor_memory/used").as_int(), 384);
  EXPECT_EQ(object.at("/tensor_memory/map").elements().size(), 6u);
  EXPECT_THAT(text.out, HasSubstr("not measured"));
  EXPECT_FALSE(object.at("/predicted").elements().at(0).at("/measured").as_bool());
  EXPECT_THAT(run({"explain", file, "--arch", "sm_90a"}).out, Not(HasSubstr("Tensor memory")));
}

TEST_F(Verbs, ExplainOfAGemmDrawsTensorMemoryAndPredicts) {
  const std::string file = test::source_dir() / "configs/problems/gemm-sm100-nvfp4.json";
  const CommandResult text = run({"explain", file});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* part : {"gemm_sm100 for sm_100a, blackwell family", "4 x 1 in pairs, queued", "scales of rows",
                           "accumulator full", "Tensor memory: 304 columns used, 512 allocated of 512",
                           "Predicted, on B200", "not measured", "bound by", "L2"})
    EXPECT_THAT(text.out, HasSubstr(part));
  const JsonValue object = JsonValue::parse(run({"explain", file, "--json"}).out);
  EXPECT_EQ(object.at("/variants/0/tensor_memory/used").as_int(), 304);
  EXPECT_EQ(object.at("/predicted").elements().size(), 2u);
  EXPECT_GT(object.at("/predicted/0/microseconds").as_double(), 0);
  EXPECT_EQ(object.at("/predicted/0/terms").elements().size(), 6u);
}

TEST_F(Verbs, ExplainSaysWhyWhereAndHowFast) {
  const CommandResult result = run({"explain", write("a.json", config()), "--arch", "sm_90a"});
  for (const char* part :
       {"attention_sm90 for sm_90a, hopper family", "because", "Shared memory:", "queries", "keys", "values",
        "an SM, limited by", "At best, on H100", "Predicted, on H100", "bound by", "exponentials"})
    EXPECT_THAT(result.out, HasSubstr(part));
  if (has_compiler()) {
    EXPECT_THAT(result.out, HasSubstr("registers a thread, no spills"));
  }
}

TEST_F(Verbs, ExplainAsJson) {
  const JsonValue object =
      JsonValue::parse(run({"explain", write("a.json", config()), "--arch", "sm_80", "--json"}).out);
  EXPECT_EQ(object.at("/arch").as_string(), "sm_80");
  EXPECT_FALSE(object.at("/choices").elements().empty());
  const auto& map = object.at("/shared_map").elements();
  std::int64_t end = 0;
  for (const JsonValue& region : map) {
    EXPECT_EQ(region.at("/offset").as_int(), end);
    end += region.at("/bytes").as_int();
  }
  EXPECT_EQ(end, object.at("/shared_bytes").as_int());
  EXPECT_TRUE(object.at("/predicted").elements().at(0).is_null()) << "no timeline of the portable kernels";
}

TEST_F(Verbs, SourceIsOneFile) {
  const CommandResult result = run({"source", write("a.json", config()), "--arch", "sm_80"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("attention_portable_"));
  EXPECT_THAT(result.out, Not(HasSubstr("#include \"")));
}

TEST_F(Verbs, PtxHasTheEntry) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const CommandResult result = run({"ptx", write("a.json", config()), "--arch", "sm_80"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(".target sm_80"));
  EXPECT_THAT(result.out, HasSubstr(".entry attention_portable_"));
}

TEST_F(Verbs, SassWithoutADisassemblerIsExit3) {
  const CommandResult result =
      run({"sass", write("a.json", config()), "--arch", "sm_80"}, {"PATH=/nowhere", "CUDA_HOME=/nowhere"});
  if (result.exit_code == 0) GTEST_SKIP() << "the usual place has a disassembler";
  EXPECT_EQ(result.exit_code, 3) << result.err;
  if (has_compiler()) {
    EXPECT_THAT(result.err, HasSubstr("nvdisasm"));
  }
}

TEST_F(Verbs, CombineIsAskedForByName) {
  const std::string own = config(R"(, "max_q_len": 8)");
  const CommandResult merging = run({"source", write("own.json", own), "--arch", "sm_80", "--kernel", "combine"});
  EXPECT_EQ(merging.exit_code, 2);
  EXPECT_THAT(merging.err, HasSubstr("--kernel: combine: tiny merges the parts of its keys itself; main, or the "
                                     "schedule's \"merge\": \"combine\", would do"));
  const std::string decode = config(R"(, "max_q_len": 8)", R"(, "schedule": {"merge": "combine"})");
  EXPECT_THAT(run({"source", write("decode.json", decode), "--arch", "sm_80", "--kernel", "combine"}).out,
              HasSubstr("attention_combine_"));
  const CommandResult prefill = run({"source", write("a.json", config()), "--arch", "sm_80", "--kernel", "combine"});
  EXPECT_EQ(prefill.exit_code, 2);
  EXPECT_THAT(prefill.err, HasSubstr("--kernel: combine: tiny never splits its keys; main would do"));
}

TEST_F(Verbs, CacheFollowsAKernelsLife) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string file = write("a.json", config());
  EXPECT_THAT(run({"cache", "why", file, "--arch", "sm_80"}).out, HasSubstr("not in the cache"));
  ASSERT_EQ(run({"compile", file, "--arch", "sm_80"}).exit_code, 0);
  EXPECT_THAT(run({"cache", "why", file, "--arch", "sm_80"}).out, HasSubstr(": in the cache"));
  EXPECT_THAT(run({"cache", "ls"}).out, HasSubstr("attention_portable"));
  EXPECT_EQ(run({"cache", "verify"}).exit_code, 0);
  const JsonValue listed = JsonValue::parse(run({"cache", "ls", "--json"}).out);
  ASSERT_EQ(listed.at("/entries").elements().size(), 1u);
  EXPECT_EQ(run({"cache", "prune", "--max-entries", "0"}).exit_code, 0);
  EXPECT_TRUE(JsonValue::parse(run({"cache", "ls", "--json"}).out).at("/entries").elements().empty());
  ASSERT_EQ(run({"compile", file, "--arch", "sm_80"}).exit_code, 0);
  EXPECT_THAT(run({"cache", "clear"}).out, HasSubstr("1 kernel removed"));
}

TEST_F(Verbs, CacheVerifyFindsADamagedEntry) {
  KERNELWRIGHT_NEEDS_COMPILER();
  ASSERT_EQ(run({"compile", write("a.json", config()), "--arch", "sm_80"}).exit_code, 0);
  const std::string name = JsonValue::parse(run({"cache", "ls", "--json"}).out).at("/entries/0/key").as_string();
  bool damaged = false;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path("cache")))
    if (entry.is_regular_file() && entry.path().filename().string().find(name.substr(2, 20)) != std::string::npos) {
      std::filesystem::resize_file(entry.path(), std::filesystem::file_size(entry.path()) - 7);
      damaged = true;
    }
  ASSERT_TRUE(damaged);
  const CommandResult result = run({"cache", "verify"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr(name.substr(0, 12)));
}

TEST_F(Verbs, DoctorSaysWhatIsThereAndWhatWouldDo) {
  const CommandResult result = run({"doctor"});
  EXPECT_EQ(result.exit_code, has_compiler() || has_gpu() ? 0 : 3);
  for (const char* part : {"driver", "compiler", "cache", "sass"}) EXPECT_THAT(result.out, HasSubstr(part));
  const JsonValue object = JsonValue::parse(run({"doctor", "--json"}).out);
  EXPECT_EQ(object.at("/cache/directory").as_string(), path("cache"));
}

TEST_F(Verbs, DoctorStartsACompileWorkerOrSaysWhyNot) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string program = (test::binary_dir() / "cli/kernelwright-cc").string();
  const auto workers = [&](std::vector<std::string> environment) {
    return JsonValue::parse(run({"doctor", "--json"}, environment).out).at("/compile_workers");
  };
  const JsonValue found = workers({"KERNELWRIGHT_CC=" + program, "KERNELWRIGHT_COMPILE_IN=auto"});
  EXPECT_EQ(found.at("/program").as_string(), program);
  EXPECT_EQ(found.at("/compile_in").as_string(), "auto");
  EXPECT_GT(found.at("/starts_in_ms").as_double(), 0);
  EXPECT_THAT(workers({"KERNELWRIGHT_CC=/nowhere/kernelwright-cc"}).at("/error").as_string(),
              HasSubstr("no kernelwright-cc is at /nowhere/kernelwright-cc"));
  EXPECT_THAT(run({"doctor"}, {"KERNELWRIGHT_CC=" + program}).out,
              HasSubstr("not used: KERNELWRIGHT_COMPILE_IN=auto uses it"));
}

TEST_F(Verbs, DoctorSaysHowPythonsCallsAreServedIfPythonHandedOver) {
  const auto said = [&](const std::string& calls, std::vector<std::string> words = {"doctor"}) {
    return run(words, {"KERNELWRIGHT_PYTHON_CALLS=" + calls}).out;
  };
  const std::string fast = R"({"python": "3.12.1", "fast": true, "why": "/site/kernelwright/_fast.abi3.so"})";
  EXPECT_THAT(said(fast), HasSubstr("3.12.1; calls of handles take the extension /site/kernelwright/_fast.abi3.so\n"));
  const std::string slow = R"({"python": "3.13.1", "fast": false, "why": "KERNELWRIGHT_FAST is 0"})";
  EXPECT_THAT(said(slow), HasSubstr("3.13.1; calls of handles go through ctypes: KERNELWRIGHT_FAST is 0\n"));
  const JsonValue object = JsonValue::parse(said(slow, {"doctor", "--json"}));
  EXPECT_EQ(object.at("/python/version").as_string(), "3.13.1");
  EXPECT_FALSE(object.at("/python/fast").as_bool());
  for (const char* other : {"", "{", "[]", R"({"python": 3})", R"({"python": "3", "fast": "yes", "why": ""})"})
    EXPECT_THAT(said(other), Not(HasSubstr("calls of handles"))) << other;
}

TEST_F(Verbs, DoctorWithoutCompilerAndGpuIsExit3) {
  if (has_gpu()) GTEST_SKIP() << "this machine has a GPU";
  const CommandResult result =
      run({"doctor", "--json"}, {"KERNELWRIGHT_NVRTC=/nowhere/libnvrtc.so", "CUDA_HOME=/nowhere"});
  EXPECT_EQ(result.exit_code, 3) << result.out;
  EXPECT_EQ(JsonValue::parse(result.out).at("/verdict").as_string(), "missing");
}

TEST_F(Verbs, DoctorWithoutACompilerSaysWhatStillWorksAndItDoes) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string file = write("a.json", config());
  ASSERT_EQ(run({"compile", file, "--arch", "sm_80"}).exit_code, 0);
  const std::vector<std::string> none{"KERNELWRIGHT_NVRTC=/nowhere/libnvrtc.so", "CUDA_HOME=/nowhere"};
  const CommandResult text = run({"doctor"}, none);
  EXPECT_THAT(text.out, HasSubstr("What works without a compiler: "));
  const JsonValue object = JsonValue::parse(run({"doctor", "--json"}, none).out);
  const std::vector<JsonValue>& works = object.at("/works_without_compiler").elements();
  ASSERT_EQ(works.size(), 5u);
  EXPECT_THAT(works[0].as_string(), HasSubstr("kernels in the cache"));
  EXPECT_EQ(run({"run", file, "--device", "emulator", "--arch", "sm_80"}, none).exit_code, 0);
  EXPECT_EQ(run({"trace", file, "--arch", "sm_80", "--out", path("t.json")}, none).exit_code, 0);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"explain", file}, {"source", file}, {"cache", "ls"}})
    EXPECT_EQ(run(words, none).exit_code, 0) << words[0];
}

TEST_F(Verbs, EveryShippedConfigIsPlanned) {
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / "configs/problems")) {
    const Config config = read_config_file(entry.path());
    const Arch arch = std::visit([](const auto& kind) { return kind.schedule.arch.value_or(Arch::kSm90a); }, config);
    const CommandResult result = run({"source", entry.path(), "--arch", std::string(to_string(arch))});
    EXPECT_EQ(result.exit_code, 0) << entry.path() << "\n" << result.err;
  }
}

TEST_F(Verbs, RunJudgesAGemm) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string file = write("gemm.json", gemm_config());
  const CommandResult text = run({"run", file, "--device", "emulator", "--hazards"});
  EXPECT_EQ(text.exit_code, 0) << text.out << text.err;
  for (const char* part : {"tiny-gemm", "gemm_sm90_", "70 x 72", "of worst tile", "ok"})
    EXPECT_THAT(text.out, HasSubstr(part));
  const CommandResult json = run({"run", file, "--device", "emulator", "--json", "--shape", "row"});
  const JsonValue object = JsonValue::parse(json.out);
  EXPECT_EQ(object.at("/verdict").as_string(), "ok");
  EXPECT_EQ(object.at("/shapes/0/shape").as_string(), "row");
  EXPECT_LT(object.at("/shapes/0/errors/worst_over_bound").as_double(), 1);
}

TEST_F(Verbs, RunTakesAGemmsArraysAndGivesD) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string file = write("gemm.json", gemm_config(R"(, "epilogue": "acc + bias")"));
  std::filesystem::create_directory(path("in"));
  write_npy<float>(path("in/a.npy"), {3, 104}, std::vector<float>(3 * 104, 1));
  write_npy<float>(path("in/b.npy"), {72, 104}, std::vector<float>(72 * 104, 0.5));
  write_npy<float>(path("in/bias.npy"), {72}, std::vector<float>(72, 4));
  const CommandResult result =
      run({"run", file, "--device", "emulator", "--inputs", path("in"), "--outputs", path("out")});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const NpyArray<float> d = read_npy<float>(path("out/d.npy"));
  EXPECT_EQ(d.shape, (std::vector<std::int64_t>{3, 72}));
  EXPECT_EQ(d.values, std::vector<float>(3 * 72, 56));
}

TEST_F(Verbs, ExplainListsAGemmsKernelsByRows) {
  const std::string file = test::source_dir() / "configs/problems/mlp-up.json";
  const CommandResult text = run({"explain", file, "--arch", "sm_90a"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  for (const char* part : {"Kernels by rows", "1 to ", " and more", "block_m", "Shared memory: ", "At best, on H100"})
    EXPECT_THAT(text.out, HasSubstr(part));
  const JsonValue object = JsonValue::parse(run({"explain", file, "--arch", "sm_90a", "--json"}).out);
  EXPECT_EQ(object.at("/variants/0/first_m").as_double(), 1);
  EXPECT_GT(object.at("/variants/0/shared_bytes").as_double(), 0);
  EXPECT_EQ(object.at("/bounds/0/shape").as_string(), "prefill");
  EXPECT_EQ(object.at("/bounds/0/limit").as_string(), "matrix");
}

TEST_F(Verbs, TraceDrawsAGemm) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const CommandResult result =
      run({"trace", write("gemm.json", gemm_config()), "--out", path("trace.json"), "--shape", "row"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(std::filesystem::exists(path("trace.json")));
}

}  // namespace
}  // namespace kernelwright::verbs_test
