// The transport over HTTP and HTTPS on a real nginx of the distribution.
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>

#include <atomic>
#include <set>

#include "kernelwright/generator/digest.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cache/remote/curl.h"
#include "kernelwright/runtime/cache/remote/transport.h"
#include "runtime/cache/testing.h"
#include "support/nginx.h"
#include "support/paths.h"
#if __has_include(<curl/curl.h>)
#include <curl/curl.h>
#endif

namespace kernelwright::http_test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Transport = std::unique_ptr<RemoteTransport>;

Deadline soon(int ms = 2000) { return RemoteClock::now() + milliseconds(ms); }
std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
double seconds_since(Deadline start) { return std::chrono::duration<double>(RemoteClock::now() - start).count(); }

#ifdef LIBCURL_VERSION
TEST(Curl, HasTheNumbersOfItsHeaders) {
  constexpr std::pair<long, long> kPairs[] = {
      {Curl::kSslVersion, CURLOPT_SSLVERSION},
      {Curl::kNoBody, CURLOPT_NOBODY},
      {Curl::kFollowLocation, CURLOPT_FOLLOWLOCATION},
      {Curl::kSslVerifyPeer, CURLOPT_SSL_VERIFYPEER},
      {Curl::kHttpGet, CURLOPT_HTTPGET},
      {Curl::kSslVerifyHost, CURLOPT_SSL_VERIFYHOST},
      {Curl::kHttpVersion, CURLOPT_HTTP_VERSION},
      {Curl::kNoSignal, CURLOPT_NOSIGNAL},
      {Curl::kHttpAuth, CURLOPT_HTTPAUTH},
      {Curl::kProtocols, 181},  // CURLOPT_PROTOCOLS, whose name warns
      {Curl::kHttp09Allowed, CURLOPT_HTTP09_ALLOWED},
      {Curl::kWriteData, CURLOPT_WRITEDATA},
      {Curl::kUrl, CURLOPT_URL},
      {Curl::kProxy, CURLOPT_PROXY},
      {Curl::kRange, CURLOPT_RANGE},
      {Curl::kErrorBuffer, CURLOPT_ERRORBUFFER},
      {Curl::kPostFields, CURLOPT_POSTFIELDS},
      {Curl::kUserAgent, CURLOPT_USERAGENT},
      {Curl::kHttpHeader, CURLOPT_HTTPHEADER},
      {Curl::kSslCert, CURLOPT_SSLCERT},
      {Curl::kHeaderData, CURLOPT_HEADERDATA},
      {Curl::kCustomRequest, CURLOPT_CUSTOMREQUEST},
      {Curl::kCaInfo, CURLOPT_CAINFO},
      {Curl::kSslKey, CURLOPT_SSLKEY},
      {Curl::kCaPath, CURLOPT_CAPATH},
      {Curl::kOpenSocketData, CURLOPT_OPENSOCKETDATA},
      {Curl::kUserName, CURLOPT_USERNAME},
      {Curl::kPassword, CURLOPT_PASSWORD},
      {Curl::kResolve, CURLOPT_RESOLVE},
      {Curl::kCloseSocketData, CURLOPT_CLOSESOCKETDATA},
      {Curl::kWriteFunction, CURLOPT_WRITEFUNCTION},
      {Curl::kHeaderFunction, CURLOPT_HEADERFUNCTION},
      {Curl::kSockOptFunction, CURLOPT_SOCKOPTFUNCTION},
      {Curl::kOpenSocketFunction, CURLOPT_OPENSOCKETFUNCTION},
      {Curl::kCloseSocketFunction, CURLOPT_CLOSESOCKETFUNCTION},
      {Curl::kPostFieldSizeLarge, CURLOPT_POSTFIELDSIZE_LARGE},
      {Curl::kResponseCode, CURLINFO_RESPONSE_CODE},
      {Curl::kContentLengthDownload, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T},
      {Curl::kMaxConnects, CURLMOPT_MAXCONNECTS},
      {Curl::kOk, CURLE_OK},
      {Curl::kOk, CURLM_OK},
      {Curl::kOutOfMemory, CURLE_OUT_OF_MEMORY},
      {Curl::kDone, CURLMSG_DONE},
      {Curl::kGlobalDefault, CURL_GLOBAL_DEFAULT},
      {Curl::kHttp11, CURL_HTTP_VERSION_1_1},
      {Curl::kAuthBasic, CURLAUTH_BASIC},
      {Curl::kProtocolHttp, CURLPROTO_HTTP},
      {Curl::kProtocolHttps, CURLPROTO_HTTPS},
      {Curl::kTls12, CURL_SSLVERSION_TLSv1_2},
      {Curl::kAlreadyConnected, CURL_SOCKOPT_ALREADY_CONNECTED},
      {Curl::kBadSocket, CURL_SOCKET_BAD},
      {Curl::kErrorBytes, CURL_ERROR_SIZE},
      {sizeof(Curl::Message), sizeof(CURLMsg)},
      {offsetof(Curl::Message, data), offsetof(CURLMsg, data)},
  };
  for (const auto& [ours, theirs] : kPairs) EXPECT_EQ(ours, theirs);
}
#endif

