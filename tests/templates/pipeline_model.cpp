#include "templates/pipeline_model.h"

#include <unordered_set>

#include "fmt/format.h"

namespace kernelwright::model {

Model* Recorder::model = nullptr;
Thread* Recorder::thread = nullptr;
bool Recorder::answer = false;

void Recorder::init(uint32_t barrier, uint32_t arrivals) { model->barriers[barrier] = arrivals; }
void Recorder::wait(uint32_t barrier, uint32_t parity) {
  thread->actions.push_back(
      {.kind = Action::kWait, .address = barrier, .value = parity, .passed_over = thread->passed_over[barrier]});
}
bool Recorder::test(uint32_t barrier, uint32_t parity) {
  if (answer) wait(barrier, parity);
  return answer;
}

void Recorder::pass_over(uint32_t barrier) { ++thread->passed_over[barrier]; }
void Recorder::arrive(uint32_t barrier) {
  thread->actions.push_back({.kind = Action::kArrive, .address = barrier, .at_once = true});
}
void Recorder::arm(uint32_t barrier, uint32_t bytes) {
  thread->actions.push_back({.kind = Action::kArm, .address = barrier, .value = bytes, .at_once = true});
}
void Recorder::copy(uint32_t address, uint32_t bytes, uint32_t barrier, uint32_t tag) {
  thread->actions.push_back({Action::kCopy, address, bytes, barrier, tag, true});
}
void Recorder::copy_by_thread(uint32_t address, uint32_t bytes, uint32_t tag) {
  thread->actions.push_back({Action::kCopy, address, bytes, ~0u, tag, true, true});
}
void Recorder::arrive_with_copies(uint32_t barrier) {
  // A copy that was not registered keeps an invalid barrier, which explore() reports.
  Action& last = thread->actions.back();
  if (last.kind == Action::kCopy && last.arrives) last.barrier = barrier;
}
void Recorder::first_read(uint32_t address, uint32_t bytes, uint32_t tag) {
  thread->actions.push_back({Action::kRead, address, bytes, 0, tag, true});
}
void Recorder::last_read(uint32_t address, uint32_t bytes, uint32_t tag) {
  thread->actions.push_back({Action::kRead, address, bytes, 0, tag, false});
}

namespace {

constexpr uint16_t kInFlight = 0xffff;  // in place of a byte's tag; 0 was never written
enum : uint16_t { kNotIssued, kIssued, kLanded };

/// Thrown by a failed action.
struct Failure {
  std::string text;
};

struct Hash {
  uint64_t low, high;
  bool operator==(const Hash&) const = default;
};
struct HashOf {
  size_t operator()(const Hash& hash) const { return hash.low; }
};

class Explorer {
 public:
  Explorer(const Model& model, Search search) : model_(model), reduced_(search == Search::kReduced) {
    for (const auto& [address, arrivals] : model.barriers) {
      barrier_index_[address] = static_cast<uint32_t>(arrivals_.size());
      arrivals_.push_back(static_cast<uint16_t>(arrivals));
    }
    for (size_t t = 0; t < model.threads.size(); ++t) {
      std::map<uint32_t, uint16_t> laps;
      const Thread& thread = model.threads[t];
      steps_.emplace_back();
      for (size_t i = 0; i < thread.actions.size(); ++i) {
        const Action& action = thread.actions[i];
        Step step{action, 0, 0, {}};
        if (action.kind == Action::kCopy) {
          step.index = static_cast<uint32_t>(copies_.size());
          step.barrier = barrier_of(action.barrier, thread, i);
          copies_.push_back({static_cast<uint32_t>(t), static_cast<uint32_t>(i)});
        }
        if (action.kind == Action::kCopy || action.kind == Action::kRead)
          for (uint32_t b = 0; b < action.value; ++b)
            step.cells.push_back(
                cell_index_.emplace(action.address + b, static_cast<uint32_t>(cell_index_.size())).first->second);
        if (action.kind == Action::kWait || action.kind == Action::kArrive || action.kind == Action::kArm)
          step.barrier = barrier_of(action.address, thread, i);
        // The lap that a wait is for: producers pass the first one with nothing done.
        if (action.kind == Action::kWait)
          step.index = static_cast<uint32_t>(laps[action.address]++ + action.passed_over + (thread.producer ? 0 : 1));
        steps_.back().push_back(std::move(step));
      }
    }
    barriers_at_ = steps_.size();
    cells_at_ = barriers_at_ + 3 * arrivals_.size();
    copies_at_ = cells_at_ + cell_index_.size();
    words_ = copies_at_ + copies_.size();
  }

