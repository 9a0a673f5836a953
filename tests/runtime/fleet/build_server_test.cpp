// Hosts without a compiler and workers that build for them, on a real Redis. The workers run an NVRTC of the tests'
// own, whose cubin is an ELF header and the source.
#include "kernelwright/runtime/fleet/build_server.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/cache/build_queue.h"
#include "kernelwright/runtime/cache/remote_builds.h"
#include "kernelwright/runtime/cache/remote_name.h"
#include "kernelwright/runtime/process/own_thread.h"
#include "kernelwright/runtime/store/kernel_store.h"
#include "runtime/cache/testing.h"
#include "runtime/engine/engine_fixture.h"
#include "support/local_server.h"
#include "support/signing.h"

namespace kernelwright::build_server_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Outcome = BuildReport::Outcome;

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

AttentionSpec kernel(int block_n = 64) {
  AttentionSpec spec;
  spec.block_n = block_n;
  return spec;
}

template <class Condition>
bool becomes_true(const Condition& condition) {
  for (int i = 0; i < 1000; ++i, std::this_thread::sleep_for(milliseconds(10)))
    if (condition()) return true;
  return false;
}

class Builds : public ::testing::Test {
 protected:
  void SetUp() override {
    KERNELWRIGHT_NEEDS_REDIS();
    if (!can_sign()) GTEST_SKIP() << "libsodium-dev is missing";
    port_ = test::free_port();
    // A user that only reads, and the two of docs/compile-workers.md with no command more than they need.
    const std::vector<std::string> users{"--user",   "reader", "on",      ">sesame",  "~kw2/*", "+get",    "--user",
                                         "asker",    "on",     ">sesame", "~kw2/*",   "+get",   "+eval",   "+set",
                                         "+exists",  "+llen",  "+rpush",  "+pexpire", "--user", "builder", "on",
                                         ">sesame",  "~kw2/*", "+get",    "+eval",    "+set",   "+llen",   "+rpush",
                                         "+pexpire", "+lpop",  "+type",   "+strlen",  "+del"};
    server_.emplace(test::redis_words(port_, users), port_);
    ASSERT_TRUE(server_->ready());
    write_file(folder_ / "key.pem", test::kSigningPem);
    write_file(folder_ / "key.pub", test::kPublicPem);
    chmod((folder_ / "key.pem").c_str(), 0600);
    chmod((folder_ / "key.pub").c_str(), 0644);
  }
  ~Builds() override { ::unsetenv("KERNELWRIGHT_FAKE_NVRTC_DOES"); }

  CacheOptions cache_of(const std::string& host, bool signs, const std::string& user = "") {
    const std::string locks = folder_ / (host + "-locks");
    mkdir(locks.c_str(), 0700);
    CacheOptions options{.directory = folder_ / host};
    options.lock_directory = locks;
    options.remote = {.address = "redis://" + user + "127.0.0.1:" + std::to_string(port_),
                      .keys = {folder_ / "key.pub"},
                      .signing_key = signs ? folder_ / "key.pem" : "",
                      .allow_unsigned = false};
    options.sink = [this](const Event& event) {
      std::lock_guard hold(mutex_);
      if (event.kind == EventKind::kCacheDegraded || event.kind == EventKind::kCacheRestored) told_.push_back(event);
    };
    return options;
  }

  /// A host whose own NVRTC is not used.
  std::unique_ptr<KernelStore> node(const std::string& host, int wait_ms = 20'000, const std::string& user = "") {
    CompileWorkerOptions workers;
    workers.where = CompileIn::kHosts;
    workers.time_limit_ms = wait_ms;
    return std::make_unique<KernelStore>(cache_of(host, false, user), "", workers);
  }

  BuildServerOptions worker_options(const std::string& host, const std::string& user = "") {
    BuildServerOptions options;
    options.cache = cache_of(host, true, user);
    options.nvrtc_path = KERNELWRIGHT_FAKE_NVRTC;
    options.workers.program = KERNELWRIGHT_WORKER_PROGRAM;
    options.poll_ms = 20;
    options.lease_ms = 600;
    options.report = [this](const BuildReport& report) {
      std::lock_guard hold(mutex_);
      reports_.push_back(report);
    };
    return options;
  }