class HttpTransport : public ::testing::Test {
 protected:
  void SetUp() override { KERNELWRIGHT_NEEDS_NGINX(); }

  void serve(const test::NginxLines& lines = {}) {
    server_.emplace(test::nginx_words(folder_.path(), port_, lines), port_);
    ASSERT_TRUE(server_->ready()) << test::read_file(folder_ / "error.log");
  }
  std::string address(const std::string& secret = "", const std::string& prefix = "/kernels") const {
    return "http://" + secret + "127.0.0.1:" + std::to_string(port_) + prefix;
  }
  Transport open(const std::string& secret = "") const { return make_remote_transport(address(secret), "remote"); }
  /// The connections that the server has seen, if it has ended.
  std::size_t connections() const {
    std::ifstream log(folder_ / "access.log");
    std::set<std::string> numbers;
    for (std::string number; std::getline(log, number);) numbers.insert(number);
    return numbers.size();
  }

  test::TempFolder folder_;
  const int port_ = test::free_port();
  std::optional<test::LocalServer> server_;
};

TEST_F(HttpTransport, DoesItsFourOperationsOverOneConnection) {
  serve();
  const Transport http = open();
  EXPECT_FALSE(http->has_leases());
  EXPECT_TRUE(http->is_local());
  EXPECT_EQ(http->get("kw2/sm_90a/12", soon()).outcome, RemoteOutcome::kAbsent);
  const std::string large(3'000'000, 'x');
  for (const std::string& value : {large, std::string("small"), std::string()}) {
    EXPECT_EQ(http->put("kw2/sm_90a/12", bytes_of(value), soon()).outcome, RemoteOutcome::kDone);
    EXPECT_EQ(text_of(http->get("kw2/sm_90a/12", soon()).value), value);
    const RemoteReply start = http->get_start("kw2/sm_90a/12", 5, soon());
    EXPECT_EQ(start.outcome, RemoteOutcome::kDone);
    EXPECT_EQ(text_of(start.value), value.substr(0, 5));
  }
  EXPECT_EQ(http->get_start("none", 5, soon()).outcome, RemoteOutcome::kAbsent);
  EXPECT_EQ(http->put("a", bytes_of("1"), soon()).outcome, RemoteOutcome::kDone);
  EXPECT_EQ(http->put_if_absent("a", bytes_of("2"), milliseconds(0), soon()).outcome, RemoteOutcome::kPresent);
  EXPECT_EQ(test::read_file(folder_ / "data/kernels/a"), "1");
  EXPECT_EQ(http->put_if_absent("b", bytes_of("2"), milliseconds(0), soon()).outcome, RemoteOutcome::kDone);
  EXPECT_EQ(http->remove_if_equal("b", bytes_of("3"), soon()).outcome, RemoteOutcome::kAbsent);
  EXPECT_EQ(http->remove_if_equal("b", bytes_of("2"), soon()).outcome, RemoteOutcome::kDone);
  EXPECT_EQ(http->remove_if_equal("b", bytes_of("2"), soon()).outcome, RemoteOutcome::kAbsent);
  server_->end();
  EXPECT_EQ(connections(), 1u);
}

TEST_F(HttpTransport, NamesWhatLiesBehindAcAsBazelRemoteDoes) {
  serve();
  const Transport http = make_remote_transport(address("", "/some/ac/"), "remote");
  EXPECT_EQ(http->put("kw2/sm_90a/12", bytes_of("1"), soon()).outcome, RemoteOutcome::kDone);
  EXPECT_EQ(test::read_file(folder_ / "data/some/ac/" + sha256("kw2/sm_90a/12").hex()), "1");
  EXPECT_EQ(text_of(http->get("kw2/sm_90a/12", soon()).value), "1");
}