  Result run() {
    Result result;
    try {
      std::vector<uint16_t> first(words_, 0);
      for (size_t b = 0; b < arrivals_.size(); ++b) pending(first, b) = arrivals_[b];
      for (size_t t = 0; t < steps_.size(); ++t) run_on(first, t);
      visit(std::move(first));
      while (!open_.empty()) {
        const std::vector<uint16_t> state = std::move(open_.back());
        open_.pop_back();
        expand(state);
      }
    } catch (const Failure& failure) {
      result.failure = failure.text;
    }
    result.states = seen_.size();
    return result;
  }

 private:
  using State = std::vector<uint16_t>;  // actions done by each thread; barriers; bytes; copies
  struct Step {
    Action action;
    uint32_t barrier = 0;         // index
    uint32_t index = 0;           // of a copy; of a wait: phases that have completed when it passes
    std::vector<uint32_t> cells;  // words of the bytes that are written or read
  };
  struct Copy {
    uint32_t thread, action;
  };

  uint16_t& completed(State& state, size_t barrier) const { return state[barriers_at_ + 3 * barrier]; }
  uint16_t& pending(State& state, size_t barrier) const { return state[barriers_at_ + 3 * barrier + 1]; }
  uint16_t& owed(State& state, size_t barrier) const { return state[barriers_at_ + 3 * barrier + 2]; }  // bytes
  uint16_t& cell(State& state, const Step& step, uint32_t byte) const { return state[cells_at_ + step.cells[byte]]; }

  uint32_t barrier_of(uint32_t address, const Thread& thread, size_t action) const {
    const auto at = barrier_index_.find(address);
    if (at == barrier_index_.end())
      throw Failure{fmt::format("{}, action {}: {} is no barrier", thread.name, action, address)};
    return at->second;
  }

  [[noreturn]] void fail(size_t thread, size_t action, const std::string& what) const {
    const Action& a = model_.threads[thread].actions[action];
    static constexpr const char* kNames[] = {"wait", "arrive", "arm", "copy", "read"};
    throw Failure{fmt::format("{}, action {} ({} at {}): {}", model_.threads[thread].name, action, kNames[a.kind],
                              a.address, what)};
  }

  void visit(State&& state) {
    Hash hash{0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu};
    for (const uint16_t word : state) {
      hash.low = (hash.low ^ word) * 0x100000001b3u;
      hash.low ^= hash.low >> 29;
      hash.high = (hash.high + word) * 0xff51afd7ed558ccdu;
      hash.high ^= hash.high >> 32;
    }
    if (seen_.insert(hash).second) open_.push_back(std::move(state));
  }

  void complete_if_done(State& state, size_t barrier) const {
    if (pending(state, barrier) != 0 || owed(state, barrier) != 0) return;
    pending(state, barrier) = arrivals_[barrier];
    ++completed(state, barrier);
  }

  bool passes(const State& state, const Step& step) const {
    return (state[barriers_at_ + 3 * step.barrier] & 1) != step.action.value;
  }

  /// Does the next action of `thread`, which is able to.
  void run_one(State& state, size_t thread) const {
    const size_t at = state[thread]++;
    const Step& step = steps_[thread][at];
    const Action& action = step.action;
    switch (action.kind) {
      case Action::kWait:
        if (completed(state, step.barrier) != step.index)
          fail(thread, at,
               fmt::format("passes after {} laps, and is for lap {}", completed(state, step.barrier), step.index));
        break;
      case Action::kArm:
        owed(state, step.barrier) = static_cast<uint16_t>(owed(state, step.barrier) + action.value);
        [[fallthrough]];
      case Action::kArrive:
        if (pending(state, step.barrier) == 0) fail(thread, at, "an arrival too many");
        --pending(state, step.barrier);
        complete_if_done(state, step.barrier);
        break;
      case Action::kCopy:
        for (uint32_t b = 0; b < action.value; ++b) {
          uint16_t& byte = cell(state, step, b);
          if (byte == kInFlight) fail(thread, at, "over a copy in flight");
          byte = kInFlight;
        }
        state[copies_at_ + step.index] = kIssued;
        break;
      case Action::kRead:
        for (uint32_t b = 0; b < action.value; ++b) {
          const uint16_t byte = cell(state, step, b);
          if (byte != action.tag + b)
            fail(thread, at,
                 byte == kInFlight ? std::string("of bytes in flight")
                                   : fmt::format("finds {} and not {}", byte, action.tag + b));
        }
    }
  }

