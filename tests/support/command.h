/// Runs the kernelwright command, as a person would.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/paths.h"

extern char** environ;

namespace kernelwright {

struct CommandResult {
  int exit_code = -1;  // or 128 + the signal that ended the command
  std::string out, err;
};

/// Runs build/cli/kernelwright with `words`; `variables` ("NAME=value") override the environment. The output is no
/// terminal, so it has no colours and no progress bar. Waits until the command ends. With `shell`, sh runs that line,
/// in which "$0" "$@" is the command: `ulimit -v 100000; exec "$0" "$@"`.
inline CommandResult run_command(const std::vector<std::string>& words, const std::vector<std::string>& variables = {},
                                 const std::string& shell = {}) {
  const auto temporary = [](int& fd) {
    std::string name = "/tmp/kernelwright-command-XXXXXX";
    fd = ::mkostemp(name.data(), O_CLOEXEC);
    ::unlink(name.c_str());
  };
  int out = -1, err = -1;
  temporary(out);
  temporary(err);
  const std::string command = (test::binary_dir() / "cli" / "kernelwright").string();
  const std::string program = shell.empty() ? command : "/bin/sh";
  std::vector<std::string> all{program};
  if (!shell.empty()) all.insert(all.end(), {"-c", shell, command});
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments, environment;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<std::string> settings = variables;
  settings.push_back("LC_ALL=C.UTF-8");
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry, name = text.substr(0, text.find('=') + 1);
    bool replaced = name == "LC_ALL=";
    for (const std::string& variable : variables) replaced |= variable.rfind(name, 0) == 0;
    if (!replaced) settings.push_back(text);
  }
  for (std::string& setting : settings) environment.push_back(setting.data());
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out, 1);
  ::posix_spawn_file_actions_adddup2(&actions, err, 2);
  CommandResult result;
  pid_t child = 0;
  if (::posix_spawn(&child, program.c_str(), &actions, nullptr, arguments.data(), environment.data()) == 0) {
    int status = 0;
    ::waitpid(child, &status, 0);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  ::posix_spawn_file_actions_destroy(&actions);
  const auto contents = [](int fd) {
    std::string text;
    char piece[1 << 16];
    ::lseek(fd, 0, SEEK_SET);
    for (ssize_t got; (got = ::read(fd, piece, sizeof piece)) > 0;) text.append(piece, static_cast<std::size_t>(got));
    ::close(fd);
    return text;
  };
  result.out = contents(out);
  result.err = contents(err);
  return result;
}

}  // namespace kernelwright
