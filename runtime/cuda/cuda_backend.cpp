/// backend.h through the driver API.
///
/// Every call works in the device's primary context, which the CUDA runtime and PyTorch use too. If that context is
/// current already, nothing happens. Otherwise it is pushed for the call and popped after it, so that the caller's
/// context survives.
///
/// A stream capture could forbid some calls (allocate, load, unload). These run with this thread's capture mode
/// relaxed. Then they do not fail, and do not invalidate the capture of another thread or library.
#include "kernelwright/runtime/cuda/cuda_backend.h"

#include <cuda.h>
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <utility>

#include "kernelwright/generator/checked.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cuda/driver.h"
#include "kernelwright/runtime/cuda/nvml.h"
#include "kernelwright/runtime/cuda/tensor_map_cache.h"
#include "kernelwright/runtime/process/interrupt.h"

namespace kernelwright {
namespace {

class ContextScope {
 public:
  ContextScope(const Driver& driver, CUcontext wanted) : driver_(driver) {
    CUcontext current = nullptr;
    driver_.check(driver_.cuCtxGetCurrent(&current), "cuCtxGetCurrent", "reading the current context");
    if (current == wanted) return;
    driver_.check(driver_.cuCtxPushCurrent(wanted), "cuCtxPushCurrent", "entering the device's primary context");
    pushed_ = true;
  }
  ~ContextScope() {
    CUcontext popped = nullptr;
    if (pushed_) driver_.cuCtxPopCurrent(&popped);
  }
  ContextScope(const ContextScope&) = delete;

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // afterwards: the thread's own mode, to be restored
};

CUevent cu(DeviceEvent* event) { return reinterpret_cast<CUevent>(event); }

std::string words(std::string_view name, const LaunchConfig& config) {
  std::string text = fmt::format("launching {} grid {}x{}x{} block {} shared {}", name, config.grid[0], config.grid[1],
                                 config.grid[2], config.block, config.shared_bytes);
  if (config.cluster[0] * config.cluster[1] * config.cluster[2] > 1)
    text += fmt::format(" cluster {}x{}x{}", config.cluster[0], config.cluster[1], config.cluster[2]);
  return text;
}

/// The result of cuLibraryLoadData or, on drivers before 12.0, of cuModuleLoadData.
struct Loaded {
  CUlibrary library = nullptr;
  CUmodule module = nullptr;
};

/// The driver takes an image without its size, and would read past the end of a truncated one.
bool is_whole_elf(std::span<const std::byte> image) {
  Elf64_Ehdr header;
  if (image.size() < sizeof header) return false;
  std::memcpy(&header, image.data(), sizeof header);
  const auto fits = [&](std::uint64_t offset, std::uint64_t bytes) {
    return offset <= image.size() && bytes <= image.size() - offset;
  };
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
         fits(header.e_shoff, std::uint64_t{header.e_shnum} * header.e_shentsize) &&
         fits(header.e_phoff, std::uint64_t{header.e_phnum} * header.e_phentsize);
}

/// Whether the image is text that names its PTX version. Any other image that is no ELF file is damaged; the driver
/// does not get it.
bool is_ptx(std::span<const std::byte> image) {
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  return KernelImage(image).kind() == ImageKind::kPtx && text.find(".version") != text.npos;
}

class CudaDevice;

class CudaKernel final : public LoadedKernel {
 public:
  explicit CudaKernel(std::shared_ptr<CudaDevice> owner) : device(std::move(owner)) {}
  ~CudaKernel() override;
  std::size_t loaded_bytes() const override { return bytes; }

  std::shared_ptr<CudaDevice> device;
  std::string entry;
  Loaded loaded;
  CUfunction function = nullptr;
  std::size_t bytes = 0;
  std::size_t params_bytes = 0;  // of the entry's arguments together; 0: the driver cannot say
  bool several_params = false;
};

class CudaDevice final : public Device, public std::enable_shared_from_this<CudaDevice> {
 public:
  CudaDevice(std::shared_ptr<const Driver> driver, int ordinal) : driver_(std::move(driver)), ordinal_(ordinal) {
    read_info();
  }
  ~CudaDevice() override {
    if (!context_ || forked_after_open()) return;
    unload_dead();
    driver_->cuDevicePrimaryCtxRelease(device_);
  }