  /// Runs an action and those that follow it at once.
  void run_on(State& state, size_t thread) const {
    while (reduced_ && state[thread] < steps_[thread].size() && steps_[thread][state[thread]].action.at_once)
      run_one(state, thread);
  }

  void land(State& state, size_t copy) const {
    const auto [thread, at] = copies_[copy];
    const Step& step = steps_[thread][at];
    for (uint32_t b = 0; b < step.action.value; ++b) cell(state, step, b) = static_cast<uint16_t>(step.action.tag + b);
    state[copies_at_ + copy] = kLanded;
    if (step.action.arrives) {
      if (pending(state, step.barrier) == 0) fail(thread, at, "an arrival too many");
      --pending(state, step.barrier);
      return complete_if_done(state, step.barrier);
    }
    const auto expected = static_cast<int16_t>(owed(state, step.barrier));
    if (expected < static_cast<int>(step.action.value) && !model_.bytes_may_come_early)
      fail(thread, at, fmt::format("{} bytes land where {} are expected", step.action.value, expected));
    owed(state, step.barrier) = static_cast<uint16_t>(owed(state, step.barrier) - step.action.value);
    complete_if_done(state, step.barrier);
  }

  bool someone_waits_for(const State& state, uint32_t barrier) const {
    for (size_t t = 0; t < steps_.size(); ++t) {
      if (state[t] == steps_[t].size()) continue;
      const Step& next = steps_[t][state[t]];
      if (next.action.kind == Action::kWait && next.barrier == barrier) return true;
    }
    return false;
  }

  void expand(const State& state) {
    bool moved = false;
    for (size_t t = 0; t < steps_.size(); ++t) {
      if (state[t] == steps_[t].size()) continue;
      const Step& next = steps_[t][state[t]];
      if (next.action.kind == Action::kWait && !passes(state, next)) continue;
      State after = state;
      run_one(after, t);
      run_on(after, t);
      visit(std::move(after));
      moved = true;
    }
    size_t in_flight = copies_.size();
    for (size_t copy = 0; copy < copies_.size(); ++copy) {
      if (state[copies_at_ + copy] != kIssued) continue;
      in_flight = copy;
      const Step& step = steps_[copies_[copy].thread][copies_[copy].action];
      if (reduced_ && !someone_waits_for(state, step.barrier)) continue;
      State after = state;
      land(after, copy);
      visit(std::move(after));
      moved = true;
    }
    if (!moved && in_flight < copies_.size()) {
      State after = state;
      land(after, in_flight);
      visit(std::move(after));
    } else if (!moved) {
      finish(state);
    }
  }

  /// Nobody can go on: is all done?
  void finish(const State& at) const {
    State state = at;
    std::string stuck;
    for (size_t t = 0; t < steps_.size(); ++t)
      if (state[t] < steps_[t].size())
        stuck += fmt::format("{}{} waits in action {} for barrier {}, parity {}", stuck.empty() ? "" : ", ",
                             model_.threads[t].name, state[t], steps_[t][state[t]].action.address,
                             steps_[t][state[t]].action.value);
    if (!stuck.empty()) throw Failure{"deadlock: " + stuck};
    for (const auto& [address, b] : barrier_index_) {
      if (owed(state, b) != 0) throw Failure{fmt::format("barrier {} still expects {} bytes", address, owed(state, b))};
      if (pending(state, b) != arrivals_[b])
        throw Failure{fmt::format("barrier {} ends amid a phase: {} arrivals are missing", address, pending(state, b))};
    }
    for (const auto& [full, empty] : model_.slots) {
      const uint16_t filled = completed(state, barrier_index_.at(full));
      const uint16_t released = completed(state, barrier_index_.at(empty));
      if (filled != released)
        throw Failure{
            fmt::format("the slot of barrier {} was filled {} times and let go of {} times", full, filled, released)};
    }
  }

  const Model& model_;
  const bool reduced_;
  std::map<uint32_t, uint32_t> barrier_index_, cell_index_;
  std::vector<uint16_t> arrivals_;
  std::vector<std::vector<Step>> steps_;
  std::vector<Copy> copies_;
  size_t barriers_at_ = 0, cells_at_ = 0, copies_at_ = 0, words_ = 0;
  std::unordered_set<Hash, HashOf> seen_;
  std::vector<State> open_;
};

}  // namespace

Result explore(const Model& model, Search search) {
  try {
    return Explorer(model, search).run();
  } catch (const Failure& failure) {  // a thread names a barrier that was never initialised
    return {failure.text, 0};
  }
}

}  // namespace kernelwright::model
