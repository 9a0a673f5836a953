/// The interface to a device. It has two implementations: the driver API (cuda_backend.h) and the emulator on the CPU
/// (emulator/emulator_backend.h). Kernels, engine, command line and tests know this interface alone.
///
/// Addresses are device addresses as integers. Streams and events are opaque; a null Stream is the legacy default
/// stream. Methods are safe from any number of threads unless they say otherwise. They throw DeviceError with the call,
/// its code and its purpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/problem/arch.h"

struct CUstream_st;  // CUstream, without cuda.h

namespace kernelwright {

using DevicePtr = std::uint64_t;
using Stream = CUstream_st*;

/// The two forms of one compilation. Each device takes one of them: see DeviceInfo::wants.
enum class ImageKind {
  kCubin,  // ELF
  kPtx,    // text
};

struct DeviceInfo {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  int compute_major = 0, compute_minor = 0;
  std::optional<Arch> arch;  // the architecture to compile for; empty for an unknown device
  int num_sms = 0;
  std::size_t memory_bytes = 0, l2_bytes = 0;
  int shared_bytes_per_cta = 0;  // opt-in maximum
  int clock_khz = 0;
  ImageKind wants = ImageKind::kCubin;  // the best form of a compilation for load()
};

/// Names for people: the roles of a kernel's warps, and the regions of its dynamic shared memory. Devices that explain
/// themselves use them in their reports; nothing depends on them.
struct KernelNotes {
  struct Role {
    std::uint32_t first_warp = 0, num_warps = 0;
    std::string name;  // "load", "math 0"
  };
  struct Range {
    std::uint32_t offset = 0, bytes = 0;  // from the beginning of dynamic shared memory
    std::string name;                     // "K", "V full barriers"
    std::uint32_t stage_bytes = 0;        // 0: no stages; else stage i begins at offset + i * stage_bytes
  };
  std::vector<Role> roles;
  std::vector<Range> shared;
};

/// Code to load: a cubin, or PTX; its first bytes tell which. The image refers to memory that must live until load()
/// returns.
struct KernelImage {
  KernelImage(std::span<const std::byte> code) : bytes(code) {}
  KernelImage(const std::vector<std::byte>& code) : bytes(code) {}
  KernelImage(std::string_view ptx) : bytes(std::as_bytes(std::span(ptx))) {}

  ImageKind kind() const {
    return bytes.size() >= 4 && std::memcmp(bytes.data(),
                                            "\x7f"
                                            "ELF",
                                            4) == 0
               ? ImageKind::kCubin
               : ImageKind::kPtx;
  }

  std::span<const std::byte> bytes;
  std::uint32_t registers = 0;         // of one thread, from ptxas; 0: not known
  const KernelNotes* notes = nullptr;  // copied by devices that use it
  /// Makes PTX of the same instructions that names the lines of their source; "" if there is none. Copied by devices
  /// that use it, and called on any of their threads, once, when a report needs the lines. Empty: reports name the
  /// lines that `bytes` has.
  std::function<std::string()> lined_ptx;
};

/// A loaded binary and its one entry, in one device's context.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  virtual std::size_t loaded_bytes() const = 0;
};

struct LaunchConfig {
  std::uint32_t grid[3] = {1, 1, 1};
  std::uint32_t block = 1;
  std::uint32_t shared_bytes = 0;
  std::uint32_t cluster[3] = {1, 1, 1};
  bool pdl = false;  // may start before the kernel ahead in the stream has ended (griddepcontrol)
};

/// A tiled tensor map, innermost dimension first, in the form that cuTensorMapEncodeTiled takes.
struct TensorMapRequest {
  DevicePtr address = 0;
  DType dtype = DType::kBf16;
  int rank = 2;
  std::uint64_t dims[5] = {}, strides_bytes[4] = {};
  std::uint32_t box[5] = {};
  Swizzle swizzle = Swizzle::k128B;
  int l2_promotion_bytes = 256;  // bytes that a miss of the L2 fetches: 128 or 256
  bool operator==(const TensorMapRequest&) const = default;
};
struct alignas(64) TensorMap {
  std::byte bytes[128];
};

