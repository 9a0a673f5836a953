// The pipelines of templates/pipeline/, compiled for the host against shadow/. Producer and consumers, written as in a
// kernel, run in every order that is possible for them and their copies (pipeline_model.h). No order may hang,
// overwrite a slot that is in use, read bytes that have not landed, or leave a slot unreleased.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "templates/kv_pipeline_model.h"

namespace kernelwright {
namespace {

using namespace model;
using testing::HasSubstr;
using testing::StartsWith;

/// Persistent CTAs: items that follow each other, some without tiles, some a part of a longer list.
const std::vector<Items>& item_lists() {
  static const std::vector<Items> lists = {
      {},
      {{0, 0}},
      {{0, 1}},
      {{0, 2}},
      {{0, 5}},
      {{0, 0}, {0, 2}, {2, 0}, {2, 1}, {3, 3}},
      {{7, 2}, {3, 1}, {4, 1}, {0, 0}},
  };
  return lists;
}

struct Tried {
  std::string name;
  std::function<Model(const Items&, int consumers, bool drain)> model;
};

template <class T>
void add(std::vector<Tried>& all) {
  all.push_back({fmt::format("{} ring, {}, {} slots, sub-stages: {} of K, {} of V", T::shared_ring ? "shared" : "split",
                             T::order == KvOrder::kAlternating ? "alternating" : "keys ahead", T::num_kv_stages,
                             T::num_qk_stages, T::num_mma_stages),
                 model_of<T>});
}

template <KvOrder kOrder, int kStages>
void add_rings(std::vector<Tried>& all) {
  add<Tiles<false, kOrder, kStages, 1, 1>>(all);
  add<Tiles<false, kOrder, kStages, 1, 2>>(all);
  add<Tiles<false, kOrder, kStages, 3, 1>>(all);
  add<Tiles<false, kOrder, kStages, 2, 2>>(all);
  if constexpr (kStages <= 3) add<Tiles<false, kOrder, kStages, 3, 3>>(all);
  if constexpr (kStages >= 2) {
    add<Tiles<true, kOrder, kStages, 1>>(all);
    add<Tiles<true, kOrder, kStages, 2>>(all);
    if constexpr (kStages == 3) add<Tiles<true, kOrder, kStages, 3>>(all);
  }
}

const std::vector<Tried>& all_pipelines() {
  static const std::vector<Tried> all = [] {
    std::vector<Tried> list;
    add_rings<KvOrder::kAlternating, 1>(list);
    add_rings<KvOrder::kAlternating, 2>(list);
    add_rings<KvOrder::kAlternating, 3>(list);
    add_rings<KvOrder::kAlternating, 4>(list);
    add_rings<KvOrder::kKeysAhead, 1>(list);
    add_rings<KvOrder::kKeysAhead, 2>(list);
    add_rings<KvOrder::kKeysAhead, 3>(list);
    add_rings<KvOrder::kKeysAhead, 4>(list);
    return list;
  }();
  return all;
}

/// Those that threads fill by cp.async: the rings that attention_sm90 gathers keys into, and both orders.
const std::vector<Tried>& gathered_pipelines() {
  static const std::vector<Tried> all = [] {
    std::vector<Tried> list;
    add<Gathered<Tiles<true, KvOrder::kKeysAhead, 2>, 2>>(list);
    add<Gathered<Tiles<true, KvOrder::kKeysAhead, 3>, 2>>(list);
    add<Gathered<Tiles<true, KvOrder::kAlternating, 2>, 2>>(list);
    add<Gathered<Tiles<false, KvOrder::kKeysAhead, 1>, 2>>(list);
    add<Gathered<Tiles<false, KvOrder::kKeysAhead, 2>, 2>>(list);
    add<Gathered<Tiles<false, KvOrder::kAlternating, 2>, 2>>(list);
    add<Gathered<Tiles<false, KvOrder::kKeysAhead, 2, 3>, 1>>(list);
    add<Gathered<Tiles<true, KvOrder::kKeysAhead, 2, 2>, 1>>(list);
    add<Gathered<Tiles<false, KvOrder::kAlternating, 1, 1, 2>, 2>>(list);
    return list;
  }();
  return all;
}

std::string text_of(const Items& items) {
  std::string text;
  for (const Item& item : items) text += fmt::format(" {}+{}", item.first, item.count);
  return text;
}

TEST(KvPipelines, AreRightInEveryOrder) {
  for (const Tried& tried : all_pipelines())
    for (const Items& items : item_lists())
      for (const int consumers : {1, 2}) {
        const model::Result result = explore(tried.model(items, consumers, consumers == 2), Search::kReduced);
        EXPECT_EQ(result.failure, "") << tried.name << ", " << consumers << " consumers, items" << text_of(items);
      }
}

TEST(KvPipelines, ThatThreadsFillAreRightInEveryOrder) {
  for (const Tried& tried : gathered_pipelines())
    for (const Items& items : item_lists())
      for (const int consumers : {1, 2}) {
        const model::Result result = explore(tried.model(items, consumers, consumers == 2), Search::kReduced);
        EXPECT_EQ(result.failure, "") << tried.name << ", " << consumers << " consumers, items" << text_of(items);
      }
}

/// Rings small enough to leave nothing out.
template <KvOrder kOrder>
std::vector<Model> small_models() {
  const Items items = {{0, 0}, {0, 2}, {1, 1}};
  std::vector<Model> models;
  for (const int consumers : {1, 2}) {
    models.push_back(model_of<Tiles<true, kOrder, 2>>(items, consumers, false));
    models.push_back(model_of<Tiles<true, kOrder, 2, 2>>(items, consumers, true));
    models.push_back(model_of<Tiles<false, kOrder, 1, 2>>(items, consumers, false));
    models.push_back(model_of<Tiles<false, kOrder, 1, 1, 2>>(items, consumers, false));
    models.push_back(model_of<Tiles<false, kOrder, 2>>(items, consumers, false));
  }
  models.push_back(model_of<Tiles<true, kOrder, 3>>(items, 1, true));
  models.push_back(model_of<Tiles<false, kOrder, 2, 3>>(items, 1, true));
  return models;
}

TEST(KvPipelines, AreRightWhenNoOrderIsLeftOut) {
  size_t reduced = 0, all = 0;
  for (const auto& models : {small_models<KvOrder::kAlternating>(), small_models<KvOrder::kKeysAhead>()})
    for (const Model& model : models) {
      const model::Result result = explore(model, Search::kAllOrders);
      EXPECT_EQ(result.failure, "");
      all += result.states;
      reduced += explore(model, Search::kReduced).states;
    }
  EXPECT_GT(all, 10 * reduced) << "the reduced search leaves nothing out";
}

TEST(KvPipelines, AreRightInAClusterWhoseCtasLoadForEachOther) {
  const Items items = {{0, 2}, {2, 0}, {3, 1}};
  for (const int consumers : {1, 2}) {
    EXPECT_EQ(explore(model_of<Tiles<true, KvOrder::kKeysAhead, 2, 1, 1, 2>>(items, consumers, true), Search::kReduced)
                  .failure,
              "");
    EXPECT_EQ(
        explore(model_of<Tiles<true, KvOrder::kKeysAhead, 2, 2, 2, 2>>({{0, 2}}, 1, true), Search::kReduced).failure,
        "");
    EXPECT_EQ(
        explore(model_of<Tiles<false, KvOrder::kAlternating, 1, 1, 1, 2>>(items, consumers, true), Search::kReduced)
            .failure,
        "");
  }
  EXPECT_EQ(explore(model_of<Tiles<false, KvOrder::kKeysAhead, 2, 1, 1, 2>>(items, 1, true), Search::kReduced).failure,
            "");
}

// ---- mistakes are found ----

/// The actions of thread `t` of one kind.
std::vector<size_t> actions_of(const Model& model, size_t t, Action::Kind kind) {
  std::vector<size_t> found;
  for (size_t i = 0; i < model.threads[t].actions.size(); ++i)
    if (model.threads[t].actions[i].kind == kind) found.push_back(i);
  return found;
}

class BrokenPipeline : public testing::TestWithParam<Search> {
 protected:
  /// Two consumers, five tiles, no drain.
  template <class T, class Tc = T>
  static Model model() {
    return model_of<T, Tc>({{0, 5}}, 2, false);
  }
  static Model shared() { return model<Tiles<true, KvOrder::kKeysAhead, 2>>(); }
  static Model split() { return model<Tiles<false, KvOrder::kKeysAhead, 1>>(); }
  /// Both kinds of ring, whole tiles and sub-stages.
  static std::vector<Model> rings() {
    return {shared(), split(), model<Tiles<true, KvOrder::kAlternating, 2, 2>>(),
            model<Tiles<false, KvOrder::kKeysAhead, 1, 2, 3>>()};
  }
  static std::string failure_of(const Model& model) { return explore(model, GetParam()).failure; }
};

TEST_P(BrokenPipeline, WithoutAReleaseHangs) {
  for (Model model : rings()) {
    auto& actions = model.threads[1].actions;
    actions.erase(actions.begin() + static_cast<long>(actions_of(model, 1, Action::kArrive)[2]));
    EXPECT_THAT(failure_of(model), StartsWith("deadlock: producer 0 waits"));
  }
}

TEST_P(BrokenPipeline, ThatKeepsItsLastSlotIsFoundAtTheEnd) {
  for (Model model : rings()) {
    for (size_t t : {1, 2}) {
      auto& actions = model.threads[t].actions;
      actions.erase(actions.begin() + static_cast<long>(actions_of(model, t, Action::kArrive).back()));
    }
    EXPECT_THAT(failure_of(model), HasSubstr("times and let go of"));
  }
}

TEST_P(BrokenPipeline, ThatReleasesBeforeItsLastReadIsOverwritten) {
  for (Model model : rings()) {
    auto& actions = model.threads[1].actions;
    const size_t release = actions_of(model, 1, Action::kArrive)[1];
    ASSERT_EQ(actions[release - 1].kind, Action::kRead);
    std::swap(actions[release - 1], actions[release]);
    // The slot must not be held by the other consumer's reads.
    EXPECT_THAT(failure_of(model), testing::AllOf(StartsWith("consumer 0.0"), HasSubstr("bytes in flight")));
  }
}

TEST_P(BrokenPipeline, ThatExpectsOtherBytesThanComeIsFound) {
  for (Model model : rings()) {
    Model more = model, less = model;
    const size_t arm = actions_of(model, 0, Action::kArm)[1];
    more.threads[0].actions[arm].value += 1;
    EXPECT_THAT(failure_of(more), StartsWith("deadlock"));
    less.threads[0].actions[arm].value -= 1;
    EXPECT_THAT(failure_of(less), HasSubstr("bytes land where"));
  }
}

TEST_P(BrokenPipeline, ThatStartsInTheWrongPhaseIsFound) {
  for (const Model& model : rings()) {
    Model producer = model, consumer = model;
    for (Action& action : producer.threads[0].actions)
      if (action.kind == Action::kWait) action.value ^= 1;
    EXPECT_THAT(failure_of(producer), StartsWith("deadlock"));
    for (Action& action : consumer.threads[2].actions)
      if (action.kind == Action::kWait) action.value ^= 1;
    EXPECT_THAT(failure_of(consumer), HasSubstr("passes after 0 laps, and is for lap 1"));
  }
}

TEST_P(BrokenPipeline, WhoseSidesDifferInTheOrderOfASharedRingIsFound) {
  using Ahead = Tiles<true, KvOrder::kKeysAhead, 3>;
  using InTurn = Tiles<true, KvOrder::kAlternating, 3>;
  EXPECT_NE(failure_of(model<Ahead, InTurn>()), "");
  EXPECT_NE(failure_of(model<InTurn, Ahead>()), "");
}

struct Wider : Tiles<false, KvOrder::kAlternating, 2> {
  static constexpr int k_rows_per_cta = 3;
};

TEST_P(BrokenPipeline, WhoseSidesDifferInTheSizeOfASlotIsFound) {
  EXPECT_THAT(failure_of(model<Tiles<false, KvOrder::kAlternating, 2>, Wider>()), HasSubstr("finds"));
}

/// A consumer that takes a sub-stage for landed because the one before it has.
TEST_P(BrokenPipeline, ThatDoesNotWaitForALaterSubStageIsFound) {
  for (const Model& right :
       {model<Tiles<true, KvOrder::kKeysAhead, 3, 3>>(), model<Tiles<false, KvOrder::kAlternating, 2, 2, 3>>()})
    for (const size_t skipped : {1, 4}) {
      Model model = right;
      const size_t wait = actions_of(model, 1, Action::kWait)[skipped];
      model.threads[1].actions.erase(model.threads[1].actions.begin() + static_cast<long>(wait));
      EXPECT_THAT(failure_of(model), testing::AllOf(StartsWith("consumer 0.0"), HasSubstr("read"))) << skipped;
    }
}

INSTANTIATE_TEST_SUITE_P(Searches, BrokenPipeline, testing::Values(Search::kAllOrders, Search::kReduced),
                         [](const auto& info) { return info.param == Search::kReduced ? "Reduced" : "AllOrders"; });

/// Every action but reads, left out or done twice, in turn. `implied`: waits of the producer that may be left out,
/// since one before them says as much.
template <class T>
void expect_each_action_counts(int consumers, size_t implied) {
  const Model right = model_of<T>({{0, 3}, {1, 2}}, consumers, false);
  ASSERT_EQ(explore(right, Search::kReduced).failure, "");
  size_t silent = 0;
  for (size_t t = 0; t < right.threads.size(); ++t)
    for (size_t i = 0; i < right.threads[t].actions.size(); ++i) {
      const Action& action = right.threads[t].actions[i];
      if (action.kind == Action::kRead) continue;
      Model without = right;
      auto& actions = without.threads[t].actions;
      actions.erase(actions.begin() + static_cast<long>(i));
      const bool found = !explore(without, Search::kReduced).failure.empty();
      EXPECT_TRUE(found || (t == 0 && action.kind == Action::kWait)) << "without action " << i << " of thread " << t;
      silent += found ? 0 : 1;
      if (action.kind == Action::kWait) continue;
      Model twice = right;
      auto& more = twice.threads[t].actions;
      more.insert(more.begin() + static_cast<long>(i), action);
      EXPECT_NE(explore(twice, Search::kReduced).failure, "") << "twice action " << i << " of thread " << t;
    }
  EXPECT_EQ(silent, implied);
}

TEST(BrokenPipelines, AreFoundWhicheverActionIsMissingOrDoneTwice) {
  for (const int consumers : {1, 2}) {
    expect_each_action_counts<Tiles<true, KvOrder::kAlternating, 2>>(consumers, 0);
    expect_each_action_counts<Tiles<true, KvOrder::kKeysAhead, 3, 2>>(consumers, 0);
    expect_each_action_counts<Tiles<false, KvOrder::kAlternating, 2, 2>>(consumers, 0);
    expect_each_action_counts<Tiles<false, KvOrder::kKeysAhead, 1, 2, 3>>(consumers, 0);
    // K3 goes where K1 was, which went before V0 did, and V2 has waited for that.
    expect_each_action_counts<Tiles<false, KvOrder::kKeysAhead, 2, 1>>(consumers, 1);
    expect_each_action_counts<Gathered<Tiles<true, KvOrder::kKeysAhead, 3>, 1>>(consumers, 0);
  }
}

/// With several threads to a slot the barrier has to count them all.
TEST(BrokenPipelines, WhoseBarriersCountOneOfTwoGatherersAreFound) {
  Model model = model_of<Gathered<Tiles<true, KvOrder::kKeysAhead, 2>, 2>>({{0, 3}}, 1, false);
  for (const auto& [full, empty] : model.slots) model.barriers[full] = 1;
  EXPECT_NE(explore(model, Search::kReduced).failure, "");
}

}  // namespace
}  // namespace kernelwright
