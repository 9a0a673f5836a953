// The kernelwright command: words to Options, a verb, and what it throws to an exit code. Each verb has a file of its
// own.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <map>

#include "exit_code.h"
#include "kernelwright/generator/config_json_document.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/engine.h"
#include "terminal.h"
#include "verbs.h"

namespace kernelwright::cli {
namespace {

constexpr const char* kFooter =
    "CONFIG is a JSON file, or a folder of them.\n"
    "Exit codes: 0 done; 1 the result did not match, or a target was missed; 2 the input was wrong; 3 the machine "
    "lacks\n"
    "something; 130 tune was interrupted. 'kernelwright doctor' says what it has.";

using Verb = std::function<int(const Options&)>;

class CommandLine {
 public:
  explicit CommandLine(Options& options) : options_(options) {
    app_.require_subcommand(1);
    app_.footer(kFooter);
    app_.set_help_flag("-h,--help", "Print this");
    CLI::App* run_verb = add("run", "Compile or load, launch twice, and compare with the fp64 reference", run);
    configs(run_verb);
    device(run_verb);
    claimed_arch(run_verb);
    emulated(run_verb);
    shapes(run_verb);
    seed(run_verb);
    run_verb->add_option("--inputs", options_.inputs, "Folder of .npy files to read instead of random inputs");
    run_verb->add_option("--outputs", options_.outputs, "Folder to write results to: o.npy and lse.npy, or d.npy");

    CLI::App* compile_verb = add("compile", "Cubins for the architectures named; needs no GPU", compile);
    configs(compile_verb);
    archs(compile_verb);
    compile_verb->add_option("--outputs", options_.outputs, "Folder to write NAME.ARCH.cubin and .ptx files to");

    CLI::App* bench_verb = add("bench", "Time kernels on the GPU: L2 flushed, CUDA-graph replays, medians", bench);
    configs(bench_verb);
    device(bench_verb);
    shapes(bench_verb);
    seed(bench_verb);
    bench_verb->add_option("--repetitions", options_.repetitions, "Timed rounds")->check(CLI::Range(20, 10000));
    bench_verb->add_option("--minimum", options_.minimum, "TFLOP/s or GB/s that every row must reach, else exit 1");

    CLI::App* tune_verb =
        add("tune", "Measure schedules on the GPU, and keep the fastest that is right as a row", tune);
    configs(tune_verb);
    device(tune_verb);
    claimed_arch(tune_verb);
    shapes(tune_verb);
    seed(tune_verb);
    tune_verb->add_option("--budget", options_.budget, "Time for each config: 120s, 5m, 1h");
    tune_verb
        ->add_option("--candidates", options_.candidates,
                     "Schedules to compile and measure, the likeliest first: 64, of a GEMM 32")
        ->check(CLI::Range(2, 100000));
    tune_verb->add_flag("--resume", options_.resume, "Leave out what the log has settled on this device");
    tune_verb->add_option("--output", options_.outputs,
                          "Folder for rows, ARCH/NAME.json; else the overlay, else ./configs/tuned");
    tune_verb->add_option("--log", options_.log, "A line of JSON for each trial is added here; else NAME.tune.jsonl");

    CLI::App* explain_verb =
        add("explain", "The Spec, why it was chosen, shared memory, registers, predicted bound", explain);
    configs(explain_verb);
    device(explain_verb);
    archs(explain_verb);
    shapes(explain_verb);

    struct TextVerb {
      const char *name, *text;
      int (*verb)(const Options&);
    };
    for (const auto& [name, text, verb] : {TextVerb{"source", "The kernel's source as one file that compiles", source},
                                           TextVerb{"ptx", "The kernel's PTX", ptx},
                                           TextVerb{"sass", "The kernel's machine code, disassembled", sass}}) {
      CLI::App* text_verb = add(name, text, verb);
      configs(text_verb);
      archs(text_verb);
      text_verb->add_option("--kernel", options_.kernel,
                            "Which kernel: main; combine, which merges split keys; m64 and the like, which serve a "
                            "GEMM of few rows. explain lists them");
    }

    CLI::App* emulate_verb = add("emulate", "Run an entry of a PTX file on the emulator, on made-up buffers", emulate);
    emulate_verb->add_option("FILE", options_.ptx_file, "PTX as a compiler leaves it")->required();
    emulate_verb->add_option("--entry", options_.entry, "Which kernel, where the file has several");
    const auto dimensions = [&](const char* name, std::vector<std::uint32_t>& to, const char* text) {
      emulate_verb->add_option(name, to, text)->delimiter(',')->expected(1, 3)->check(CLI::Range(1u, 0x7fffffffu));
    };
    dimensions("--grid", options_.grid, "CTAs: X,Y,Z");
    dimensions("--block", options_.block, "Threads of a CTA: X,Y,Z");
    dimensions("--cluster", options_.cluster, "CTAs of a cluster: X,Y,Z");
    emulate_verb->add_option("--shared", options_.shared_bytes, "Bytes of dynamic shared memory");
    emulate_verb
        ->add_option("--params", options_.parameters,
                     "A word for each parameter: an integer, a float with a point, or buffer; else 64-bit ones are "
                     "buffers and others 0")
        ->delimiter(',');
    emulate_verb->add_option("--bytes", options_.buffer_bytes, "Bytes of each buffer")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 36));
    emulate_verb->add_option("--fill", options_.fill, "What buffers hold: zero, or pattern, which differs by byte")
        ->check(CLI::IsMember({"zero", "pattern"}));
    seed(emulate_verb);
    emulated(emulate_verb);

