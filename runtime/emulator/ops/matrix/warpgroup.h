/// Four warps that multiply together: which wgmmas each warp has issued, and which have been performed.
///
/// Each warp issues on its own. Once all four warps have issued an operation, it is handed over and computed for its 64
/// rows at once. Operations of a warpgroup are performed in order.
#pragma once

#include <bit>
#include <cstdint>
#include <deque>

#include "kernelwright/runtime/emulator/machine/cta.h"

namespace kernelwright::emulator {

/// What an opcode and its constants say; Op::imm carries it.
enum class WgmmaInput : std::uint8_t { kF16, kBf16, kTf32, kE4m3, kE5m2, kS8, kU8 };
enum class WgmmaOutput : std::uint8_t { kF32, kF16, kS32 };
struct WgmmaShape {
  enum Flag : std::uint8_t {
    kARegisters = 1,  // A's registers are in Op::list2; without this flag Op::a is A's descriptor
    kAMnMajor = 2,
    kBMnMajor = 4,
    kNegate = 8,  // negates A or B, not both
    kSaturate = 16,
    kScalePredicate = 32,  // Op::c says whether D is read; kScaleValue negates it
    kScaleValue = 64,      // without a predicate: D is read
  };
  std::uint16_t columns = 8;
  WgmmaInput a = WgmmaInput::kF16, b = WgmmaInput::kF16;
  WgmmaOutput d = WgmmaOutput::kF32;
  std::uint8_t flags = 0;
  std::uint16_t depth = 16;  // always 32 bytes

  bool has(Flag flag) const { return (flags & flag) != 0; }
  static WgmmaShape of(std::uint64_t imm) { return std::bit_cast<WgmmaShape>(imm); }
  std::uint64_t imm() const { return std::bit_cast<std::uint64_t>(*this); }
};
static_assert(sizeof(WgmmaShape) == sizeof(std::uint64_t));

/// The operands of one warp.
struct WgmmaOperands {
  const Op* op = nullptr;
  std::uint64_t a = 0, b = 0;  // descriptors
  bool accumulate = false;
};

struct Warpgroup {
  Warpgroup(Cta& cta, std::uint32_t first_warp) : cta_(cta), first_warp_(first_warp) {}

  /// The warpgroup of a warp. Throws Fault if the CTA lacks some of its warps.
  static Warpgroup& of(Warp& warp);

  /// Throws Fault if the warps give different operands.
  void issue(Warp& warp, const WgmmaOperands& operands);
  void commit(const Warp& warp);
  /// How many operations must be performed before all but the newest `allowed` groups of a warp are complete.
  std::uint64_t needed(const Warp& warp, std::uint32_t allowed) const;
  std::uint64_t performed() const { return performed_; }
  /// How many operations a warp has issued.
  std::uint64_t issued(std::uint32_t warp_of_four) const { return members_[warp_of_four].issued; }

 private:
  struct Member {
    std::uint64_t issued = 0;
    std::deque<std::uint64_t> groups;  // operations that had been issued when each group was committed; performed
                                       // groups are removed
  };
  struct Pending {
    WgmmaOperands first;
    const Op* ops[4] = {};
    int issued = 0;
  };
  void perform(const Pending& pending);

  Cta& cta_;
  std::uint32_t first_warp_;
  Member members_[4];
  std::deque<Pending> pending_;  // not yet issued by all four warps; the first has the number handed_over_
  std::uint64_t handed_over_ = 0, performed_ = 0;
};

}  // namespace kernelwright::emulator
