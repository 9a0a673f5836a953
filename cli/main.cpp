// The kernelwright command. It turns what a verb throws into an exit code, and also output that could not be written.
// Each verb has its own file; command_line.cpp has the options.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/command_line.h"
#include "cli/exit_code.h"
#include "cli/explain/resources.h"
#include "cli/terminal.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/runtime/engine/engine.h"

namespace kernelwright::cli {
namespace {

// `--json` gives one object in any case; people read the message on standard error.
int fail(const Options& options, ExitCode code, const std::string& message,
         const std::vector<Violation>& violations = {}) {
  const Style style(stderr);
  fmt::print(stderr, "{} {}\n", style.bad("kernelwright:"), first_lines_of(message));
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

/// `lost`: why standard output could not be written, if a verb has found that.
int run_verb(Options& options, int argc, char** argv, std::string& lost) {
  try {
    return CommandLine(options)(argc, argv);
  } catch (const std::exception& error) {
    if (std::ferror(stdout)) {
      lost = error.what();  // the words of fmt: "cannot write to file: No space left on device"
      return kOutputLost;
    }
    if (const auto resource = exhausted_resource(error)) {
      const std::string what = dynamic_cast<const Error*>(&error) ? error.what() + std::string("\n") : std::string();
      return fail(options, kMissing, what + *resource);
    }
    if (const auto* wrong = dynamic_cast<const ConfigError*>(&error))
      return fail(options, kInputWrong, wrong->what(), wrong->violations());
    if (dynamic_cast<const MissingError*>(&error)) return fail(options, kMissing, error.what());
    return fail(options, kMismatch, error.what());  // a source that NVRTC rejects, or a launch that the driver refused
  }
}

/// Opens /dev/null on standard descriptors that are closed, so that no file of the command becomes standard output.
void keep_standard_descriptors() {
  for (const int descriptor : {0, 1, 2})
    if (::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF)
      ::open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY);  // open() takes the lowest free one
}

int main(int argc, char** argv) {
  keep_standard_descriptors();
  name_limit_on_abort();
  Options options;
  // A command line that does not parse may still contain --json.
  for (int i = 1; i < argc; ++i) options.json |= std::string_view(argv[i]) == "--json";
  std::string lost;
  int code = kDone;
  try {
    code = run_verb(options, argc, argv, lost);
  } catch (const std::exception& error) {  // the error's JSON, or its text, could not be written
    lost = error.what();
  }
  if (lost.empty() && std::fflush(stdout) != 0) lost = std::strerror(errno);
  if (lost.empty() && !std::ferror(stdout)) return code;
  const std::string text = "kernelwright: standard output could not be written: " + lost + "\n";
  (void)!::write(STDERR_FILENO, text.data(), text.size());
  return kOutputLost;
}

}  // namespace
}  // namespace kernelwright::cli

int main(int argc, char** argv) { return kernelwright::cli::main(argc, argv); }