  const DeviceInfo& info() const override { return info_; }
  int ordinal() const override { return ordinal_; }

  DevicePtr allocate(std::size_t bytes) override {
    if (bytes == 0) return 0;
    require_span(0, bytes);
    const ContextScope scope(*driver_, primary());
    const RelaxedCapture relaxed(*driver_);
    CUdeviceptr address = 0;
    check(driver_->cuMemAlloc(&address, bytes), "cuMemAlloc",
          [&] { return fmt::format("allocating {} bytes on {}", bytes, info_.name); });
    return address;
  }

  void free(DevicePtr address) noexcept override {
    if (address == 0) return;
    quietly([&] {
      const RelaxedCapture relaxed(*driver_);
      driver_->cuMemFree(address);
    });
  }

  void copy_to_device(DevicePtr to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    require_span(to, bytes);
    const ContextScope scope(*driver_, primary());
    const auto what = [&] { return fmt::format("copying {} bytes to the device at {:#x}", bytes, to); };
    check(driver_->cuMemcpyHtoD(to, from, bytes), "cuMemcpyHtoD", what);
    // A copy from pageable memory returns once it is staged. Streams that do not wait for the default stream could
    // overtake it.
    check(driver_->cuStreamSynchronize(nullptr), "cuStreamSynchronize", what);
  }

  void copy_to_host(void* to, DevicePtr from, std::size_t bytes) override {
    if (bytes == 0) return;
    require_span(from, bytes);
    const ContextScope scope(*driver_, primary());
    check(driver_->cuMemcpyDtoH(to, from, bytes), "cuMemcpyDtoH",
          [&] { return fmt::format("copying {} bytes from the device at {:#x}", bytes, from); });
  }

  void fill(DevicePtr address, std::uint8_t byte, std::size_t bytes, Stream stream) override {
    if (bytes == 0) return;
    require_span(address, bytes);
    const ContextScope scope(*driver_, primary());
    check(driver_->cuMemsetD8Async(address, byte, bytes, stream), "cuMemsetD8Async",
          [&] { return fmt::format("filling {} bytes at {:#x}", bytes, address); });
  }

