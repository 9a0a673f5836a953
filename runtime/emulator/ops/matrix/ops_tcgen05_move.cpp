/// tcgen05.ld, .st and their waits: between tensor memory and the registers of a warp (PTX ISA "Tensor Memory Data
/// Movement Instructions"). visit_cells() says which register of which lane is which cell.
///
/// Both are asynchronous: a load writes its registers, and a store its cells, at some time before the wait ends. A
/// store reads its registers when it is issued. A load is done at the latest when an instruction touches its registers.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/tensor_memory.h"
#include "kernelwright/runtime/emulator/machine/warp_access.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {
namespace {

enum class Shape : std::uint8_t { k32x32b, k16x32bx2, k16x64b, k16x128b, k16x256b };
constexpr std::string_view kShapes[] = {"32x32b", "16x32bx2", "16x64b", "16x128b", "16x256b"};
constexpr std::uint32_t kRegistersEach[] = {1, 1, 1, 2, 4};  // registers of a lane, by shape, for .x1
constexpr std::uint32_t kColumnsEach[] = {1, 1, 2, 4, 8};    // cells of a tensor-memory lane (in each half), by shape,
                                                             // for .x1

/// What an opcode and its constants say; Op::imm carries it.
struct Move {
  enum Flag : std::uint8_t {
    kPacked = 1,  // .pack::16b, .unpack::16b: a register holds the low halves of two neighbouring cells
    kMax = 2,     // ld.red with max; without it min
    kAbsolute = 4,
    kNan = 8,
  };
  enum class Reduce : std::uint8_t { kNone, kF32, kU32, kS32 };
  Shape shape = Shape::k32x32b;
  std::uint8_t num = 1;
  std::uint8_t flags = 0;
  Reduce reduce = Reduce::kNone;
  std::uint32_t half_offset = 0;  // columns from the first half to the second half of .16x32bx2

