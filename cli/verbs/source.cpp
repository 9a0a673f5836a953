// kernelwright source, ptx and sass: the three texts of one kernel.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/disassembler.h"
#include "cli/exit_code.h"
#include "cli/explain/resources.h"
#include "cli/targets.h"
#include "cli/verbs/verbs.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace kernelwright::cli {
namespace {

/// Why the kernels of `named` include none of this role.
std::string why_not(const NamedConfig& named, const std::string& role, const MachineClass& machine,
                    const TunedTable& rows, const std::vector<std::string>& roles) {
  if (role == "combine" && std::holds_alternative<AttentionConfig>(named.config))
    return fmt::format("combine: {} {} would do", named.name(),
                       plan_for(named, named.attention(), machine, rows).splits == 1
                           ? "never splits its keys; main"
                           : "merges the parts of its keys itself; main, or the schedule's \"merge\": \"combine\",");
  return fmt::format("{} is no kernel of {}; it has {}", role, named.name(), fmt::join(roles, ", "));
}

Spec spec_of(const Options& options) {
  const NamedConfig named = read_one_config(options);
  const MachineClass& machine = choose_machine(options, choose_arch(named, options));
  const TunedTable rows = tuned_rows(options);
  std::vector<std::string> roles;
  for (PlannedKernel& kernel : kernels_for(named, machine, rows)) {
    if (kernel.role == options.kernel) return std::move(kernel.spec);
    roles.push_back(std::move(kernel.role));
  }
  throw ConfigError("--kernel", why_not(named, options.kernel, machine, rows, roles));
}

int print(const Options& options, const Spec& spec, const char* name, const std::string& text,
          const Binary* binary = nullptr) {
  if (!options.json) {
    fmt::print("{}{}", text, text.empty() || text.back() != '\n' ? "\n" : "");
    return kDone;
  }
  JsonValue object = JsonValue::object();
  object.set("kernel", kernel_name(spec)).set("arch", to_string(arch_of(spec)));
  if (binary)
    object.set("entry", binary->entry).set("compiler", binary->compiler).set("registers", binary->usage.registers);
  fmt::print("{}\n", object.set(name, text).dump());
  return kDone;
}

// A file that is deleted with this object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::vector<std::byte>& bytes) {
    std::string name = std::filesystem::temp_directory_path() / "kernelwright-XXXXXX";
    const int fd = ::mkstemp(name.data());
    if (fd < 0)
      throw MissingError("sass needs a temporary file, and none can be made in " +
                         std::filesystem::temp_directory_path().string());
    ::close(fd);
    path_ = name;
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string output_of(const std::vector<std::string>& command) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw MissingError("sass needs a pipe, and none can be made");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failure = ::posix_spawn(&child, command[0].c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  char piece[1 << 16];
  for (ssize_t got; !failure && (got = ::read(ends[0], piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  if (!failure) ::waitpid(child, &status, 0);
  if (failure || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw MissingError(
        fmt::format("{} could not disassemble the kernel; is it of the compiler's CUDA version?", command[0]));
  return text;
}

}  // namespace

std::optional<Disassembler> find_disassembler() {
  std::vector<std::string> folders;
  if (const char* home = std::getenv("CUDA_HOME"); home && *home) folders.push_back(std::string(home) + "/bin");
  folders.push_back("/usr/local/cuda/bin");
  if (const char* path = std::getenv("PATH"))
    for (std::string_view rest = path; !rest.empty();) {
      const std::size_t end = rest.find(':');
      if (end != 0) folders.emplace_back(rest.substr(0, end));
      rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    }
  for (const auto& [name, flags] : {std::pair<const char*, std::vector<std::string>>{"nvdisasm", {"-c", "-hex"}},
                                    std::pair<const char*, std::vector<std::string>>{"cuobjdump", {"-sass"}}})
    for (const std::string& folder : folders) {
      const std::string path = folder + "/" + name;
      if (::access(path.c_str(), X_OK) == 0) return Disassembler{path, flags};
    }
  return std::nullopt;
}

int source(const Options& options) {
  const Spec spec = spec_of(options);
  return print(options, spec, "source", specialize(spec).flattened());
}

int ptx(const Options& options) {
  const Spec spec = spec_of(options);
  require_address_space();
  const auto binary = KernelStore(cache_options(options)).compile(spec);
  return print(options, spec, "ptx", binary->ptx, binary.get());
}

int sass(const Options& options) {
  const Spec spec = spec_of(options);
  const auto disassembler = find_disassembler();
  if (!disassembler)
    throw MissingError(
        "sass needs nvdisasm or cuobjdump, and neither is in $CUDA_HOME/bin, /usr/local/cuda/bin or $PATH; the "
        "CUDA toolkit has both");
  require_address_space();
  const auto binary = KernelStore(cache_options(options)).compile(spec);
  const TemporaryFile file(binary->cubin);
  std::vector<std::string> command{disassembler->path};
  command.insert(command.end(), disassembler->flags.begin(), disassembler->flags.end());
  command.push_back(file.path());
  return print(options, spec, "sass", output_of(command), binary.get());
}

}  // namespace kernelwright::cli
