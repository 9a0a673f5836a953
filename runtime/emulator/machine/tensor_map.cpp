#include "kernelwright/runtime/emulator/machine/tensor_map.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/machine/fault.h"

namespace kernelwright::emulator {
namespace {

constexpr std::uint32_t kMagic = 0x4d54774b;  // "KwTM"
constexpr std::uint64_t kMostBoxBytes = 1 << 20;

/// The 128 bytes of a tensor map. Bit 21 of the second 64-bit word stays zero: some host code clears it, for old
/// drivers.
struct Image {
  std::uint32_t magic = 0;
  std::uint8_t last_dimension = 0, element = 0, swizzle = 0, fill = 0;  // the rank minus one
  std::uint64_t reserved = 0;
  std::uint64_t address = 0;
  std::uint64_t strides[4] = {};
  std::uint32_t last_index[5] = {};  // dimensions minus one: 2^32 must fit
  std::uint32_t box[5] = {};
  std::uint8_t element_strides[5] = {};
  std::uint8_t interleave = 0, atom = 0;
  std::uint8_t given = 0;  // bit d: last_index[d] was set
  std::uint8_t mode = 0;
  std::int16_t corners[6] = {};  // lower and upper, of dimensions 1 to 3
  std::uint8_t unused[10] = {};
};
static_assert(sizeof(Image) == sizeof(TensorMap) && std::is_trivially_copyable_v<Image>);

struct ElementInfo {
  TensorElement element;
  std::string_view name;
  bool floating;
};
constexpr ElementInfo kElements[] = {
    {TensorElement::kU8, "u8", false},
    {TensorElement::kU16, "u16", false},
    {TensorElement::kU32, "u32", false},
    {TensorElement::kS32, "s32", false},
    {TensorElement::kU64, "u64", false},
    {TensorElement::kS64, "s64", false},
    {TensorElement::kF16, "f16", true},
    {TensorElement::kF32, "f32", true},
    {TensorElement::kF32Ftz, "f32.ftz", true},
    {TensorElement::kF64, "f64", true},
    {TensorElement::kBf16, "bf16", true},
    {TensorElement::kTf32, "tf32", true},
    {TensorElement::kTf32Ftz, "tf32.ftz", true},
    {TensorElement::kB4x16, "b4x16", false},
    {TensorElement::kB4x16P64, "b4x16_p64", false},
    {TensorElement::kB6x16P32, "b6x16_p32", false},
};

const ElementInfo* find(std::uint32_t element) {
  for (const ElementInfo& info : kElements)
    if (static_cast<std::uint32_t>(info.element) == element) return &info;
  return nullptr;
}

using AddViolation = const std::function<void(std::string path, std::string message)>&;

/// The elements of 4 and 6 bits, and the swizzles of other atoms, come with limits of their own.
void add_violations_of_formats(const TensorMapDescription& map, AddViolation add) {
  const bool whole_swizzle = map.swizzle == Swizzle::kNone || map.swizzle == Swizzle::k128B;
  if (map.atom != SwizzleAtom::k16B && map.swizzle != Swizzle::k128B)
    add("swizzle", fmt::format("{} has atoms of 16 bytes alone; 128B has others", to_string(map.swizzle)));
  if (map.element == TensorElement::kB4x16 && map.dims[0] % 2 != 0)
    add("dims/0", fmt::format("{} elements of {} do not fill whole bytes", map.dims[0], name_of(map.element)));
  if (!map.is_padded()) return;
  const bool narrow = map.element == TensorElement::kB4x16P64;
  if (!whole_swizzle || map.atom == SwizzleAtom::k32BFlip8B || (narrow && map.atom == SwizzleAtom::k64B))
    add("swizzle", fmt::format("{} does not go with this swizzle", name_of(map.element)));
  if (map.address % 32 != 0) add("address", fmt::format("{:#x} is not a multiple of 32", map.address));
  if (map.dims[0] % 128 != 0) add("dims/0", fmt::format("{} is not a multiple of 128", map.dims[0]));
  if (map.box[0] != 128) add("box/0", fmt::format("{} is not 128, as {} has it", map.box[0], name_of(map.element)));
  for (int d = 1; d < map.rank; ++d)
    if (map.strides_bytes[d - 1] % 32 != 0)
      add(fmt::format("strides_bytes/{}", d - 1), fmt::format("{} is not a multiple of 32", map.strides_bytes[d - 1]));
}

void add_violations_of_im2col(const TensorMapDescription& map, AddViolation add) {
  if (map.rank < 3) return add("rank", fmt::format("{}: an im2col map has 3 to 5 dimensions", map.rank));
  const bool wide = is_wide(map.mode);
  // As cuTensorMapEncodeIm2colWide has it.
  const bool small_atom = map.atom == SwizzleAtom::k16B || map.atom == SwizzleAtom::k32B;
  if (wide && (map.swizzle == Swizzle::kNone || map.swizzle == Swizzle::k32B || !small_atom))
    add("swizzle", "an im2col::w map has swizzle 64B, or 128B with atoms of 16 or 32 bytes");
  const int most = wide || map.rank == 3 ? 32767 : map.rank == 4 ? 127 : 15;
  for (int d = 1; d < (wide ? 2 : map.rank - 1); ++d) {
    const auto [lower, upper] = map.corners[d - 1];
    if (lower > most || lower < -most - 1 || upper > most || upper < -most - 1)
      add(fmt::format("corners/{}", d - 1),
          fmt::format("{} and {} are not both in [{}, {}]", lower, upper, -most - 1, most));
    if (static_cast<std::int64_t>(map.dims[d]) + upper <= lower)
      add(fmt::format("corners/{}", d - 1), "there is no pixel between them");
  }
}

/// What the driver rejects.
std::vector<Violation> violations_of(const TensorMapDescription& map) {
  std::vector<Violation> found;
  const auto add = [&](std::string path, std::string message) {
    found.push_back({"/tensor_map/" + std::move(path), std::move(message)});
  };
  if (map.rank < 1 || map.rank > 5) {
    add("rank", fmt::format("{} is outside [1, 5]", map.rank));
    return found;
  }
  const bool im2col = map.mode != TensorMapMode::kTile;
  if (im2col) add_violations_of_im2col(map, add);
  add_violations_of_formats(map, add);
  if (map.address % 16 != 0) add("address", fmt::format("{:#x} is not a multiple of 16", map.address));
  for (int d = 0; d < map.rank; ++d) {
    if (map.dims[d] == 0 || map.dims[d] > std::uint64_t{1} << 32)
      add(fmt::format("dims/{}", d), fmt::format("{} is outside [1, 4294967296]", map.dims[d]));
    const std::uint32_t most = im2col && d == 1 ? 1024 : 256;
    if (map.box[d] == 0 || map.box[d] > most)
      add(fmt::format("box/{}", d), fmt::format("{} is outside [1, {}]", map.box[d], most));
    if (map.element_strides[d] == 0 || map.element_strides[d] > 8)
      add(fmt::format("element_strides/{}", d), fmt::format("{} is outside [1, 8]", map.element_strides[d]));
    if (d == 0) continue;
    const std::uint64_t stride = map.strides_bytes[d - 1];
    if (stride % 16 != 0 || stride >= std::uint64_t{1} << 40)
      add(fmt::format("strides_bytes/{}", d - 1),
          fmt::format("{} is not a multiple of 16 below 2^40; pad the rows of the tensor", stride));
  }
  const std::uint32_t row = map.row_bytes(), span = span_bytes(map.swizzle);
  if (row % 16 != 0)
    add("box/0", fmt::format("{} elements of {} are {} bytes, which is not a multiple of 16", map.box[0],
                             name_of(map.element), row));
  if (span != 0 && row > span)
    add("box/0", fmt::format("{} elements of {} are {} bytes, and swizzle {} takes {} at most; use a narrower box",
                             map.box[0], name_of(map.element), row, to_string(map.swizzle), span));
  if (map.fill_nan && !is_floating(map.element)) add("fill_nan", fmt::format("{} has no NaN", name_of(map.element)));
  return found;
}

}  // namespace

std::uint32_t span_bytes(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::kNone: return 0;
    case Swizzle::k32B: return 32;
    case Swizzle::k64B: return 64;
    case Swizzle::k128B: return 128;
  }
  return 0;
}

