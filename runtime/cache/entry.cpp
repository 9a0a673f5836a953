// Entry files: header, named fields, checksum; PTX, checksum. Reader and writer walk one list of fields, so that both
// know the same fields.
#include "kernelwright/runtime/cache/entry.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cstring>
#include <memory>
#include <string_view>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/process/per_thread.h"

namespace kernelwright {
namespace {

// The first byte is not ASCII and the line ends differ. So a file that went through a text conversion is not taken for
// an entry.
constexpr std::array<unsigned char, 8> kMagic{0x8b, 'K', 'W', 'C', '\r', '\n', 0x1a, '\n'};
constexpr std::size_t kHeaderBytes = 8 + 4 + 4 + 8 + 8;  // magic, version, number of fields, sizes of file and head
static_assert(kHeaderBytes == kEntryPrefixBytes);
constexpr std::size_t kChecksumBytes = 32;
constexpr std::size_t kCodeHeaderBytes = 1 + 8;  // codec, size unpacked
constexpr std::size_t kMaxFields = 64;
// A std::string is larger than a short item. Without a limit, 4 bytes of length each could claim 32 bytes of list.
constexpr std::size_t kMaxItems = 4096;
constexpr std::size_t kMaxRawBytes = std::size_t{64} << 20;
// For the PTX: 167 KB pack to 23 KB in 2 ms; level 9 takes 11 ms for 17.6 KB.
constexpr int kZstdLevel = 3;

enum class Codec : unsigned char { kStored = 0, kZstd = 1 };

/// Code, plain or packed: the reader takes either.
template <class Bytes>
struct Code {
  Bytes& bytes;
  Codec wish;
};

/// The one list of the fields in an entry's head. `Key` and `Result` are const for the writer. The cubin is stored
/// plain. With SHA instructions, a reader takes 40 us to hash its 66 KB. Packed, it takes 12 us to hash 20 KB, and 110
/// us to make a context and unpack them. Without SHA instructions (164 us and 49 us) both take the same time.
template <class Key, class Result, class Visitor>
void visit_fields(Key& key, Result& binary, Visitor&& field) {
  field("key.entry_stem", key.entry_stem);
  field("key.spec", key.spec);
  field("key.closure", key.closure);
  field("key.options", key.options);
  field("key.arch", key.arch);
  field("key.abi", key.abi);
  field("key.compiler", key.compiler);
  field("entry", binary.entry);
  field("arch", binary.arch);
  field("usage.registers", binary.usage.registers);
  field("usage.spill_stores", binary.usage.spill_stores);
  field("usage.spill_loads", binary.usage.spill_loads);
  field("usage.stack", binary.usage.stack);
  field("usage.static_shared", binary.usage.static_shared);
  field("usage.barriers", binary.usage.barriers);
  field("warnings", binary.warnings);
  field("compiler", binary.compiler);
  field("compile_ms", binary.compile_ms);
  field("cubin", Code<decltype((binary.cubin))>{binary.cubin, Codec::kStored});
}

/// The part behind the head.
template <class Result>
auto ptx_of(Result& binary) {
  return Code<decltype((binary.ptx))>{binary.ptx, Codec::kZstd};
}

class Writer {
 public:
  std::vector<std::byte> out;

