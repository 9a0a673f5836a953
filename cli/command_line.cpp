#include "cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "cli/command_manual.h"
#include "cli/exit_code.h"
#include "cli/number_options.h"
#include "cli/verbs/verbs.h"
#include "cli/word_options.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"

namespace kernelwright::cli {
namespace {

/// The text below every help.
std::string footer() {
  std::string text = "CONFIG is a JSON file, or a folder of them. A plan is a file of many configs.\nExit codes:";
  std::size_t column = text.size() - text.rfind('\n');
  for (const ExitCodeText& row : kExitCodes) {
    const std::string part = fmt::format(" {} {};", static_cast<int>(row.code), row.text);
    if (column + part.size() > 110) text += "\n ", column = 1;
    text += part;
    column += part.size();
  }
  text.back() = '.';
  return text + "\n'kernelwright doctor' says what the machine has.";
}

std::string version_text() { return "kernelwright " KERNELWRIGHT_VERSION; }

}  // namespace

CommandLine::CommandLine(Options& options)
    : options_(options),
      app_("Turns a JSON problem into a GPU kernel specialised for it, and proves it right.", "kernelwright") {
  app_.require_subcommand(1);
  app_.footer(footer());
  app_.set_help_flag("-h,--help", "Print this");
  app_.set_version_flag("--version", version_text(), "Print the version");
  CLI::App* run_verb = add("run", "Compile or load, launch twice, and compare with the fp64 reference", run);
  configs(run_verb);
  device(run_verb);
  claimed_arch(run_verb);
  emulated(run_verb);
  shapes(run_verb);
  seed(run_verb);
  word(run_verb, "--inputs", options_.inputs, "Folder of .npy files to read instead of random inputs", "DIR");
  word(run_verb, "--outputs", options_.outputs, "Folder to write results to: o.npy and lse.npy, or d.npy", "DIR");

  CLI::App* compile_verb = add("compile", "Cubins for the architectures named; needs no GPU", compile);
  configs(compile_verb);
  archs(compile_verb);
  word(compile_verb, "--outputs", options_.outputs, "Folder to write NAME.ARCH.cubin and .ptx files to", "DIR");

  CLI::App* bench_verb = add("bench", "Time kernels on the GPU: L2 flushed, CUDA-graph replays, medians", bench);
  configs(bench_verb);
  device(bench_verb);
  shapes(bench_verb);
  seed(bench_verb);
  whole(bench_verb, "--repetitions", options_.repetitions, "Timed rounds", 20, 10000);
  finite(bench_verb, "--minimum", options_.minimum, "TFLOP/s or GB/s that every row must reach, else exit 1", 1e9);

  add_tune();

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
  for (const auto& [name, text, verb] :
       {TextVerb{"source", "The kernel's source as one file that compiles", source},
        TextVerb{"ptx", "The kernel's PTX", ptx}, TextVerb{"sass", "The kernel's machine code, disassembled", sass}}) {
    CLI::App* text_verb = add(name, text, verb);
    configs(text_verb);
    archs(text_verb);
    word(text_verb, "--kernel", options_.kernel,
         "Which kernel: main; combine, which merges split keys; m64 and the like, which serve a "
         "GEMM of few rows. explain lists them",
         "KERNEL");
  }
  add_pack();
  add_plan();
  add_report();
  add_emulate();
  add_trace();
  add_cache();
  add_worker();
  CLI::App* doctor_verb = add("doctor", "What is installed, what is missing, and what would do", doctor);
  CLI::Option* probed = doctor_verb->get_option("--remote")->expected(0, 1);
  probed->description(
      "Prove that the server at ADDRESS, or of $KERNELWRIGHT_REMOTE, answers and, with a signing key, "
      "that it keeps a value");
  doctor_verb->parse_complete_callback([this, probed] { options_.probe_remote = probed->count() > 0; });
  add_about();
}

void CommandLine::add_tune() {
  CLI::App* verb = add("tune", "Measure schedules on the GPU, and keep the fastest that is right as a row", tune);
  word(verb, "CONFIG", options_.configs, "Config files, plans or folders", "FILE");
  problem(verb);
  device(verb);
  claimed_arch(verb);
  shapes(verb);
  seed(verb);
  CLI::Option* each = word(verb, "--budget", options_.budget, "Time for each config: 120s, 5m, 1h", "TIME");
  word(verb, "--total-budget", options_.total_budget, "Time for all configs together, as of a plan", "TIME")
      ->excludes(each);
  CLI::Option* candidates = whole(verb, "--candidates", options_.candidates,
                                  "Schedules to compile and measure, the likeliest first: 64, of a GEMM 32", 2, 100000);
  CLI::Option* resume =
      verb->add_flag("--resume", options_.resume, "Leave out what the log has settled on this device");
  whole(verb, "--copies", options_.copies,
        "A/A test: race the model's choice against N copies of itself; a row is then an error of the race", 1, 100)
      ->excludes(candidates)
      ->excludes(resume);
  word(verb, "--output", options_.outputs, "Folder for rows, ARCH/NAME.json; else the overlay, else ./configs/tuned",
       "DIR");
  word(verb, "--log", options_.log,
       "A line of JSON for each trial is added here; else tune/NAME.tune.jsonl in the cache directory", "FILE");
  verb->add_flag("--list-units", options_.lists_units, "Print the configs' units as a list for --units, and tune none");
  word(verb, "--units", options_.units, "Tune the units of this list, instead of CONFIG", "FILE");
  word(verb, "--shard", options_.shard, "Of --units, every n-th from i on: 0/4 to 3/4", "I/N");
  verb->add_flag("--compile-only", options_.compiles_only,
                 "Only compile the schedules into the cache, for --arch; needs no GPU");
  word(verb, "--confirm", options_.confirm,
       "Race the winners of these rows again on another GPU, and write those that win again", "DIR");
  word(verb, "--merge", options_.merge, "Tune nothing: write the best rows of these folders to --output", "DIR")
      ->take_all()
      ->expected(1);
}

void CommandLine::add_pack() {
  CLI::App* verb = add("pack", "The kernels of configs in one file, which engines serve without a compiler", pack);
  word(verb, "CONFIG", options_.configs,
       "Config files, plans or folders; or ls FILE, verify FILE, diff FILE FILE, of files that pack wrote", "FILE")
      ->required();
  problem(verb);
  archs(verb);
  word(verb, "--output", options_.pack_file, "File to write: model.kwpack", "FILE");
  word(verb, "--sign", options_.signing_key, "Private key that signs the file: PEM, Ed25519", "KEY");
  word(verb, "--oci", options_.oci_folder, "New folder to write it to as an OCI artifact, for registries", "DIR");
}

void CommandLine::add_plan() {
  CLI::App* verb = add("plan", "A model's config.json in; every attention problem and GEMM of a rank out", plan);
  word(verb, "MODEL", options_.model_file, "config.json of a model, or the folder that holds it", "FILE")->required();
  whole(verb, "--tp", options_.tp, "Ranks that share each layer: 1", 1, 1024);
  whole(verb, "--ep", options_.ep, "Ranks that share the experts: 1", 1, 1024);
  verb->add_option("--kv", options_.kv, "Element type of the cache: the model's own, or e4m3")
      ->check(CLI::IsMember({"bf16", "f16", "e4m3"}));
  verb->add_option("--kv-scales", options_.kv_scales, "Scales of an e4m3 cache: per_tensor")
      ->check(CLI::IsMember({"per_tensor", "per_head", "per_token", "per_block"}));
  whole(verb, "--max-seqs", options_.max_seqs, "Sequences of a batch, at most: 256", 1, 1 << 20);
  whole(verb, "--max-tokens", options_.max_tokens, "Tokens of a batch, at most: 8192", 1, 1 << 20);
  verb->add_option("--server", options_.server, "Whose cache and batches it plans for: vllm")
      ->check(CLI::IsMember({"vllm", "sglang", "hf"}));
  whole(verb, "--page-size", options_.page_size, "Keys in a page of the cache; else the server's usual number", 1,
        65536);
  archs(verb);
  word(verb, "--name", options_.name, "What names of problems begin with; else the model's type and size", "NAME");
  verb->add_flag("--explain", options_.explains, "Print which fields and formulas gave each number");
  word(verb, "--output", options_.plan_file, "File for the plan; else standard output", "FILE");
}

void CommandLine::add_report() {
  CLI::App* verb = add("report", "One HTML page of tuning logs and measurements, which needs no network", report);
  word(verb, "FILE", options_.configs, "Logs of tune, CSV files of compare_peers.py, output of bench --json", "FILE");
  word(verb, "--compare", options_.compared, "Two such files, A and B: the page shows B's speed over A's, row by row",
       "FILE")
      ->expected(2);
  word(verb, "--output", options_.report_file, "File to write: report.html", "FILE");
  verb->add_flag("--open", options_.open, "Show the page in the browser, by xdg-open");
}

void CommandLine::add_emulate() {
  CLI::App* verb =
      add("emulate", "Run an entry of a PTX file on the emulator, on your buffers or made-up ones", emulate);
  word(verb, "FILE", options_.ptx_file, "PTX as a compiler leaves it", "FILE")->required();
  CLI::Option* entry = word(verb, "ENTRY", options_.entry, "Which kernel, where the file has several", "ENTRY");
  word(verb, "--entry", options_.entry, "The same", "ENTRY")->excludes(entry);
  const auto dimensions = [&](const char* name, std::vector<std::uint32_t>& to, const char* text) {
    whole(verb, name, to, text, 1, 0x7fffffff)->delimiter(',')->expected(1, 3);
  };
  dimensions("--grid", options_.grid, "CTAs: X,Y,Z");
  dimensions("--block", options_.block, "Threads of a CTA: X,Y,Z");
  dimensions("--cluster", options_.cluster, "CTAs of a cluster: X,Y,Z");
  whole(verb, "--shared", options_.shared_bytes, "Bytes of dynamic shared memory", 0, kMostUnsigned);
  verb->add_flag("--cooperative", options_.cooperative, "All CTAs are resident at once, and may synchronise as a grid");
  CLI::Option* args =
      word(verb, "--args", options_.arguments,
           "Arguments and buffers, as a JSON list or a file of it: {\"f32\": 0.5}, {\"npy\": \"x.npy\"}, "
           "{\"zeros\": [64, 32], \"dtype\": \"f16\", \"out\": \"y.npy\"}",
           "JSON");
  word(verb, "--params", options_.parameters,
       "A word for each parameter: an integer, a float with a point, or buffer; else 64-bit ones are "
       "buffers and others 0",
       "WORDS")
      ->delimiter(',')
      ->excludes(args);
  whole(verb, "--bytes", options_.buffer_bytes, "Bytes of each buffer", 1, std::uint64_t{1} << 36)->excludes(args);
  whole(verb, "--max-instructions", options_.max_instructions,
        "Warp instructions before the launch is taken to hang: 1000000000; 0 for no limit", 0, kAnyWhole);
  word(verb, "--timeout", options_.timeout, "Time before it is, likewise: 30s, 5m, 1h; else none", "TIME");
  verb->add_flag("--check", options_.check, "Run nothing; say of each entry whether it can run, or what is refused");
  verb->add_option("--fill", options_.fill, "What buffers hold: zero, or pattern, which differs by byte")
      ->check(CLI::IsMember({"zero", "pattern"}))
      ->excludes(args);
  seed(verb);
  emulated(verb);
}

void CommandLine::add_trace() {
  CLI::App* verb =
      add("trace", "The timeline of one CTA's pipeline, from the emulator: for Perfetto, and as a picture", trace);
  configs(verb);
  claimed_arch(verb);
  shapes(verb);
  seed(verb);
  whole(verb, "--cta", options_.cta, "Which CTA: its number in the grid, x first; its cluster is kept", 0,
        kMostUnsigned);
  word(verb, "--out", options_.out, "Chrome/Perfetto JSON; NAME.trace.json if no file is named", "FILE");
  word(verb, "--svg", options_.svg, "A picture that needs nothing else", "FILE");
}

void CommandLine::add_cache() {
  CLI::App* verb = add("cache", "What is kept of compiled kernels", cache);
  verb->add_option("VERB", options_.cache_verb, "ls, stats, verify, prune, clear, or why CONFIG")
      ->check(CLI::IsMember({"ls", "stats", "verify", "prune", "clear", "why"}));
  word(verb, "CONFIG", options_.configs, "For why: the config whose kernel is looked for", "FILE");
  problem(verb);
  archs(verb);
  word(verb, "--max-size", options_.max_size,
       "Without a VERB: what the directory may take from now on, 512MB, 2GiB; none: the default", "SIZE");
  whole(verb, "--max-bytes", options_.max_bytes, "prune: bytes to keep", 0, kAnyWhole);
  whole(verb, "--max-entries", options_.max_entries, "prune: entries to keep", 0, kAnyWhole);
  finite(verb, "--max-age-days", options_.max_age_days, "prune: age to keep, since the last use", 1e6);
}

void CommandLine::add_worker() {
  CLI::App* verb = add("worker", "Compile for hosts without a compiler, which ask through a remote cache", worker);
  archs(verb);
  whole(verb, "--jobs", options_.jobs, "Kernels to compile at once; else one a core", 1, 1024);
  verb->add_flag("--once", options_.once, "End after one request");
  word(verb, "--idle-exit", options_.idle_exit, "End after so long without a request: 120s, 5m, 1h; else never",
       "TIME");
}

/// Adds the command's description of itself.
void CommandLine::add_about() {
  CLI::App* version = add_plain("version", "Print the version", [this](const Options& o) { return print_version(o); });
  version->add_flag("--json", options_.json, "One JSON object on standard output");
  CLI::App* help =
      add_plain("help", "Print what a verb takes", [this](const Options&) { return print_help(help_of_); });
  word(help, "VERB", help_of_, "Of which verb; else of all", "VERB");
  CLI::App* completion = add_plain("completion", "Print a shell's completions of this command", [this](const Options&) {
    fmt::print("{}", completion_of(app_, shell_));
    return kDone;
  });
  completion->add_option("SHELL", shell_, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  add_plain("manual", "Print the manual page, for man -l -", [this](const Options&) {
    fmt::print("{}", manual_page(app_, version_text()));
    return kDone;
  });
}

int CommandLine::operator()(int argc, char** argv) {
  // CLI11 would only report that a verb is missing.
  if (argc == 1) throw ConfigError("command line", fmt::format("names no verb; the verbs are {}", verbs_text()));
  if (argv[1][0] != '-') require_verb(argv[1]);
  try {
    app_.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app_.help());
    return kDone;
  } catch (const CLI::CallForVersion&) {
    return print_version({});
  } catch (const CLI::ParseError& error) {
    throw ConfigError("command line", error.what());
  }
  return verbs_.at(app_.get_subcommands().front())(options_);
}

const CLI::App* CommandLine::find_verb(const std::string& word) const {
  for (const auto& [app, verb] : verbs_)
    if (app->get_name() == word) return app;
  return nullptr;
}

void CommandLine::require_verb(const std::string& word) const {
  if (!find_verb(word))
    throw ConfigError("command line", fmt::format("{} is no verb; the verbs are {}", word, verbs_text()));
}

std::string CommandLine::verbs_text() const {
  std::vector<std::string> names;
  for (const auto& [app, verb] : verbs_) names.push_back(app->get_name());
  std::sort(names.begin(), names.end());
  return fmt::format("{}; kernelwright --help says what each does", fmt::join(names, ", "));
}

int CommandLine::print_version(const Options& options) const {
  if (options.json)
    fmt::print("{}\n", JsonValue::object().set("version", KERNELWRIGHT_VERSION).dump());
  else
    fmt::print("{}\n", version_text());
  return kDone;
}

int CommandLine::print_help(const std::string& word) const {
  if (!word.empty()) {
    require_verb(word);
    fmt::print("{}", find_verb(word)->help(app_.get_name()));
    return kDone;
  }
  Options none;  // app_ has already chosen the verb help, and would print only that
  fmt::print("{}", CommandLine(none).app().help());
  return kDone;
}

CLI::App* CommandLine::add_plain(const char* name, const char* text, Verb verb) {
  CLI::App* verb_app = app_.add_subcommand(name, text);
  verb_app->set_version_flag("--version", version_text(), "Print the version");
  verbs_[verb_app] = std::move(verb);
  return verb_app;
}

CLI::App* CommandLine::add(const char* name, const char* text, Verb verb) {
  CLI::App* verb_app = add_plain(name, text, std::move(verb));
  verb_app->add_flag("--json", options_.json, "One JSON object on standard output");
  word(verb_app, "--cache-dir", options_.cache_dir, "Cache directory; else $KERNELWRIGHT_CACHE_DIR, else the user's",
       "DIR");
  word(verb_app, "--tuned-dir", options_.tuned_dir,
       "Tuned rows that lie over the library's; else $KERNELWRIGHT_TUNED_DIR", "DIR");
  many(word(verb_app, "--bundle", options_.bundles, "File of pack, which is asked first; may be repeated", "FILE"));
  many(word(verb_app, "--bundle-key", options_.bundle_keys,
            "Public key (PEM, Ed25519): a bundle is taken only if such a key has signed it; may be repeated", "KEY"));
  remote(verb_app);
  whole(verb_app, "--lock-timeout", options_.lock_timeout_s,
        "Seconds to wait for another process that compiles the same kernel, before compiling it here too", 0, 86400);
  return verb_app;
}

}  // namespace kernelwright::cli