  bool has(Flag flag) const { return (flags & flag) != 0; }
  std::uint32_t registers() const { return kRegistersEach[static_cast<int>(shape)] * num; }
  std::uint32_t width() const { return has(kPacked) ? 2 : 1; }  // cells that one register holds
  std::uint32_t columns() const { return kColumnsEach[static_cast<int>(shape)] * num * width(); }
  static Move of(std::uint64_t imm) { return std::bit_cast<Move>(imm); }
  std::uint64_t imm() const { return std::bit_cast<std::uint64_t>(*this); }
};
static_assert(sizeof(Move) == sizeof(std::uint64_t));

/// Calls `visit(lane, i, row, column)` for register i of each lane of the warp, with its lane and column in the block.
/// PTX ISA, the figures "Matrix Fragment for shape …"; columns count registers, before .pack::16b.
template <class Visit>
void visit_cells(const Move& move, Visit&& visit) {
  const std::uint32_t registers = move.registers();
  const auto each = [&](auto&& place) {
    for (std::uint32_t lane = 0; lane < 32; ++lane)
      for (std::uint32_t i = 0; i < registers; ++i) {
        const auto [row, column] = place(lane, i);
        visit(lane, i, row, column);
      }
  };
  using Place = std::pair<std::uint32_t, std::uint32_t>;
  switch (move.shape) {
    case Shape::k32x32b: each([](std::uint32_t lane, std::uint32_t i) { return Place{lane, i}; }); break;
    case Shape::k16x32bx2: each([](std::uint32_t lane, std::uint32_t i) { return Place{lane % 16, i}; }); break;
    case Shape::k16x64b:
      each([](std::uint32_t lane, std::uint32_t i) { return Place{lane / 4 + lane % 2 * 8, lane / 2 % 2 + i * 2}; });
      break;
    case Shape::k16x128b:
      each([](std::uint32_t lane, std::uint32_t i) { return Place{lane / 4 + i % 2 * 8, lane % 4 + i / 2 * 4}; });
      break;
    case Shape::k16x256b:
      each([](std::uint32_t lane, std::uint32_t i) {
        return Place{lane / 4 + i / 2 % 2 * 8, lane % 4 * 2 + i % 2 + i / 4 * 8};
      });
      break;
  }
}

/// The checked place on which a warp's instruction works.
struct MovePlace {
  TensorMemory* memory = nullptr;
  TensorBlock blocks[2];  // the second block is for .16x32bx2
  int count = 1;
  bool unwritten = false;  // a load reads cells that nothing has written; only with a checker
  const TensorBlock& block_of(std::uint32_t lane) const { return blocks[count == 2 && lane >= 16 ? 1 : 0]; }
  std::uint32_t* cell(const Move& move, std::uint32_t lane, std::uint32_t row, std::uint32_t column) const {
    const TensorBlock& block = block_of(lane);
    return memory->row(block.lane + row, block.column + column * move.width());
  }
};

MovePlace place_of(Warp& warp, const Op& op, const Move& move, Access access, AsyncGroup group,
                   const char* instruction) {
  std::uint32_t bits = 0;
  for (int lane = 0; lane < 32; ++lane) {
    const auto address = static_cast<std::uint32_t>(lane_address(warp, op, lane));
    if (lane > 0 && address != bits)
      throw Fault(fmt::format("{} in warp {} with different addresses in its lanes", instruction, warp.index),
                  HazardKind::kDivergence);
    bits = address;
  }
  const TensorAddress at = TensorAddress::of(bits);
  const std::uint32_t lanes = move.shape == Shape::k32x32b ? 32 : 16, own = warp.index % 4;
  Hazards* hazards = warp.cta->cluster->hazards;
  if (at.lane >= kTensorLanes || at.lane % kTensorQuadrant % lanes != 0)
    throw Fault(fmt::format("{}.{} from lane {} of tensor memory; it begins at a multiple of {} below {}", instruction,
                            kShapes[static_cast<int>(move.shape)], at.lane, lanes, kTensorLanes),
                HazardKind::kTensorMemory);
  // The hardware ignores these two bits of the address: a warp always accesses its own lanes.
  if (hazards && at.lane / kTensorQuadrant != own)
    hazards->report(HazardRule::kTensorLanes, warp, kAllLanes,
                    fmt::format("{} names lane {} of tensor memory, and warp {} reaches lanes {} to {} only",
                                instruction, at.lane, warp.index, own * 32, own * 32 + 31));
  MovePlace place;
  place.blocks[0] = {own * kTensorQuadrant + at.lane % kTensorQuadrant, lanes, at.column, move.columns()};
  if (move.shape == Shape::k16x32bx2) {
    place.count = 2;
    place.blocks[1] = place.blocks[0];
    place.blocks[1].column += move.half_offset;
  }
  for (int i = 0; i < place.count; ++i) {
    place.memory = &require_tensor(*warp.cta, place.blocks[i], instruction);
    if (hazards) place.unwritten |= hazards->tensor_access(warp, -1, access, group, *warp.cta, place.blocks[i]);
  }
  return place;
}

// ---------------------------------------------------------------------------------------------- load

/// min or max of two floats by PTX's rules: -0 is less than +0, and a number wins over a NaN unless .NaN.
float reduce_floats(float a, float b, bool max, bool nan) {
  if (std::isnan(a) || std::isnan(b)) {
    if (nan || (std::isnan(a) && std::isnan(b))) return std::bit_cast<float>(0x7fffffffu);
    return std::isnan(a) ? b : a;
  }
  if (a == b) return std::signbit(a) == max ? b : a;
  return (a < b) == max ? b : a;
}

std::uint32_t reduce(const Move& move, std::uint32_t a, std::uint32_t b) {
  const bool max = move.has(Move::kMax);
  switch (move.reduce) {
    case Move::Reduce::kU32: return max ? std::max(a, b) : std::min(a, b);
    case Move::Reduce::kS32: {
      const auto x = static_cast<std::int32_t>(a), y = static_cast<std::int32_t>(b);
      return static_cast<std::uint32_t>(max ? std::max(x, y) : std::min(x, y));
    }
    case Move::Reduce::kF32:
      return std::bit_cast<std::uint32_t>(
          reduce_floats(std::bit_cast<float>(a), std::bit_cast<float>(b), max, move.has(Move::kNan)));
    case Move::Reduce::kNone: break;
  }
  return a;
}

void load(Warp& warp, const Op& op, const MovePlace& place) {
  const Move move = Move::of(op.imm);
  std::uint32_t* registers[128];
  for (std::uint32_t i = 0; i < op.list_size; ++i) registers[i] = warp.lanes<std::uint32_t>(op.list[i]);
  const bool packed = move.has(Move::kPacked);
  visit_cells(move, [&](std::uint32_t lane, std::uint32_t i, std::uint32_t row, std::uint32_t column) {
    const std::uint32_t* cell = place.cell(move, lane, row, column);
    registers[i][lane] = packed ? (cell[0] & 0xffff) | cell[1] << 16 : cell[0];
  });
  if (move.reduce == Move::Reduce::kNone) return;
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    const auto value = [&](std::uint32_t i) {
      return move.has(Move::kAbsolute) ? registers[i][lane] & 0x7fffffff : registers[i][lane];
    };
    std::uint32_t result = reduce(move, value(0), value(0));
    for (std::uint32_t i = 1; i < op.list_size; ++i) result = reduce(move, result, value(i));
    warp.lanes<std::uint32_t>(op.d)[lane] = result;
  }
}

