#include "kernelwright/runtime/compile/failed_sources.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "kernelwright/runtime/process/files.h"

namespace kernelwright {
namespace {

constexpr std::string_view kPrefix = "kernelwright-", kSuffix = ".cu";

std::string default_directory() {
  const char* chosen = std::getenv("TMPDIR");
  return fmt::format("{}/kernelwright-failed-{}", chosen && *chosen ? chosen : "/tmp", geteuid());
}

/// Removes the oldest of our files beyond the bounds. Other files of the folder are not ours: they stay.
void bound(int directory) {
  struct File {
    std::int64_t seconds, nanoseconds;
    std::string name;
    std::size_t bytes;
  };
  std::vector<File> files;
  for (std::string& name : names_in(directory)) {
    struct stat info {};
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) ||
        fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
      continue;
    files.push_back(
        {info.st_mtim.tv_sec, info.st_mtim.tv_nsec, std::move(name), static_cast<std::size_t>(info.st_size)});
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {  // newest first
    return std::tie(a.seconds, a.nanoseconds, a.name) > std::tie(b.seconds, b.nanoseconds, b.name);
  });
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    bytes += files[i].bytes;
    if (i > 0 && (i >= kMostFailedSources || bytes > kMostFailedBytes)) unlinkat(directory, files[i].name.c_str(), 0);
  }
}

}  // namespace

std::string keep_failed_source(std::string directory, std::string stem, std::string_view text) noexcept {
  try {
    if (stem.size() > 100) stem.resize(100);
    for (char& c : stem)
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-') c = '_';
    if (directory.empty()) directory = default_directory();
    const TrustedDirectory folder = open_trusted_directory(directory, /*create=*/true, Trust::kOwnOnly);
    if (!folder.fd) return {};
    std::string path = fmt::format("{}/{}{}-XXXXXX{}", directory, kPrefix, stem, kSuffix);
    const Fd file(mkostemps(path.data(), static_cast<int>(kSuffix.size()), O_CLOEXEC));  // O_EXCL, 0600
    if (!file) return {};
    if (write_all(file.get(), std::as_bytes(std::span(text.data(), text.size()))) != 0) {
      unlink(path.c_str());
      return {};
    }
    bound(folder.fd.get());
    return path;
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace kernelwright
