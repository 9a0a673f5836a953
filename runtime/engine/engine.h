/// The façade that an inference server includes: problems go in, kernels ready to launch come out. It owns the backend,
/// the cache, the compiler and every loaded kernel. It neither prints nor exits: events go to the caller's sink.
///
///   Engine engine;
///   AttentionKernel kernel = engine.prepare(problem);  // compiles or loads, once
///   engine.seal();                                     // from here on nothing compiles
///   kernel.launch(tensors, stream);                    // any thread, any number of times
///
/// Three rules keep a server's ranks alike and its latency flat:
///   - A kernel that no caller asked for in time is a miss. OnMiss says what a launch does then.
///   - The kernel that a launch runs changes at promote() alone, which the server calls at the same step on every rank,
///     with the kernels that every rank has.
///   - Nothing is unloaded before the Engine goes, so a captured graph keeps its kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/digest.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/moe.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/schedule.h"
#include "kernelwright/runtime/attention/kernel.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/cache/options.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/device/emulator_options.h"
#include "kernelwright/runtime/gemm/kernel.h"
#include "kernelwright/runtime/kv_write/kernel.h"
#include "kernelwright/runtime/moe/kernel.h"
#include "kernelwright/runtime/moe_combine/kernel.h"
#include "kernelwright/runtime/process/events.h"
#include "kernelwright/runtime/process/latency.h"
#include "kernelwright/runtime/quantize/kernel.h"
#include "kernelwright/runtime/route/kernel.h"
#include "kernelwright/runtime/row_op/kernel.h"
#include "kernelwright/runtime/slot/readiness.h"
#include "kernelwright/runtime/workers/options.h"

