/// tcgen05.mma: decoding, and the work of the thread that executes it. tcgen05_mma.cpp multiplies.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/ops/matrix/tcgen05_mma.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {

/// The operands in the collector buffers, as the program's .collector qualifiers say: A, and the four of B. The
/// qualifiers only permit the hardware to reuse an operand, so only the operand's identity is kept.
struct TensorCollectors {
  using Operand = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t, std::uint8_t>;  // where, idesc, size, form
  std::optional<Operand> a, b[4];
};

namespace {

/// Positions in Op::list: slots, and the offsets of addresses.
enum ListPlace : std::size_t {
  kD,
  kDOffset,
  kA,
  kAOffset,
  kB,
  kInstructionDescriptor,
  kScaleA,
  kScaleAOffset,
  kScaleB,
  kScaleBOffset,
  kMask,
  kZeroColumnMask = kMask,
  kListSize = kMask + 8
};

TensorAddress address_of(const Warp& warp, const Op& op, std::size_t place, int lane) {
  return TensorAddress::of(warp.lanes<std::uint32_t>(op.list[place])[lane] + op.list[place + 1]);
}

void check_zero_columns(const Warp& warp, const Op& op, int lane) {
  const std::uint64_t bits = warp.lanes<std::uint64_t>(op.list[kZeroColumnMask])[lane];
  if ((bits >> 39 & 1) != 0 || (bits >> 56 & 0x3f) != 0)
    throw Fault(
        fmt::format("tcgen05.mma.ws: the zero-column mask descriptor {:#018x} asks for columns of zeros or a "
                    "shift, which is not modelled; one that asks for neither has bits 39 and 56-61 clear",
                    bits));
}

/// Checks the .collector qualifier and updates the buffer: `use` needs a `fill` of the same operand before it.
void follow_collector(Cta& cta, const Tcgen05Mma& mma, std::uint64_t a, std::uint64_t b, std::uint32_t idesc) {
  if (!cta.collectors) cta.collectors = std::make_shared<TensorCollectors>();
  const bool of_b = mma.form.has(Tcgen05Form::kWeightStationary);
  auto& buffer = of_b ? cta.collectors->b[mma.form.collector_buffer] : cta.collectors->a;
  // Types, majorness, negation, and the size that belongs to the operand.
  constexpr std::uint32_t kOfA = 7u << 7 | 1u << 13 | 1u << 15, kOfB = 7u << 10 | 1u << 14 | 1u << 16;
  const TensorCollectors::Operand operand{of_b ? b : a, idesc & (of_b ? kOfB : kOfA), of_b ? mma.shape.n : mma.shape.m,
                                          static_cast<std::uint8_t>(mma.form.flags & Tcgen05Form::kATensor)};
  const auto use = static_cast<CollectorUse>(mma.form.collector);
  if ((use == CollectorUse::kUse || use == CollectorUse::kLastUse) && buffer != operand)
    throw Fault(
        fmt::format("tcgen05.mma with .collector::{}::{}: the buffer {}; a .collector::{}::fill of this "
                    "operand must come before, with nothing between that discards it",
                    of_b ? fmt::format("b{}", mma.form.collector_buffer) : "a",
                    use == CollectorUse::kUse ? "use" : "lastuse", buffer ? "holds another operand" : "is not filled",
                    of_b ? fmt::format("b{}", mma.form.collector_buffer) : "a"));
  if (use == CollectorUse::kFill) buffer = operand;
  if (use == CollectorUse::kLastUse || use == CollectorUse::kDiscard) buffer.reset();
}

/// Tells the checker what the operation will read and write.
void check(Warp& warp, int lane, const Tcgen05Mma& mma, Hazards& hazards) {
  const AsyncAgent agent = hazards.of_group(warp, AsyncGroup::kTensor);
  constexpr AsyncGroup kBy = AsyncGroup::kTensor;
  for (std::uint32_t i = 0; i < mma.num_ctas; ++i) {
    Cta& cta = *mma.ctas[i];
    const auto read_shared = [&](std::uint32_t offset, std::uint32_t bytes) {
      if (offset < kSharedBase || offset + bytes > cta.shared.size())
        return;  // becomes a fault when the operation is
                 // performed
      hazards.access_async(warp, lane, Access::kRead, Proxy::kAsync, agent, cta, offset, bytes);
    };
    const auto read = [&](const TensorBlock& block) {
      hazards.tensor_access(warp, lane, Access::kRead, kBy, cta, block);
    };
    if (!mma.form.has(Tcgen05Form::kATensor)) visit_unit_pieces(mma.a_units(), read_shared);
    visit_unit_pieces(mma.b_units(), read_shared);
    mma.visit_a(read);
    mma.visit_scales(read);
    mma.visit_d([&](TensorBlock block) {
      // Runs of lanes that disable-output-lane leaves enabled.
      const std::uint32_t end = block.lane + block.lanes;
      for (std::uint32_t lane_begin = block.lane; lane_begin < end;) {
        std::uint32_t lane_end = lane_begin;
        while (lane_end < end && !mma.lane_disabled(i, lane_end)) ++lane_end;
        block.lane = lane_begin;
        block.lanes = lane_end - lane_begin;
        if (block.lanes != 0) hazards.tensor_access(warp, lane, Access::kWrite, kBy, cta, block, mma.accumulate);
        lane_begin = lane_end + 1;
      }
    });
  }
}

void issue(Warp& warp, const Op& op, int lane) {
  Tcgen05Mma mma{.form = Tcgen05Form::of(op.imm)};
  const Tcgen05Form& form = mma.form;
  const std::uint32_t idesc = warp.lanes<std::uint32_t>(op.list[kInstructionDescriptor])[lane];
  mma.shape = decode_instruction_descriptor(idesc, form);
  mma.layout = layout_of(form, mma.shape);
  Cta& cta = *warp.cta;
  mma.ctas[0] = &cta;
  if (form.cta_group == 2) {
    Cta& peer = peer_cta(cta, "tcgen05.mma");
    mma.ctas = cta.rank < peer.rank ? std::array{&cta, &peer} : std::array{&peer, &cta};
    mma.num_ctas = 2;
  }
  const bool sm103 = form.has(Tcgen05Form::kSm103);
  mma.d = address_of(warp, op, kD, lane);
  std::uint64_t a = 0;
  if (form.has(Tcgen05Form::kATensor)) {
    mma.a = address_of(warp, op, kA, lane);
    a = mma.a.bits();
  } else {
    a = warp.lanes<std::uint64_t>(op.list[kA])[lane];
    mma.a_shared = decode_tensor_descriptor(a, "A", sm103);
    static_cast<void>(mma.a_units());  // throws if the swizzle does not fit the elements
  }
  const std::uint64_t b = warp.lanes<std::uint64_t>(op.list[kB])[lane];
  mma.b_shared = decode_tensor_descriptor(b, "B", sm103);
  static_cast<void>(mma.b_units());
  if (form.block_scaled()) {
    mma.scale_a = address_of(warp, op, kScaleA, lane);
    mma.scale_b = address_of(warp, op, kScaleB, lane);
  }
  mma.accumulate = (warp.predicate(op.c) >> lane & 1) != (form.has(Tcgen05Form::kNegatedPredicate) ? 1u : 0u);
  if (form.has(Tcgen05Form::kLaneMask))
    for (std::size_t i = 0; i < 4u * form.cta_group; ++i)
      mma.disabled[i] = warp.lanes<std::uint32_t>(op.list[kMask + i])[lane];
  if (form.has(Tcgen05Form::kZeroColumns)) check_zero_columns(warp, op, lane);
  check_places(mma);
  follow_collector(cta, mma, a, b, idesc);
  if (Hazards* hazards = cta.cluster->hazards) check(warp, lane, mma, *hazards);
  AsyncQueue& async = cta.cluster->async;
  if (async.performs_at_once())
    perform(mma);
  else
    async.issue(tensor_chain(warp, lane), [mma] { perform(mma); });
}

Step run_mma(Warp& warp, const Op& op, LaneMask lanes) {
  for_each_lane(lanes, [&](int lane) { issue(warp, op, lane); });
  return Step::kNext;
}

// ---- decoding -----------------------------------------------------------------------------------------------------

Tcgen05Kind kind_of(const Decoder& decoder) {
  for (const Tcgen05Kind kind : {Tcgen05Kind::kF16, Tcgen05Kind::kTf32, Tcgen05Kind::kF8f6f4, Tcgen05Kind::kI8,
                                 Tcgen05Kind::kMxf8f6f4, Tcgen05Kind::kMxf4, Tcgen05Kind::kMxf4nvf4})
    if (decoder.has(name_of(kind))) return kind;
  decoder.refuse("lacks its kind");
}

void decode_collector(const Decoder& decoder, std::string_view text, Tcgen05Form& form) {
  if (text.empty()) return;
  static constexpr std::string_view kUses[] = {"discard", "fill", "use", "lastuse"};
  const std::string_view use = text.substr(text.rfind(':') + 1);
  const auto found = std::find(std::begin(kUses), std::end(kUses), use);
  if (found == std::end(kUses)) decoder.refuse("has a collector usage that does not exist");
  form.collector = static_cast<std::uint8_t>(found - std::begin(kUses));
  constexpr std::string_view kBuffer = "collector::b";
  if (text.starts_with(kBuffer)) form.collector_buffer = static_cast<std::uint8_t>(text[kBuffer.size()] - '0');
}

/// Elements of K that share a scale factor.
std::uint8_t scale_block_of(const Decoder& decoder, Tcgen05Kind kind, std::string_view text) {
  const auto one_of = [&](std::string_view names) { return names.find(" " + std::string(text) + " ") != names.npos; };
  switch (kind) {
    case Tcgen05Kind::kMxf8f6f4:
      if (text.empty() || one_of(" scale_vec::1X block32 ")) return 32;
      decoder.refuse("takes .scale_vec::1X or .block32");
    case Tcgen05Kind::kMxf4:
      if (text.empty() || one_of(" scale_vec::2X block32 ")) return 32;
      decoder.refuse("takes .scale_vec::2X or .block32");
    default:
      if (one_of(" scale_vec::2X block32 ")) return 32;
      if (one_of(" scale_vec::4X block16 ")) return 16;
      decoder.refuse("needs .scale_vec::2X, .scale_vec::4X, .block16 or .block32");
  }
}

/// The operands that all forms have: [d-tmem], a-desc or [a-tmem], b-desc, idesc.
std::span<Slot> decode_common(Decoder& decoder, Op& op, Tcgen05Form& form) {
  decoder.require_tensor_memory();
  const std::string_view target = decoder.target();
  if (target.starts_with("sm_103")) form.flags |= Tcgen05Form::kSm103;
  form.kind = kind_of(decoder);
  if (form.kind == Tcgen05Kind::kI8 && target.starts_with("sm_103"))
    decoder.refuse("kind::i8 does not exist on sm_103");
  form.cta_group = decoder.has("cta_group::2") ? 2 : 1;
  const std::span<Slot> list = decoder.slots(kListSize);
  const auto address = [&](std::size_t operand, ListPlace place) {
    Op at;
    decoder.address(operand, StateSpace::kShared, at);
    if (at.wide_address) decoder.refuse("takes 32-bit addresses of tensor memory");
    list[place] = at.a;
    list[place + 1u] = static_cast<Slot>(at.offset);
  };
  address(0, kD);
  if (decoder.operands()[1].kind == Operand::Kind::kAddress) {
    form.flags |= Tcgen05Form::kATensor;
    address(1, kA);
  } else {
    list[kA] = decoder.source(1, RegisterClass::k64);
  }
  list[kB] = decoder.source(2, RegisterClass::k64);
  list[kInstructionDescriptor] = decoder.source(3, RegisterClass::k32);
  if (form.block_scaled()) {
    address(4, kScaleA);
    address(5, kScaleB);
  }
  op.list = list.data();
  op.list_size = 0;  // the list holds offsets too: no other code may take it for registers
  op.run = run_mma;
  return list;
}

void decode_predicate(Decoder& decoder, Op& op, std::size_t operand, Tcgen05Form& form) {
  if (decoder.negated(operand)) form.flags |= Tcgen05Form::kNegatedPredicate;
  op.c = decoder.source(operand, RegisterClass::kPredicate);
}

/// Choices: cta_group, kind, .collector::a. [d], a, b, idesc, {disable-output-lane}?, enable-input-d, scale-input-d?
void decode_plain(Decoder& decoder, Op& op) {
  decoder.expect_operands(5, 7);
  Tcgen05Form form;
  decode_collector(decoder, decoder.choice(2), form);
  const std::span<Slot> list = decode_common(decoder, op, form);
  std::size_t next = 4;
  if (decoder.operands()[next].kind == Operand::Kind::kVector) {
    form.flags |= Tcgen05Form::kLaneMask;
    const std::span<const Slot> mask = decoder.vector(next, RegisterClass::k32, /*destination=*/false);
    if (mask.size() != 4u * form.cta_group)
      decoder.refuse(fmt::format("needs {} registers of disable-output-lane, not {}", 4 * form.cta_group, mask.size()));
    std::copy(mask.begin(), mask.end(), list.begin() + kMask);
    ++next;
  }
  if (next >= decoder.num_operands()) decoder.refuse("lacks its enable-input-d");
  decode_predicate(decoder, op, next++, form);
  if (next < decoder.num_operands()) {
    if (form.kind != Tcgen05Kind::kF16 && form.kind != Tcgen05Kind::kTf32)
      decoder.refuse("takes no scale-input-d; kind::f16 and kind::tf32 do");
    form.scale_d = static_cast<std::uint8_t>(decoder.immediate(next, 0, 15));
  }
  op.imm = form.imm();
}

/// Choices: cta_group, kind, scale_vectorsize, .collector::a. [d], a, b, idesc, [scale-A], [scale-B], enable-input-d
void decode_scaled(Decoder& decoder, Op& op) {
  decoder.expect_operands(7, 7);
  Tcgen05Form form;
  form.scale_block = scale_block_of(decoder, kind_of(decoder), decoder.choice(2));
  decode_collector(decoder, decoder.choice(3), form);
  decode_common(decoder, op, form);
  decode_predicate(decoder, op, 6, form);
  op.imm = form.imm();
}

/// Choices: kind, .collector::bN. [d], a, b, idesc, enable-input-d, zero-column-mask?
void decode_weight_stationary(Decoder& decoder, Op& op) {
  decoder.expect_operands(5, 6);
  Tcgen05Form form;
  form.flags = Tcgen05Form::kWeightStationary;
  decode_collector(decoder, decoder.choice(1), form);
  const std::span<Slot> list = decode_common(decoder, op, form);
  decode_predicate(decoder, op, 4, form);
  if (decoder.num_operands() == 6) {
    form.flags |= Tcgen05Form::kZeroColumns;
    list[kZeroColumnMask] = decoder.source(5, RegisterClass::k64);
  }
  op.imm = form.imm();
}

void refuse_sparse(Decoder& decoder, Op&) { decoder.refuse("sparse tcgen05.mma is not modelled"); }
void refuse_shift(Decoder& decoder, Op&) { decoder.refuse("tcgen05.mma with .ashift is not modelled"); }

#define KERNELWRIGHT_GROUP "(cta_group::1|cta_group::2)"
#define KERNELWRIGHT_PLAIN "(kind::f16|kind::tf32|kind::f8f6f4|kind::i8)"
#define KERNELWRIGHT_SCALED "(kind::mxf8f6f4|kind::mxf4|kind::mxf4nvf4)"
#define KERNELWRIGHT_SIZE "(scale_vec::1X|scale_vec::2X|scale_vec::4X|block16|block32)?"
#define KERNELWRIGHT_COLLECTOR_A "(collector::a::fill|collector::a::use|collector::a::lastuse|collector::a::discard)?"

/// "(collector::b0::fill|…|collector::b3::discard)?"
std::string collectors_of_b() {
  std::string text;
  for (int buffer = 0; buffer < 4; ++buffer)
    for (const char* use : {"fill", "use", "lastuse", "discard"})
      text += fmt::format("{}collector::b{}::{}", text.empty() ? "(" : "|", buffer, use);
  return text + ")?";
}

}  // namespace

