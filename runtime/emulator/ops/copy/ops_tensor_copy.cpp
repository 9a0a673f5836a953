/// cp.async.bulk.tensor and cp.reduce.async.bulk.tensor in tile and im2col mode, tile::gather4 and ::scatter4 (PTX ISA
/// "Data Movement: Tensor Copy").
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/tensor_map.h"
#include "kernelwright/runtime/emulator/machine/tensor_memory.h"
#include "kernelwright/runtime/emulator/numbers/bulk_reduce.h"
#include "kernelwright/runtime/emulator/ops/addresses.h"
#include "kernelwright/runtime/emulator/ops/copy/bulk_copy.h"
#include "kernelwright/runtime/emulator/ops/mbarrier.h"
#include "kernelwright/runtime/emulator/program/decoder.h"
#include "kernelwright/runtime/emulator/trace/timeline.h"

namespace kernelwright::emulator {
namespace {

// Op::list: the addresses of the box in shared memory, of the map and of the mbarrier, then the coordinates.
constexpr std::size_t kBox = 0, kMap = kSlotsPerAddress, kMbarrier = 2 * kSlotsPerAddress,
                      kCoordinates = 3 * kSlotsPerAddress;
constexpr std::uint32_t kBoxAlignment = 128;  // PTX ISA: alignment of the shared memory address of a tensor copy

// Op::imm of loads: kPair, and the CopyMode from bit 1 on.
constexpr std::uint64_t kPair = 1;
constexpr int kGatheredRows = 4;  // tile::gather4 and ::scatter4: a column and four rows of a 2-dimensional tensor

/// One copy with all its operands read: a box, or four boxes of one row each, one after another in shared memory.
struct TensorCopy {
  TensorMapDescription map;
  int boxes = 1;
  std::int32_t at[5] = {};  // of the box; for four rows, only the column
  std::int32_t rows[kGatheredRows] = {};
  Im2colOffsets offsets;
  std::uint64_t editable_map = 0;  // the checker's: the address of a map that the kernel may edit; else 0

