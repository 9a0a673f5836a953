/// The part of DLPack's ABI that the fast door reads: tensors that a framework lends, and its table of C functions. The
/// layouts are those of the public specification, version 1.3 (dmlc.github.io/dlpack); no file of DLPack is copied.
#pragma once

#include <cstdint>

namespace kernelwright::dlpack {

constexpr std::uint32_t kMajorVersion = 1;
constexpr char kCapsuleName[] = "dlpack_exchange_api";

/// An element's type: a code (0 signed, 1 unsigned, 2 float, 4 bfloat, 6 bool, 10 e4m3, 12 e5m2), bits and lanes.
struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};

struct Device {
  std::int32_t type, id;  // type: 1 the host, 2 CUDA, 12 an extension, 13 CUDA's managed memory
};

/// Strides count elements. No strides: contiguous.
struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

struct Version {
  std::uint32_t major, minor;
};

/// A tensor that its holder must give back by `deleter`, which may be null.
struct ManagedTensor {
  Version version;
  void* context;
  void (*deleter)(ManagedTensor* self);
  std::uint64_t flags;
  Tensor tensor;
};

/// The table behind a tensor type's __dlpack_c_exchange_api__. All functions return 0, or -1 with an error. They run
/// under the GIL, and wait for no stream.
struct ExchangeApi {
  Version version;
  ExchangeApi* previous;  // of an older major version, or null
  /// A new tensor of the prototype's dtype, shape and device. An error is told by set_error(context, kind, message).
  int (*allocate)(Tensor* prototype, ManagedTensor** out, void* context,
                  void (*set_error)(void* context, const char* kind, const char* message));
  int (*managed_of)(void* object, ManagedTensor** out);
  int (*object_of)(ManagedTensor* tensor, void** out);  // takes the tensor over
  int (*borrow)(void* object, Tensor* out);             // may be null; what it lends lives until control returns
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** out);
};

}  // namespace kernelwright::dlpack