/// Tells the checker which registers get a value that nothing has written. A reduction uses all of them.
void tell_unwritten(Hazards& hazards, Warp& warp, const Op& op, const MovePlace& place) {
  const Move move = Move::of(op.imm);
  LaneMask unwritten[128] = {};
  visit_cells(move, [&](std::uint32_t lane, std::uint32_t i, std::uint32_t row, std::uint32_t column) {
    const TensorBlock& block = place.block_of(lane);
    for (std::uint32_t half = 0; half < move.width(); ++half)
      if (!hazards.tensor_written(*warp.cta, block.lane + row, block.column + column * move.width() + half))
        unwritten[i] |= LaneMask{1} << lane;
  });
  for (std::uint32_t i = 0; i < op.list_size; ++i)
    if (unwritten[i] != 0) hazards.register_unwritten(warp, op.list[i], unwritten[i]);
  if (op.d != kNoSlot)
    hazards.report(HazardRule::kUnwrittenTensor, warp, kAllLanes,
                   "a reduction takes tensor memory that nothing has written");
}

Step run_load(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("tcgen05.ld", lanes);
  const MovePlace place = place_of(warp, op, Move::of(op.imm), Access::kRead, AsyncGroup::kTensorLoad, "tcgen05.ld");
  Cluster& cluster = *warp.cta->cluster;
  if (cluster.hazards) {
    cluster.hazards->registers_loading(warp, {op.list, op.list_size});
    if (op.d != kNoSlot) cluster.hazards->registers_loading(warp, {&op.d, 1});
    if (place.unwritten) tell_unwritten(*cluster.hazards, warp, op, place);
  }
  if (cluster.async.performs_at_once()) {
    load(warp, op, place);
    return Step::kNext;
  }
  const std::uint32_t number = warp.tensor_loads_issued++;
  warp.tensor_loads.push_back({&op, number, [&warp, &op, place] { load(warp, op, place); }});
  cluster.async.issue(nullptr, [&warp, number] { perform_tensor_load(warp, number); });
  return Step::kNext;
}

// ---------------------------------------------------------------------------------------------- store