    CLI::App* trace_verb =
        add("trace", "The timeline of one CTA's pipeline, from the emulator: for Perfetto, and as a picture", trace);
    configs(trace_verb);
    claimed_arch(trace_verb);
    shapes(trace_verb);
    seed(trace_verb);
    trace_verb->add_option("--cta", options_.cta, "Which CTA: its number in the grid, x first; its cluster is kept");
    trace_verb->add_option("--out", options_.out, "Chrome/Perfetto JSON; NAME.trace.json if no file is named");
    trace_verb->add_option("--svg", options_.svg, "A picture that needs nothing else");

    CLI::App* cache_verb = add("cache", "What is kept of compiled kernels", cache);
    cache_verb->add_option("VERB", options_.cache_verb, "ls, verify, prune, clear, or why CONFIG")
        ->required()
        ->check(CLI::IsMember({"ls", "verify", "prune", "clear", "why"}));
    cache_verb->add_option("CONFIG", options_.configs, "For why: the config whose kernel is looked for");
    archs(cache_verb);
    cache_verb->add_option("--max-bytes", options_.max_bytes, "prune: bytes to keep");
    cache_verb->add_option("--max-entries", options_.max_entries, "prune: entries to keep");
    cache_verb->add_option("--max-age-days", options_.max_age_days, "prune: age to keep, since the last use")
        ->check(CLI::NonNegativeNumber);

    add("doctor", "What is installed, what is missing, and what would do", doctor);
  }

