/// What a server and its compile worker send each other over a socket: a header, then fields, each with its length.
/// Both are of one build of the library, which the first argument of the program proves. So a number has the host's
/// byte order.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "kernelwright/runtime/compile/source_compiler.h"

namespace kernelwright {

/// The first argument of the program: the library's version and this format's number.
std::string worker_protocol();

enum class MessageKind : std::uint32_t {
  kVersion = 1,        // request: NVRTC's version
  kCompile = 2,        // request: a CompileRequest
  kAnswer = 3,         // a CompileAnswer and the memory that stays
  kMissing = 4,        // the text of a MissingError
  kCannotCompile = 5,  // the text of a CompileError
};

struct MessageHeader {
  static constexpr std::uint64_t kMagic = 0x0a57'4b43'430d'8bffull;
  static constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;
  std::uint64_t magic = kMagic;
  MessageKind kind{};
  std::uint32_t zero = 0;
  std::uint64_t bytes = 0;  // of the fields
  bool is_whole() const { return magic == kMagic && zero == 0 && bytes <= kMostBytes; }
};
static_assert(sizeof(MessageHeader) == 24);

struct WorkerAnswer {
  CompileAnswer answer;
  std::uint64_t resident_bytes = 0;  // of the worker, after the compile
  std::uint64_t refused_bytes = 0;   // the first allocation of the compile that the system refused; 0: none
};

std::string encode(const CompileRequest& request);
std::string encode(const WorkerAnswer& answer);
/// False if `bytes` are not the fields of one.
bool decode(std::string_view bytes, CompileRequest& request);
bool decode(std::string_view bytes, WorkerAnswer& answer);

/// How a transfer over the socket ended.
enum class Transfer {
  kDone,
  kClosed,   // the other side closed its end, or an error of the socket
  kTimeout,  // the deadline passed
  kStopped,  // `stop` returned true
  kGarbage,  // no header of ours
};

/// One end of the socket. The file descriptor is the caller's and must not block.
class MessageChannel {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  /// `stop`, if given, is asked every few milliseconds.
  explicit MessageChannel(int fd, std::function<bool()> stop = {}) : fd_(fd), stop_(std::move(stop)) {}
  Transfer send(MessageKind kind, std::string_view fields, Deadline deadline) const;
  Transfer receive(MessageKind& kind, std::string& fields, Deadline deadline) const;

 private:
  Transfer move(bool out, void* bytes, std::size_t size, Deadline deadline) const;
  int fd_;
  std::function<bool()> stop_;
};

}  // namespace kernelwright