enum class CaptureState { kNone, kActive, kInvalidated };

class DeviceEvent;  // opaque

/// One device of a backend. Backend::device() returns it; it lives as long as the backend.
/// What a GPU's monitor says of it.
struct GpuReading {
  int sm_clock_mhz = 0;
  std::string uuid;                    // "GPU-..."; "": not known
  std::vector<std::string> limits;     // what holds the SM clock down: "power cap"
  std::vector<std::string> slowdowns;  // those of `limits` that are a fault of the machine: "thermal slowdown"
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual int ordinal() const = 0;

  virtual DevicePtr allocate(std::size_t bytes) = 0;  // 256-byte aligned; 0 bytes give 0
  virtual void free(DevicePtr address) noexcept = 0;
  virtual void copy_to_device(DevicePtr to, const void* from, std::size_t bytes) = 0;  // returns when done
  virtual void copy_to_host(void* to, DevicePtr from, std::size_t bytes) = 0;          // returns when done
  virtual void fill(DevicePtr address, std::uint8_t byte, std::size_t bytes, Stream stream) = 0;

  /// Loads `image`, finds `entry` and opts into `max_shared_bytes` of dynamic shared memory. All of that happens before
  /// it returns: nothing is left for the first launch. It does not disturb a capture elsewhere; callers check
  /// capture_state() of their own stream. A device takes its own kind of image. A GPU takes PTX too, which its driver
  /// compiles.
  virtual std::unique_ptr<LoadedKernel> load(const KernelImage& image, const std::string& entry,
                                             std::uint32_t max_shared_bytes) = 0;
  /// Queues one launch. `params` holds the kernel's arguments with the layout of parameter space: one struct by value,
  /// or several arguments, each aligned to its size. Works in the caller's current context if that is this device's
  /// primary one, or if there is none. In the latter case the primary context is made current for the call. No
  /// allocation, no lock; legal while `stream` captures.
  virtual void launch(const LoadedKernel& kernel, const LaunchConfig& config, const void* params,
                      std::size_t params_bytes, Stream stream) = 0;
  /// Clusters of `config`'s size that the device holds at a time. SMs come in groups, so clusters of four leave some
  /// SMs of an H100 empty. In a larger grid, clusters wait for others to end.
  virtual int max_active_clusters(const LoadedKernel& kernel, const LaunchConfig& config) {
    (void)kernel;
    const std::uint32_t cluster = config.cluster[0] * config.cluster[1] * config.cluster[2];
    return info().num_sms / static_cast<int>(cluster);
  }
  virtual int max_ctas_per_sm(const LoadedKernel& kernel, std::uint32_t block, std::uint32_t shared_bytes) = 0;
  virtual TensorMap encode_tensor_map(const TensorMapRequest& request) = 0;  // cached

  virtual Stream create_stream() = 0;
  virtual void destroy_stream(Stream stream) noexcept = 0;
  virtual void synchronize(Stream stream) = 0;
  virtual CaptureState capture_state(Stream stream) = 0;

  virtual DeviceEvent* create_event() = 0;
  virtual void destroy_event(DeviceEvent* event) noexcept = 0;
  virtual void record(DeviceEvent* event, Stream stream) = 0;
  virtual float elapsed_ms(DeviceEvent* from, DeviceEvent* to) = 0;  // waits for `to`

  /// Captures the work that `stream` gets between the two calls into a graph that replay() launches.
  virtual void begin_capture(Stream stream) = 0;
  class Graph {
   public:
    virtual ~Graph() = default;
    virtual void replay(Stream stream) = 0;
  };
  virtual std::unique_ptr<Graph> end_capture(Stream stream) = 0;

  /// The device's state at this moment, for logs of measurements; nullopt if it is not known. May take milliseconds.
  virtual std::optional<GpuReading> reading() { return std::nullopt; }
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "cuda", "emulator"
  virtual int device_count() const = 0;
  virtual Device& device(int ordinal) = 0;  // throws MissingError if there is none
};

/// The driver API. Throws MissingError with one clear sentence if there is no driver or no GPU.
std::unique_ptr<Backend> make_cuda_backend();

}  // namespace kernelwright
