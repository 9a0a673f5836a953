#include "kernelwright/runtime/workers/messages.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>

namespace kernelwright {
namespace {

constexpr auto kAskEvery = std::chrono::milliseconds(20);
constexpr std::size_t kPiece = std::size_t{1} << 20;

/// Appends fields to a text.
class Writer {
 public:
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void field(Number& number) { text_.append(reinterpret_cast<const char*>(&number), sizeof(number)); }
  void field(std::string& text) {
    std::uint64_t size = text.size();
    field(size);
    text_ += text;
  }
  template <class Item>
  void list(std::vector<Item>& items) {
    std::uint64_t count = items.size();
    field(count);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

/// Reads them back. After a fault, every field stays empty.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void field(Number& number) {
    if (whole_ && rest_.size() >= sizeof(number)) {
      if constexpr (std::is_same_v<Number, bool>) {
        number = rest_[0] != 0;
      } else {
        std::memcpy(&number, rest_.data(), sizeof(number));
      }
      rest_.remove_prefix(sizeof(number));
    } else {
      whole_ = false;
    }
  }
  void field(std::string& text) {
    std::uint64_t size = 0;
    field(size);
    if (size > rest_.size()) whole_ = false;
    if (!whole_) return;
    text.assign(rest_.substr(0, size));
    rest_.remove_prefix(size);
  }
  template <class Item>
  void list(std::vector<Item>& items) {
    std::uint64_t count = 0;
    field(count);
    if (count > rest_.size() / sizeof(std::uint64_t)) whole_ = false;  // each item has a length
    if (whole_) items.resize(count);
  }
  bool ended_whole() const { return whole_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool whole_ = true;
};

template <class Archive>
void fields(Archive& archive, CompileRequest& request) {
  archive.field(request.kernel);
  archive.field(request.arch);
  archive.field(request.source);
  archive.list(request.headers);
  for (auto& [name, text] : request.headers) {
    archive.field(name);
    archive.field(text);
  }
  archive.list(request.options);
  for (std::string& option : request.options) archive.field(option);
  archive.field(request.machine_code);
}

template <class Archive>
void fields(Archive& archive, WorkerAnswer& worker) {
  CompileAnswer& answer = worker.answer;
  archive.field(answer.version);
  archive.field(answer.compiled);
  archive.field(answer.result);
  archive.field(answer.log);
  archive.field(answer.cubin);
  archive.field(answer.ptx);
  archive.field(answer.milliseconds);
  archive.field(worker.resident_bytes);
  archive.field(worker.refused_bytes);
}

template <class Message>
std::string encoded(const Message& message) {
  Writer writer;
  fields(writer, const_cast<Message&>(message));  // a writer changes nothing
  return writer.take();
}

template <class Message>
bool decoded(std::string_view bytes, Message& message) {
  Reader reader(bytes);
  fields(reader, message);
  return reader.ended_whole();
}

}  // namespace

std::string worker_protocol() { return std::string(KERNELWRIGHT_VERSION) + "/2"; }

std::string encode(const CompileRequest& request) { return encoded(request); }
std::string encode(const WorkerAnswer& answer) { return encoded(answer); }
bool decode(std::string_view bytes, CompileRequest& request) { return decoded(bytes, request); }
bool decode(std::string_view bytes, WorkerAnswer& answer) { return decoded(bytes, answer); }

Transfer MessageChannel::move(bool out, void* bytes, std::size_t size, Deadline deadline) const {
  auto* at = static_cast<char*>(bytes);
  while (size) {
    const ssize_t done = out ? ::send(fd_, at, size, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd_, at, size, MSG_DONTWAIT);
    if (done > 0) {
      at += done;
      size -= static_cast<std::size_t>(done);
      continue;
    }
    if (done == 0) return Transfer::kClosed;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Transfer::kClosed;
    if (stop_ && stop_()) return Transfer::kStopped;
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= left.zero()) return Transfer::kTimeout;
    auto wait = std::chrono::ceil<std::chrono::milliseconds>(left);
    wait = std::min(wait, stop_ ? kAskEvery : std::chrono::milliseconds(60'000));
    pollfd ready{fd_, static_cast<short>(out ? POLLOUT : POLLIN), 0};
    poll(&ready, 1, static_cast<int>(wait.count()));
  }
  return Transfer::kDone;
}

Transfer MessageChannel::send(MessageKind kind, std::string_view fields, Deadline deadline) const {
  MessageHeader header;
  header.kind = kind;
  header.bytes = fields.size();
  if (const Transfer sent = move(true, &header, sizeof(header), deadline); sent != Transfer::kDone) return sent;
  return move(true, const_cast<char*>(fields.data()), fields.size(), deadline);
}

Transfer MessageChannel::receive(MessageKind& kind, std::string& fields, Deadline deadline) const {
  MessageHeader header;
  if (const Transfer got = move(false, &header, sizeof(header), deadline); got != Transfer::kDone) return got;
  if (!header.is_whole()) return Transfer::kGarbage;
  kind = header.kind;
  fields.clear();
  // In pieces: a header that lies about its size takes no memory for bytes that never come.
  while (fields.size() < header.bytes) {
    const std::size_t at = fields.size(), piece = std::min<std::size_t>(kPiece, header.bytes - at);
    fields.resize(at + piece);
    if (const Transfer got = move(false, fields.data() + at, piece, deadline); got != Transfer::kDone) return got;
  }
  return Transfer::kDone;
}

}  // namespace kernelwright