void store(const Move& move, const MovePlace& place, const std::uint32_t* const* registers) {
  const bool packed = move.has(Move::kPacked);
  visit_cells(move, [&](std::uint32_t lane, std::uint32_t i, std::uint32_t row, std::uint32_t column) {
    std::uint32_t* cell = place.cell(move, lane, row, column);
    const std::uint32_t value = registers[i][lane];
    if (packed) {
      cell[0] = value & 0xffff;
      cell[1] = value >> 16;
    } else {
      cell[0] = value;
    }
  });
}

Step run_store(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("tcgen05.st", lanes);
  const Move move = Move::of(op.imm);
  const MovePlace place = place_of(warp, op, move, Access::kWrite, AsyncGroup::kTensorStore, "tcgen05.st");
  const std::uint32_t* registers[128];
  for (std::uint32_t i = 0; i < op.list_size; ++i) registers[i] = warp.lanes<std::uint32_t>(op.list[i]);
  AsyncQueue& async = warp.cta->cluster->async;
  if (async.performs_at_once()) {
    store(move, place, registers);
    return Step::kNext;
  }
  std::vector<std::uint32_t> values;
  values.reserve(std::size_t{op.list_size} * 32);
  for (std::uint32_t i = 0; i < op.list_size; ++i) values.insert(values.end(), registers[i], registers[i] + 32);
  ++warp.tensor_stores;
  async.issue(nullptr, [&warp, move, place, values = std::move(values)] {
    const std::uint32_t* taken[128];
    for (std::size_t i = 0; i * 32 < values.size(); ++i) taken[i] = values.data() + i * 32;
    store(move, place, taken);
    --warp.tensor_stores;
  });
  return Step::kNext;
}

// ---------------------------------------------------------------------------------------------- waits

template <bool kLoads>
std::uint32_t outstanding(const Warp& warp) {
  return kLoads ? static_cast<std::uint32_t>(warp.tensor_loads.size()) : warp.tensor_stores;
}

template <bool kLoads>
Step run_wait(Warp& warp, const Op&, LaneMask lanes) {
  require_whole_warp(kLoads ? "tcgen05.wait::ld" : "tcgen05.wait::st", lanes);
  if (outstanding<kLoads>(warp) != 0) {
    warp.wait = {.holds = [](const Warp& w, const Wait&) { return outstanding<kLoads>(w) == 0; },
                 .describe =
                     [](const Warp& w, const Wait&) {
                       return fmt::format("{} of its {} to complete", outstanding<kLoads>(w),
                                          kLoads ? "tcgen05.ld" : "tcgen05.st");
                     }};
    return Step::kWait;
  }
  if (Hazards* hazards = warp.cta->cluster->hazards)
    hazards->tensor_wait(warp, kLoads ? AsyncGroup::kTensorLoad : AsyncGroup::kTensorStore);
  return Step::kNext;
}

// ---------------------------------------------------------------------------------------------- decoding

/// Choices: the shape, .xN. Operands: the registers at `registers`, the address at `address`. .16x32bx2 also has the
/// offset of the second half: before the registers of a store, and as the last operand of a load.
void decode_move(Decoder& decoder, Op& op, Move& move, std::size_t registers, std::size_t address, bool is_load) {
  decoder.require_tensor_memory();
  move.shape =
      static_cast<Shape>(std::find(std::begin(kShapes), std::end(kShapes), decoder.choice(0)) - std::begin(kShapes));
  move.num = static_cast<std::uint8_t>(std::stoi(std::string(decoder.choice(1).substr(1))));
  if (decoder.has("pack::16b") || decoder.has("unpack::16b")) move.flags |= Move::kPacked;
  const bool split = move.shape == Shape::k16x32bx2;
  const std::size_t expected = std::max(registers, address) + 1 + (split && is_load ? 1 : 0);
  decoder.expect_operands(expected, expected);
  if (split) {
    constexpr std::int64_t kMost = kTensorColumns - 1;
    move.half_offset = static_cast<std::uint32_t>(decoder.immediate(address + 1, 0, kMost));
  }
  if (move.registers() > 128) decoder.refuse("takes at most 128 registers");
  const std::span<const Slot> list = decoder.vector(registers, RegisterClass::k32, is_load);
  if (list.size() != move.registers())
    decoder.refuse(fmt::format("needs {} registers, not {}", move.registers(), list.size()));
  op.list = list.data();
  op.list_size = static_cast<std::uint8_t>(list.size());
  decoder.address(address, StateSpace::kShared, op);
  if (op.wide_address) decoder.refuse("needs an address of 32 bits");
  op.imm = move.imm();
  op.converge = Converge::kWarp;
}

