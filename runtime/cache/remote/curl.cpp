#include "kernelwright/runtime/cache/remote/curl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/process/fork_guard.h"
#include "kernelwright/runtime/process/interrupt.h"

namespace kernelwright {
namespace {

constexpr const char* kWhatToInstall =
    "install libcurl (Debian: libcurl4), or name its file in $KERNELWRIGHT_CURL; redis:// addresses need none";

std::unique_ptr<Curl> opened(const std::string& path) {
  // Debian has two flavours, of OpenSSL and of GnuTLS. Both speak the same interface.
  const std::vector<std::string> names =
      path.empty() ? std::vector<std::string>{"libcurl.so.4", "libcurl-gnutls.so.4"} : std::vector{path};
  void* library = nullptr;
  std::string reason;
  for (const std::string& name : names) {
    if (library) break;
    library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library || !reason.empty()) continue;
    const char* said = dlerror();
    reason = said ? said : "unknown reason";
  }
  if (!library) throw MissingError(fmt::format("an http address needs libcurl: {}; {}", reason, kWhatToInstall));
  auto curl = std::make_unique<Curl>();
  std::string missing;
  const auto find = [&](auto& call, const char* name) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, name));
    if (!call && missing.empty()) missing = name;
  };
  find(curl->global_init, "curl_global_init");
  find(curl->version, "curl_version");
  find(curl->easy_init, "curl_easy_init");
  find(curl->easy_cleanup, "curl_easy_cleanup");
  find(curl->easy_setopt, "curl_easy_setopt");
  find(curl->easy_getinfo, "curl_easy_getinfo");
  find(curl->easy_strerror, "curl_easy_strerror");
  find(curl->multi_init, "curl_multi_init");
  find(curl->multi_cleanup, "curl_multi_cleanup");
  find(curl->multi_setopt, "curl_multi_setopt");
  find(curl->multi_add_handle, "curl_multi_add_handle");
  find(curl->multi_remove_handle, "curl_multi_remove_handle");
  find(curl->multi_perform, "curl_multi_perform");
  find(curl->multi_wait, "curl_multi_wait");
  find(curl->multi_info_read, "curl_multi_info_read");
  find(curl->slist_append, "curl_slist_append");
  find(curl->slist_free_all, "curl_slist_free_all");
  if (!missing.empty())
    throw MissingError(
        fmt::format("an http address needs libcurl, and the one found has no {}; {}", missing, kWhatToInstall));
  // The calls of a process are counted, so a host program that has made its own is no matter.
  if (curl->global_init(Curl::kGlobalDefault) != Curl::kOk)
    throw MissingError(fmt::format("{} cannot be initialised", curl->version()));
  hold_exit_ahead_of_handlers();  // of OpenSSL: exit() waits for our exchanges before that ends
  return curl;
}

}  // namespace

const Curl& Curl::open(const std::string& path) {
  static auto& mutex = *new ForkSafeMutex;
  static auto& libraries = *new std::map<std::string, std::unique_ptr<Curl>>;  // never destroyed: as the libraries
  const std::lock_guard lock(mutex);
  std::unique_ptr<Curl>& library = libraries[path];
  if (!library) library = opened(path);
  return *library;
}

}  // namespace kernelwright