  std::uint32_t bytes() const { return static_cast<std::uint32_t>(boxes) * map.box_bytes(); }
  /// Bytes from one box to the next in shared memory, and the bytes of a box that a copy may touch.
  std::uint32_t step() const { return map.pitch_bytes() * map.num_rows(); }
  std::uint32_t extent() const { return static_cast<std::uint32_t>(boxes) * step(); }
  /// Calls `visit(coordinates, offset)` for each box.
  template <class Visit>
  void for_each_box(Visit&& visit) const {
    if (boxes == 1) {
      visit(at, 0u);
      return;
    }
    for (int i = 0; i < boxes; ++i) {
      const std::int32_t place[5] = {at[0], rows[i]};
      visit(place, static_cast<std::uint32_t>(i) * step());
    }
  }
};

/// How an instruction names the places of the tensor.
enum class CopyMode : std::uint8_t { kTile, kFourRows, kIm2col, kIm2colW, kIm2colW128 };

TensorMapMode mode_of_map(CopyMode mode) {
  switch (mode) {
    case CopyMode::kTile:
    case CopyMode::kFourRows: break;
    case CopyMode::kIm2col: return TensorMapMode::kIm2col;
    case CopyMode::kIm2colW: return TensorMapMode::kIm2colW;
    case CopyMode::kIm2colW128: return TensorMapMode::kIm2colW128;
  }
  return TensorMapMode::kTile;
}

/// The operand {wHalo, wOffset} of a wide copy, or the offsets of another im2col copy.
void read_offsets(Warp& warp, const Op& op, int lane, CopyMode mode, Im2colOffsets& offsets) {
  if (mode == CopyMode::kIm2colW || mode == CopyMode::kIm2colW128) {
    if (const auto halo = warp.lanes<std::uint16_t>(op.list2[0])[lane]; halo != 0)
      throw Fault(fmt::format("a wide im2col copy with a halo of {}; only 0 is modelled", halo));
    offsets.of[0] = warp.lanes<std::int16_t>(op.list2[1])[lane];
    return;
  }
  for (std::uint32_t i = 0; i < op.list2_size; ++i) {
    const std::uint16_t offset = warp.lanes<std::uint16_t>(op.list2[i])[lane];
    if (const std::uint32_t bits = 16 / op.list2_size; offset >> bits != 0)
      throw Fault(fmt::format("an im2col offset of {}, which does not fit into {} bits", offset, bits));
    offsets.of[i] = offset;
  }
}

TensorCopy read_copy(Warp& warp, const Op& op, int lane, CopyMode mode) {
  const bool gather = mode == CopyMode::kFourRows;
  const std::uint64_t address = address_in(warp, op.list + kMap, lane);
  require_multiple("the address of the tensor map", address, 64);
  const GenericPlace place = generic_place(warp, lane, address, sizeof(TensorMap), Access::kRead);
  if (!place.global) throw Fault("the tensor map is not in global, constant or parameter memory");
  Hazards* const hazards = warp.cta->cluster->hazards;
  const bool editable = hazards && hazards->tensor_map_used(warp, lane, address);
  TensorCopy copy{.map = decode_tensor_map(place.host)};
  if (editable) copy.editable_map = address;
  const int count = op.list_size - static_cast<int>(kCoordinates), rank = gather ? 2 : count;
  if (copy.map.rank != rank)
    throw Fault(fmt::format("a {}-dimensional copy with a tensor map of {} dimensions", rank, copy.map.rank));
  if (const TensorMapMode needed = mode_of_map(mode); copy.map.mode != needed)
    throw Fault(fmt::format("a copy {} with a tensor map for copies {}", name_of(needed), name_of(copy.map.mode)));
  read_offsets(warp, op, lane, mode, copy.offsets);
  for (int d = 0; d < count; ++d) {
    const std::int32_t value = warp.lanes<std::int32_t>(op.list[kCoordinates + static_cast<std::size_t>(d)])[lane];
    (gather && d > 0 ? copy.rows[d - 1] : copy.at[d]) = value;
  }
  if (gather) {
    copy.boxes = kGatheredRows;
    if (copy.map.box[1] != 1)
      throw Fault(
          fmt::format("a copy of four rows with a tensor map whose box has {} rows; it must have 1", copy.map.box[1]));
  }
  return copy;
}

/// What only loads may do (PTX ISA, "Restriction on Tensor Copy instructions").
void check_store(const TensorCopy& copy) {
  // With four rows, rows outside the tensor are skipped.
  for (int d = 0; d < copy.map.rank; ++d)
    if (copy.at[d] < 0)
      throw Fault(
          fmt::format("a store at coordinate {} of dimension {}: it has to begin inside the tensor", copy.at[d], d));
  if (copy.map.atom == SwizzleAtom::k32BFlip8B)
    throw Fault("a store with a swizzle that flips halves of 16 bytes, which loads alone may have");
  if (copy.map.mode == TensorMapMode::kIm2col)
    for (const auto [lower, upper] : copy.map.corners)
      if (lower < 0 || upper > 0)
        throw Fault(
            fmt::format("an im2col store between corners {} and {}, which reach past the tensor", lower, upper));
}

/// Checks coordinates at which an H100 stops with "illegal instruction": an innermost coordinate that is no multiple of
/// 16 bytes, and for stores a negative coordinate in any dimension. Boxes may extend past the far edges, and boxes of
/// loads past the near ones. (Measured; the PTX ISA does not say so.)
void check_coordinates(const TensorCopy& copy, Access access) {
  const std::int64_t first = static_cast<std::int64_t>(copy.at[0]) * bits_of(copy.map.element);
  if (first % 128 != 0)
    throw Fault(fmt::format("a box from element {} of a row, byte {}: not a multiple of 16", copy.at[0], first / 8));
  if (copy.map.is_padded()) {
    if (copy.at[0] % 128 != 0)
      throw Fault(fmt::format("a box from element {} of a row of {}: not a multiple of 128", copy.at[0],
                              name_of(copy.map.element)));
    const bool narrow = copy.map.element == TensorElement::kB4x16P64;
    if (access == Access::kWrite ? narrow : copy.map.atom == SwizzleAtom::k64B)
      throw Fault(fmt::format("a {} of {} with this swizzle, which its tensor map has for {} alone",
                              narrow ? "store" : "load", name_of(copy.map.element), narrow ? "loads" : "stores"));
  }
  if (access == Access::kWrite) check_store(copy);
}

/// Throws Fault unless the part of the tensor that the box covers lies in one allocation. Tells the checker about each
/// row.
void check_tensor(Warp& warp, int lane, const TensorCopy& copy, Access access) {
  check_coordinates(copy, access);
  std::uint64_t low = ~std::uint64_t{0}, high = 0;
  Hazards* hazards = warp.cta->cluster->hazards;
  copy.for_each_box([&](const auto& at, std::uint32_t) {
    const auto check = [&](const BoxRow& row) {
      if (row.begin == row.end) return;
      low = std::min(low, row.address);
      // A store writes the whole of its last 16 bytes: see store_box().
      const std::uint32_t end =
          access == Access::kWrite ? std::min((row.end + 15) / 16 * 16, copy.map.global_row_bytes()) : row.end;
      high = std::max(high, row.address + (end - row.begin));
      if (hazards) hazards->access_global(warp, lane, access, row.address, end - row.begin);
    };
    visit_box_rows(copy.map, at, check, copy.offsets);
  });
  if (low >= high) return;
  const GlobalMemory::View& memory = *warp.launch->memory;
  const GlobalMemory::Allocation* allocation = memory.find(low);
  if (!allocation || allocation->freed || high > allocation->end || (access == Access::kWrite && !allocation->writable))
    throw Fault(memory.describe(low, high - low), HazardKind::kOutOfBounds);
}

/// The bytes of shared memory that a box may touch: a swizzle stays within blocks of 128 bytes.
std::uint32_t reach(const TensorCopy& copy) {
  const std::uint32_t bytes = copy.extent();
  return copy.map.swizzle == Swizzle::kNone ? bytes : (bytes + kBoxAlignment - 1) / kBoxAlignment * kBoxAlignment;
}

Step run_load(Warp& warp, const Op& op, LaneMask lanes) {
  Cluster& cluster = *warp.cta->cluster;
  for_each_lane(lanes, [&](int lane) {
    const TensorCopy copy = read_copy(warp, op, lane, static_cast<CopyMode>(op.imm >> 1));
    const std::uint32_t bytes = copy.bytes();
    const bool pair = (op.imm & kPair) != 0;
    const SignalledPlace place =
        signalled_place(warp, address_in(warp, op.list + kBox, lane), address_in(warp, op.list + kMbarrier, lane),
                        reach(copy), kBoxAlignment, pair);
    check_tensor(warp, lane, copy, Access::kRead);
    const std::uint32_t to = place.to.offset, mbarrier = place.mbarrier.offset;
    const auto load = [&](Cta& cta) {
      // In a pair: the CTA whose rank has the same lowest bit as the rank in the mbarrier's address.
      Cta& signalled =
          pair && ((cta.rank ^ place.mbarrier.cta->rank) & 1) != 0 ? peer_cta(cta, "cp.async.bulk.tensor") : cta;
      check_signalled_write(warp, lane, cta, to, mbarrier, copy.extent(), &signalled);
      if (copy.editable_map != 0)
        cluster.hazards->tensor_map_held(warp, lane, copy.editable_map,
                                         cluster.hazards->completes_on(signalled, mbarrier));
      if (cluster.timeline) cluster.timeline->copy(warp, cta, to, mbarrier, bytes, &signalled);
      cluster.copied_bytes += bytes;
      const auto perform = [&cta, &signalled, copy, to, mbarrier, bytes] {
        copy.for_each_box([&](const auto& at, std::uint32_t offset) {
          load_box(copy.map, at, cta.shared.data(), to + offset, copy.offsets);
        });
        mbarrier_complete_bytes(signalled, mbarrier, bytes);
      };
      if (cluster.async.performs_at_once())
        perform();
      else
        cluster.async.issue(nullptr, perform);
    };
    if (op.c == kNoSlot)
      load(*place.to.cta);
    else
      for_each_destination(warp, warp.lanes<std::uint16_t>(op.c)[lane], load);
  });
  return Step::kNext;
}

/// A store, or a reduction if Op::imm names one.
template <CopyMode kMode>
Step run_store(Warp& warp, const Op& op, LaneMask lanes) {
  Cluster& cluster = *warp.cta->cluster;
  for_each_lane(lanes, [&](int lane) {
    const TensorCopy copy = read_copy(warp, op, lane, kMode);
    const std::uint32_t bytes = copy.bytes();
    const SharedPlace from =
        shared_place(warp, static_cast<std::uint32_t>(address_in(warp, op.list + kBox, lane)), reach(copy));
    if (from.cta != warp.cta) throw Fault("a tensor store out of another CTA's shared memory");
    require_multiple("the source in shared memory", from.offset, kBoxAlignment);
    ReduceBytes reduce = nullptr;
    if (op.imm != 0) {
      const char* name = reinterpret_cast<const char*>(op.imm);
      const bool bitwise =
          std::string_view(name) == "and" || std::string_view(name) == "or" || std::string_view(name) == "xor";
      const std::uint32_t size = bytes_of(copy.map.element);
      reduce = bulk_reduction(name, bitwise && !is_floating(copy.map.element) ? (size == 4   ? "b32"
                                                                                 : size == 8 ? "b64"
                                                                                             : "")
                                                                              : name_of(copy.map.element));
      if (!reduce) throw Fault(fmt::format("a reduction by {} into a tensor of {}", name, name_of(copy.map.element)));
    }
    check_tensor(warp, lane, copy, Access::kWrite);
    if (Hazards* hazards = cluster.hazards) {
      const AsyncAgent group = hazards->of_group(warp, AsyncGroup::kBulk);
      hazards->access_async(warp, lane, Access::kRead, Proxy::kAsync, group, *from.cta, from.offset, copy.extent());
      if (copy.editable_map != 0) hazards->tensor_map_held(warp, lane, copy.editable_map, group);
    }
    cluster.copied_bytes += bytes;
    if (cluster.timeline) cluster.timeline->store(warp, from.offset, bytes);
    issue_in_bulk_group(warp, lane, [copy, shared = from.cta->shared.data(), offset = from.offset, reduce] {
      copy.for_each_box([&](const auto& at, std::uint32_t step) {
        if (reduce)
          reduce_box(copy.map, at, shared, offset + step, reduce);
        else
          store_box(copy.map, at, shared, offset + step);
      });
    });
  });
  return Step::kNext;
}

Step run_prefetch(Warp&, const Op&, LaneMask) { return Step::kNext; }

/// Decodes [map, {c0, c1, …}], the operand `tensor`. `box` and `mbarrier` are operands too, or -1.
void decode_copy(Decoder& decoder, Op& op, int tensor, int box, int mbarrier) {
  const bool gather = decoder.has("tile::gather4") || decoder.has("tile::scatter4");
  const auto rank = gather ? 1 + kGatheredRows : static_cast<std::size_t>(decoder.choice(0).front() - '0');
  const Operand& operand = decoder.operands()[static_cast<std::size_t>(tensor)];
  const std::span<Slot> list = decoder.slots(kCoordinates + rank);
  decode_address(decoder, operand, StateSpace::kGeneric, list.data() + kMap);
  std::span<const Operand> coordinates(operand.elements);
  coordinates = coordinates.subspan(1);
  if (coordinates.size() == 1 && coordinates.front().kind == Operand::Kind::kVector)
    coordinates = coordinates.front().elements;
  if (coordinates.size() != rank) decoder.refuse(fmt::format("needs {} coordinates, not {}", rank, coordinates.size()));
  for (std::size_t d = 0; d < rank; ++d) list[kCoordinates + d] = decoder.source(coordinates[d], RegisterClass::k32);
  const auto shared = [&](int at, std::size_t place) {
    if (at >= 0)
      decode_address(decoder, decoder.operands()[static_cast<std::size_t>(at)], StateSpace::kShared,
                     list.data() + place);
  };
  shared(box, kBox);
  shared(mbarrier, kMbarrier);
  op.list = list.data();
  op.list_size = static_cast<std::uint8_t>(list.size());
}

CopyMode load_mode(const Decoder& decoder) {
  return decoder.has("tile::gather4")    ? CopyMode::kFourRows
         : decoder.has("im2col")         ? CopyMode::kIm2col
         : decoder.has("im2col::w")      ? CopyMode::kIm2colW
         : decoder.has("im2col::w::128") ? CopyMode::kIm2colW128
                                         : CopyMode::kTile;
}
bool takes_offsets(CopyMode mode) { return mode_of_map(mode) != TensorMapMode::kTile; }

/// The offsets of an im2col copy: dimensions W, H, D, as many as the tensor has. A wide copy has a halo and one offset.
void decode_offsets(Decoder& decoder, Op& op, std::size_t operand) {
  const auto rank = static_cast<std::size_t>(decoder.choice(0).front() - '0');
  const bool wide = is_wide(mode_of_map(load_mode(decoder)));
  if (wide) decoder.require_blackwell();
  const std::size_t wanted = wide ? 2 : rank - 2;
  const std::span<const Slot> offsets = decoder.vector(operand, RegisterClass::k16, false);
  if (offsets.size() != wanted) decoder.refuse(fmt::format("needs {} im2col offsets, not {}", wanted, offsets.size()));
  op.list2 = offsets.data();
  op.list2_size = static_cast<std::uint8_t>(offsets.size());
}

void decode_load(Decoder& decoder, Op& op) {
  const CopyMode mode = load_mode(decoder);
  const bool multicast = decoder.has("multicast::cluster"), im2col = takes_offsets(mode);
  const std::size_t operands = 3 + (im2col ? 1 : 0) + (multicast ? 1 : 0);
  decoder.expect_operands(operands, operands);
  decode_copy(decoder, op, 1, 0, 2);
  if (multicast) op.c = decoder.source(operands - 1, RegisterClass::k16);
  op.imm = static_cast<std::uint64_t>(mode) << 1;
  if (im2col) decode_offsets(decoder, op, 3);
  if (decoder.has("cta_group::1") || decoder.has("cta_group::2")) decoder.require_tensor_memory();
  if (decoder.has("cta_group::2")) op.imm |= kPair;
  if (mode == CopyMode::kFourRows) decoder.require_blackwell();
  op.run = run_load;
}

void decode_store(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  decode_copy(decoder, op, 0, 1, -1);
  op.run = decoder.has("im2col_no_offs") ? run_store<CopyMode::kIm2col> : run_store<CopyMode::kTile>;
}

void decode_scatter(Decoder& decoder, Op& op) {
  decoder.require_blackwell();
  decode_store(decoder, op);
  op.run = run_store<CopyMode::kFourRows>;
}

void decode_reduce(Decoder& decoder, Op& op) {
  static constexpr const char* kNames[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};
  decode_store(decoder, op);
  for (const char* name : kNames)
    if (decoder.choice(1) == name) op.imm = reinterpret_cast<std::uintptr_t>(name);
  decoder.communicates();
}

void decode_prefetch(Decoder& decoder, Op& op) {
  const bool im2col = takes_offsets(load_mode(decoder));
  decoder.expect_operands(im2col ? 2 : 1, im2col ? 2 : 1);
  decode_copy(decoder, op, 0, -1, -1);
  if (im2col) decode_offsets(decoder, op, 1);
  op.run = run_prefetch;
}

}  // namespace

std::span<const Form> tensor_copy_forms() {
  static constexpr Form kForms[] = {
      {"cp.async.bulk.tensor.(1d|2d|3d|4d|5d).(shared::cluster|shared::cta).global.(tile)?."
       "mbarrier::complete_tx::bytes.(multicast::cluster)?.(cta_group::1|cta_group::2)?",
       decode_load},
      {"cp.async.bulk.tensor.(2d).(shared::cluster|shared::cta).global.(tile::gather4)."
       "mbarrier::complete_tx::bytes.(multicast::cluster)?.(cta_group::1|cta_group::2)?",
       decode_load},
      {"cp.async.bulk.tensor.(2d).global.shared::cta.(tile::scatter4).bulk_group", decode_scatter},
      {"cp.async.bulk.prefetch.tensor.(2d).L2.global.(tile::gather4)", decode_prefetch},
      {"cp.async.bulk.tensor.(1d|2d|3d|4d|5d).global.shared::cta.(tile)?.bulk_group", decode_store},
      {"cp.reduce.async.bulk.tensor.(1d|2d|3d|4d|5d).global.shared::cta.(add|min|max|inc|dec|and|or|xor).(tile)?."
       "bulk_group",
       decode_reduce},
      {"cp.async.bulk.prefetch.tensor.(1d|2d|3d|4d|5d).L2.global.(tile)?", decode_prefetch},
      {"cp.async.bulk.tensor.(3d|4d|5d).(shared::cluster|shared::cta).global."
       "(im2col|im2col::w|im2col::w::128)."
       "mbarrier::complete_tx::bytes.(multicast::cluster)?.(cta_group::1|cta_group::2)?",
       decode_load},
      {"cp.async.bulk.tensor.(3d|4d|5d).global.shared::cta.(im2col_no_offs).bulk_group", decode_store},
      {"cp.reduce.async.bulk.tensor.(3d|4d|5d).global.shared::cta.(add|min|max|inc|dec|and|or|xor).(im2col_no_offs)."
       "bulk_group",
       decode_reduce},
      {"cp.async.bulk.prefetch.tensor.(3d|4d|5d).L2.global.(im2col|im2col::w|im2col::w::128)", decode_prefetch},
  };
  return kForms;
}

}  // namespace kernelwright::emulator