  /// A worker of this process, until it is destroyed.
  class Worker {
   public:
    explicit Worker(BuildServerOptions options) : server_(std::move(options)) {
      thread_ = OwnThread([this] {
        try {
          server_.run(stop_, abandon_);
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
        }
      });
    }
    ~Worker() {
      stop_ = true;
      thread_.join();
    }
    void abandon() { abandon_ = true; }

   private:
    BuildServer server_;
    std::atomic<bool> stop_{false}, abandon_{false};
    OwnThread thread_;
  };

  std::size_t reports_of(Outcome outcome) {
    std::lock_guard hold(mutex_);
    return static_cast<std::size_t>(
        std::ranges::count_if(reports_, [&](const BuildReport& report) { return report.outcome == outcome; }));
  }
  std::vector<Event> told() {
    std::lock_guard hold(mutex_);
    return told_;
  }
  std::unique_ptr<RemoteTransport> redis() const {
    return make_remote_transport("redis://127.0.0.1:" + std::to_string(port_), "");
  }
  static Deadline soon() { return RemoteClock::now() + seconds(2); }
  /// The request of a Spec, under the name of another one or its own.
  void post(const std::string& name, const std::string& body) {
    const std::string list = fmt::format("kw2/requests/{}/sm_80", KERNELWRIGHT_TEST_VERSION);
    const std::string keys[] = {name + ":request", list}, words[] = {body, name};
    ASSERT_EQ(redis()
                  ->run_script("redis.call('set',KEYS[1],ARGV[1]) return redis.call('rpush',KEYS[2],ARGV[2])", keys,
                               words, soon())
                  .outcome,
              RemoteOutcome::kDone);
  }

  test::TempFolder folder_;
  int port_ = 0;
  std::optional<test::LocalServer> server_;
  std::mutex mutex_;
  std::vector<Event> told_;
  std::vector<BuildReport> reports_;
};

TEST_F(Builds, AHostWithoutACompilerGetsItsKernelAndKeepsIt) {
  {
    const Worker worker(worker_options("worker", "builder:sesame@"));
    const auto host = node("node", 20'000, "asker:sesame@");
    CacheSource source = CacheSource::kNone;
    const auto binary = host->compile(kernel(), &source);
    EXPECT_EQ(source, CacheSource::kLayer);
    EXPECT_EQ(binary->entry, specialize(kernel()).entry);
    EXPECT_THAT(text_of(binary->cubin), HasSubstr(specialize(kernel()).source));
    EXPECT_EQ(host->cache().counters().compiles, 0u);
    EXPECT_EQ(host->cache().remote_counters().built, 1u);
  }
  EXPECT_EQ(reports_of(Outcome::kBuilt), 1u);
  EXPECT_THAT(told(), SizeIs(0));
  server_->end();
  CacheSource source = CacheSource::kNone;
  node("node")->compile(kernel(), &source);
  EXPECT_EQ(source, CacheSource::kDisk);
}

TEST_F(Builds, ManyHostsThatWantOneKernelMakeOneCompile) {
  ::setenv("KERNELWRIGHT_FAKE_NVRTC_DOES", "do sleep", 1);
  BuildServerOptions options = worker_options("worker");
  options.jobs = 4;
  const Worker worker(options);
  std::vector<std::thread> hosts;
  for (int i = 0; i < 8; ++i)
    hosts.emplace_back([&, host = std::shared_ptr(node("node" + std::to_string(i)))] {
      EXPECT_EQ(host->compile(kernel())->entry, specialize(kernel()).entry);
    });
  for (std::thread& host : hosts) host.join();
  EXPECT_EQ(reports_of(Outcome::kBuilt), 1u);
}

// The worker is a process, and dies with its compiler in the midst of the compile.
TEST_F(Builds, TheRequestOfAKilledWorkerIsTakenByAnother) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer allows no threads in a forked child";
#endif
  const pid_t killed = fork();
  if (killed == 0) {
    ::setenv("KERNELWRIGHT_FAKE_NVRTC_DOES", "do hang", 1);
    const Worker worker(worker_options("killed"));
    for (;;) pause();
  }
  std::thread host([this] { EXPECT_EQ(node("node")->compile(kernel())->entry, specialize(kernel()).entry); });
  CacheKey key = node("other")->key(kernel());
  const std::string builder = RemoteName(key, true).text + ":builder";
  EXPECT_TRUE(becomes_true([&] { return redis()->get(builder, soon()).outcome == RemoteOutcome::kDone; }));
  std::this_thread::sleep_for(milliseconds(1000));  // its lease would have ended, but it lives and renews it
  EXPECT_EQ(redis()->get(builder, soon()).outcome, RemoteOutcome::kDone);
  kill(killed, SIGKILL);
  waitpid(killed, nullptr, 0);
  const Worker worker(worker_options("worker"));
  host.join();
  EXPECT_EQ(reports_of(Outcome::kBuilt), 1u);
}