TEST_F(HttpTransport, AsksForAPasswordAndTellsItToNobody) {
  test::write_file(folder_ / "users", "me:{PLAIN}s@/same\n");
  serve({.server = "auth_basic kernels; auth_basic_user_file " + (folder_ / "users") + ";"});
  EXPECT_EQ(open("me:s%40%2Fsame@")->put("a", bytes_of("1"), soon()).outcome, RemoteOutcome::kDone);
  EXPECT_EQ(open("me:s%40%2Fsame@")->name(), address());
  for (const char* secret : {"", "me:guess@"}) {
    const RemoteReply reply = open(secret)->get("a", soon());
    EXPECT_EQ(reply.outcome, RemoteOutcome::kRefused);
    EXPECT_EQ(reply.detail, "the server answers 401");
  }
}

TEST_F(HttpTransport, TellsAServerThatOnlyReadsFromOneThatIsFull) {
  mkdir((folder_ / "data").c_str(), 0700);
  mkdir((folder_ / "data/kernels").c_str(), 0700);
  test::write_file(folder_ / "data/kernels/a", "1");
  struct Case {
    const char* lines;
    RemoteOutcome outcome;
    const char* detail;
  };
  for (const Case& one :
       {Case{"", RemoteOutcome::kForbidden, "the server answers 405 to PUT"},
        Case{"dav_methods PUT; limit_except GET { deny all; }", RemoteOutcome::kForbidden,
             "the server answers 403 to PUT"},
        Case{"if ($request_method = PUT) { return 507; }", RemoteOutcome::kFailed, "the server answers 507"}}) {
    serve({.location = one.lines});
    const RemoteReply reply = open()->put("b", bytes_of("2"), soon());
    EXPECT_EQ(reply.outcome, one.outcome);
    EXPECT_EQ(reply.detail, one.detail);
    EXPECT_EQ(text_of(open()->get("a", soon()).value), "1");
    server_->end();
  }
}

TEST_F(HttpTransport, TakesValuesUpToTheLimitAndNoLargerOne) {
  serve();
  test::write_file(folder_ / "data/a", std::string(kMaxRemoteValueBytes, 'x'));
  test::write_file(folder_ / "data/b", std::string(kMaxRemoteValueBytes + 1, 'x'));
  const Transport http = make_remote_transport(address("", ""), "remote");
  EXPECT_THAT(http->get("a", soon()).value, SizeIs(kMaxRemoteValueBytes));
  EXPECT_EQ(http->get("b", soon()).detail, "a value of 8388609 bytes is above the limit of 8388608");
  EXPECT_THAT(http->get("a", soon()).value, SizeIs(kMaxRemoteValueBytes));
}

TEST_F(HttpTransport, EndsByItsDeadline) {
  serve();
  const Transport http = open();
  EXPECT_EQ(http->put("a", bytes_of("1"), soon()).outcome, RemoteOutcome::kDone);
  server_->signal(SIGSTOP);
  const auto start = RemoteClock::now();
  EXPECT_EQ(http->get("a", soon(100)).detail, "no answer in time");
  EXPECT_LT(seconds_since(start), 0.9);
  server_->end();
  EXPECT_EQ(http->get("a", soon()).detail, "cannot connect: Connection refused");
  const auto again = RemoteClock::now();
  EXPECT_THAT(make_remote_transport("http://nowhere.invalid/", "remote")->get("a", soon(500)).detail,
              HasSubstr("cannot connect: "));
  EXPECT_LT(seconds_since(again), 1.4);
}

TEST_F(HttpTransport, ConnectsAgainAfterTheServerWasStartedAnew) {
  const Transport http = open();
  for (int start = 0; start < 2; ++start) {
    serve();
    EXPECT_EQ(http->put("a", bytes_of("1"), soon()).outcome, RemoteOutcome::kDone);
    server_->end();
  }
}

TEST_F(HttpTransport, AsksNoProxyThatTheEnvironmentNames) {
  serve();
  for (const char* name : {"http_proxy", "all_proxy"}) setenv(name, "http://127.0.0.1:1", 1);
  EXPECT_EQ(open()->put("a", bytes_of("1"), soon()).outcome, RemoteOutcome::kDone);
  for (const char* name : {"http_proxy", "all_proxy"}) unsetenv(name);
}