  std::unique_ptr<LoadedKernel> load(const KernelImage& image, const std::string& entry,
                                     std::uint32_t max_shared_bytes) override {
    const void* code = image.bytes.data();
    std::string ptx;  // the driver wants text zero-terminated
    if (is_ptx(image.bytes)) {
      ptx.assign(reinterpret_cast<const char*>(code), image.bytes.size());
      code = ptx.c_str();
    } else if (!is_whole_elf(image.bytes)) {
      throw DeviceError(fmt::format("loading {}: its {} bytes are not a whole ELF file", entry, image.bytes.size()),
                        static_cast<int>(CUDA_ERROR_INVALID_IMAGE));
    }
    const ContextScope scope(*driver_, primary());
    const RelaxedCapture relaxed(*driver_);
    unload_dead();
    auto kernel = std::make_unique<CudaKernel>(shared_from_this());
    kernel->entry = entry;
    kernel->bytes = image.bytes.size();
    std::string log(ptx.empty() ? 0 : 4096, '\0');  // messages of the driver's compiler about PTX
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
    const unsigned num_options = ptx.empty() ? 0 : 2;
    const auto what = [&] {
      return fmt::format("loading {} ({} bytes) on {}, whose driver supports CUDA {}{}{}", entry, image.bytes.size(),
                         info_.name, driver_->version_text(), *log.c_str() ? ": " : "", log.c_str());
    };
    if (driver_->cuLibraryLoadData && driver_->cuLibraryGetKernel && driver_->cuKernelGetFunction) {
      CUkernel handle = nullptr;
      check(
          driver_->cuLibraryLoadData(&kernel->loaded.library, code, options, values, num_options, nullptr, nullptr, 0),
          "cuLibraryLoadData", what);
      check(driver_->cuLibraryGetKernel(&handle, kernel->loaded.library, entry.c_str()), "cuLibraryGetKernel", what);
      check(driver_->cuKernelGetFunction(&kernel->function, handle), "cuKernelGetFunction", what);
    } else {
      check(driver_->cuModuleLoadData(&kernel->loaded.module, code), "cuModuleLoadData", what);
      check(driver_->cuModuleGetFunction(&kernel->function, kernel->loaded.module, entry.c_str()),
            "cuModuleGetFunction", what);
    }
    // Loading is lazy by default since CUDA 12.2. The first launch may be inside a capture, where it would fail.
    if (driver_->cuFuncLoad) check(driver_->cuFuncLoad(kernel->function), "cuFuncLoad", what);
    set_attribute(*kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(max_shared_bytes));
    set_attribute(*kernel, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
    if (driver_->cuFuncGetParamInfo) {
      std::size_t first = 0, offset = 0, bytes = 0;
      for (std::size_t i = 0; driver_->cuFuncGetParamInfo(kernel->function, i, &offset, &bytes) == CUDA_SUCCESS; ++i) {
        if (i == 0) first = offset;  // not 0 if the first one's alignment exceeds the bank's
        kernel->params_bytes = offset + bytes - first;
        kernel->several_params = i > 0;
      }
    }
    return kernel;
  }

  static CUlaunchConfig launch_config(const LaunchConfig& config, CUlaunchAttribute (&attributes)[2], Stream stream) {
    CUlaunchConfig launch;
    launch.gridDimX = config.grid[0];
    launch.gridDimY = config.grid[1];
    launch.gridDimZ = config.grid[2];
    launch.blockDimX = config.block;
    launch.blockDimY = 1;
    launch.blockDimZ = 1;
    launch.sharedMemBytes = config.shared_bytes;
    launch.hStream = stream;
    launch.attrs = attributes;
    launch.numAttrs = 0;
    if (config.cluster[0] * config.cluster[1] * config.cluster[2] > 1) {
      CUlaunchAttribute& attribute = attributes[launch.numAttrs++];
      attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      attribute.value.clusterDim = {config.cluster[0], config.cluster[1], config.cluster[2]};
    }
    if (config.pdl) {
      CUlaunchAttribute& attribute = attributes[launch.numAttrs++];
      attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      attribute.value.programmaticStreamSerializationAllowed = 1;
    }
    return launch;
  }

  void launch(const LoadedKernel& loaded, const LaunchConfig& config, const void* params, std::size_t params_bytes,
              Stream stream) override {
    const auto& kernel = static_cast<const CudaKernel&>(loaded);
    if (kernel.params_bytes != 0 && kernel.params_bytes != params_bytes) [[unlikely]]
      wrong_params(kernel, params_bytes);
    refuse_after_fork();
    const ContextScope scope(*driver_, context_);  // load() made the context
    CUlaunchAttribute attributes[2];
    CUlaunchConfig launch = launch_config(config, attributes, stream);
    void* arguments[] = {const_cast<void*>(params)};  // the driver copies from it and does not write
    void* buffer[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, arguments[0], CU_LAUNCH_PARAM_BUFFER_SIZE, &params_bytes,
                      CU_LAUNCH_PARAM_END};
    const bool several = kernel.several_params;
    check(
        driver_->cuLaunchKernelEx(&launch, kernel.function, several ? nullptr : arguments, several ? buffer : nullptr),
        "cuLaunchKernelEx", [&] { return words(kernel.entry, config); });
  }

  int max_active_clusters(const LoadedKernel& loaded, const LaunchConfig& config) override {
    if (!driver_->cuOccupancyMaxActiveClusters) return Device::max_active_clusters(loaded, config);
    const auto& kernel = static_cast<const CudaKernel&>(loaded);
    const ContextScope scope(*driver_, primary());
    CUlaunchAttribute attributes[2];
    const CUlaunchConfig launch = launch_config(config, attributes, nullptr);
    int clusters = 0;
    check(driver_->cuOccupancyMaxActiveClusters(&clusters, kernel.function, &launch), "cuOccupancyMaxActiveClusters",
          [&] { return words(kernel.entry, config); });
    return clusters;
  }

  int max_ctas_per_sm(const LoadedKernel& loaded, std::uint32_t block, std::uint32_t shared_bytes) override {
    const auto& kernel = static_cast<const CudaKernel&>(loaded);
    const ContextScope scope(*driver_, primary());
    int ctas = 0;
    check(driver_->cuOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, kernel.function, static_cast<int>(block),
                                                               shared_bytes),
          "cuOccupancyMaxActiveBlocksPerMultiprocessor", [&] {
            return fmt::format("asking how many CTAs of {} fit an SM with block {} shared {}", kernel.entry, block,
                               shared_bytes);
          });
    return ctas;
  }