std::string_view name_of(TensorElement element) {
  const ElementInfo* info = find(static_cast<std::uint32_t>(element));
  return info ? info->name : "an unknown type";
}

bool is_floating(TensorElement element) {
  const ElementInfo* info = find(static_cast<std::uint32_t>(element));
  return info && info->floating;
}

std::string_view name_of(TensorMapMode mode) {
  constexpr std::string_view kNames[] = {"of tiles", "by im2col", "by im2col::w", "by im2col::w::128"};
  return kNames[static_cast<std::size_t>(mode)];
}

TensorMapDescription describe(const TensorMapRequest& request) {
  TensorMapDescription map;
  map.address = request.address;
  map.rank = request.rank;
  map.swizzle = request.swizzle;
  switch (request.dtype) {
    case DType::kF16: map.element = TensorElement::kF16; break;
    case DType::kBf16: map.element = TensorElement::kBf16; break;
    case DType::kF32:
    case DType::kTf32: map.element = TensorElement::kF32; break;
    case DType::kE4m3:
    case DType::kE5m2:
    case DType::kMxfp8: map.element = TensorElement::kU8; break;
    case DType::kMxfp4:
    case DType::kNvfp4:
      throw ConfigError("/tensor_map/dtype", fmt::format("the emulator does not model tensor maps of {}; {} would do",
                                                         to_string(request.dtype), "e4m3"));
  }
  for (int d = 0; d < request.rank && d < 5; ++d) {
    map.dims[d] = request.dims[d];
    map.box[d] = request.box[d];
    if (d > 0) map.strides_bytes[d - 1] = request.strides_bytes[d - 1];
  }
  return map;
}