namespace kernelwright {

class KernelStore;  // runtime/store/kernel_store.h
class TunedTable;   // generator/tuned/table.h

struct EngineOptions {
  std::string backend = "auto";     // cuda | emulator | auto: cuda where a GPU is, else the emulator
  EmulatorBackendOptions emulator;  // used if the emulator runs
  CacheOptions cache;
  std::string nvrtc_path;                      // "": found as Compiler says
  CompileWorkerOptions compile_workers;        // whether NVRTC runs in processes of its own
  EventSink sink;                              // also set as cache.sink unless that is set
  EventLevel sink_level = EventLevel::kDebug;  // `sink` gets events of this level and above
  /// A folder of tuned rows, <arch>/*.json, that take the place of the library's rows. "": $KERNELWRIGHT_TUNED_DIR,
  /// else none. The sink gets an event (kTunedRow) for what cannot be used there; it changes nothing else.
  std::string tuned_dir;
  /// For debugging: launches of attention and of cache writes first wait for their stream. They copy lengths, offsets,
  /// pages, slots, positions and given scales to the host. The sink gets an event (kBadData), with row and
  /// value, for each entry that contradicts the tensors. On the emulator there is also a report
  /// (EmulatorBackend::take_reports()). The launch goes on, and treats the entries as AttentionTensors and
  /// KvWriteTensors say. Captured launches are not checked. An emulator with hazards always checks.
  bool check_data = false;
  int compile_threads = 0;          // of the background, started when needed; 0: as many as cores
  OnMiss on_miss = OnMiss::kBlock;  // for kernels that attention() prepares by itself
  /// With OnMiss::kFallback in the background: the fallback serves until promote() even if the wanted kernel is in the
  /// cache. So ranks whose caches differ begin alike. docs/fleet.md
  bool fallback_first = false;
  std::uint32_t launch_sampling = 0;              // one launch in about so many is timed: latencies(). 0: none
  std::shared_ptr<Backend> custom_backend;        // instead of `backend`
  std::shared_ptr<KernelStore> custom_store;      // instead of `cache`, `nvrtc_path` and `compile_workers`
  std::shared_ptr<const TunedTable> custom_rows;  // instead of `tuned_dir`
};

struct PrepareOptions {
  int device = 0;
  OnMiss on_miss = OnMiss::kBlock;  // used with `background`, and by a sealed engine
  bool background = false;          // return at once; meanwhile on_miss says what launches do
  bool allow_when_sealed = false;   // compile even after seal()
};

struct EngineCounters {
  std::uint64_t ready = 0, pending = 0, failed = 0;  // kernels by state, now; a sealed miss is not counted as failed
  std::uint64_t loads = 0;                           // binaries loaded onto a device
  std::uint64_t loaded_bytes = 0;                    // device memory of the loaded binaries
  std::uint64_t fallback_launches = 0;               // launches that ran the portable kernel instead of the wanted one
  std::uint64_t sealed_misses = 0;                   // kernels first asked for after seal(), and not cached
  std::uint64_t capture_misses = 0;                  // launches refused because the stream captured
  std::uint64_t promotions = 0;
  CacheCounters cache;
  RemoteCounters remote;                  // operations of the remote cache
  CompileWorkerCounters compile_workers;  // all 0 if NVRTC runs in this process
};

/// How long the steps of an engine's work took so far.
struct EngineLatencies {
  LatencySnapshot prepare;  // from the first prepare() of a kernel until it is ready, with the wait for a thread
  LatencySnapshot compile;  // one compilation by NVRTC
  LatencySnapshot load;     // one binary onto a device
  /// Host time of launch(), for the launches that EngineOptions::launch_sampling chose. On the emulator launch() does
  /// the work itself.
  LatencySnapshot launch;
};

/// A binary that the engine was asked for: a row of Engine::kernels().
struct KernelRow {
  std::size_t prepared = 0;  // number of the prepared kernel: a GEMM has several binaries, a decode may have two
  std::string_view kind;     // "attention", "gemm", "quantize", "kv_write", "row_op", "route", "moe_combine"
  std::string kernel;        // the template: "attention_sm90"
  Family family = Family::kPortable;
  std::string key;  // 64 hex digits
  int device = 0;
  KernelState state = KernelState::kPending;  // of the prepared kernel
  std::string error;                          // why it failed; "" otherwise
  bool fallback = false;                      // whether it is the portable kernel that stands in for the prepared one
  bool serving = false;                       // launches run it now
  // The fields below are known once the binary is loaded.
  CacheSource source = CacheSource::kNone;  // its place when the prepared kernel first asked for it
  std::string entry;                        // its name in a profile
  ResourceUsage usage;
  std::size_t cubin_bytes = 0;
  double compile_ms = 0;  // of the compilation that made it, here or elsewhere
};

/// Safe from any number of threads. But it must outlive every call, every kernel handle and all queued work. A child of
/// fork() must not use it: calls that would wait or lock throw Error there.
class Engine {
 public:
  /// Opens the backend, but neither a compiler nor a context. Throws MissingError with one clear sentence if there is
  /// no such device. If "auto" finds no GPU, the sink gets an event (kDevice).
  explicit Engine(EngineOptions options = {});
  /// Where such an engine gets kernels that nobody has prepared yet, for people, as KernelStore::origin() says it. It
  /// opens no backend and no compiler. Throws MissingError if no kernel could come from anywhere.
  static std::string kernel_origin(const EngineOptions& options);
  /// Drops queued background compiles, interrupts running ones and waits for them. Kernels must not be running.
  ///
  /// A program may end without it. exit(), and so a return from main, waits for an instant until no compile is inside
  /// NVRTC or the driver. Kernels that are being prepared then fail, with no event.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// The kernel for `problem` on a device: compiled or taken from the cache, loaded to the last byte, its shared memory
  /// opted into. A second call returns the same handle at once. If several threads call it, it compiles once. With
  /// `background` it returns before that, and failures show in state(), error() and the sink.
  ///
  /// Throws ConfigError if no kernel fits, and CompileError. Throws MissingError if there is no such device, or if the
  /// kernel is not cached and there is no compiler. Throws DeviceError if the kernel cannot be loaded. Throws
  /// NotReadyError if the engine is sealed and the kernel is not cached; with OnMiss::kFallback, a cached fallback
  /// serves instead. No stream of the calling thread may be capturing.
  AttentionKernel prepare(const AttentionProblem& problem, const AttentionSchedule& schedule = {},
                          const PrepareOptions& options = {});
  /// The same for a GEMM: all kernels of its plan, for any number of rows.
  GemmKernel prepare(const GemmProblem& problem, const GemmSchedule& schedule = {}, const PrepareOptions& options = {});
  /// The same for the kernel that makes a GEMM's block-scaled operands of floats: one kernel on every architecture,
  /// without a fallback.
  QuantizeKernel prepare(const QuantizeProblem& problem, const PrepareOptions& options = {});
  /// The same for the kernel that writes new keys and values to a cache: one kernel on every architecture, for any
  /// number of tokens.
  KvWriteKernel prepare(const KvWriteProblem& problem, const KvWriteSchedule& schedule = {},
                        const PrepareOptions& options = {});
  /// The same for the kernel of steps over rows: one kernel on every architecture, for any number of rows.
  RowOpKernel prepare(const RowOpProblem& problem, const RowOpSchedule& schedule = {},
                      const PrepareOptions& options = {});
  /// The same for the kernels that choose the experts of tokens: for every architecture and any number of tokens.
  RouteKernel prepare(const RouteProblem& problem, const RouteSchedule& schedule = {},
                      const PrepareOptions& options = {});
  /// The same for the kernel that adds up the rows of a token's experts: one kernel on every architecture, for any
  /// number of tokens.
  MoeCombineKernel prepare(const MoeCombineProblem& problem, const MoeCombineSchedule& schedule = {},
                           const PrepareOptions& options = {});
  /// The same for a whole layer of experts: all of its kernels, which compile side by side. A violation or a miss names
  /// the part, as MoeKernel does. Kernels that other problems have prepared already are shared.
  MoeKernel prepare(const MoeProblem& problem, const PrepareOptions& options = {});

