/// The dispatch key distinguishes any two problems, and the table answers while it grows.
#include "kernelwright/runtime/engine/dispatch_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <set>
#include <thread>

#include "kernelwright/runtime/attention/kind.h"
#include "kernelwright/runtime/gemm/kind.h"
#include "kernelwright/runtime/kv_write/kind.h"
#include "kernelwright/runtime/moe_combine/kind.h"
#include "kernelwright/runtime/route/kind.h"
#include "kernelwright/runtime/row_op/kind.h"
#include "kernelwright/runtime/slot/kernel_slot.h"

namespace kernelwright {
namespace {

using Slot = detail::KernelSlot<detail::AttentionKind>;

AttentionProblem base() {
  AttentionProblem problem;
  problem.heads = {32, 8};
  return problem;
}

/// `base` with one field changed at a time.
struct Changed {
  template <class T>
  static void change(T& value) {
    if constexpr (std::is_same_v<T, bool>)
      value = !value;
    else if constexpr (std::is_enum_v<T>)
      value = EnumTable<T>::entries.back().first == value ? EnumTable<T>::entries.front().first
                                                          : EnumTable<T>::entries.back().first;
    else if constexpr (std::is_arithmetic_v<T>)
      value = value + 1;
    else if constexpr (std::is_same_v<T, std::string>)
      value = "score * 2";
    else if constexpr (requires { value.has_value(); })
      value.emplace();
    else
      value.emplace_back();
  }
  /// Calls `visit(name)` with the problem changed in that one leaf.
  template <class Struct, class Visit>
  static void each(Struct& of, const std::string& prefix, Visit&& visit) {
    visit_fields(of, [&](const char* name, auto& value, const auto&, const char*) {
      const std::string path = prefix + "/" + name;
      if constexpr (requires { visit_fields(value, [](auto&&...) {}); }) {
        each(value, path, visit);
      } else {
        const auto before = value;
        change(value);
        visit(path);
        value = before;
      }
    });
  }
};

TEST(DispatchKey, EveryFieldOfAProblemChangesIt) {
  AttentionProblem problem = base();
  const DispatchKey key = DispatchKey::of(problem, 0);
  ASSERT_TRUE(key.valid());
  int fields = 0;
  std::set<std::array<std::uint64_t, 6>> seen{key.words};
  Changed::each(problem, "", [&](const std::string& path) {
    ++fields;
    const DispatchKey other = DispatchKey::of(problem, 0);
    constexpr const char* kOpen[] = {"file", "type", "text", "reference"};
    const bool open = path.starts_with("/mask/") || path.starts_with("/score_mod/");
    if (path == "/mask/operands" || (open && std::any_of(std::begin(kOpen), std::end(kOpen), [&](const char* name) {
                                       return path.substr(path.find('/', 1) + 1).starts_with(name);
                                     })))
      EXPECT_FALSE(other.valid()) << path;
    else
      EXPECT_TRUE(other.valid() && seen.insert(other.words).second) << path << " is not in the key";
  });
  EXPECT_GE(fields, 25);
  EXPECT_EQ(DispatchKey::of(problem, 0), key);
  EXPECT_NE(DispatchKey::of(problem, 1), key);
}

template <class Problem>
struct DispatchKeyOf : testing::Test {};
using OtherProblems =
    testing::Types<GemmProblem, QuantizeProblem, KvWriteProblem, RowOpProblem, RouteProblem, MoeCombineProblem>;
TYPED_TEST_SUITE(DispatchKeyOf, OtherProblems);

TYPED_TEST(DispatchKeyOf, EveryFieldOfTheProblemChangesIt) {
  TypeParam problem;
  if constexpr (requires { problem.n; }) problem.n = problem.k = 4096;
  std::set<std::array<std::uint64_t, 6>> seen{DispatchKey::of(problem, 0).words};
  Changed::each(problem, "", [&](const std::string& path) {
    const DispatchKey other = DispatchKey::of(problem, 0);
    if (path == "/kv_write")
      EXPECT_FALSE(other.valid());
    else
      EXPECT_TRUE(other.valid() && seen.insert(other.words).second) << path << " is not in the key";
  });
  EXPECT_GE(seen.size(), 3u);
  EXPECT_NE(DispatchKey::of(problem, 0), DispatchKey::of(problem, 1));
}

TEST(DispatchKey, AnEpilogueThatDoesNotFitMakesItInvalid) {
  GemmProblem problem{.n = 64, .k = 64};
  problem.epilogue = std::string(24, 'a');
  EXPECT_TRUE(DispatchKey::of(problem, 0).valid());
  problem.epilogue += 'a';
  EXPECT_FALSE(DispatchKey::of(problem, 0).valid());
}

TEST(DispatchKey, NumbersThatDoNotFitMakeItInvalidInsteadOfAnotherProblems) {
  AttentionProblem problem = base();
  problem.heads.q += 1 << 16;
  EXPECT_FALSE(DispatchKey::of(problem, 0).valid());
  problem = base();
  problem.head_dim.v = -128;
  EXPECT_FALSE(DispatchKey::of(problem, 0).valid());
  EXPECT_FALSE(DispatchKey::of(base(), 1 << 16).valid());
  EXPECT_FALSE(DispatchKey::of(base(), -1).valid());
}

AttentionProblem numbered(int i) {
  AttentionProblem problem = base();
  problem.kv_layout.page_size = i;
  return problem;
}

TEST(DispatchTable, FindsEveryKeyWhileItGrows) {
  constexpr int kKeys = 2000;
  std::vector<Slot> slots(kKeys);
  DispatchTable<Slot> table;
  std::atomic<int> inserted{0};
  std::atomic<bool> wrong{false};
  std::thread reader([&] {
    while (inserted < kKeys) {
      const int bound = inserted;
      for (int i = 0; i < bound; i += 7)
        if (table.find(DispatchKey::of(numbered(i), 0)) != &slots[static_cast<std::size_t>(i)]) wrong = true;
      if (table.find(DispatchKey::of(numbered(kKeys + 1), 0))) wrong = true;
    }
  });
  for (int i = 0; i < kKeys; ++i) {
    table.insert(DispatchKey::of(numbered(i), 0), &slots[static_cast<std::size_t>(i)]);
    inserted = i + 1;
  }
  reader.join();
  EXPECT_FALSE(wrong);
  for (int i = 0; i < kKeys; ++i)
    ASSERT_EQ(table.find(DispatchKey::of(numbered(i), 0)), &slots[static_cast<std::size_t>(i)]);
}

TEST(DispatchTable, TheFirstSlotOfAKeyStays) {
  Slot first, second;
  DispatchTable<Slot> table;
  table.insert(DispatchKey::of(base(), 0), &first);
  table.insert(DispatchKey::of(base(), 0), &second);
  EXPECT_EQ(table.find(DispatchKey::of(base(), 0)), &first);
}

TEST(DispatchTable, ProblemsThatAModelHasSpreadOverTheTable) {
  std::set<std::uint64_t> buckets;
  for (int i = 0; i < 64; ++i) {
    AttentionProblem problem = base();
    problem.head_dim = {64 + 16 * (i & 7), 64 + 16 * (i & 7)};
    problem.kv_layout.page_size = 1 << (i >> 3);
    buckets.insert(DispatchKey::of(problem, 0).hash() & 255);
  }
  EXPECT_GE(buckets.size(), 48u);  // 64 balls in 256 boxes leave 56.7 boxes filled on average
}

}  // namespace
}  // namespace kernelwright
