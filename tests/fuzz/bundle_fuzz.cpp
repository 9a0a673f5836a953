// Any bytes either are an archive with a manifest or are refused with a reason, without a crash, a leak, or an
// allocation out of proportion to the input. The first byte says whether the input is a whole file, a manifest alone,
// or a key in PEM.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cache/bundle.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kernelwright;
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  if (data[0] & 2) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const bool open = public_key_of_pem(text).has_value(), secret = signing_key_of_pem(text).has_value();
    if (size < 64 && (open || secret)) std::abort();  // a key is 32 bytes in base 64, between two lines
    return 0;
  }
  if (data[0] & 1) {
    try {
      const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      const BundleManifest manifest = BundleManifest::of_json(JsonValue::parse(text));
      const std::string again =
          manifest.to_json().dump();  // a manifest that was read can be written, and reads the same
      if (BundleManifest::of_json(JsonValue::parse(again)).to_json().dump() != again) std::abort();
    } catch (const ConfigError&) {
    }
    return 0;
  }
  const ArchiveDirectory directory = read_archive(bytes.size(), [&](std::uint64_t offset, std::span<std::byte> to) {
    if (offset > bytes.size() || to.size() > bytes.size() - offset) return false;
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
    return true;
  });
  if (!directory.reason.empty()) {
    if (!directory.members.empty()) std::abort();
    return 0;
  }
  std::map<std::string, std::vector<std::byte>> members;  // what was read is what write_archive() makes
  bool sound = true;
  for (const ArchiveMember& member : directory.members) {
    const auto contents = bytes.subspan(member.offset, member.bytes);
    sound = sound && crc32(contents) == member.crc;
    members.emplace(member.name, std::vector<std::byte>(contents.begin(), contents.end()));
  }
  if (!sound) return 0;
  const std::vector<std::byte> again = write_archive(members);
  if (!std::ranges::equal(again, bytes)) std::abort();
  return 0;
}