  template <class Int>
  void integer(Int value) {  // little-endian
    auto bits = static_cast<std::make_unsigned_t<Int>>(value);
    for (std::size_t i = 0; i < sizeof(Int); ++i) out.push_back(static_cast<std::byte>(bits >> (8 * i) & 0xff));
  }
  void raw(const void* data, std::size_t size) {
    const std::size_t at = out.size();
    out.resize(at + size);
    if (size) std::memcpy(out.data() + at, data, size);
  }
  void value(const std::string& text) { raw(text.data(), text.size()); }
  void value(const Digest& digest) { raw(digest.bytes.data(), digest.bytes.size()); }
  void value(int number) { integer(static_cast<std::int64_t>(number)); }
  void value(double number) { integer(std::bit_cast<std::uint64_t>(number)); }
  void value(const std::vector<std::string>& list) {
    if (list.size() > kMaxItems)
      throw Error(fmt::format("cache entry: a list of {} items; at most {} fit one entry", list.size(), kMaxItems));
    for (const std::string& item : list) {
      integer(static_cast<std::uint32_t>(item.size()));
      value(item);
    }
  }
  template <class Bytes>
  void value(const Code<Bytes>& code) {
    const auto& bytes = code.bytes;
    if (bytes.size() > kMaxRawBytes)
      throw Error(fmt::format("cache entry: {} bytes of code; at most {} fit one entry", bytes.size(), kMaxRawBytes));
    std::vector<std::byte> frame(code.wish == Codec::kZstd ? ZSTD_compressBound(bytes.size()) : 0);
    const std::size_t size =
        frame.empty() ? 0 : ZSTD_compress(frame.data(), frame.size(), bytes.data(), bytes.size(), kZstdLevel);
    const bool plain =
        frame.empty() || ZSTD_isError(size) || size >= bytes.size() || bytes.size() / kMaxUnpackRatio >= size;
    integer(static_cast<std::uint8_t>(plain ? Codec::kStored : Codec::kZstd));
    integer(static_cast<std::uint64_t>(bytes.size()));
    plain ? raw(bytes.data(), bytes.size()) : raw(frame.data(), size);
  }
};

/// Takes bytes from the front of a span; every read says whether there were enough.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  std::size_t left() const { return rest_.size(); }
  bool take(std::size_t size, std::span<const std::byte>& part) {
    if (size > rest_.size()) return false;
    part = rest_.first(size);
    rest_ = rest_.subspan(size);
    return true;
  }
  template <class Int>
  bool integer(Int& value) {
    std::span<const std::byte> part;
    if (!take(sizeof(Int), part)) return false;
    std::make_unsigned_t<Int> bits = 0;
    for (std::size_t i = 0; i < sizeof(Int); ++i)
      bits = static_cast<std::make_unsigned_t<Int>>(bits | static_cast<std::uint64_t>(part[i]) << (8 * i));
    value = static_cast<Int>(bits);
    return true;
  }