  /// Parses and runs. Throws what the verb throws.
  int operator()(int argc, char** argv) {
    // CLI11 would only say that a verb is missing.
    if (argc == 1) throw ConfigError("command line", fmt::format("names no verb; the verbs are {}", verbs_text()));
    if (argv[1][0] != '-') require_verb(argv[1]);
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app_.exit(error);  // help
      throw ConfigError("command line", error.what());
    }
    return verbs_.at(app_.get_subcommands().front())(options_);
  }

 private:
  void require_verb(const std::string& word) const {
    for (const auto& [app, verb] : verbs_)
      if (app->get_name() == word) return;
    throw ConfigError("command line", fmt::format("{} is no verb; the verbs are {}", word, verbs_text()));
  }
  std::string verbs_text() const {
    std::vector<std::string> names;
    for (const auto& [app, verb] : verbs_) names.push_back(app->get_name());
    std::sort(names.begin(), names.end());
    return fmt::format("{}; kernelwright --help says what each does", fmt::join(names, ", "));
  }
  CLI::App* add(const char* name, const char* text, Verb verb) {
    CLI::App* verb_app = app_.add_subcommand(name, text);
    verb_app->add_flag("--json", options_.json, "One JSON object on standard output");
    verb_app->add_option("--cache-dir", options_.cache_dir,
                         "Cache directory; else $KERNELWRIGHT_CACHE_DIR, else the user's");
    verb_app->add_option("--tuned-dir", options_.tuned_dir,
                         "Tuned rows that lie over the library's; else $KERNELWRIGHT_TUNED_DIR");
    verbs_[verb_app] = std::move(verb);
    return verb_app;
  }
  void configs(CLI::App* verb) { verb->add_option("CONFIG", options_.configs, "Config files or folders")->required(); }
  void device(CLI::App* verb) {
    verb->add_option("--device", options_.device, "cuda, emulator, or auto: cuda where a GPU is")
        ->check(CLI::IsMember({"cuda", "emulator", "auto"}));
  }
  void claimed_arch(CLI::App* verb) {
    verb->add_option("--arch", options_.archs,
                     "What the emulator claims to be: sm_80 ... sm_120a; else the config's, else sm_90a")
        ->take_all()
        ->expected(1);
  }
  void emulated(CLI::App* verb) {
    verb->add_flag("--hazards", options_.hazards,
                   "On the emulator, look for races, missing fences and misused barriers; a report exits 1");
    verb->add_option("--completion", options_.completion, "On the emulator, when asynchronous work completes")
        ->check(CLI::IsMember({"eager", "lazy", "random"}));
  }
  void archs(CLI::App* verb) {
    verb->add_option("--arch", options_.archs, "Architecture: sm_80 ... sm_120a; may be repeated")
        ->take_all()
        ->expected(1);
  }
  void shapes(CLI::App* verb) {
    verb->add_option("--shape", options_.shapes, "Shape of the config, by name; may be repeated")
        ->take_all()
        ->expected(1);
  }
  void seed(CLI::App* verb) {
    verb->add_option("--seed", options_.seed, "Seed of the random inputs, and of the emulator's schedule");
  }

  Options& options_;
  CLI::App app_{"Turns a JSON problem into a GPU kernel specialised for it, and proves it right.", "kernelwright"};
  std::map<const CLI::App*, Verb> verbs_;
};

// `--json` gives one object in any case; people read standard error.
int fail(const Options& options, ExitCode code, const std::string& message,
         const std::vector<Violation>& violations = {}) {
  const Style style(stderr);
  fmt::print(stderr, "{} {}\n", style.bad("kernelwright:"), message);
  if (!options.json) return code;
  JsonValue list = JsonValue::array();
  for (const Violation& violation : violations)
    list.push(JsonValue::object().set("path", violation.path).set("message", violation.message));
  JsonValue object = JsonValue::object();
  object.set("verdict", "error").set("exit_code", static_cast<int>(code)).set("error", message);
  if (!violations.empty()) object.set("violations", std::move(list));
  fmt::print("{}\n", object.dump());
  return code;
}

int main(int argc, char** argv) {
  Options options;
  // A command line that does not parse may still have asked for JSON.
  for (int i = 1; i < argc; ++i) options.json |= std::string_view(argv[i]) == "--json";
  try {
    return CommandLine(options)(argc, argv);
  } catch (const ConfigError& error) {
    return fail(options, kInputWrong, error.what(), error.violations());
  } catch (const MissingError& error) {
    return fail(options, kMissing, error.what());
  } catch (const CompileError& error) {
    return fail(options, kMismatch, error.what());
  } catch (const std::exception& error) {  // a launch that the driver refused, memory that ran out
    return fail(options, kMismatch, error.what());
  }
}

}  // namespace
}  // namespace kernelwright::cli

int main(int argc, char** argv) { return kernelwright::cli::main(argc, argv); }