TEST_F(Builds, AWorkerThatIsStoppedGivesItsRequestBack) {
  ::setenv("KERNELWRIGHT_FAKE_NVRTC_DOES", "do hang", 1);
  std::thread host([this] { EXPECT_EQ(node("node")->compile(kernel())->entry, specialize(kernel()).entry); });
  BuildServerOptions options = worker_options("stopped");
  options.lease_ms = 60'000;
  {
    Worker worker(options);
    const std::string builder = RemoteName(node("other")->key(kernel()), true).text + ":builder";
    EXPECT_TRUE(becomes_true([&] { return redis()->get(builder, soon()).outcome == RemoteOutcome::kDone; }));
    worker.abandon();
  }
  EXPECT_EQ(reports_of(Outcome::kLost), 1u);
  ::unsetenv("KERNELWRIGHT_FAKE_NVRTC_DOES");
  const Worker worker(worker_options("worker"));
  host.join();
}

TEST_F(Builds, AKernelThatDoesNotCompileIsToldWithTheCompilersWords) {
  ::setenv("KERNELWRIGHT_FAKE_NVRTC_DOES", "do reject", 1);
  const Worker worker(worker_options("worker"));
  const auto begin = RemoteClock::now();
  try {
    node("node")->compile(kernel());
    ADD_FAILURE() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("attention_portable for sm_80: a worker of another host says:"),
                                    HasSubstr("error: rejected")));
  }
  EXPECT_LT(RemoteClock::now() - begin, seconds(10));
  EXPECT_EQ(reports_of(Outcome::kFailed), 1u);
}

// A person who can write to the server cannot have anything signed but what the library itself makes.
TEST_F(Builds, ARequestUnderTheNameOfAnotherKernelIsRefusedAndNotSigned) {
  const auto host = node("node");
  const CacheKey wanted = host->key(kernel(64)), other = host->key(kernel(32));
  post(RemoteName(wanted, true).text, other.entry_stem + "\n" + other.spec);
  const Worker worker(worker_options("worker"));
  EXPECT_TRUE(becomes_true([&] { return reports_of(Outcome::kRefused) == 1; }));
  EXPECT_EQ(redis()->get(RemoteName(wanted, true).text, soon()).outcome, RemoteOutcome::kAbsent);
  EXPECT_EQ(redis()->get(RemoteName(other, true).text, soon()).outcome, RemoteOutcome::kAbsent);
  EXPECT_EQ(host->compile(kernel(64))->entry, specialize(kernel(64)).entry) << "an honest request is served";
}