  /// The kernel that was first prepared for `problem` on `device`, or an empty handle. No lock, no allocation; ~10 ns.
  /// For masks with operands and expression score mods, it takes a lock.
  AttentionKernel find(const AttentionProblem& problem, int device = 0) const noexcept;
  GemmKernel find(const GemmProblem& problem, int device = 0) const noexcept;
  QuantizeKernel find(const QuantizeProblem& problem, int device = 0) const noexcept;
  KvWriteKernel find(const KvWriteProblem& problem, int device = 0) const noexcept;
  RowOpKernel find(const RowOpProblem& problem, int device = 0) const noexcept;
  RouteKernel find(const RouteProblem& problem, int device = 0) const noexcept;
  MoeCombineKernel find(const MoeCombineProblem& problem, int device = 0) const noexcept;
  /// It takes a lock.
  MoeKernel find(const MoeProblem& problem, int device = 0) const noexcept;

  /// Scaled dot-product attention, forward: O = softmax(scale * Q K^T + mask) V for each batch and head. It calls
  /// find(), else prepare() with the engine's on_miss (kFallback and kError prepare in the background), then launch().
  /// The first call for a problem may compile for a third of a second. While `stream` captures it throws NotReadyError
  /// instead, so prepare what will be captured. Returns once the launch is queued; the buffers must outlive it.
  void attention(const AttentionProblem& problem, const AttentionTensors& tensors, Stream stream, int device = 0);

  /// d = epilogue(a b), by problem, like attention().
  void gemm(const GemmProblem& problem, const GemmTensors& tensors, Stream stream, int device = 0);

  /// Elements and scales of x, by problem, like attention().
  void quantize(const QuantizeProblem& problem, const QuantizeTensors& tensors, Stream stream, int device = 0);

  /// Keys and values to a cache, by problem, like attention().
  void kv_write(const KvWriteProblem& problem, const KvWriteTensors& tensors, Stream stream, int device = 0);