TensorMap encode_tensor_map(const TensorMapDescription& map) {
  if (std::vector<Violation> found = violations_of(map); !found.empty()) throw ConfigError(std::move(found));
  Image image;
  image.magic = kMagic;
  image.last_dimension = static_cast<std::uint8_t>(map.rank - 1);
  image.given = (1 << map.rank) - 1;
  image.atom = static_cast<std::uint8_t>(map.atom);
  image.mode = static_cast<std::uint8_t>(map.mode);
  for (int i = 0; i < 3; ++i) {
    image.corners[2 * i] = map.corners[i].lower;
    image.corners[2 * i + 1] = map.corners[i].upper;
  }
  image.element = static_cast<std::uint8_t>(map.element);
  image.swizzle = static_cast<std::uint8_t>(map.swizzle);
  image.fill = map.fill_nan;
  image.address = map.address;
  for (int d = 0; d < 5; ++d) {
    image.last_index[d] = d < map.rank ? static_cast<std::uint32_t>(map.dims[d] - 1) : 0;
    image.box[d] = d < map.rank ? map.box[d] : 1;
    image.element_strides[d] = static_cast<std::uint8_t>(d < map.rank ? map.element_strides[d] : 1);
    if (d > 0 && d < map.rank) image.strides[d - 1] = map.strides_bytes[d - 1];
  }
  TensorMap encoded;
  std::memcpy(encoded.bytes, &image, sizeof image);
  return encoded;
}