 private:
  std::span<const std::byte> rest_;
};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// One overload per type of field; each returns what is wrong with the value, or "".
std::string parse(std::span<const std::byte> bytes, std::string& text) {
  text = text_of(bytes);
  return {};
}
std::string parse(std::span<const std::byte> bytes, Digest& digest) {
  if (bytes.size() != digest.bytes.size()) return fmt::format("{} bytes, a digest has 32", bytes.size());
  std::memcpy(digest.bytes.data(), bytes.data(), bytes.size());
  return {};
}
std::string parse(std::span<const std::byte> bytes, int& number) {
  std::int64_t wide = 0;
  if (bytes.size() != sizeof(wide)) return fmt::format("{} bytes, a number has 8", bytes.size());
  Reader(bytes).integer(wide);
  if (wide < INT_MIN || wide > INT_MAX) return fmt::format("{} does not fit 32 bits", wide);
  number = static_cast<int>(wide);
  return {};
}
std::string parse(std::span<const std::byte> bytes, double& number) {
  std::uint64_t bits = 0;
  if (bytes.size() != sizeof(bits)) return fmt::format("{} bytes, a number has 8", bytes.size());
  Reader(bytes).integer(bits);
  number = std::bit_cast<double>(bits);
  return {};
}
std::string parse(std::span<const std::byte> bytes, std::vector<std::string>& list) {
  Reader reader(bytes);
  while (reader.left() > 0) {
    std::uint32_t size = 0;
    std::span<const std::byte> item;
    if (!reader.integer(size) || !reader.take(size, item)) return "a list item runs past the field's end";
    if (list.size() >= kMaxItems) return fmt::format("a list of more than {} items", kMaxItems);
    list.emplace_back(text_of(item));
  }
  return {};
}
/// One context per thread: to make one costs more than to unpack a cubin.
struct UnpackContext {
  std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context{ZSTD_createDCtx(), ZSTD_freeDCtx};
};

template <class Bytes>
std::string parse(std::span<const std::byte> bytes, Code<Bytes> code) {
  Reader reader(bytes);
  std::uint8_t codec = 0;
  std::uint64_t raw_size = 0;
  if (!reader.integer(codec) || !reader.integer(raw_size)) return fmt::format("{} bytes, too few", bytes.size());
  std::span<const std::byte> body;
  reader.take(reader.left(), body);
  if (raw_size > kMaxRawBytes) return fmt::format("claims {} bytes, at most {} are allowed", raw_size, kMaxRawBytes);
  if (codec == static_cast<std::uint8_t>(Codec::kStored)) {
    if (raw_size != body.size()) return fmt::format("claims {} bytes and has {}", raw_size, body.size());
  } else if (codec != static_cast<std::uint8_t>(Codec::kZstd)) {
    return fmt::format("codec {} is unknown", codec);
  } else if (raw_size / kMaxUnpackRatio >= body.size()) {
    return fmt::format("claims {} bytes of {}, more than {} to one", raw_size, body.size(), kMaxUnpackRatio);
  }
  if (codec == static_cast<std::uint8_t>(Codec::kStored)) {
    using Item = typename std::decay_t<Bytes>::value_type;
    const auto* items = reinterpret_cast<const Item*>(body.data());
    code.bytes.assign(items, items + body.size());
    return {};
  }
  code.bytes.resize(raw_size);
  ZSTD_DCtx* const context = per_thread<UnpackContext>().context.get();
  if (!context) throw std::bad_alloc();  // not the entry's fault
  const std::size_t got = ZSTD_decompressDCtx(context, code.bytes.data(), raw_size, body.data(), body.size());
  if (ZSTD_isError(got)) return fmt::format("does not unpack: {}", ZSTD_getErrorName(got));
  if (got != raw_size) return fmt::format("unpacks to {} bytes, {} were claimed", got, raw_size);
  return {};
}

bool sums_to(std::span<const std::byte> bytes, std::span<const std::byte> sum) {
  return std::memcmp(sha256(bytes).bytes.data(), sum.data(), kChecksumBytes) == 0;
}

struct Header {
  std::span<const std::byte> magic;
  std::uint32_t version = 0, num_fields = 0;
  std::uint64_t file_bytes = 0, head_bytes = 0;
  explicit Header(Reader& reader) {
    reader.take(kMagic.size(), magic);
    reader.integer(version);
    reader.integer(num_fields);
    reader.integer(file_bytes);
    reader.integer(head_bytes);
  }
};

/// The fields of a head by name. They are so few that a search beats a map.
struct FieldTable {
  struct Field {
    std::string_view name;
    std::span<const std::byte> value;
  };
  std::array<Field, kMaxFields> fields;
  std::size_t size = 0;
  const Field* find(std::string_view name) const {
    for (std::size_t i = 0; i < size; ++i)
      if (fields[i].name == name) return &fields[i];
    return nullptr;
  }
};

/// Whether the value of a code field holds its bytes plain, with their right number.
bool is_stored(std::span<const std::byte> value) {
  Reader reader(value);
  std::uint8_t codec = 0;
  std::uint64_t size = 0;
  return reader.integer(codec) && reader.integer(size) && codec == static_cast<std::uint8_t>(Codec::kStored) &&
         size == reader.left() && size <= kMaxRawBytes;
}

/// `owner`, if given, is the vector that owns `bytes`; the cubin may take it.
DecodeResult decode(std::span<const std::byte> bytes, std::size_t file_bytes, Payload payload, bool check,
                    std::vector<std::byte>* owner = nullptr) {
  auto refuse = [](std::string reason) { return DecodeResult{std::nullopt, std::move(reason)}; };
  if (bytes.size() < kHeaderBytes) return refuse(fmt::format("truncated: {} bytes", bytes.size()));
  Reader start(bytes);
  const Header header(start);
  if (std::memcmp(header.magic.data(), kMagic.data(), kMagic.size()) != 0)
    return refuse("not an entry: the magic number differs");
  if (header.version != kEntryFormatVersion)
    return refuse(fmt::format("format version {}; this library reads {}", header.version, kEntryFormatVersion));
  if (header.file_bytes != file_bytes)
    return refuse(fmt::format("truncated: {} of {} bytes", file_bytes, header.file_bytes));
  if (header.head_bytes < kHeaderBytes + kChecksumBytes || header.head_bytes > file_bytes ||
      file_bytes - header.head_bytes < kChecksumBytes)
    return refuse(fmt::format("malformed: a head of {} bytes in a file of {}", header.head_bytes, file_bytes));
  const std::size_t needed = payload == Payload::kUnpack ? file_bytes : header.head_bytes;
  if (bytes.size() < needed) return refuse(fmt::format("truncated: {} of {} bytes", bytes.size(), needed));
  const auto head = bytes.first(header.head_bytes - kChecksumBytes);
  if (check && !sums_to(head, bytes.subspan(head.size()))) return refuse("damaged: the checksum differs");
  if (header.num_fields > kMaxFields)
    return refuse(fmt::format("malformed: {} fields, at most {}", header.num_fields, kMaxFields));

  FieldTable table;
  Reader reader(head.subspan(kHeaderBytes));
  for (std::uint32_t i = 0; i < header.num_fields; ++i) {
    std::uint8_t name_size = 0;
    std::uint32_t value_size = 0;
    std::span<const std::byte> name, value;
    if (!reader.integer(name_size) || !reader.take(name_size, name) || !reader.integer(value_size) ||
        !reader.take(value_size, value))
      return refuse(fmt::format("malformed: field {} runs past the end", i));
    if (table.find(text_of(name))) return refuse(fmt::format("malformed: field {} repeats a name", i));
    table.fields[table.size++] = {text_of(name), value};
  }
  if (reader.left() > 0) return refuse(fmt::format("malformed: {} bytes after the last field", reader.left()));

  DecodedEntry entry;
  std::string reason;
  std::optional<std::span<const std::byte>> cubin;
  visit_fields(entry.key, entry.binary, [&]<class Value>(const char* name, Value&& value) {
    if (!reason.empty()) return;
    const FieldTable::Field* found = table.find(name);
    if (!found) {
      reason = fmt::format("malformed: no field '{}'", name);
      return;
    }
    if constexpr (requires { value.wish; }) {
      if (payload == Payload::kSkip) return;
      if (owner && payload == Payload::kCubinOnly && is_stored(found->value)) {
        cubin = found->value.subspan(kCodeHeaderBytes);  // taken below, when no other field is needed
        return;
      }
    }
    if (const std::string wrong = parse(found->value, value); !wrong.empty())
      reason = fmt::format("malformed: field '{}': {}", name, wrong);
  });
  if (!reason.empty()) return refuse(std::move(reason));
  if (cubin) {
    owner->erase(owner->begin(), owner->begin() + (cubin->data() - owner->data()));
    owner->resize(cubin->size());
    entry.binary.cubin = std::move(*owner);
  }
  if (payload != Payload::kUnpack) return {std::move(entry), {}};

  // The second checksum begins with the first. So one entry's PTX is not accepted behind another entry's head.
  const auto sealed = bytes.subspan(head.size(), file_bytes - kChecksumBytes - head.size());
  if (check && !sums_to(sealed, bytes.last(kChecksumBytes))) return refuse("damaged: the PTX's checksum differs");
  if (const std::string wrong = parse(sealed.subspan(kChecksumBytes), ptx_of(entry.binary)); !wrong.empty())
    return refuse(fmt::format("malformed: the PTX: {}", wrong));
  return {std::move(entry), {}};
}

}  // namespace

