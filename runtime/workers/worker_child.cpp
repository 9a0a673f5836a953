#include "kernelwright/runtime/workers/worker_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string_view>
#include <vector>

#include "kernelwright/runtime/process/interrupt.h"

extern char** environ;

namespace kernelwright {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSocket = 3;                                   // the worker's end, there
constexpr std::size_t kMostWords = 400;                      // of its standard error, in a message
constexpr auto kPatience = std::chrono::milliseconds(2000);  // between the end of its socket and its own end

/// `fd`, or a copy above the three standard ones: a server may have closed those, and then a socket gets their numbers.
Fd above_standard(Fd fd) {
  if (!fd || fd.get() > kSocket) return fd;
  return Fd(fcntl(fd.get(), F_DUPFD_CLOEXEC, kSocket + 1));
}

/// posix_spawn's two objects, destroyed on every way out.
struct Spawn {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  Spawn() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~Spawn() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
};

/// Our environment without the libraries that are loaded before all others: a profiler or an allocator of the server's
/// has no work in the compiler.
std::vector<char*> environment_of_worker() {
  std::vector<char*> kept;
  for (char** each = environ; each && *each; ++each)
    if (!std::string_view(*each).starts_with("LD_PRELOAD=")) kept.push_back(*each);
  kept.push_back(nullptr);
  return kept;
}

std::string name_of_signal(int signal) {
  switch (signal) {
    case SIGSEGV: return "SIGSEGV";
    case SIGABRT: return "SIGABRT";
    case SIGBUS: return "SIGBUS";
    case SIGILL: return "SIGILL";
    case SIGFPE: return "SIGFPE";
    case SIGKILL: return "SIGKILL";
    case SIGTERM: return "SIGTERM";
    case SIGXFSZ: return "SIGXFSZ";
    case SIGSYS: return "SIGSYS";
    default: return fmt::format("signal {}", signal);
  }
}

/// How a process ended, in words. `status` as waitpid() gives it.
std::string words_of(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    std::string words = fmt::format("was killed by {}", name_of_signal(signal));
    if (signal == SIGKILL) words += " (by a person, or by the system for want of memory)";
    return words;
  }
  return fmt::format("ended by itself with status {}", WEXITSTATUS(status));
}

/// "120.0 s", or "45 ms" of less than a second.
std::string words_of(std::chrono::milliseconds time) {
  if (time < std::chrono::seconds(1)) return fmt::format("{} ms", time.count());
  return fmt::format("{:.1f} s", std::chrono::duration<double>(time).count());
}

}  // namespace

WorkerChild::WorkerChild(const Start& start) : memory_bytes_(start.memory_bytes) {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw MissingError(fmt::format("no compile worker: no socket: {}", error_text(errno)));
  socket_ = above_standard(Fd(ends[0]));
  const Fd theirs = above_standard(Fd(ends[1]));
  words_ = above_standard(Fd(static_cast<int>(syscall(SYS_memfd_create, "kernelwright-cc", MFD_CLOEXEC))));

  Spawn spawn;
  posix_spawn_file_actions_addopen(&spawn.actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&spawn.actions, 1, "/dev/null", O_WRONLY, 0);
  if (words_)
    posix_spawn_file_actions_adddup2(&spawn.actions, words_.get(), 2);
  else
    posix_spawn_file_actions_addopen(&spawn.actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&spawn.actions, theirs.get(), kSocket);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&spawn.attributes, &none);
  posix_spawnattr_setsigdefault(&spawn.attributes, &all);
  posix_spawnattr_setpgroup(&spawn.attributes, 0);  // a Ctrl-C at the terminal is the server's
  posix_spawnattr_setflags(&spawn.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);

  std::string arguments[] = {start.program, worker_protocol(), start.nvrtc_path, std::to_string(start.memory_bytes),
                             std::to_string(getpid())};
  std::vector<char*> pointers;
  for (std::string& each : arguments) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  std::vector<char*> environment = environment_of_worker();
  const int error = socket_ && theirs ? posix_spawn(&pid_, start.program.c_str(), &spawn.actions, &spawn.attributes,
                                                    pointers.data(), environment.data())
                                      : EMFILE;
  if (error != 0) {
    pid_ = -1;
    throw MissingError(fmt::format("no compile worker: {} cannot be started: {}", start.program, error_text(error)));
  }
  handle_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  idle = Clock::now();
}