  TensorMap encode_tensor_map(const TensorMapRequest& request) override {
    TensorMap map;
    if (tensor_maps_.find(request, map)) return map;
    const ContextScope scope(*driver_, primary());
    map = kernelwright::encode_tensor_map(*driver_, request);
    tensor_maps_.insert(request, map);
    return map;
  }

  Stream create_stream() override {
    const ContextScope scope(*driver_, primary());
    CUstream stream = nullptr;
    check(driver_->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate", "creating a stream");
    return stream;
  }
  void destroy_stream(Stream stream) noexcept override {
    if (stream) quietly([&] { driver_->cuStreamDestroy(stream); });
  }
  void synchronize(Stream stream) override {
    const ContextScope scope(*driver_, primary());
    check(driver_->cuStreamSynchronize(stream), "cuStreamSynchronize", "waiting for a stream");
  }

  CaptureState capture_state(Stream stream) override {
    const ContextScope scope(*driver_, primary());
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = driver_->cuStreamIsCapturing(stream, &status);
    // While a stream that synchronises with the default stream captures, even a query of the default stream is an
    // error.
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return CaptureState::kActive;
    check(result, "cuStreamIsCapturing", "asking whether a stream captures");
    if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) return CaptureState::kActive;
    return status == CU_STREAM_CAPTURE_STATUS_NONE ? CaptureState::kNone : CaptureState::kInvalidated;
  }

  DeviceEvent* create_event() override {
    const ContextScope scope(*driver_, primary());
    CUevent event = nullptr;
    check(driver_->cuEventCreate(&event, CU_EVENT_DEFAULT), "cuEventCreate", "creating an event");
    return reinterpret_cast<DeviceEvent*>(event);
  }
  void destroy_event(DeviceEvent* event) noexcept override {
    if (event) quietly([&] { driver_->cuEventDestroy(cu(event)); });
  }
  void record(DeviceEvent* event, Stream stream) override {
    const ContextScope scope(*driver_, primary());
    check(driver_->cuEventRecord(cu(event), stream), "cuEventRecord", "recording an event");
  }
  float elapsed_ms(DeviceEvent* from, DeviceEvent* to) override {
    const ContextScope scope(*driver_, primary());
    float milliseconds = 0;
    check(driver_->cuEventSynchronize(cu(to)), "cuEventSynchronize", "waiting for an event");
    check(driver_->cuEventElapsedTime(&milliseconds, cu(from), cu(to)), "cuEventElapsedTime", "timing two events");
    return milliseconds;
  }

  void begin_capture(Stream stream) override;
  std::unique_ptr<Graph> end_capture(Stream stream) override;
  void replay(CUgraphExec graph, Stream stream) {
    const ContextScope scope(*driver_, primary());
    check(driver_->cuGraphLaunch(graph, stream), "cuGraphLaunch", "replaying a graph");
  }