std::vector<std::byte> encode_entry(const CacheKey& key, const Binary& binary) {
  Writer file;
  file.raw(kMagic.data(), kMagic.size());
  file.integer(static_cast<std::uint32_t>(kEntryFormatVersion));
  file.integer(std::uint32_t{0});  // number of fields and both sizes: filled in below
  file.integer(std::uint64_t{0});
  file.integer(std::uint64_t{0});
  std::uint32_t num_fields = 0;
  visit_fields(key, binary, [&](const char* name, const auto& value) {
    Writer body;
    body.value(value);
    file.integer(static_cast<std::uint8_t>(std::strlen(name)));
    file.raw(name, std::strlen(name));
    file.integer(static_cast<std::uint32_t>(body.out.size()));
    file.raw(body.out.data(), body.out.size());
    ++num_fields;
  });
  Writer ptx;
  ptx.value(ptx_of(binary));
  const std::size_t sum_at = file.out.size(), head_bytes = sum_at + kChecksumBytes;
  Writer counts;
  counts.integer(num_fields);
  counts.integer(static_cast<std::uint64_t>(head_bytes + ptx.out.size() + kChecksumBytes));
  counts.integer(static_cast<std::uint64_t>(head_bytes));
  std::memcpy(file.out.data() + 12, counts.out.data(), counts.out.size());
  file.value(sha256(file.out));
  file.raw(ptx.out.data(), ptx.out.size());
  file.value(sha256(std::span(file.out).subspan(sum_at)));
  if (file.out.size() > kMaxEntryBytes)
    throw Error(fmt::format("cache entry: {} bytes; at most {} make one entry", file.out.size(), kMaxEntryBytes));
  return std::move(file.out);
}

std::size_t entry_bytes_needed(std::span<const std::byte> start, std::size_t file_bytes, Payload payload) {
  if (payload == Payload::kUnpack || start.size() < kHeaderBytes) return file_bytes;
  Reader reader(start);
  const std::uint64_t head_bytes = std::max<std::uint64_t>(Header(reader).head_bytes, kHeaderBytes);
  return static_cast<std::size_t>(std::min<std::uint64_t>(head_bytes, file_bytes));
}

DecodeResult decode_entry(std::span<const std::byte> bytes, std::size_t file_bytes, Payload payload) {
  return decode(bytes, file_bytes, payload, true);
}

DecodeResult decode_entry(std::vector<std::byte>&& bytes, std::size_t file_bytes, Payload payload) {
  return decode(bytes, file_bytes, payload, true, &bytes);
}

DecodeResult decode_entry_unchecked(std::span<const std::byte> bytes, Payload payload) {
  return decode(bytes, bytes.size(), payload, false);
}

}  // namespace kernelwright
