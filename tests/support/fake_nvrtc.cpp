// An NVRTC that does what a word in the source, or in $KERNELWRIGHT_FAKE_NVRTC_DOES, says: it answers, rejects,
// crashes, hangs or takes memory. Its "cubin" is an ELF header and the source.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

enum Result { kSuccess = 0, kOutOfMemory = 1, kCompilation = 6 };

struct Program {
  std::string source, log, cubin, ptx;
};

bool says(const Program& program, const char* word) {
  const char* does = std::getenv("KERNELWRIGHT_FAKE_NVRTC_DOES");
  return program.source.find(word) != std::string::npos || (does && std::strcmp(does, word) == 0);
}

std::atomic<int> compiles{0};

/// What the process holds beside the three standard descriptors: the numbers, separated by blanks.
std::string descriptors() {
  std::string open;
  for (int fd = 3; fd < 1024; ++fd)
    if (fcntl(fd, F_GETFD) >= 0) open += std::to_string(fd) + " ";
  return open;
}

std::string blocked_signals() {
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, nullptr, &blocked);
  std::string words;
  for (int signal = 1; signal < 32; ++signal)
    if (sigismember(&blocked, signal) == 1) words += std::to_string(signal) + " ";
  return words;
}

/// Of a clock that all processes share.
std::string microseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

Result compile(Program& program) {
  const std::string began = microseconds();
  if (says(program, "do segv")) {
    signal(SIGSEGV, SIG_DFL);  // a sanitizer has a handler
    raise(SIGSEGV);
  }
  if (says(program, "do abort")) {
    std::fputs("free(): invalid pointer\n", stderr);
    std::abort();
  }
  if (says(program, "do hang"))
    for (;;) pause();
  if (says(program, "do exit")) _exit(7);
  if (says(program, "do sleep")) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  if (says(program, "do garbage")) {
    const std::string garbage(64, 'x');
    if (write(3, garbage.data(), garbage.size()) < 0) return kCompilation;
  }
  if (says(program, "do close")) {
    close(3);
    for (;;) pause();
  }
  if (says(program, "do take memory")) {  // 100 GB, piece by piece, as a runaway does
    for (int i = 0; i < 100 * 16; ++i) {
      void* piece = std::malloc(std::size_t{64} << 20);
      if (!piece) return kOutOfMemory;
      std::memset(piece, 1, 4096);
    }
  }
  if (says(program, "do swallow")) {  // as NVRTC's own ptxas: a failed allocation becomes a fault of the source
    while (void* piece = std::malloc(std::size_t{16} << 20)) std::memset(piece, 1, 4096);
    program.log = "ptxas fatal   : Ptx assembly aborted due to errors\n";
    return kCompilation;
  }
  if (says(program, "do crash without memory")) {
    for (;;) *static_cast<volatile char*>(std::malloc(std::size_t{16} << 20)) = 1;
  }
  if (says(program, "do leak")) {
    const std::size_t bytes = std::size_t{8} << 20;
    if (void* piece = std::malloc(bytes)) std::memset(piece, 1, bytes);
  }
  if (says(program, "do reject")) {
    program.log = "fake.cu(1): error: rejected\n";
    return kCompilation;
  }
  program.log = "descriptors " + descriptors() + "\nblocked " + blocked_signals() + "\npid " +
                std::to_string(getpid()) + "\ncompiles " + std::to_string(++compiles) + "\nbegan " + began +
                "\nended " + microseconds() + "\nLD_PRELOAD " +
                (std::getenv("LD_PRELOAD") ? std::getenv("LD_PRELOAD") : "none") + "\n";
  program.cubin =
      "\x7f"
      "ELF" +
      program.source;
  program.ptx = "// ptx of " + program.source;
  return kSuccess;
}

int give(const std::string& text, char* to) {
  std::memcpy(to, text.data(), text.size());
  return kSuccess;
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = 13, *minor = 0;
  return kSuccess;
}

const char* nvrtcGetErrorString(int result) {
  return result == kSuccess       ? "NVRTC_SUCCESS"
         : result == kOutOfMemory ? "NVRTC_ERROR_OUT_OF_MEMORY"
                                  : "NVRTC_ERROR_COMPILATION";
}

int nvrtcCreateProgram(Program** program, const char* source, const char*, int, const char* const*,
                       const char* const*) {
  *program = new Program{source, {}, {}, {}};
  return kSuccess;
}

int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return kSuccess;
}

int nvrtcCompileProgram(Program* program, int, const char* const*) { return compile(*program); }

int nvrtcGetProgramLogSize(Program* program, std::size_t* size) {
  *size = program->log.size();
  return kSuccess;
}
int nvrtcGetProgramLog(Program* program, char* log) { return give(program->log, log); }
int nvrtcGetCUBINSize(Program* program, std::size_t* size) {
  *size = program->cubin.size();
  return kSuccess;
}
int nvrtcGetCUBIN(Program* program, char* cubin) { return give(program->cubin, cubin); }
int nvrtcGetPTXSize(Program* program, std::size_t* size) {
  *size = program->ptx.size();
  return kSuccess;
}
int nvrtcGetPTX(Program* program, char* ptx) { return give(program->ptx, ptx); }

}  // extern "C"
