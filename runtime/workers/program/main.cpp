// kernelwright-cc: runs NVRTC for a server that must survive it. The library starts it (workers/) with the
// socket at descriptor 3, and these arguments:
//
//   kernelwright-cc PROTOCOL NVRTC MEMORY_BYTES SERVER_PID
//
// It answers one request after another, and ends when the server's end of the socket closes.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/trusted_files.h"
#include "kernelwright/runtime/compile/nvrtc.h"
#include "kernelwright/runtime/process/own_thread.h"
#include "kernelwright/runtime/workers/messages.h"
#include "kernelwright/runtime/workers/program/refused_memory.h"

namespace kernelwright {
namespace {

constexpr int kSocket = 3;
constexpr int kUsage = 2;
constexpr std::uint64_t kMostFileBytes = std::uint64_t{64} << 20;  // its standard error is a file in memory
constexpr auto kForever = std::chrono::hours(24 * 365);

/// Closes what the server left open on exec: other libraries' sockets, files and devices.
void close_all_above(int last) {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, static_cast<unsigned>(last) + 1, ~0u, 0u) == 0) return;
#endif
  const Fd folder(open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (const std::string& name : names_in(folder.get()))
    if (const int fd = std::atoi(name.c_str()); fd > last && fd != folder.get()) close(fd);
}

void limit(int resource, std::uint64_t most) {
  rlimit wanted{most, most}, now{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &now) == 0 && now.rlim_max < most)
    wanted = {now.rlim_max, now.rlim_max};
  setrlimit(static_cast<__rlimit_resource>(resource), &wanted);
}

void bound_this_process(std::uint64_t memory_bytes) {
  // RLIMIT_DATA counts private memory that can be written: what a runaway takes. RLIMIT_AS would also count the 110 MB
  // of NVRTC's file, and what allocators reserve and never touch. A sanitizer reserves terabytes, so it has no limit.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (memory_bytes) limit(RLIMIT_DATA, memory_bytes);
#endif
  limit(RLIMIT_CORE, 0);  // a dump of NVRTC would take hundreds of megabytes
  limit(RLIMIT_FSIZE, kMostFileBytes);
  std::ofstream("/proc/self/oom_score_adj") << 1000;  // if memory is short, this process goes before the server
}

/// Ends this process when the server's end of the socket closes, even in the midst of a compile. PR_SET_PDEATHSIG would
/// not do: it follows the thread that started this process, and a server's threads come and go. The socket stays open
/// in other processes that the server has forked, so this also asks whether the server is still the parent.
void watch_server(pid_t server) {
  for (;;) {
    pollfd socket{kSocket, POLLRDHUP, 0};
    const int ready = poll(&socket, 1, 1000);
    if (ready > 0 || getppid() != server) _exit(0);
  }
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

struct Reply {
  MessageKind kind;
  std::string fields;
};

Reply reply_to(Nvrtc& nvrtc, MessageKind kind, const std::string& fields) {
  try {
    WorkerAnswer worker;
    CompileRequest request;
    if (kind == MessageKind::kVersion)
      worker.answer.version = nvrtc.version();
    else if (kind == MessageKind::kCompile && decode(fields, request))
      worker.answer = nvrtc.compile(request);
    else
      return {MessageKind::kCannotCompile, "the compile worker does not know this request"};
    worker.resident_bytes = resident_bytes();
    worker.refused_bytes = refused_bytes();
    return {MessageKind::kAnswer, encode(worker)};
  } catch (const MissingError& error) {
    return {MessageKind::kMissing, error.what()};
  } catch (const Error& error) {
    return {MessageKind::kCannotCompile, error.what()};
  }
}

int serve(const char* nvrtc_path, std::uint64_t memory_bytes, pid_t server) {
  close_all_above(kSocket);
  fcntl(kSocket, F_SETFD, FD_CLOEXEC);
  prctl(PR_SET_NAME, "kernelwright-cc");
  bound_this_process(memory_bytes);
  OwnThread([server] { watch_server(server); }, std::size_t{64} << 10).detach();
  Nvrtc nvrtc(nvrtc_path);
  const MessageChannel channel(kSocket);
  for (;;) {
    MessageKind kind{};
    std::string fields;
    if (channel.receive(kind, fields, std::chrono::steady_clock::now() + kForever) != Transfer::kDone) return 0;
    const Reply reply = reply_to(nvrtc, kind, fields);
    if (channel.send(reply.kind, reply.fields, std::chrono::steady_clock::now() + kForever) != Transfer::kDone)
      return 0;
  }
}

}  // namespace
}  // namespace kernelwright

int main(int count, char** arguments) {
  using namespace kernelwright;
  if (count != 5) {
    fmt::print(stderr,
               "kernelwright-cc is started by the Kernelwright library, to run NVRTC in a process of its own\n");
    return kUsage;
  }
  if (worker_protocol() != arguments[1]) {
    fmt::print(stderr, "kernelwright-cc speaks {} and the library {}; install both from one build\n", worker_protocol(),
               arguments[1]);
    return kUsage;
  }
  // _exit: NVRTC's exit handlers have nothing to save.
  _exit(serve(arguments[2], std::strtoull(arguments[3], nullptr, 10), std::atoi(arguments[4])));
}
