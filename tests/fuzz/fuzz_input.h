/// Numbers and structs out of a fuzzer's bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

namespace kernelwright::fuzz {

/// Numbers out of the input; zeros once it has ended.
class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool ended() const { return at_ >= bytes_.size(); }
  std::uint8_t byte() { return ended() ? 0 : bytes_[at_++]; }
  std::size_t below(std::size_t count) { return (byte() | std::size_t{byte()} << 8) % count; }
  bool one_in(std::size_t count) { return below(count) == 0; }
  std::uint64_t raw() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | byte();
    return value;
  }
  /// Numbers that often cause overflows.
  std::uint64_t extreme() {
    const std::uint64_t power = std::uint64_t{1} << below(64);
    switch (below(8)) {
      case 0: return 0;
      case 1: return power;
      case 2: return power - 1;
      case 3: return 0 - power;
      case 4: return power + byte();
      case 5: return raw();
      case 6: return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(raw())));
      default: return byte();
    }
  }
  template <class T, std::size_t n>
  const T& of(const T (&list)[n]) {
    return list[below(n)];
  }
  template <class T>
  T fill() {
    T value;
    auto* to = reinterpret_cast<unsigned char*>(&value);
    for (std::size_t i = 0; i < sizeof value; ++i) to[i] = byte();
    return value;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

/// A struct in exactly as many bytes as its struct_size says.
template <class T>
class Sized {
 public:
  Sized(Input& in, const T& value) {
    constexpr std::size_t kMost = 4096;  // the library reads no more than this
    std::size_t size = sizeof(T);
    switch (in.below(12)) {
      case 0: size = in.below(kMost / 8) * 8; break;
      case 1: size = in.extreme(); break;
      case 2: size = sizeof(T) / 8 * 8 - in.below(sizeof(T) / 8) * 8; break;
      default: break;
    }
    there_ = size > kMost ? sizeof(std::size_t) : std::max(size, sizeof(std::size_t));
    memory_.reset(static_cast<unsigned char*>(std::malloc(there_)));
    std::memset(memory_.get(), 0, there_);
    std::memcpy(memory_.get(), &value, std::min(there_, sizeof(T)));
    if (there_ > sizeof(T) && in.one_in(2)) memory_.get()[sizeof(T) + in.below(there_ - sizeof(T))] = in.byte();
    std::memcpy(memory_.get(), &size, sizeof size);
    if (in.one_in(64)) memory_.reset();
  }
  T* get() { return reinterpret_cast<T*>(memory_.get()); }

 private:
  struct Free {
    void operator()(unsigned char* memory) const { std::free(memory); }
  };
  std::unique_ptr<unsigned char, Free> memory_;
  std::size_t there_ = 0;
};

}  // namespace kernelwright::fuzz
