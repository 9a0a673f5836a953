/// Covering arrays of strength two: few rows in which every pair of values of every two fields occurs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernelwright/verify/random.h"

namespace kernelwright::test {

/// A field of `Config` and its values. The first value is the field's default.
template <class Config>
struct Factor {
  std::string name;
  std::vector<std::function<void(Config&)>> values;
};

/// A factor for one field, whose values are set by `set(config, value)`.
template <class Config, class Value, class Set>
Factor<Config> factor(std::string name, std::vector<Value> values, Set set) {
  Factor<Config> made{std::move(name), {}};
  for (const Value& value : values) made.values.push_back([set, value](Config& config) { set(config, value); });
  return made;
}

/// The index of each factor's value.
using PairwiseRow = std::vector<int>;

template <class Config>
Config config_of(const std::vector<Factor<Config>>& factors, const PairwiseRow& row, Config config = {}) {
  for (std::size_t i = 0; i < factors.size(); ++i) factors[i].values[static_cast<std::size_t>(row[i])](config);
  return config;
}

struct Covering {
  std::vector<PairwiseRow> rows;
  std::size_t pairs = 0;              // pairs of values of two fields that the rows contain
  std::vector<std::string> excluded;  // "field=1 other=2": `takes` accepted no row that was drawn with this pair
};

/// Rows that `takes` accepts, with every pair of values that some accepted row has. A pair is given up once `attempts`
/// random rows with this pair were refused, or as many rows with one of its values. The rows depend on `seed` only, and
/// are the same on every machine.
template <class Config>
Covering cover_pairs(const std::vector<Factor<Config>>& factors, const std::function<bool(const Config&)>& takes,
                     std::uint64_t seed, int attempts = 400) {
  using Pair = std::array<int, 4>;  // factor, value, factor, value
  Random random(seed, 5);
  const int count = static_cast<int>(factors.size());
  const auto below = [&](std::size_t n) { return static_cast<int>(random.below(n)); };
  const auto pairs_of = [&](const PairwiseRow& row, const auto& visit) {
    for (int a = 0; a < count; ++a)
      for (int b = a + 1; b < count; ++b) visit(Pair{a, row[a], b, row[b]});
  };
  std::set<Pair> missing;
  for (int a = 0; a < count; ++a)
    for (int b = a + 1; b < count; ++b)
      for (int i = 0; i < static_cast<int>(factors[a].values.size()); ++i)
        for (int j = 0; j < static_cast<int>(factors[b].values.size()); ++j) missing.insert({a, i, b, j});
  // The longer no row is accepted, the more fields keep their default: few defaults exclude each other.
  const auto draw = [&](int tried) {
    PairwiseRow row(factors.size());
    const int kept = 30 + 65 * tried / attempts;
    for (int f = 0; f < count; ++f) row[f] = below(100) < kept ? 0 : below(factors[f].values.size());
    return row;
  };
  // If no row with a value is accepted, the attempts for each of its pairs are saved.
  std::set<std::pair<int, int>> taken, lonely;
  const auto is_lonely = [&](int factor, int value) {
    if (taken.contains({factor, value})) return false;
    for (int tried = 0; tried < attempts && !lonely.contains({factor, value}); ++tried) {
      PairwiseRow row = draw(tried);
      row[factor] = value;
      if (!takes(config_of(factors, row))) continue;
      taken.insert({factor, value});
      return false;
    }
    lonely.insert({factor, value});
    return true;
  };
  Covering covering;
  while (!missing.empty()) {
    const Pair wanted = *missing.begin();
    PairwiseRow found;
    const bool never = is_lonely(wanted[0], wanted[1]) || is_lonely(wanted[2], wanted[3]);
    for (int tried = 0; !never && tried < attempts && found.empty();) {
      // Some rows with this pair; those with most of the other missing pairs come first.
      std::vector<std::pair<int, PairwiseRow>> drawn;
      for (int i = 0; i < 20; ++i, ++tried) {
        PairwiseRow row = draw(tried);
        row[wanted[0]] = wanted[1];
        row[wanted[2]] = wanted[3];
        int fresh = 0;
        pairs_of(row, [&](const Pair& pair) { fresh += missing.contains(pair); });
        drawn.emplace_back(-fresh, std::move(row));
      }
      std::stable_sort(drawn.begin(), drawn.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      for (const auto& [unused, row] : drawn) {
        if (!takes(config_of(factors, row))) continue;
        found = row;
        break;
      }
    }
    if (found.empty()) {
      missing.erase(wanted);
      const auto text = [&](int f, int value) { return factors[f].name + "=" + std::to_string(value); };
      covering.excluded.push_back(text(wanted[0], wanted[1]) + " " + text(wanted[2], wanted[3]));
      continue;
    }
    pairs_of(found, [&](const Pair& pair) { covering.pairs += missing.erase(pair); });
    for (int f = 0; f < count; ++f) taken.insert({f, found[f]});
    covering.rows.push_back(std::move(found));
  }
  return covering;
}

}  // namespace kernelwright::test
