// A small inference server. A request is a line of ASCII text; the answer is the next byte. The model has one attention
// layer and a projection: it looks up where the last byte occurred before, and answers the byte that followed it there.
// "/metrics" prints Prometheus text. The end of the input, or SIGTERM, ends the server once all requests are answered.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>

#include "kernelwright/engine.h"

using namespace kernelwright;

namespace {

constexpr std::size_t kBytes = 128, kMostRequests = 8, kMostTokens = 512;  // the latter two limit one step
constexpr std::uint16_t kOne = 0x3f80, kSixteen = 0x4180;                  // in bf16

class Model {
 public:
  explicit Model(Engine& engine) : device_(engine.device(0)), stream_(device_.create_stream()) {
    AttentionProblem attention{.head_dim = {kBytes, kBytes}, .heads = {1, 1}, .q_layout = QLayout::kRagged};
    attention.kv_layout.kind = KvLayoutKind::kRagged;
    attention.mask.kind = MaskKind::kCausal;
    const GemmProblem projection{.n = kBytes, .k = kBytes, .dtype = {.d = DType::kF32}};
    // Both calls return at once. The portable kernel is made first, and serves until the requested kernel is compiled.
    const PrepareOptions how{.on_miss = OnMiss::kFallback, .background = true};
    attention_ = engine.prepare(attention, {}, how);
    projection_ = engine.prepare(projection, {}, how);
    for (DevicePtr* each : {&tensors_.q, &tensors_.k, &tensors_.v, &tensors_.o, &product_.b, &product_.d})
      *each = device_.allocate(kMostTokens * kBytes * sizeof(float));
    tensors_.q_offsets = tensors_.kv_offsets = device_.allocate((kMostRequests + 1) * sizeof(std::int32_t));
    tensors_.scale = 1;
    product_.a = tensors_.o;
    std::vector<std::uint16_t> identity(kBytes * kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) identity[i * kBytes + i] = kOne;
    upload(product_.b, identity);
  }
  ~Model() {
    for (const DevicePtr each : {tensors_.q, tensors_.k, tensors_.v, tensors_.o, tensors_.q_offsets, tensors_.workspace,
                                 product_.b, product_.d})
      device_.free(each);
    device_.destroy_stream(stream_);
  }

  // Answers a batch with one launch of each kernel, for all tokens of all prompts.
  void step(const std::vector<std::string>& prompts) {
    std::vector<std::int32_t> offsets{0};
    for (const std::string& prompt : prompts) offsets.push_back(offsets.back() + static_cast<int>(prompt.size()));
    std::vector<std::uint16_t> q(offsets.back() * kBytes), k(q.size()), v(q.size());
    tensors_.q_len = 0;
    for (std::size_t i = 0, row = 0; i < prompts.size(); ++i) {
      tensors_.q_len = tensors_.kv_len = std::max(tensors_.q_len, static_cast<int>(prompts[i].size()));
      for (std::size_t at = 0; at < prompts[i].size(); ++at, row += kBytes) {
        v[row + prompts[i][at] % kBytes] = kOne;                  // the value is this byte
        if (at > 0) k[row + prompts[i][at - 1] % kBytes] = kOne;  // its key is the byte before it
        q[row + prompts[i][at] % kBytes] = kSixteen;              // the query asks for the byte that follows this one
      }
    }
    tensors_.batch = static_cast<int>(prompts.size());
    tensors_.q_tokens = tensors_.kv_tokens = product_.m = offsets.back();
    upload(tensors_.q, q), upload(tensors_.k, k), upload(tensors_.v, v), upload(tensors_.q_offsets, offsets);
    if (const auto bytes = attention_.workspace_bytes(attention_.extent(tensors_)); bytes > tensors_.workspace_bytes) {
      device_.free(tensors_.workspace);
      tensors_.workspace = device_.allocate(tensors_.workspace_bytes = bytes);
    }
    attention_.launch(tensors_, stream_);
    projection_.launch(product_, stream_);
    device_.synchronize(stream_);
    const bool fallback = attention_.serves_fallback() || projection_.serves_fallback();
    std::vector<float> shares(kBytes);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const auto last = static_cast<DevicePtr>(offsets[i + 1] - 1) * kBytes * sizeof(float);
      device_.copy_to_host(shares.data(), product_.d + last, kBytes * sizeof(float));
      const auto best = std::max_element(shares.begin(), shares.end());
      std::printf("%s -> %c (%.2f)%s\n", prompts[i].c_str(), static_cast<char>(best - shares.begin()), *best,
                  fallback ? " by the fallback" : "");
    }
  }

 private:
  void upload(DevicePtr to, const auto& from) { device_.copy_to_device(to, from.data(), from.size() * sizeof from[0]); }
  Device& device_;
  Stream stream_;
  AttentionKernel attention_;
  GemmKernel projection_;
  AttentionTensors tensors_;
  GemmTensors product_;
};

volatile sig_atomic_t stopping = 0;

void serve() {
  EngineOptions options{.sink_level = EventLevel::kInfo, .launch_sampling = 1};  // a busy server times 1 in 1000
  options.sink = [](const kernelwright::Event& event) {
    std::fprintf(stderr, "%s: %s %s\n", to_string(event.kind).data(), event.name.c_str(), event.detail.c_str());
  };
  Engine engine(options);
  Model model(engine);
  std::deque<std::string> waiting;
  std::string text;  // of a line that has not ended yet
  for (bool open = true; (open &= !stopping) || !waiting.empty();) {
    // Reads what arrived while the last step ran. An idle server looks every 20 ms. A server with a full queue reads no
    // more.
    pollfd input{STDIN_FILENO, POLLIN, 0};
    while (open && waiting.size() < 1000 && poll(&input, 1, waiting.empty() ? 20 : 0) > 0) {
      char bytes[4096];
      const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
      open = count > 0;
      text.append(bytes, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
      if (!open && !text.empty()) text += '\n';
      for (std::size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
        if (const std::string line = text.substr(0, end); line == "/metrics")
          std::fputs(engine.metrics().c_str(), stdout);
        else if (line.empty() || line.size() > kMostTokens)
          std::printf("refused: a prompt has 1 to %zu bytes\n", kMostTokens);
        else
          waiting.push_back(line);
      }
      text.resize(std::min(text.size(), kMostTokens + 1));  // keeps enough of a line that is too long to refuse it
    }
    std::vector<std::string> batch;
    for (std::size_t tokens = 0; !waiting.empty() && batch.size() < kMostRequests; waiting.pop_front()) {
      if ((tokens += waiting.front().size()) > kMostTokens) break;
      batch.push_back(waiting.front());
    }
    if (!batch.empty()) model.step(batch);
    // Between two steps, compiled kernels replace their fallbacks. Once all have, nothing compiles any more.
    const bool ready = engine.ready();
    if (const int promoted = engine.promote()) std::printf("promoted: %d\n", promoted);
    if (ready && !engine.sealed()) engine.seal(), std::puts("sealed");
    std::fflush(stdout);
  }
  std::puts("drained");
}

}  // namespace

int main() {
  struct sigaction stop {};
  stop.sa_handler = [](int) { stopping = 1; };
  sigaction(SIGTERM, &stop, nullptr);
  try {
    serve();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return dynamic_cast<const MissingError*>(&error) ? 3 : 1;
  }
}
