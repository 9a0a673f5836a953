/// libcurl, opened at run time. So neither a build nor a wheel needs it, and a process without it does all but HTTP.
#pragma once

#include <cstddef>
#include <string>

namespace kernelwright {

/// The names that we use of libcurl's C interface, whose numbers never change under the name libcurl.so.4
/// (https://curl.se/libcurl/abi.html). They are declared here, because its headers are an extra package everywhere. A
/// test compares them with the headers where those are installed.
struct Curl {
  using Easy = struct CurlEasyOpaque*;
  using Multi = struct CurlMultiOpaque*;
  struct List;  // curl_slist
  struct Message {
    int kind;  // kDone alone exists
    Easy easy;
    union {
      void* whatever;
      int result;
    } data;
  };

  enum Option : int {  // CURLoption: a long, or from 10000 on a pointer, from 20000 on a function, from 30000 on 64
                       // bits
    kSslVersion = 32,
    kNoBody = 44,
    kFollowLocation = 52,
    kSslVerifyPeer = 64,
    kHttpGet = 80,
    kSslVerifyHost = 81,
    kHttpVersion = 84,
    kNoSignal = 99,
    kHttpAuth = 107,
    kProtocols = 181,
    kHttp09Allowed = 285,
    kWriteData = 10001,
    kUrl = 10002,
    kProxy = 10004,
    kRange = 10007,
    kErrorBuffer = 10010,
    kPostFields = 10015,
    kUserAgent = 10018,
    kHttpHeader = 10023,
    kSslCert = 10025,
    kHeaderData = 10029,
    kCustomRequest = 10036,
    kCaInfo = 10065,
    kSslKey = 10087,
    kCaPath = 10097,
    kOpenSocketData = 10164,
    kUserName = 10173,
    kPassword = 10174,
    kResolve = 10203,
    kCloseSocketData = 10209,
    kWriteFunction = 20011,
    kHeaderFunction = 20079,
    kSockOptFunction = 20148,
    kOpenSocketFunction = 20163,
    kCloseSocketFunction = 20208,
    kPostFieldSizeLarge = 30120,
  };
  enum Info : int { kResponseCode = 0x200002, kContentLengthDownload = 0x60000f };
  enum MultiOption : int { kMaxConnects = 6 };
  static constexpr int kOk = 0, kCouldNotConnect = 7, kOutOfMemory = 27;  // CURLcode; CURLMcode has kOk too
  static constexpr int kDone = 1;                                         // CURLMSG_DONE
  static constexpr long kGlobalDefault = 3, kHttp11 = 2, kAuthBasic = 1, kProtocolHttp = 1, kProtocolHttps = 2;
  static constexpr long kTls12 = 6;
  static constexpr int kAlreadyConnected = 2, kBadSocket = -1;
  static constexpr std::size_t kErrorBytes = 256;

  int (*global_init)(long flags) = nullptr;
  char* (*version)() = nullptr;
  Easy (*easy_init)() = nullptr;
  void (*easy_cleanup)(Easy) = nullptr;
  int (*easy_setopt)(Easy, int option, ...) = nullptr;
  int (*easy_getinfo)(Easy, int info, ...) = nullptr;
  const char* (*easy_strerror)(int code) = nullptr;
  Multi (*multi_init)() = nullptr;
  int (*multi_cleanup)(Multi) = nullptr;
  int (*multi_setopt)(Multi, int option, ...) = nullptr;
  int (*multi_add_handle)(Multi, Easy) = nullptr;
  int (*multi_remove_handle)(Multi, Easy) = nullptr;
  int (*multi_perform)(Multi, int* running) = nullptr;
  int (*multi_wait)(Multi, void* more, unsigned num_more, int timeout_ms, int* ready) = nullptr;
  Message* (*multi_info_read)(Multi, int* left) = nullptr;
  List* (*slist_append)(List*, const char* text) = nullptr;
  void (*slist_free_all)(List*) = nullptr;

  /// The library of `path`, or the system's. It stays open for ever, because it may be the host program's too. Throws
  /// MissingError that says what to install.
  static const Curl& open(const std::string& path);
};

}  // namespace kernelwright