TEST_F(HttpTransport, IsSafeFromManyThreads) {
  serve();
  const Transport http = open();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, name = "name" + std::to_string(i)] {
      for (int turn = 0; turn < 20; ++turn) {
        const std::string value = name + std::string(static_cast<std::size_t>(turn) * 1000, 'x');
        right += http->put(name, bytes_of(value), soon(10'000)).outcome == RemoteOutcome::kDone &&
                 text_of(http->get(name, soon(10'000)).value) == value;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8 * 20);
}

TEST_F(HttpTransport, LeavesAChildAndAProgramWithoutItsSockets) {
  serve();
  const Transport http = open();
  EXPECT_EQ(http->put("a", bytes_of("1"), soon()).outcome, RemoteOutcome::kDone);
  int sockets = 0;
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0 || ntohs(peer.sin_port) != port_) continue;
    ++sockets;
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_EQ(sockets, 1);
  EXPECT_EQ(test::wait_for(test::start_child([&] { return text_of(http->get("a", soon()).value) == "1" ? 0 : 1; }), 10),
            0);
  EXPECT_EQ(text_of(http->get("a", soon()).value), "1");
  server_->end();
  EXPECT_EQ(connections(), 2u);  // the child has made one of its own
}

TEST_F(HttpTransport, WorksBesideAHostThatUsesLibcurlItself) {
  serve();
  void* library = dlopen("libcurl.so.4", RTLD_NOW);
  if (!library) GTEST_SKIP() << "libcurl.so.4 is missing; install libcurl4";
  reinterpret_cast<int (*)(long)>(dlsym(library, "curl_global_init"))(Curl::kGlobalDefault);
  const Transport http = open();
  EXPECT_EQ(http->put("a", bytes_of("1"), soon()).outcome, RemoteOutcome::kDone);
  reinterpret_cast<void (*)()>(dlsym(library, "curl_global_cleanup"))();
  EXPECT_EQ(text_of(http->get("a", soon()).value), "1");
}

TEST(HttpTransportWithoutLibcurl, NamesWhatIsMissing) {
  setenv("KERNELWRIGHT_CURL", "/nowhere/libcurl.so.4", 1);
  try {
    make_remote_transport("http://me:sesame@cache/kernels", "remote");
    ADD_FAILURE() << "no error";
  } catch (const MissingError& error) {
    EXPECT_THAT(error.what(), HasSubstr("an http address needs libcurl: /nowhere/libcurl.so.4: cannot open"));
    EXPECT_THAT(error.what(), HasSubstr("install libcurl (Debian: libcurl4), or name its file in $KERNELWRIGHT_CURL"));
  }
  EXPECT_NO_THROW(make_remote_transport("redis://cache", "remote"));
  unsetenv("KERNELWRIGHT_CURL");
}

class HttpsTransport : public HttpTransport {
 protected:
  void SetUp() override {
    KERNELWRIGHT_NEEDS_NGINX();
    KERNELWRIGHT_NEEDS_OPENSSL();
    ASSERT_TRUE(certificates_.ok);
  }
  std::string https(const std::string& host = "localhost") const {
    return "https://" + host + ":" + std::to_string(port_) + "/kernels";
  }
  RemoteReply put(const RemoteTls& tls, const std::string& host = "localhost") const {
    return make_remote_transport(https(host), "remote", tls)->put("a", bytes_of("1"), soon());
  }
  const test::Certificates certificates_{folder_.path(), "DNS:localhost"};
};

TEST_F(HttpsTransport, TrustsTheAuthorityThatIsNamedAndNoOther) {
  serve(certificates_.lines());
  const Transport http = make_remote_transport(https(), "remote", {.ca = certificates_.ca});
  const std::string large(3'000'000, 'x');
  EXPECT_EQ(http->put("a", bytes_of(large), soon()).detail, "");
  EXPECT_EQ(text_of(http->get("a", soon()).value), large);
  EXPECT_THAT(put({}).detail, HasSubstr("certificate"));
  EXPECT_THAT(put({.ca = certificates_.client}).detail, HasSubstr("certificate"));
  EXPECT_THAT(put({.ca = certificates_.ca}, "127.0.0.1").detail, HasSubstr("127.0.0.1"));  // the name is another
  EXPECT_EQ(open()->put("a", bytes_of("1"), soon()).detail, "the server answers 400");     // no TLS
}

TEST_F(HttpsTransport, ShowsItsOwnCertificateToAServerThatAsks) {
  serve(certificates_.lines("ssl_verify_client on; ssl_client_certificate " + certificates_.ca + ";"));
  EXPECT_EQ(put({.ca = certificates_.ca}).detail, "the server answers 400");
  EXPECT_EQ(put({certificates_.ca, certificates_.client, certificates_.client_key}).detail, "");
}

TEST_F(HttpsTransport, RefusesTlsBefore12) {
  serve(certificates_.lines("ssl_protocols TLSv1 TLSv1.1; ssl_ciphers DEFAULT@SECLEVEL=0;"));
  const RemoteReply reply = put({.ca = certificates_.ca});
  EXPECT_EQ(reply.outcome, RemoteOutcome::kFailed);
  EXPECT_THAT(reply.detail, HasSubstr("version"));
}

TEST_F(HttpsTransport, LeavesTheConnectionOfItsParentAlone) {
  serve(certificates_.lines());
  const Transport http = make_remote_transport(https(), "remote", {.ca = certificates_.ca});
  EXPECT_EQ(http->put("a", bytes_of("1"), soon()).outcome, RemoteOutcome::kDone);
  EXPECT_EQ(test::wait_for(test::start_child([&] { return text_of(http->get("a", soon()).value) == "1" ? 0 : 1; }), 10),
            0);
  EXPECT_EQ(text_of(http->get("a", soon()).value), "1");
  server_->end();
  EXPECT_EQ(connections(), 2u);
}

TEST_F(HttpsTransport, ProgramsEndCleanlyWhileItIsInUse) {
  serve(certificates_.lines());
  for (int delay_us = 0; delay_us < 20'000; delay_us += 2'000) {
    const std::string delay = std::to_string(delay_us), remote = "REMOTE=" + https(),
                      ca = "REMOTE_CA=" + certificates_.ca;
    const pid_t child = test::start_child([&] {
      const char *const words[] = {KERNELWRIGHT_EXIT_IN_CPP, "remote", delay.c_str(), nullptr}, *const variables[] = {
                                                                                                    remote.c_str(),
                                                                                                    ca.c_str(),
                                                                                                    nullptr};
      execve(words[0], const_cast<char**>(words), const_cast<char**>(variables));
      return 98;
    });
    EXPECT_EQ(test::wait_for(child, 30), 7) << delay;
  }
}

TEST_F(HttpsTransport, IsServedByTheConfigurationOfTheManual) {
  const std::string page = test::read_file((test::source_dir() / "docs/fleet.md").string()), fence = "```nginx\n";
  const std::size_t begin = page.find(fence) + fence.size();
  std::string server = page.substr(begin, page.find("```", begin) - begin);
  const auto replace = [&](const std::string& from, const std::string& to) {
    ASSERT_NE(server.find(from), std::string::npos) << from;
    for (std::size_t at = 0; (at = server.find(from, at)) != std::string::npos; at += to.size())
      server.replace(at, from.size(), to);
  };
  replace("listen 8443", "listen 127.0.0.1:" + std::to_string(port_));
  replace("/etc/nginx/kernelwright.pem", certificates_.server);
  replace("/etc/nginx/kernelwright.key", certificates_.server_key);
  replace("/etc/nginx/kernelwright.users", folder_ / "users");
  replace("/var/cache/kernelwright", folder_ / "data");
  test::write_file(folder_ / "users", "builder:{PLAIN}SECRET\n");
  server_.emplace(test::nginx_words(folder_.path(), server), port_);
  ASSERT_TRUE(server_->ready()) << test::read_file(folder_ / "error.log");
  const RemoteTls tls{.ca = certificates_.ca};
  const Transport builder =
      make_remote_transport("https://builder:SECRET@localhost:" + std::to_string(port_) + "/kernels", "remote", tls);
  const Transport reader = make_remote_transport(https(), "remote", tls);
  const std::string largest(kMaxRemoteValueBytes, 'x');
  EXPECT_EQ(builder->put("kw2/sm_90a/12", bytes_of(largest), soon()).detail, "");
  EXPECT_EQ(text_of(reader->get("kw2/sm_90a/12", soon()).value), largest);
  const RemoteReply forbidden = reader->put("kw2/sm_90a/12", bytes_of("1"), soon());
  EXPECT_EQ(forbidden.outcome, RemoteOutcome::kForbidden);
  EXPECT_EQ(forbidden.detail, "the server answers 401 to PUT");
  EXPECT_EQ(builder->remove_if_equal("kw2/sm_90a/12", bytes_of(largest), soon()).outcome, RemoteOutcome::kDone);
  EXPECT_EQ(reader->get("kw2/sm_90a/12", soon()).outcome, RemoteOutcome::kAbsent);
}

TEST(RemoteTransport, RefusesCertificatesThatHaveNoUse) {
  const auto refusal = [](const std::string& address, const RemoteTls& tls) -> std::string {
    try {
      make_remote_transport(address, "remote", tls);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  for (const char* address : {"redis://cache", "http://cache"})
    EXPECT_THAT(refusal(address, {.ca = "ca.pem"}), HasSubstr("only a server at https:// has a use for them"));
  EXPECT_THAT(refusal("https://cache", {.certificate = "c"}), HasSubstr("without its private key"));
  EXPECT_THAT(refusal("https://cache", {.certificate_key = "k"}), HasSubstr("without the certificate"));
}

}  // namespace
}  // namespace kernelwright::http_test