  /// Unloads now, or once no capture that begin_capture() began is active: a captured graph may still use the code.
  void unload(Loaded loaded) noexcept;
  /// Runs `call` in the primary context, and ignores every error. For destructors.
  void quietly(const std::function<void()>& call) noexcept {
    if (forked_after_open()) return;
    try {
      const ContextScope scope(*driver_, primary());
      call();
    } catch (const std::exception&) {
      // The context is gone or broken, and so is everything that it held.
    }
  }
  const Driver& driver() const { return *driver_; }

  std::optional<GpuReading> reading() override {
    char bus_id[32] = {};
    if (!driver_->cuDeviceGetPCIBusId ||
        driver_->cuDeviceGetPCIBusId(bus_id, sizeof bus_id - 1, device_) != CUDA_SUCCESS)
      return std::nullopt;
    return nvml_reading(bus_id);
  }

 private:
  template <class What>
  void check(CUresult result, const char* call, const What& what) const {
    driver_->check(result, call, what);
  }

  /// Retained on first use, because a context takes long to make, and takes device memory.
  CUcontext primary() {
    refuse_after_fork();
    std::call_once(retained_, [&] {
      check(driver_->cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain",
            [&] { return fmt::format("opening device {} ({})", ordinal_, info_.name); });
    });
    return context_;
  }

  int attribute(CUdevice_attribute id) const {
    int value = 0;
    check(driver_->cuDeviceGetAttribute(&value, id, device_), "cuDeviceGetAttribute",
          [&] { return fmt::format("reading attribute {} of device {}", static_cast<int>(id), ordinal_); });
    return value;
  }

  void read_info() {
    const auto what = [&] { return fmt::format("reading device {}", ordinal_); };
    check(driver_->cuDeviceGet(&device_, ordinal_), "cuDeviceGet", what);
    char name[256] = {};
    check(driver_->cuDeviceGetName(name, sizeof name - 1, device_), "cuDeviceGetName", what);
    info_.name = name;
    check(driver_->cuDeviceTotalMem(&info_.memory_bytes, device_), "cuDeviceTotalMem", what);
    info_.compute_major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    info_.compute_minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    info_.arch = arch_for_compute_capability(info_.compute_major, info_.compute_minor);
    info_.num_sms = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    info_.l2_bytes = static_cast<std::size_t>(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
    info_.shared_bytes_per_cta = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    info_.clock_khz = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  }

  void set_attribute(const CudaKernel& kernel, CUfunction_attribute id, int value) {
    check(driver_->cuFuncSetAttribute(kernel.function, id, value), "cuFuncSetAttribute", [&] {
      return fmt::format("setting {} of {} to {} ({} allows {} shared bytes)",
                         id == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? "the dynamic shared bytes"
                                                                               : "the shared-memory carveout",
                         kernel.entry, value, info_.name, info_.shared_bytes_per_cta);
    });
  }

  [[noreturn]] static void wrong_params(const CudaKernel& kernel, std::size_t given) {
    throw DeviceError(fmt::format("{}: {} bytes of parameters were given and its entry takes {}; host and device were "
                                  "built from different versions of its contract",
                                  kernel.entry, given, kernel.params_bytes),
                      static_cast<int>(CUDA_ERROR_INVALID_VALUE));
  }

  void unload_dead() noexcept;

  std::shared_ptr<const Driver> driver_;
  int ordinal_;
  CUdevice device_ = 0;
  DeviceInfo info_;
  std::once_flag retained_;
  CUcontext context_ = nullptr;
  TensorMapCache tensor_maps_;
  std::mutex dead_mutex_;     // guards dead_ and captures_
  std::vector<Loaded> dead_;  // unloaded when nothing captures
  int captures_ = 0;
};

CudaKernel::~CudaKernel() { device->unload(loaded); }

void CudaDevice::unload(Loaded loaded) noexcept {
  if (!loaded.library && !loaded.module) return;
  {
    const std::lock_guard lock(dead_mutex_);
    dead_.push_back(loaded);
  }
  unload_dead();
}

void CudaDevice::unload_dead() noexcept {
  if (forked_after_open()) return;
  std::vector<Loaded> dead;
  {
    const std::lock_guard lock(dead_mutex_);
    if (captures_ > 0 || dead_.empty()) return;
    dead.swap(dead_);
  }
  quietly([&] {
    const RelaxedCapture relaxed(*driver_);
    for (const Loaded& loaded : dead) {
      if (loaded.library) driver_->cuLibraryUnload(loaded.library);
      if (loaded.module) driver_->cuModuleUnload(loaded.module);
    }
  });
}

class CudaGraph final : public Device::Graph {
 public:
  CudaGraph(std::shared_ptr<CudaDevice> device, CUgraphExec graph) : device_(std::move(device)), graph_(graph) {}
  ~CudaGraph() override {
    device_->quietly([&] { device_->driver().cuGraphExecDestroy(graph_); });
  }
  void replay(Stream stream) override { device_->replay(graph_, stream); }

