/// What every function of the C ABI does on the way in and out: arguments read, exceptions turned into a status. For
/// the c_api*.cpp files alone.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <variant>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/runtime/c/c_api.h"
#include "kernelwright/runtime/c/c_api_engine.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/runtime/process/interrupt.h"

/// Where the first version of a struct ended: it never changes. What is appended begins at a multiple of 8: the padding
/// at an old struct's end holds anything.
#define KERNELWRIGHT_END_OF(Struct, field) (offsetof(Struct, field) + sizeof(Struct::field))

namespace kernelwright {

/// Keeps `what` for kernelwright_last_error() of this thread; returns `status`.
kernelwright_status failed(kernelwright_status status, const char* what) noexcept;

/// Runs `body` and turns what it throws into a status and words.
template <class Body>
kernelwright_status guarded(Body&& body) noexcept {
  try {
    body();
    return KERNELWRIGHT_OK;
  } catch (const ConfigError& error) {
    return failed(KERNELWRIGHT_INVALID_ARGUMENT, error.what());
  } catch (const CompileError& error) {
    return failed(KERNELWRIGHT_COMPILE_ERROR, error.what());
  } catch (const MissingError& error) {
    return failed(KERNELWRIGHT_MISSING, error.what());
  } catch (const DeviceError& error) {
    return failed(KERNELWRIGHT_DEVICE_ERROR, error.what());
  } catch (const NotReadyError& error) {
    return failed(KERNELWRIGHT_NOT_READY, error.what());
  } catch (const InterruptedError& error) {
    return failed(KERNELWRIGHT_NOT_READY, error.what());
  } catch (const std::bad_alloc&) {
    return failed(KERNELWRIGHT_INTERNAL_ERROR, "out of memory");
  } catch (const std::exception& error) {
    return failed(KERNELWRIGHT_INTERNAL_ERROR, error.what());
  } catch (...) {
    return failed(KERNELWRIGHT_INTERNAL_ERROR, "an exception that is no std::exception");
  }
}

template <class T>
T& not_null(T* pointer, const char* name) {
  if (!pointer) throw ConfigError(std::string("/") + name, "is null");
  return *pointer;
}

/// Whether some version of T may have that size: a compiler makes it whole multiples of the alignment, so that no field
/// is cut.
template <class T>
bool may_be_size(std::size_t size, std::size_t first_version_bytes) {
  return size >= first_version_bytes && size <= 4096 && size % alignof(T) == 0;
}

/// The caller's struct as this library knows it: fields that the caller's header lacks are zero, fields that only the
/// caller's header has must be.
template <class T>
T read_struct(const T* given, const char* name, std::size_t first_version_bytes) {
  T known{};
  known.struct_size = sizeof(T);
  if (!given) return known;
  const std::size_t size = given->struct_size;
  if (!may_be_size<T>(size, first_version_bytes))
    throw ConfigError(fmt::format("/{}/struct_size", name),
                      fmt::format("is {}; set it to sizeof(kernelwright_{}), {} here", size, name, sizeof(T)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  const auto* beyond =
      std::find_if(bytes + std::min(size, sizeof(T)), bytes + size, [](auto byte) { return byte != 0; });
  if (beyond != bytes + size)
    throw ConfigError(
        fmt::format("/{}/struct_size", name),
        fmt::format("is {} and the field at byte {} is set; this library ({}) knows {} bytes: build with its "
                    "header, or leave newer fields zero",
                    size, beyond - bytes, kernelwright_version(), sizeof(T)));
  std::memcpy(&known, given, std::min(size, sizeof(T)));
  return known;
}

/// Writes as much of `result` as the caller's struct has room for, and leaves its struct_size.
template <class T>
void write_struct(const T& result, T* to, const char* name, std::size_t first_version_bytes) {
  const std::size_t size = not_null(to, name).struct_size;
  if (!may_be_size<T>(size, first_version_bytes))
    throw ConfigError(fmt::format("/{}/struct_size", name),
                      fmt::format("is {}; set it to sizeof(kernelwright_{}), {} here", size, name, sizeof(T)));
  constexpr std::size_t kAfterSize = sizeof(std::size_t);
  auto* bytes = reinterpret_cast<unsigned char*>(to);
  std::memset(bytes + kAfterSize, 0, size - kAfterSize);
  std::memcpy(bytes + kAfterSize, reinterpret_cast<const unsigned char*>(&result) + kAfterSize,
              std::min(size, sizeof(T)) - kAfterSize);
}

/// How a field of a C struct becomes one of the C++ struct.
template <class T>
void read_field(T& to, const T& from) {
  to = from;
}
inline void read_field(bool& to, const std::int32_t& from) { to = from != 0; }
inline void read_field(TensorStrides& to, const kernelwright_strides& from) {
  to = {from.batch, from.token, from.head};
}
inline void read_field(std::optional<float>& to, const float& from) { to = from; }
inline void read_field(std::optional<Window>& to, const std::int32_t& left, const std::int32_t& right) {
  to = Window{left, right};
}

/// The tensors of a launch from the struct `name`, `c`: the fields that visit_fields() pairs. A field that the caller
/// leaves to the problem keeps its default.
template <class Tensors, class C>
Tensors read_fields(const C& c, [[maybe_unused]] const char* name) {
  Tensors tensors;
  const auto field = [](auto& to, const auto& from) { read_field(to, from); };
  if constexpr (requires { c.overrides; }) {
    std::uint32_t bits = c.overrides;
    visit_fields(tensors, c, field, [&](auto& to, const auto&... from) {
      if (bits & 1) read_field(to, from...);
      bits >>= 1;
    });
    if (bits)
      throw ConfigError(fmt::format("/{}/overrides", name),
                        fmt::format("{:#x} has bits that mean nothing here", c.overrides));
  } else {
    visit_fields(tensors, c, field);
  }
  return tensors;
}

template <class E>
void read_word(const char* word, const char* path, E& value) {
  if (!word) return;
  const auto known = from_string<E>(word);
  if (!known) throw ConfigError(path, fmt::format("\"{:.64}\" is not one of {}", word, all_words<E>()));
  value = *known;
}

PrepareOptions options_of(const kernelwright_prepare_options* given);

/// What a handle does, and with which functions.
const char* use_of(const AttentionKernel&);
const char* use_of(const GemmKernel&);
const char* use_of(const QuantizeKernel&);
const char* use_of(const KvWriteKernel&);
const char* use_of(const RowOpKernel&);
const char* use_of(const RouteKernel&);
const char* use_of(const MoeCombineKernel&);
const char* use_of(const MoeKernel&);

/// The handle, if it is of that kind.
template <class Kernel>
const Kernel& kernel_of(const kernelwright_kernel* given) {
  const auto& held = not_null(given, "kernel").kernel;
  const auto* kernel = std::get_if<Kernel>(&held);
  if (!kernel) throw ConfigError("/kernel", std::visit([](const auto& of) { return use_of(of); }, held));
  return *kernel;
}

}  // namespace kernelwright