std::span<const Form> tcgen05_mma_forms() {
  // Never destroyed, because the decoder's table, which points to it, is not destroyed either.
  static const std::string& kCollectors = *new std::string(collectors_of_b());
  static const std::string& kWeights =
      *new std::string("tcgen05.mma.ws.cta_group::1." KERNELWRIGHT_PLAIN "." + kCollectors);
  static const std::string& kSparseWeights =
      *new std::string("tcgen05.mma.ws.sp.cta_group::1." KERNELWRIGHT_PLAIN "." + kCollectors);
  static const Form kForms[] = {
      {"tcgen05.mma." KERNELWRIGHT_GROUP "." KERNELWRIGHT_PLAIN "." KERNELWRIGHT_COLLECTOR_A, decode_plain},
      {"tcgen05.mma." KERNELWRIGHT_GROUP "." KERNELWRIGHT_SCALED ".block_scale." KERNELWRIGHT_SIZE
       "." KERNELWRIGHT_COLLECTOR_A,
       decode_scaled},
      {kWeights, decode_weight_stationary},
      {"tcgen05.mma." KERNELWRIGHT_GROUP "." KERNELWRIGHT_PLAIN ".ashift." KERNELWRIGHT_COLLECTOR_A, refuse_shift},
      {"tcgen05.mma.sp." KERNELWRIGHT_GROUP "." KERNELWRIGHT_PLAIN ".(ashift)?." KERNELWRIGHT_COLLECTOR_A,
       refuse_sparse},
      {"tcgen05.mma.sp." KERNELWRIGHT_GROUP "." KERNELWRIGHT_SCALED ".block_scale." KERNELWRIGHT_SIZE
       "." KERNELWRIGHT_COLLECTOR_A,
       refuse_sparse},
      {kSparseWeights, refuse_sparse},
  };
  return kForms;
}

}  // namespace kernelwright::emulator