  /// Input, norm and quantisation of each row of x, by problem, like attention().
  void row_op(const RowOpProblem& problem, const RowOpTensors& tensors, Stream stream, int device = 0);

  /// The experts of each token, and tokens sorted by expert, by problem, like attention().
  void route(const RouteProblem& problem, const RouteTensors& tensors, Stream stream, int device = 0);

  /// The weighted sum of the rows that experts made of each token, by problem, like attention().
  void moe_combine(const MoeCombineProblem& problem, const MoeCombineTensors& tensors, Stream stream, int device = 0);

  /// A whole layer of experts, by problem, like attention(): from the choice of experts to the sum over their rows.
  void moe(const MoeProblem& problem, const MoeTensors& tensors, Stream stream, int device = 0);

  /// After this, nothing compiles unless PrepareOptions::allow_when_sealed is set. Cached kernels are still loaded.
  /// Each missing kernel is reported once, as kSealedMiss, up to a thousand of them. For further ones nothing is kept,
  /// and prepare() throws NotReadyError at once. Compiles that are queued already go on.
  /// A remote cache is not asked any more.
  void seal();
  bool sealed() const;

  /// Waits until nothing is pending. Returns true if every prepared kernel is ready, false if one has failed or time is
  /// over. Kernels that callers asked for after seal() and that are not cached do not count.
  bool wait_until_ready(int timeout_ms = -1) const;
  /// What wait_until_ready() would return now, without waiting.
  bool ready() const { return wait_until_ready(0); }

  /// Ends preparing for good. It drops queued compiles and interrupts running ones (NVRTC gives up within half a
  /// second). Then it waits until none of our threads calls the sink any more. Kernels that are not ready fail, with no
  /// event; ready kernels still launch. It is for a host whose sink ends before the Engine can. The sink must not call
  /// it.
  void stop();

  /// Every kernel that is ready takes over from its fallback. Returns how many did. Launches of other threads run one
  /// or the other. Until it is called, a fallback goes on serving. Kernels become ready at different times on different
  /// ranks. Ranks that must stay alike first agree on what each of them has: ready_digests().
  int promote();
  /// The kernels with these digests take over from their fallbacks, and no others. Returns how many did. Those that
  /// serve already stay. Throws NotReadyError, and promotes nothing, unless all of them are among ready_digests().
  int promote(std::span<const Digest> expected);

  /// A digest for each prepared kernel that is loaded, whether it serves or its fallback still does, in ascending
  /// order. It is a SHA-256 of the kind, problem, schedule and cubins, and of what the plan and the number of SMs tell
  /// launches. It has neither the device's number nor a time. So it is equal on all ranks that run the same code for
  /// the same problem. A kernel that is ready stays ready.
  std::vector<Digest> ready_digests() const;
  /// A SHA-256 of what launches run now: of each prepared kernel its problem and schedule, whether it or its fallback
  /// serves, and the cubins that serve. The order of prepare() does not matter. Ranks compare it before they capture
  /// graphs. Costs a hash of each cubin once, and then some microseconds a kernel.
  Digest plan_digest() const;

  /// Device memory of the loaded kernels, summed over devices: size the KV cache after wait_until_ready().
  std::uint64_t loaded_bytes() const;
  EngineCounters counters() const;

  /// Every binary of every prepared kernel, as it is now, and of a fallback once one serves. For people and monitors:
  /// it takes the lock that prepare() takes, for some microseconds a kernel.
  std::vector<KernelRow> kernels() const;
  EngineLatencies latencies() const;
  /// counters(), latencies(), sealed() and ready() as Prometheus text (exposition format 0.0.4), for a scraper.
  std::string metrics() const;

  int device_count() const;
  /// Throws MissingError if there is none.
  Device& device(int ordinal = 0) const;
  Backend& backend() const;
  KernelStore& store() const;
  const TunedTable& tuned_rows() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kernelwright