void decode_load(Decoder& decoder, Op& op) {
  Move move;
  decode_move(decoder, op, move, 0, 1, /*is_load=*/true);
  op.run = run_load;
}

/// Operands: d, the reduced value, the address. Choices: shape, .xN, operation, .abs, .NaN, type.
void decode_load_reduce(Decoder& decoder, Op& op) {
  Move move;
  if (decoder.has("max")) move.flags |= Move::kMax;
  if (decoder.has("abs")) move.flags |= Move::kAbsolute;
  if (decoder.has("NaN")) move.flags |= Move::kNan;
  move.reduce = decoder.has("u32") ? Move::Reduce::kU32 : decoder.has("s32") ? Move::Reduce::kS32 : Move::Reduce::kF32;
  decode_move(decoder, op, move, 0, 2, /*is_load=*/true);
  op.d = decoder.destination(1, RegisterClass::k32);
  op.run = run_load;
}

void decode_store(Decoder& decoder, Op& op) {
  Move move;
  const bool split = decoder.choice(0) == "16x32bx2";
  decode_move(decoder, op, move, split ? 2 : 1, 0, /*is_load=*/false);
  op.run = run_store;
}

template <bool kLoads>
void decode_wait(Decoder& decoder, Op& op) {
  decoder.expect_operands(0, 0);
  decoder.require_tensor_memory();
  op.converge = Converge::kWarp;
  op.run = run_wait<kLoads>;
}

}  // namespace

std::span<const Form> tcgen05_move_forms() {
  static constexpr Form kForms[] = {
      {"tcgen05.ld.sync.aligned.(32x32b|16x32bx2|16x64b).(x1|x2|x4|x8|x16|x32|x64|x128).(pack::16b)?.b32", decode_load},
      {"tcgen05.ld.sync.aligned.(16x128b).(x1|x2|x4|x8|x16|x32|x64).(pack::16b)?.b32", decode_load},
      {"tcgen05.ld.sync.aligned.(16x256b).(x1|x2|x4|x8|x16|x32).(pack::16b)?.b32", decode_load},
      {"tcgen05.ld.red.sync.aligned.(32x32b|16x32bx2).(x2|x4|x8|x16|x32|x64|x128).(min|max).(abs)?.(NaN)?.f32",
       decode_load_reduce},
      {"tcgen05.ld.red.sync.aligned.(32x32b|16x32bx2).(x2|x4|x8|x16|x32|x64|x128).(min|max).(u32|s32)",
       decode_load_reduce},
      {"tcgen05.st.sync.aligned.(32x32b|16x32bx2|16x64b).(x1|x2|x4|x8|x16|x32|x64|x128).(unpack::16b)?.b32",
       decode_store},
      {"tcgen05.st.sync.aligned.(16x128b).(x1|x2|x4|x8|x16|x32|x64).(unpack::16b)?.b32", decode_store},
      {"tcgen05.st.sync.aligned.(16x256b).(x1|x2|x4|x8|x16|x32).(unpack::16b)?.b32", decode_store},
      {"tcgen05.wait::ld.sync.aligned", decode_wait<true>},
      {"tcgen05.wait::st.sync.aligned", decode_wait<false>},
  };
  return kForms;
}

}  // namespace kernelwright::emulator
