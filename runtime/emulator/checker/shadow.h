/// What the checker remembers of a CTA's shared memory: which agent wrote each 16 bytes last, and which agents have
/// read them since.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace kernelwright::emulator {

/// One access. `time` is by the clock of `agent`. `issuer` is the warp that executed instruction `op`.
struct AccessRecord {
  std::uint32_t time = 0;
  std::uint32_t op = 0;
  std::uint16_t agent = 0, issuer = 0;
  std::uint8_t lane = 0;
  bool async_proxy : 1 = false, atomic : 1 = false;
  bool together : 1 = false;  // all live lanes of the warp executed the instruction
  bool in_bytes : 1 = false;  // of a cell's write: the bytes of this word have cells of their own
  std::uint8_t bytes = 0;     // which bytes of the word, one bit each; 0: nothing is recorded
};

/// A 16-byte cell, a 4-byte one of a cell that was split, or one of a byte.
struct ShadowCell {
  static constexpr int kReaders = 3;
  AccessRecord write;
  AccessRecord reads[kReaders];
};
static_assert(sizeof(AccessRecord) == 16 && sizeof(ShadowCell) == 64);

/// Cells are 16 bytes wide, the unit of TMA, wgmma and ldmatrix. A cell that is accessed in smaller pieces is split
/// into four parts. A part that is accessed in smaller pieces is split into its bytes.
class Shadow {
 public:
  explicit Shadow(std::size_t shared_bytes)
      : cells_((shared_bytes + 15) / 16), split_((cells_.size() + 63) / 64), parts_of_(cells_.size()) {}

  /// Calls `visit(cell, bytes_mask, offset, size)` for every cell that [offset, +bytes) touches. The mask is 0xf, or
  /// one bit for the cell of a byte. `replaces`: the access overwrites all its bytes, so cells that it covers whole
  /// need not stay split.
  template <class Visit>
  void visit(std::uint32_t offset, std::uint32_t bytes, bool replaces, Visit&& visit) {
    const std::uint32_t end = offset + bytes;
    while (offset < end) {
      const std::uint32_t cell = offset / 16, next = std::min(end, (cell + 1) * 16);
      const bool whole = next - offset == 16;
      if (whole && !is_split(cell)) {
        visit(cells_[cell], std::uint8_t{0xf}, offset, 16u);
      } else {
        auto& parts = split(cell);
        for (std::uint32_t at = offset; at < next;) {
          const std::uint32_t part_end = std::min(next, (at / 4 + 1) * 4);
          const std::uint32_t mask = ((1u << (part_end - at)) - 1) << (at % 4);
          visit_part(parts[at % 16 / 4], mask, at, replaces, visit);
          at = part_end;
        }
        if (whole && replaces) unite(cell);
      }
      offset = next;
    }
  }

  /// Calls `visit(cell, offset)` for every cell, or for its parts.
  template <class Visit>
  void visit_all(Visit&& visit) const {
    for (std::uint32_t cell = 0; cell < cells_.size(); ++cell) {
      if (!is_split(cell)) {
        visit(cells_[cell], cell * 16);
        continue;
      }
      const auto& parts = parts_[parts_of_[cell] - 1];
      for (std::uint32_t part = 0; part < 4; ++part) {
        const std::uint32_t offset = cell * 16 + part * 4;
        if (!parts[part].write.in_bytes) {
          visit(parts[part], offset);
          continue;
        }
        const auto& bytes = bytes_.at(offset / 4);
        for (std::uint32_t i = 0; i < 4; ++i) visit(bytes[i], offset + i);
      }
    }
  }

 private:
  template <class Visit>
  void visit_part(ShadowCell& part, std::uint32_t mask, std::uint32_t at, bool replaces, Visit&& visit) {
    if (mask == 0xf && !part.write.in_bytes) {
      visit(part, std::uint8_t{0xf}, at, 4u);
    } else {
      visit_bytes(part, mask, at, replaces, visit);
    }
  }
  /// Apart from visit_part(), because accesses of less than a word are rare.
  template <class Visit>
  [[gnu::noinline]] void visit_bytes(ShadowCell& part, std::uint32_t mask, std::uint32_t at, bool replaces,
                                     Visit& visit) {
    std::array<ShadowCell, 4>& bytes = bytes_[at / 4];
    if (!part.write.in_bytes) {
      for (std::uint32_t i = 0; i < 4; ++i) bytes[i] = of_bytes(part, static_cast<std::uint8_t>(1u << i));
      part.write.in_bytes = true;
    }
    for (std::uint32_t i = 0; i < 4; ++i)
      if (mask >> i & 1) visit(bytes[i], static_cast<std::uint8_t>(1u << i), at / 4 * 4 + i, 1u);
    if (mask != 0xf || !replaces) return;
    part = bytes[0];  // all four have the same write, and no reads
    part.write.bytes = 0xf;
  }
  /// What a cell says of some of its bytes.
  static ShadowCell of_bytes(ShadowCell cell, std::uint8_t bytes) {
    cell.write.bytes &= bytes;
    for (AccessRecord& read : cell.reads) read.bytes &= bytes;
    return cell;
  }
  bool is_split(std::uint32_t cell) const { return split_[cell / 64] >> (cell % 64) & 1; }
  std::array<ShadowCell, 4>& split(std::uint32_t cell) {
    std::uint32_t& place = parts_of_[cell];
    if (place == 0) {
      parts_.emplace_back();
      place = static_cast<std::uint32_t>(parts_.size());
    }
    auto& parts = parts_[place - 1];
    if (!is_split(cell)) {
      parts.fill(cells_[cell]);
      split_[cell / 64] |= std::uint64_t{1} << (cell % 64);
    }
    return parts;
  }
  void unite(std::uint32_t cell) {
    cells_[cell] = parts_[parts_of_[cell] - 1][0];
    split_[cell / 64] &= ~(std::uint64_t{1} << (cell % 64));
  }

  std::vector<ShadowCell> cells_;
  std::vector<std::uint64_t> split_;     // a bit for each cell
  std::vector<std::uint32_t> parts_of_;  // by cell: the place of its parts in `parts_`, from 1; 0: it never had any
  std::vector<std::array<ShadowCell, 4>> parts_;
  std::unordered_map<std::uint32_t, std::array<ShadowCell, 4>> bytes_;  // of words, by their number
};

}  // namespace kernelwright::emulator
