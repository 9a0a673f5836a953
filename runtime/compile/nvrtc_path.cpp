// The search order of libnvrtc. Only stat-like calls, because every disk hit passes here.
#include "kernelwright/runtime/compile/nvrtc_path.h"

#include <dlfcn.h>
#include <unistd.h>

#include <sys/stat.h>
#include <array>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

namespace kernelwright {
namespace {

constexpr std::array kNames{"libnvrtc.so.13", "libnvrtc.so.12"};  // newest first

bool is_file(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

/// Folders in which NVRTC is looked for together: a libnvrtc.so.13 in any of them comes before a libnvrtc.so.12.
struct Group {
  std::vector<std::string> folders;
  bool others_fill = false;  // other packages put NVRTC there as well, maybe one that is too old for us
};

/// Whether the builtins beside a libnvrtc.so.12 say 12.8 or 12.9. CUDA 12 ended with 12.9.
bool is_new_enough_12(const std::string& folder) {
  return is_file(folder + "/libnvrtc-builtins.so.12.8") || is_file(folder + "/libnvrtc-builtins.so.12.9");
}

std::optional<std::string> first_in(const Group& group) {
  for (const char* name : kNames)
    for (const std::string& folder : group.folders)
      if (std::string path = folder + "/" + name; is_file(path)) {
        if (group.others_fill && name == kNames.back() && !is_new_enough_12(folder)) continue;
        return path;
      }
  return std::nullopt;
}

std::string folder_of(std::string path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

/// The folder site-packages of a Python package that has this program or library: "kernelwright" in it has the library,
/// and "kernelwright/bin" the command. "" if there is no such package.
std::string site_packages(const std::string& own) {
  const std::filesystem::path folder(own);
  if (folder.filename() == "kernelwright") return folder.parent_path();
  if (folder.filename() == "bin" && folder.parent_path().filename() == "kernelwright")
    return folder.parent_path().parent_path();
  return "";
}

void add_each(std::vector<std::string>& folders, std::string_view list) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(':'));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    if (!item.empty()) folders.emplace_back(item);
  }
}

// Where NVRTC is looked for: either a file that was named, or groups of folders. An earlier group wins, whatever the
// version.
struct Search {
  std::string file;
  std::vector<Group> groups;
  bool named = false;  // by $KERNELWRIGHT_NVRTC, which excludes all other places
};

Search search(const std::vector<std::string>& own_folders) {
  Search search;
  // secure_getenv: a set-user-id program must not load a library that its caller names.
  if (const char* named = secure_getenv("KERNELWRIGHT_NVRTC"); named && *named) {
    const std::string place = named;
    search.named = true;
    if (is_folder(place))
      search.groups.push_back(
          {{place, place + "/lib64", place + "/lib", place + "/nvidia/cu13/lib", place + "/nvidia/cuda_nvrtc/lib"}});
    else
      search.file = place;
    return search;
  }
  if (const char* home = secure_getenv("CUDA_HOME"); home && *home)
    search.groups.push_back({{std::string(home) + "/lib64", std::string(home) + "/lib"}});
  for (const std::string& own : own_folders)
    if (const std::string site = site_packages(own); !site.empty())
      search.groups.push_back({{site + "/nvidia/cu13/lib", site + "/nvidia/cuda_nvrtc/lib"}, true});
  std::vector<std::string> folders{"/usr/local/cuda/lib64", "/usr/local/cuda/lib", "/usr/lib/x86_64-linux-gnu",
                                   "/usr/lib/aarch64-linux-gnu", "/opt/cuda/lib64"};
  for (const std::string& own : own_folders)
    for (const char* beside : {"/../cuda/lib", "/cuda/lib", "/../../cuda/lib"}) folders.push_back(own + beside);
  if (const char* list = secure_getenv("LD_LIBRARY_PATH")) add_each(folders, list);
  search.groups.push_back({std::move(folders)});
  return search;
}

}  // namespace

std::vector<std::string> own_folders() {
  std::vector<std::string> folders;
  std::array<char, PATH_MAX> program{};
  if (const ssize_t size = readlink("/proc/self/exe", program.data(), program.size() - 1); size > 0)
    folders.push_back(folder_of({program.data(), static_cast<std::size_t>(size)}));
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&nvrtc_places), &library) != 0 && library.dli_fname) {
    const std::string folder = folder_of(library.dli_fname);
    if (!folder.empty() && (folders.empty() || folders.front() != folder)) folders.push_back(folder);
  }
  return folders;
}

std::optional<std::string> find_nvrtc() { return find_nvrtc(own_folders()); }

std::optional<std::string> find_nvrtc(const std::vector<std::string>& own_folders) {
  const Search where = search(own_folders);
  if (!where.file.empty()) return where.file;
  for (const Group& group : where.groups)
    if (auto found = first_in(group)) return found;
  return std::nullopt;
}

std::string nvrtc_places() {
  const Search where = search(own_folders());
  if (!where.file.empty()) return where.file + " ($KERNELWRIGHT_NVRTC)";
  std::string words;
  for (const Group& group : where.groups)
    for (const std::string& folder : group.folders)
      words += (words.empty() ? "" : ", ") + std::filesystem::path(folder).lexically_normal().string();
  return where.named ? words + " (of $KERNELWRIGHT_NVRTC, which hides all other places)" : words;
}

}  // namespace kernelwright
