// kernelwright worker: compiles for hosts without a compiler. Requests and signed kernels go through a remote cache.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>

#include "cli/exit_code.h"
#include "cli/verbs/verbs.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/runtime/fleet/build_server.h"

namespace kernelwright::cli {
namespace {

std::atomic<bool> g_stop{false}, g_abandon{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler may touch nothing else

/// While this object lives, the first SIGTERM or Ctrl-C asks for an orderly end: requests that were taken are built.
/// The second gives them back to other workers.
class StopScope {
 public:
  StopScope() {
    g_stop = g_abandon = false;
    struct sigaction action {};
    action.sa_handler = [](int) {
      if (g_stop.exchange(true)) g_abandon = true;
    };
    ::sigaction(SIGTERM, &action, &before_term_);
    ::sigaction(SIGINT, &action, &before_int_);
  }
  ~StopScope() {
    ::sigaction(SIGTERM, &before_term_, nullptr);
    ::sigaction(SIGINT, &before_int_, nullptr);
  }
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  struct sigaction before_term_ {
  }, before_int_{};
};

/// A text of other hosts or of a compiler, on one line of a log.
std::string on_one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text.substr(0, 400);
}

void print(const BuildReport& report, bool json) {
  if (json)
    fmt::print("{}\n", JsonValue::object()
                           .set("outcome", to_string(report.outcome))
                           .set("kernel", report.kernel)
                           .set("arch", report.arch)
                           .set("name", report.name)
                           .set("milliseconds", report.milliseconds)
                           .set("detail", report.detail)
                           .dump(-1));
  else
    fmt::print("{:<8}{} for {}, {:.0f} ms, {}{}{}\n", to_string(report.outcome), on_one_line(report.kernel),
               report.arch, report.milliseconds, on_one_line(report.name), report.detail.empty() ? "" : ": ",
               on_one_line(report.detail));
  std::fflush(stdout);  // a log is read while the worker runs
}

}  // namespace

int worker(const Options& options) {
  BuildServerOptions server_options;
  server_options.cache = cache_options(options);
  server_options.archs = parse_archs(options.archs);
  server_options.jobs =
      options.jobs > 0 ? options.jobs : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  server_options.once = options.once;
  if (!options.idle_exit.empty())
    server_options.idle_exit_ms = static_cast<int>(parse_seconds("--idle-exit", options.idle_exit) * 1e3);
  server_options.report = [&](const BuildReport& report) { print(report, options.json); };
  const StopScope stops;
  BuildServer server(server_options);
  fmt::print(stderr, "kernelwright: worker: requests of {}, {}, {} at a time\n", server.server(), server.compiler(),
             server_options.jobs);
  server.run(g_stop, g_abandon);
  return kDone;
}

}  // namespace kernelwright::cli
