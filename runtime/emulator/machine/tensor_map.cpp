#include "kernelwright/runtime/emulator/machine/tensor_map.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/machine/fault.h"

namespace kernelwright::emulator {
namespace {

constexpr std::uint32_t kMagic = 0x4d54774b;  // "KwTM"

/// The 128 bytes of a tensor map. Bit 21 of the second 64-bit word stays zero: some host code clears it, for old
/// drivers.
struct Image {
  std::uint32_t magic = 0;
  std::uint8_t rank = 0, element = 0, swizzle = 0, fill = 0;
  std::uint64_t reserved = 0;
  std::uint64_t address = 0;
  std::uint64_t strides[4] = {};
  std::uint32_t last_index[5] = {};  // dimensions minus one: 2^32 must fit
  std::uint32_t box[5] = {};
  std::uint8_t element_strides[5] = {};
  std::uint8_t interleave = 0, atomicity = 0;
  std::uint8_t unused[25] = {};
};
static_assert(sizeof(Image) == sizeof(TensorMap) && std::is_trivially_copyable_v<Image>);

std::uint32_t span_bytes(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::kNone: return 0;
    case Swizzle::k32B: return 32;
    case Swizzle::k64B: return 64;
    case Swizzle::k128B: return 128;
  }
  return 0;
}

struct ElementInfo {
  TensorElement element;
  std::uint32_t bytes;
  std::string_view name;
  bool floating;
};
constexpr ElementInfo kElements[] = {
    {TensorElement::kU8, 1, "u8", false},   {TensorElement::kU16, 2, "u16", false},
    {TensorElement::kU32, 4, "u32", false}, {TensorElement::kS32, 4, "s32", false},
    {TensorElement::kU64, 8, "u64", false}, {TensorElement::kS64, 8, "s64", false},
    {TensorElement::kF16, 2, "f16", true},  {TensorElement::kF32, 4, "f32", true},
    {TensorElement::kF64, 8, "f64", true},  {TensorElement::kBf16, 2, "bf16", true},
};

const ElementInfo* find(std::uint32_t element) {
  for (const ElementInfo& info : kElements)
    if (static_cast<std::uint32_t>(info.element) == element) return &info;
  return nullptr;
}

/// What cuTensorMapEncodeTiled rejects.
std::vector<Violation> violations_of(const TensorMapDescription& map) {
  std::vector<Violation> found;
  const auto add = [&](std::string path, std::string message) {
    found.push_back({"/tensor_map/" + std::move(path), std::move(message)});
  };
  if (map.rank < 1 || map.rank > 5) {
    add("rank", fmt::format("{} is outside [1, 5]", map.rank));
    return found;
  }
  if (map.address % 16 != 0) add("address", fmt::format("{:#x} is not a multiple of 16", map.address));
  if (map.address == 0) add("address", "is null");
  for (int d = 0; d < map.rank; ++d) {
    if (map.dims[d] == 0 || map.dims[d] > std::uint64_t{1} << 32)
      add(fmt::format("dims/{}", d), fmt::format("{} is outside [1, 4294967296]", map.dims[d]));
    if (map.box[d] == 0 || map.box[d] > 256)
      add(fmt::format("box/{}", d), fmt::format("{} is outside [1, 256]", map.box[d]));
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

/// Calls `unit(at, place)` for the 16-byte units of a row: the unit's offset in the row, and its place in shared
/// memory.
template <class Unit>
inline void visit_units(std::uint32_t offset, std::uint32_t bytes, Swizzle swizzle, Unit&& unit) {
  const std::uint32_t mask = swizzle == Swizzle::kNone ? 0 : span_bytes(swizzle) - 16;
  for (std::uint32_t at = 0; at < bytes; at += 16) {
    const std::uint32_t plain = offset + at;
    unit(at, plain ^ (plain >> 3 & mask));
  }
}

void fill_nan(std::byte* to, std::size_t bytes, TensorElement element) {
  // All ones except the sign, in the element's width: what the hardware writes.
  std::memset(to, 0xff, bytes);
  const std::size_t size = bytes_of(element);
  for (std::size_t last = size - 1; last < bytes; last += size) to[last] = std::byte{0x7f};
}

}  // namespace

std::uint32_t bytes_of(TensorElement element) {
  const ElementInfo* info = find(static_cast<std::uint32_t>(element));
  return info ? info->bytes : 1;
}

std::string_view name_of(TensorElement element) {
  const ElementInfo* info = find(static_cast<std::uint32_t>(element));
  return info ? info->name : "an unknown type";
}

bool is_floating(TensorElement element) {
  const ElementInfo* info = find(static_cast<std::uint32_t>(element));
  return info && info->floating;
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
  image.rank = static_cast<std::uint8_t>(map.rank);
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
  if (image.atomicity != 0) refuse("swizzle atomicity", image.atomicity);
  if (image.swizzle > static_cast<std::uint8_t>(Swizzle::k128B)) refuse("swizzle mode", image.swizzle);
  if (find(image.element) == nullptr) refuse("element type", image.element);
  TensorMapDescription map;
  map.address = image.address;
  map.element = static_cast<TensorElement>(image.element);
  map.rank = image.rank;
  map.swizzle = static_cast<Swizzle>(image.swizzle);
  map.fill_nan = image.fill != 0;
  for (int d = 0; d < 5; ++d) {
    if (d >= map.rank) continue;
    map.dims[d] = std::uint64_t{image.last_index[d]} + 1;
    map.box[d] = image.box[d];
    map.element_strides[d] = d == 0 ? 1 : image.element_strides[d];  // the innermost stride is not read
    if (d > 0) map.strides_bytes[d - 1] = image.strides[d - 1];
  }
  if (const std::vector<Violation> found = violations_of(map); !found.empty())
    throw Fault(fmt::format("the tensor map at {:#x} is invalid: {}", reinterpret_cast<std::uint64_t>(bytes),
                            found.front().text()));
  return map;
}

void replace_tensor_map_field(std::byte* bytes, TensorMapField field, std::uint32_t ordinal, std::uint64_t value) {
  Image image;
  std::memcpy(&image, bytes, sizeof image);
  if (image.magic != kMagic) throw Fault("tensormap.replace in 128 bytes that are no tensor map");
  const std::uint32_t limit = field == TensorMapField::kGlobalStride ? 4 : 5;
  if (ordinal >= limit) throw Fault(fmt::format("tensormap.replace of dimension {}, of {}", ordinal, limit));
  switch (field) {
    case TensorMapField::kAddress: image.address = value; break;
    case TensorMapField::kRank: image.rank = static_cast<std::uint8_t>(value + 1); break;
    case TensorMapField::kBoxDim: image.box[ordinal] = static_cast<std::uint32_t>(value); break;
    case TensorMapField::kGlobalDim: image.last_index[ordinal] = static_cast<std::uint32_t>(value - 1); break;
    case TensorMapField::kGlobalStride: image.strides[ordinal] = value; break;
    case TensorMapField::kElementStride: image.element_strides[ordinal] = static_cast<std::uint8_t>(value); break;
    case TensorMapField::kElement: image.element = static_cast<std::uint8_t>(value); break;
    case TensorMapField::kInterleave: image.interleave = static_cast<std::uint8_t>(value); break;
    case TensorMapField::kSwizzle: image.swizzle = static_cast<std::uint8_t>(value); break;
    case TensorMapField::kSwizzleAtomicity: image.atomicity = static_cast<std::uint8_t>(value); break;
    case TensorMapField::kFill: image.fill = static_cast<std::uint8_t>(value); break;
  }
  std::memcpy(bytes, &image, sizeof image);
}

std::uint32_t TensorMapDescription::pitch_bytes() const { return std::max(row_bytes(), span_bytes(swizzle)); }

void load_box(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], std::byte* shared,
              std::uint32_t offset) {
  const std::uint32_t bytes = map.row_bytes();
  std::byte row_buffer[kMostRowBytes];
  const auto assemble = [&](const BoxRow& row, std::byte* to) {
    const bool nan = map.fill_nan;
    const auto fill = [&](std::uint32_t begin, std::uint32_t end) {
      if (nan)
        fill_nan(to + begin, end - begin, map.element);
      else
        std::memset(to + begin, 0, end - begin);
    };
    fill(0, row.begin);
    if (row.end > row.begin)
      std::memcpy(to + row.begin, reinterpret_cast<const std::byte*>(row.address), row.end - row.begin);
    fill(row.end, bytes);
  };
  visit_box_rows(map, coordinates, [&](const BoxRow& row) {
    if (map.swizzle == Swizzle::kNone) {
      assemble(row, shared + offset + row.offset);
      return;
    }
    const std::byte* from = row_buffer;
    if (row.begin == 0 && row.end == bytes)
      from = reinterpret_cast<const std::byte*>(row.address);
    else
      assemble(row, row_buffer);
    visit_units(offset + row.offset, bytes, map.swizzle,
                [&](std::uint32_t at, std::uint32_t place) { std::memcpy(shared + place, from + at, 16); });
  });
}

namespace {
/// Calls `take(global, row, bytes)` for the part of each row that is in the tensor. In the other mode, calls it for
/// each 16-byte unit of which at least a part is in the tensor.
template <class Take>
void take_box(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], const std::byte* shared,
              std::uint32_t offset, bool whole_units, Take&& take) {
  const std::uint32_t bytes = map.row_bytes();
  std::byte row_buffer[kMostRowBytes];
  visit_box_rows(map, coordinates, [&](const BoxRow& row) {
    if (row.begin == row.end) return;
    const std::byte* from = shared + offset + row.offset;
    if (map.swizzle != Swizzle::kNone) {
      visit_units(offset + row.offset, bytes, map.swizzle,
                  [&](std::uint32_t at, std::uint32_t place) { std::memcpy(row_buffer + at, shared + place, 16); });
      from = row_buffer;
    }
    const std::uint32_t end = whole_units ? std::min((row.end + 15) / 16 * 16, bytes) : row.end;
    take(reinterpret_cast<std::byte*>(row.address), from + row.begin, end - row.begin);
  });
}
}  // namespace

void store_box(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], const std::byte* shared,
               std::uint32_t offset) {
  take_box(map, coordinates, shared, offset, /*whole_units=*/true,
           [](std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); });
}

void reduce_box(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], const std::byte* shared,
                std::uint32_t offset, ReduceBytes reduce) {
  take_box(map, coordinates, shared, offset, /*whole_units=*/false, reduce);
}

}  // namespace kernelwright::emulator