WorkerChild::~WorkerChild() {
  if (pid_ > 0) end({});
}

void WorkerChild::forget() {
  pid_ = -1;
  socket_ = Fd();
  handle_ = Fd();
  words_ = Fd();
}

bool WorkerChild::is_idle() const {
  pollfd ready{socket_.get(), POLLIN | POLLRDHUP, 0};
  return pid_ > 0 && poll(&ready, 1, 0) == 0;  // it speaks only when it is asked
}

std::string WorkerChild::last_words() const {
  std::string words(kMostWords, '\0');
  const off_t size = words_ ? lseek(words_.get(), 0, SEEK_END) : 0;
  const off_t from = size > static_cast<off_t>(kMostWords) ? size - static_cast<off_t>(kMostWords) : 0;
  const ssize_t got = size > 0 ? pread(words_.get(), words.data(), words.size(), from) : 0;
  words.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  while (!words.empty() && (words.back() == '\n' || words.back() == ' ')) words.pop_back();
  return words;
}

std::string WorkerChild::end(std::chrono::milliseconds patience) {
  const pid_t pid = std::exchange(pid_, -1);
  socket_ = Fd();
  int status = 0;
  const auto taken = [&](int flags) {
    pid_t got = -1;
    do got = waitpid(pid, &status, flags);
    while (got < 0 && errno == EINTR);
    return got;
  };
  const auto give_up = Clock::now() + patience;
  pid_t got = taken(WNOHANG);
  while (got == 0 && Clock::now() < give_up) {
    pollfd ended{handle_.get(), POLLIN, 0};  // poll() passes over a descriptor of -1
    poll(&ended, 1, handle_ ? 100 : 5);
    got = taken(WNOHANG);
  }
  if (got == pid) return words_of(status);
  if (got < 0) return "ended, and another part of this process took its exit status";  // it waits for all children
  // A pidfd cannot mean another process that got the number meanwhile.
  if (!handle_ || syscall(SYS_pidfd_send_signal, handle_.get(), SIGKILL, nullptr, 0) != 0) kill(pid, SIGKILL);
  taken(0);
  return {};
}

WorkerChild::Reply WorkerChild::ask(MessageKind kind, std::string_view fields, std::chrono::milliseconds limit,
                                    const std::function<bool()>& stop) {
  const auto begin = Clock::now();
  const MessageChannel channel(socket_.get(), stop);
  Reply reply;
  Transfer transfer = channel.send(kind, fields, begin + limit);
  // A worker that ends may have answered before, or may have written why.
  if (transfer == Transfer::kDone) transfer = channel.receive(reply.kind, reply.fields, begin + limit);
  if (transfer == Transfer::kDone) return reply;
  if (transfer == Transfer::kStopped) {
    end({});
    throw InterruptedError("the engine was stopped, or the process is exiting, and nothing is compiled any more");
  }
  const auto spent = std::chrono::round<std::chrono::milliseconds>(Clock::now() - begin);
  std::string how = end(transfer == Transfer::kClosed ? kPatience : std::chrono::milliseconds(0));
  if (transfer == Transfer::kTimeout)
    how = fmt::format("was killed at its time limit of {}", words_of(limit));
  else if (transfer == Transfer::kGarbage)
    how = "was killed, because it sent bytes that are no answer";
  else if (how.empty())
    how = "was killed, because it closed its socket and did not end";
  std::string text = fmt::format("the compile worker {}, {} after it was asked", how, words_of(spent));
  if (memory_bytes_) text += fmt::format(" (its memory limit is {} MiB)", memory_bytes_ >> 20);
  if (const std::string words = last_words(); !words.empty()) text += fmt::format("; its last words: {}", words);
  throw CompilerFaultError(text);
}

}  // namespace kernelwright
