/// Global memory, and the windows through which generic addresses reach the other spaces.
///
/// A global address is the address of host memory that this class allocated. A generic address has the state space in
/// its top byte: 0 global, 1 shared, 2 local. The top byte of host pointers is zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace kernelwright::emulator {

struct Warp;
struct Op;
struct Cta;

inline constexpr int kWindowShift = 56;
inline constexpr std::uint64_t kSharedWindow = 1ull << kWindowShift, kLocalWindow = 2ull << kWindowShift;

/// Bytes of global memory for which the checker remembers which launch used them last.
inline constexpr std::uint32_t kUserGranule = 32;

/// Device memory with guard bands. Freed memory stays known for a while, so that a use after free is reported as such.
/// Safe from any number of threads.
class GlobalMemory {
 public:
  /// Numbers of launches; 0: none.
  struct Users {
    std::uint32_t writer = 0, reader = 0;
  };
  struct Allocation {
    std::uint64_t begin = 0, end = 0;
    bool freed = false, writable = true;
    std::string what;                    // "allocation of 4096 bytes", "kernel parameters", a variable's name
    mutable std::vector<Users> users;    // for hazards: the last users of each 32 bytes. Empty unless tracked
    std::unique_ptr<std::byte[]> bytes;  // with its guard bands; null if other code owns the memory
  };
  /// What a launch sees: the allocations at its beginning. Lookups are lock-free.
  class View {
   public:
    /// The allocation that contains `address`, which may be a freed one; null if there is none.
    const Allocation* find(std::uint64_t address) const;
    /// "address 0x…: 16 bytes past the end of an allocation of 4096 bytes"
    std::string describe(std::uint64_t address, std::uint64_t bytes) const;
    /// From now on, every allocation that kernels may write remembers which launch used it. Call it while no launch
    /// runs.
    void track_users() const;

   private:
    friend class GlobalMemory;
    std::vector<std::shared_ptr<const Allocation>> sorted_;  // sorted by begin
  };

  GlobalMemory();
  ~GlobalMemory();
  /// Returns an address aligned to 256 bytes; 0 for 0 bytes. Throws ConfigError if no memory can have so many bytes,
  /// and std::bad_alloc if this machine does not have them.
  std::uint64_t allocate(std::size_t bytes, std::string what = {});
  void free(std::uint64_t address);  // throws Fault if it is no live allocation
  /// Makes memory that the caller keeps alive readable to kernels, until forget().
  std::uint64_t lend(const void* bytes, std::size_t size, bool writable, std::string what);
  void forget(std::uint64_t address);
  /// Throws Fault unless [address, +bytes) lies in one live allocation.
  void check(std::uint64_t address, std::size_t bytes) const;
  /// The host has written there: no launch counts as the last writer any more.
  void host_wrote(std::uint64_t address, std::size_t bytes);
  std::shared_ptr<const View> view() const;
  std::size_t allocated_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

enum class Access : std::uint8_t { kRead, kWrite };

/// The place on the host of `bytes` bytes at an address. Each function throws Fault, with what is at the address, in
/// two cases. Either the bytes are not all in one object of that space. Or the address is not a multiple of `bytes`
/// (accesses of 1, 2, 4, 8, 16 and 32 bytes), or of `most_alignment` if that is less.
struct SharedPlace {
  Cta* cta = nullptr;
  std::uint32_t offset = 0;  // from the beginning of the CTA's shared array, kSharedBase included
  std::byte* host = nullptr;
};
/// `address` is a shared::cta or shared::cluster address (32 bits, with a rank).
SharedPlace shared_place(Warp& warp, std::uint32_t address, std::uint32_t bytes, std::uint32_t most_alignment = 32);
std::byte* global_place(Warp& warp, std::uint64_t address, std::uint64_t bytes, Access access,
                        std::uint32_t most_alignment = 32);
std::byte* local_place(Warp& warp, int lane, std::uint64_t address, std::uint32_t bytes);

/// A resolved generic address: `shared.cta` is null unless the address is in shared memory.
struct GenericPlace {
  std::byte* host = nullptr;
  SharedPlace shared;
  bool global = false;
};
GenericPlace generic_place(Warp& warp, int lane, std::uint64_t address, std::uint32_t bytes, Access access);

/// The address operand of `op` for one lane: base + offset.
std::uint64_t lane_address(const Warp& warp, const Op& op, int lane);

}  // namespace kernelwright::emulator
