/// The C ABI of devices.
#include "kernelwright/runtime/c/c_api_guard.h"

namespace kernelwright {
namespace {

Device& device_of(kernelwright_engine* engine, int32_t ordinal) {
  return not_null(engine, "engine").engine.device(ordinal);
}

}  // namespace
}  // namespace kernelwright

using namespace kernelwright;

kernelwright_status kernelwright_device_name(kernelwright_engine* engine, int32_t device, const char** name) {
  return guarded([&] {
    const char*& out = not_null(name, "name");
    out = device_of(engine, device).info().name.c_str();
  });
}

kernelwright_status kernelwright_device_allocate(kernelwright_engine* engine, int32_t device, uint64_t bytes,
                                                 uint64_t* address) {
  return guarded([&] {
    uint64_t& out = not_null(address, "address");
    out = device_of(engine, device).allocate(bytes);
  });
}

kernelwright_status kernelwright_device_free(kernelwright_engine* engine, int32_t device, uint64_t address) {
  return guarded([&] { device_of(engine, device).free(address); });
}

kernelwright_status kernelwright_device_write(kernelwright_engine* engine, int32_t device, uint64_t to,
                                              const void* from, uint64_t bytes) {
  return guarded([&] {
    if (bytes) not_null(static_cast<const char*>(from), "from");
    device_of(engine, device).copy_to_device(to, from, bytes);
  });
}

kernelwright_status kernelwright_device_read(kernelwright_engine* engine, int32_t device, void* to, uint64_t from,
                                             uint64_t bytes) {
  return guarded([&] {
    if (bytes) not_null(static_cast<char*>(to), "to");
    Device& of = device_of(engine, device);
    of.synchronize(nullptr);
    of.copy_to_host(to, from, bytes);
  });
}