TensorMapDescription decode_tensor_map(const std::byte* bytes) {
  Image image;
  std::memcpy(&image, bytes, sizeof image);
  if (image.magic != kMagic)
    throw Fault(fmt::format("the 128 bytes at {:#x} are no tensor map that this machine encoded",
                            reinterpret_cast<std::uint64_t>(bytes)));
  const auto refuse = [](const char* field, std::uint32_t value) {
    throw Fault(fmt::format("a tensor map with {} {}, which is not modelled", field, value));
  };
  if (image.interleave != 0) refuse("interleave layout", image.interleave);
  if (image.atom > static_cast<std::uint8_t>(SwizzleAtom::k64B)) refuse("swizzle atomicity", image.atom);
  if (image.mode > static_cast<std::uint8_t>(TensorMapMode::kIm2colW128)) refuse("mode", image.mode);
  if (image.swizzle > static_cast<std::uint8_t>(Swizzle::k128B)) refuse("swizzle mode", image.swizzle);
  if (find(image.element) == nullptr) refuse("element type", image.element);
  TensorMapDescription map;
  map.address = image.address;
  map.element = static_cast<TensorElement>(image.element);
  map.rank = image.last_dimension + 1;
  map.swizzle = static_cast<Swizzle>(image.swizzle);
  map.atom = static_cast<SwizzleAtom>(image.atom);
  map.mode = static_cast<TensorMapMode>(image.mode);
  for (int i = 0; i < 3; ++i) map.corners[i] = {image.corners[2 * i], image.corners[2 * i + 1]};
  map.fill_nan = image.fill != 0;
  for (int d = 0; d < 5; ++d) {
    if (d >= map.rank) continue;
    map.dims[d] = (image.given >> d & 1) != 0 ? std::uint64_t{image.last_index[d]} + 1 : 0;
    map.box[d] = image.box[d];
    map.element_strides[d] = d == 0 ? 1 : image.element_strides[d];  // the innermost stride is not read
    if (d > 0) map.strides_bytes[d - 1] = image.strides[d - 1];
  }
  if (const std::vector<Violation> found = violations_of(map); !found.empty())
    throw Fault(fmt::format("the tensor map at {:#x} is invalid: {}", reinterpret_cast<std::uint64_t>(bytes),
                            found.front().text()));
  std::uint64_t box_bytes = map.pitch_bytes();
  if (map.mode != TensorMapMode::kTile) box_bytes *= map.pixels();
  for (int d = 1; d < 5 && map.mode == TensorMapMode::kTile; ++d) box_bytes *= map.rows(d);
  if (box_bytes > kMostBoxBytes)
    throw Fault(fmt::format("the tensor map at {:#x} has a box of {} bytes, and no CTA has so much shared memory",
                            reinterpret_cast<std::uint64_t>(bytes), box_bytes));
  if (map.address == 0)
    throw Fault(fmt::format("the tensor map at {:#x} has a null address, which nothing has replaced",
                            reinterpret_cast<std::uint64_t>(bytes)));
  return map;
}

void replace_tensor_map_field(std::byte* bytes, TensorMapField field, std::uint32_t ordinal, std::uint64_t value) {
  Image image;
  std::memcpy(&image, bytes, sizeof image);
  image.magic = kMagic;
  const std::uint32_t limit = field == TensorMapField::kGlobalStride ? 4 : 5;
  if (ordinal >= limit) throw Fault(fmt::format("tensormap.replace of dimension {}, of {}", ordinal, limit));
  switch (field) {
    case TensorMapField::kAddress: image.address = value; break;
    case TensorMapField::kRank: image.last_dimension = static_cast<std::uint8_t>(value); break;
    case TensorMapField::kBoxDim: image.box[ordinal] = static_cast<std::uint32_t>(value); break;
    case TensorMapField::kGlobalDim:
      image.last_index[ordinal] = static_cast<std::uint32_t>(value - 1);
      image.given |= static_cast<std::uint8_t>(1 << ordinal);
      break;
    case TensorMapField::kGlobalStride: image.strides[ordinal] = value; break;
    case TensorMapField::kElementStride: image.element_strides[ordinal] = static_cast<std::uint8_t>(value); break;
    case TensorMapField::kElement: image.element = static_cast<std::uint8_t>(value); break;
    case TensorMapField::kInterleave: image.interleave = static_cast<std::uint8_t>(value); break;
    case TensorMapField::kSwizzle: image.swizzle = static_cast<std::uint8_t>(value); break;
    case TensorMapField::kSwizzleAtomicity: image.atom = static_cast<std::uint8_t>(value); break;
    case TensorMapField::kFill: image.fill = static_cast<std::uint8_t>(value); break;
  }
  std::memcpy(bytes, &image, sizeof image);
}

std::uint32_t TensorMapDescription::pitch_bytes() const { return std::max(row_bytes(), span_bytes(swizzle)); }

}  // namespace kernelwright::emulator
