/// The part of torch's stable C ABI that the operators use: torch/csrc/inductor/aoti_torch/c/shim.h and
/// torch/csrc/stable/c/shim.h, of torch 2.10 and newer. No file of torch is copied, and none is needed to build.
/// kernelwright/_stable.py looks the functions up in the process that has loaded torch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kernelwright::fast::stable {

/// An argument or a result of an operator: the bits of a number; a Handle, which its receiver owns; for an optional
/// one the address of a Value, which its receiver owns, or null.
using Value = std::uint64_t;
struct Tensor;  // torch's, opaque
using Handle = Tensor*;

/// An operator as torch calls it, without the GIL. The results take the place of the first arguments.
using Boxed = void (*)(Value* stack, std::uint64_t num_arguments, std::uint64_t num_results);

/// The ABI for which this file is written: 2.10.0.
constexpr std::uint64_t kVersion = (std::uint64_t{2} << 56) | (std::uint64_t{10} << 48);

/// The functions, in the order of kernelwright/_stable.py. Those that return an int return 0, or an error's code.
struct Functions {
  int (*data_ptr)(Handle, void**);
  int (*dim)(Handle, std::int64_t*);
  int (*sizes)(Handle, std::int64_t**);
  int (*strides)(Handle, std::int64_t**);
  int (*dtype)(Handle, std::int32_t*);
  int (*device_type)(Handle, std::int32_t*);
  int (*device_index)(Handle, std::int32_t*);
  int (*delete_tensor)(Handle);
  bool (*grad_mode_is_enabled)();
  /// Calls an operator. It takes over the arguments on the stack.
  int (*call_dispatcher)(const char* name, const char* overload, Value* stack, std::uint64_t version);
  /// c10::TensorImpl::requires_grad(), which the ABI lacks. Null: not found, or of another form.
  bool (*requires_grad)(const void* implementation);
  // Of the C++ runtime that torch runs on: its operator delete, and std::runtime_error to be thrown.
  void (*free_value)(void*);
  void* (*allocate_exception)(std::size_t bytes);
  void (*throw_exception)(void* exception, void* type, void (*destroy)(void*));
  void (*construct_runtime_error)(void* self, const char* words);
  void (*destroy_runtime_error)(void* self);
  void* runtime_error_type;
};
constexpr std::size_t kRuntimeErrorBytes = 16;  // a vtable and a string: the Itanium C++ ABI

/// What one device has of its own.
using CurrentStream = int (*)(std::int32_t device_index, void** stream);
using Empty = int (*)(std::int64_t dim, const std::int64_t* sizes, const std::int64_t* strides, std::int32_t dtype,
                      std::int32_t device_type, std::int32_t device_index, Handle* tensor);

}  // namespace kernelwright::fast::stable
