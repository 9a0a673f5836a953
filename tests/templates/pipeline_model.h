/// A small machine on which pipelines are tried in every order in which their threads and copies can run.
///
/// The control flow of a pipeline does not depend on timing. So each thread's code runs once, alone, and leaves the
/// list of its actions (Recorder). explore() then visits all states that the threads can reach together: a copy lands
/// at any time after it was issued, and a wait passes once its barrier is past the parity.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace kernelwright::model {

/// Shared memory of one CTA of a cluster.
constexpr uint32_t kCtaBytes = 1u << 12;

/// What one thread does, as far as other threads can observe.
struct Action {
  enum Kind { kWait, kArrive, kArm, kCopy, kRead };
  Kind kind;
  uint32_t address;      // of the barrier, or of the shared memory that is written or read
  uint32_t value = 0;    // parity, or bytes
  uint32_t barrier = 0;  // that a copy completes on
  uint32_t tag = 0;      // the first byte that a copy writes; the next bytes are tag + 1 ..
  /// In the reduced search it follows the action before it at once: nothing goes wrong later that would not go wrong
  /// so.
  bool at_once = false;
  bool arrives = false;      // a copy that completes by an arrival of its thread, not by its bytes
  uint32_t passed_over = 0;  // of a wait: laps of its barrier that the thread has left to others before
};

struct Thread {
  std::string name;
  bool producer;  // it waits for slots to be empty, and they are empty before their first release
  std::vector<Action> actions;
  std::map<uint32_t, uint32_t> passed_over = {};  // laps by barrier
};

struct Model {
  std::map<uint32_t, uint32_t> barriers;  // address -> arrivals of a phase
  std::vector<Thread> threads;
  std::vector<std::pair<uint32_t, uint32_t>> slots;  // full barrier, empty barrier
  /// Another CTA's copy may land before this CTA's thread has armed the barrier, as long as that thread's arrival is
  /// missing.
  bool bytes_may_come_early = false;
};

/// Code under test records its actions here.
class Recorder {
 public:
  static Model* model;    // takes init()
  static Thread* thread;  // takes the rest
  static bool answer;     // of test(): whether the thread finds the phase over, and goes on from there as from a wait

  static void init(uint32_t barrier, uint32_t arrivals);
  static void wait(uint32_t barrier, uint32_t parity);
  static bool test(uint32_t barrier, uint32_t parity);
  /// A lap of the barrier that the thread leaves to others: its next wait is for the one after.
  static void pass_over(uint32_t barrier);
  static void arrive(uint32_t barrier);
  static void arm(uint32_t barrier, uint32_t bytes);
  /// An asynchronous copy: from now until it lands, no thread may read the bytes at `address`.
  static void copy(uint32_t address, uint32_t bytes, uint32_t barrier, uint32_t tag);
  /// One that completes by an arrival, which arrive_with_copies() makes known next.
  static void copy_by_thread(uint32_t address, uint32_t bytes, uint32_t tag);
  static void arrive_with_copies(uint32_t barrier);
  /// A read that finds tag, tag + 1, ..: the first of a tile, and the last.
  static void first_read(uint32_t address, uint32_t bytes, uint32_t tag);
  static void last_read(uint32_t address, uint32_t bytes, uint32_t tag);
};

struct Result {
  std::string failure;  // the first one found, with the action that shows it; "" if every order is right
  size_t states = 0;
};

/// What the search may leave out.
enum class Search {
  kAllOrders,  // nothing
  kReduced,  // one of the orders that differ only in actions that commute: a copy lands when a thread is about to wait
             // for it; Action::at_once
};

/// Fails in these cases:
///   - a state is reached in which no thread can continue;
///   - a read finds bytes in flight, or bytes other than its own;
///   - a copy is issued over one in flight;
///   - bytes land on a barrier that does not expect them;
///   - a wait passes in another lap than its own;
///   - at the end a barrier is in the middle of a phase, or a filled slot has not been released.
Result explore(const Model& model, Search search);

}  // namespace kernelwright::model