 private:
  std::shared_ptr<CudaDevice> device_;
  CUgraphExec graph_;
};

void CudaDevice::begin_capture(Stream stream) {
  const ContextScope scope(*driver_, primary());
  check(driver_->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture",
        stream ? "beginning a capture" : "beginning a capture on the default stream, which cannot capture");
  const std::lock_guard lock(dead_mutex_);
  ++captures_;
}

std::unique_ptr<Device::Graph> CudaDevice::end_capture(Stream stream) {
  const ContextScope scope(*driver_, primary());
  CUgraph graph = nullptr;
  const CUresult ended = driver_->cuStreamEndCapture(stream, &graph);
  {
    const std::lock_guard lock(dead_mutex_);
    captures_ = std::max(captures_ - 1, 0);
  }
  check(ended, "cuStreamEndCapture", "ending a capture");
  CUgraphExec executable = nullptr;
  const CUresult made = driver_->cuGraphInstantiateWithFlags(&executable, graph, 0);
  driver_->cuGraphDestroy(graph);
  check(made, "cuGraphInstantiateWithFlags", "instantiating a captured graph");
  auto captured = std::make_unique<CudaGraph>(shared_from_this(), executable);
  unload_dead();
  return captured;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(std::shared_ptr<const Driver> driver) {
    refuse_after_fork();
    const CUresult started = driver->cuInit(0);
    hold_exit_ahead_of_handlers();  // also ahead of the handlers that cuInit() registered
    int count = 0;
    CUresult result = started;
    if (result == CUDA_SUCCESS) result = driver->cuDeviceGetCount(&count);
    if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && count == 0))
      throw MissingError(fmt::format(
          "no GPU: the NVIDIA driver ({}, CUDA {}) sees no device; check nvidia-smi and CUDA_VISIBLE_DEVICES",
          driver->path, driver->version_text()));
    if (result != CUDA_SUCCESS)
      throw MissingError(fmt::format("no usable GPU: {} failed: {} ({}, CUDA {})",
                                     started == CUDA_SUCCESS ? "cuDeviceGetCount" : "cuInit", driver->describe(result),
                                     driver->path, driver->version_text()));
    for (int ordinal = 0; ordinal < count; ++ordinal) devices_.push_back(std::make_shared<CudaDevice>(driver, ordinal));
  }

  std::string_view name() const override { return "cuda"; }
  int device_count() const override { return static_cast<int>(devices_.size()); }
  Device& device(int ordinal) override {
    if (ordinal < 0 || ordinal >= device_count())
      throw MissingError(fmt::format("there is no CUDA device {}; the driver sees {}: 0 to {}", ordinal, device_count(),
                                     device_count() - 1));
    return *devices_[static_cast<std::size_t>(ordinal)];
  }

 private:
  std::vector<std::shared_ptr<CudaDevice>> devices_;
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(std::shared_ptr<const Driver> driver) {
  return std::make_unique<CudaBackend>(std::move(driver));
}

std::unique_ptr<Backend> make_cuda_backend() { return make_cuda_backend(shared_driver()); }

}  // namespace kernelwright