TEST_F(Builds, GarbageInTheQueueIsRefusedAndTheNextRequestServed) {
  const std::string spec = canonical_text(kernel());
  for (const std::string& body :
       {std::string(), std::string("\n\n\n"), std::string(200, '\xff'), std::string("attention_portable"),
        "attention_portable\n" + spec + "more 1\n", "attention_sm90\n" + spec,
        std::string("attention_portable\n") + std::string(20'000, 'x')})
    post("kw2/sm_80/any-" + sha256(body).hex(), body);
  post("", "attention_portable\n" + spec);
  post("a name\nof two lines", "attention_portable\n" + spec);
  post(std::string(1000, '\0'), "x");
  const std::string keys[] = {fmt::format("kw2/requests/{}/sm_80", KERNELWRIGHT_TEST_VERSION)}, none[] = {"unknown"};
  redis()->run_script("return redis.call('rpush',KEYS[1],ARGV[1])", keys, none, soon());
  const Worker worker(worker_options("worker"));
  EXPECT_EQ(node("node")->compile(kernel())->entry, specialize(kernel()).entry);
  EXPECT_EQ(reports_of(Outcome::kBuilt), 1u);
  EXPECT_EQ(reports_of(Outcome::kRefused), 9u);  // the long one does not reach a worker
}

TEST_F(Builds, AValueThatNobodyTrustsIsReplaced) {
  const auto host = node("node");
  const std::string name = RemoteName(host->key(kernel()), true).text;
  redis()->put(name, std::as_bytes(std::span(std::string_view("squatter"))), soon());
  const Worker worker(worker_options("worker"));
  EXPECT_EQ(host->compile(kernel())->entry, specialize(kernel()).entry);
}

TEST_F(Builds, WithoutAWorkerAHostWaitsOnceForABoundedTimeAndSendsOneEvent) {
  std::string fault;
  const CacheOptions options = cache_of("node", false);
  const auto layer = RemoteLayer::of_options(options.remote, {}, fault);
  ASSERT_EQ(fault, "");
  RemoteBuilds builds(*layer, options.sink, {.build = seconds(10), .worker = milliseconds(300)});
  std::chrono::steady_clock::duration first{}, second{};
  for (int i = 0; i < 2; ++i) {
    const auto begin = RemoteClock::now();
    CacheKey key = node("other")->key(kernel(i ? 32 : 64));
    ASSERT_TRUE(builds.can_ask(key));
    try {
      builds.build(key);
      ADD_FAILURE() << "built";
    } catch (const MissingError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("this host has no compiler, and no worker for sm_80 is there"),
                                      HasSubstr("start \"kernelwright worker\"")));
    }
    (i ? second : first) = RemoteClock::now() - begin;
  }
  EXPECT_GE(first, milliseconds(300));
  EXPECT_LT(first, seconds(3));
  EXPECT_LT(second, milliseconds(300));
  ASSERT_THAT(told(), SizeIs(1));
  EXPECT_THAT(told()[0].detail, HasSubstr("no worker for sm_80 is there"));
  {
    const Worker worker(worker_options("worker"));  // both requests wait for it
    EXPECT_TRUE(becomes_true([&] { return reports_of(Outcome::kBuilt) == 2; }));
    EXPECT_EQ(builds.build(node("other")->key(kernel())).binary.entry, specialize(kernel()).entry);
  }
  ASSERT_THAT(told(), SizeIs(2));
  EXPECT_EQ(told()[1].kind, EventKind::kCacheRestored);
}

// The node's disk has the fallback alone. Nobody builds the wanted kernel at first, and then a worker starts.
TEST_F(Builds, TheFallbackServesWhileAnotherHostBuilds) {
  const auto backend = std::make_shared<test::FakeBackend>(1);
  const auto engine_on = [&](std::shared_ptr<KernelStore> store) {
    EngineOptions options;
    options.custom_backend = backend, options.custom_store = std::move(store), options.compile_threads = 2;
    return options;
  };
  const PrepareOptions in_background{.on_miss = OnMiss::kFallback, .background = true};
  {
    CacheOptions cache = cache_of("node", false);
    cache.remote.off = true;
    const auto local = std::make_shared<test::FakeStore>(cache);
    if (local->compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
    local->fail(test::kOtherSchedule);
    Engine engine(engine_on(local));
    engine.prepare(test::prefill_problem(), test::other_schedule(), in_background);
    EXPECT_FALSE(engine.wait_until_ready());
  }
  Engine engine(engine_on(node("node")));
  const auto begin = RemoteClock::now();
  const AttentionKernel wanted = engine.prepare(test::prefill_problem(), test::other_schedule(), in_background);
  wanted.launch(test::some_tensors(), test::some_stream());
  EXPECT_LT(RemoteClock::now() - begin, seconds(2));
  EXPECT_TRUE(wanted.serves_fallback());
  EXPECT_EQ(wanted.state(), KernelState::kPending);
  const Worker worker(worker_options("worker"));
  ASSERT_TRUE(engine.wait_until_ready());
  EXPECT_EQ(engine.promote(), 1);
  wanted.launch(test::some_tensors(), test::some_stream());
  EXPECT_FALSE(wanted.serves_fallback());
  EXPECT_EQ(engine.counters().remote.built, 1u);
}

TEST_F(Builds, AWaitEndsWhenTheEngineIsSealed) {
  const auto host = node("node");
  std::thread sealer([&] {
    std::this_thread::sleep_for(milliseconds(200));
    host->cache().stop_remote();
  });
  EXPECT_THROW(host->compile(kernel()), MissingError);
  sealer.join();
}

TEST_F(Builds, CredentialsThatOnlyReadAskNobodyAndStillRead) {
  {
    const Worker worker(worker_options("worker"));
    node("node")->compile(kernel(32));
  }
  const auto host = node("reader", 20'000, "reader:sesame@");
  try {
    host->compile(kernel(64));
    ADD_FAILURE() << "compiled";
  } catch (const MissingError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no request can be put there: the server answers NOPERM"));
  }
  CacheSource source = CacheSource::kNone;
  EXPECT_EQ(host->compile(kernel(32), &source)->entry, specialize(kernel(32)).entry);
  EXPECT_EQ(source, CacheSource::kLayer);
}

TEST_F(Builds, AServerThatIsGoneCostsABoundedTime) {
  const auto host = node("node");
  server_->end();
  const auto begin = RemoteClock::now();
  EXPECT_THROW(host->compile(kernel()), MissingError);
  EXPECT_LT(RemoteClock::now() - begin, seconds(3));
}

TEST_F(Builds, AKernelWithAUsersOwnSourceIsAskedOfNobody) {
  const auto host = node("node");
  AttentionSpec spec;
  spec.mask_source = {.type = "Mine", .text = "struct Mine {};", .file = "", .field = "/problem/mask"};
  try {
    host->compile(spec);
    ADD_FAILURE() << "compiled";
  } catch (const MissingError& error) {
    EXPECT_THAT(error.what(), HasSubstr("kernels are compiled on other hosts alone"));
  }
}

TEST_F(Builds, AWorkerTellsOnceThatItsServerIsGone) {
  const Worker worker(worker_options("worker"));
  server_->end();
  EXPECT_TRUE(becomes_true([&] { return told().size() == 1; }));
  EXPECT_THAT(told()[0].detail, HasSubstr("requests cannot be taken: "));
}

TEST_F(Builds, AWorkerEndsByItselfWhenItIsToldTo) {
  const std::atomic<bool> never{false};
  BuildServerOptions options = worker_options("worker");
  options.idle_exit_ms = 50;
  BuildServer(options).run(never, never);
  options.idle_exit_ms = 0, options.once = true;
  const CacheKey key = node("node")->key(kernel());
  post(RemoteName(key, true).text, key.entry_stem + "\n" + key.spec);
  BuildServer(options).run(never, never);
  EXPECT_EQ(reports_of(Outcome::kBuilt), 1u);
}

TEST_F(Builds, AWorkerThatCouldServeNobodyIsRefusedByName) {
  const auto refusal = [](BuildServerOptions options) -> std::string {
    try {
      BuildServer server(std::move(options));
      return "accepted";
    } catch (const Error& error) {
      return error.what();
    }
  };
  BuildServerOptions options = worker_options("worker");
  options.cache.remote.signing_key.clear();
  EXPECT_THAT(refusal(options), HasSubstr("signing_key: is absent"));
  options = worker_options("worker");
  options.cache.remote.address.clear();
  EXPECT_THAT(refusal(options), HasSubstr("remote: names no server; redis://HOST:PORT"));
  options = worker_options("worker");
  options.nvrtc_path = "/no/such/libnvrtc.so.13";
  EXPECT_THAT(refusal(options), HasSubstr("no NVRTC: /no/such/libnvrtc.so.13"));
  options = worker_options("worker");
  options.workers.program = "/no/such/kernelwright-cc";
  EXPECT_THAT(refusal(options), HasSubstr("no kernelwright-cc is at"));
}

}  // namespace
}  // namespace kernelwright::build_server_test
