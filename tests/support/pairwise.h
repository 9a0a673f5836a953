/// Covering arrays of strength two: few rows in which every pair of values of every two fields occurs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
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

/// Pairs of values of two factors: a flag for each, since tests are compiled without optimisation and look up millions.
class PairSet {
 public:
  /// All pairs of factors that have `sizes` values.
  explicit PairSet(const std::vector<int>& sizes) {
    for (const int size : sizes) begins_.push_back(values_), values_ += size;
    flags_.resize(static_cast<std::size_t>(values_) * static_cast<std::size_t>(values_));
    for (std::size_t a = 0; a < sizes.size(); ++a)
      for (std::size_t b = a + 1; b < sizes.size(); ++b)
        for (int i = 0; i < sizes[a]; ++i)
          for (int j = 0; j < sizes[b]; ++j) flags_[at(begins_[a] + i, begins_[b] + j)] = 1;
  }
  /// How many pairs of `row` it has.
  int count(const PairwiseRow& row) const {
    const std::vector<int> values = values_of(row);
    const int* const end = values.data() + values.size();
    int found = 0;
    for (const int* a = values.data(); a != end; ++a) {
      const char* const flags = flags_.data() + at(*a, 0);
      for (const int* b = a + 1; b != end; ++b) found += flags[*b];
    }
    return found;
  }
  /// Removes the pairs of `row`, and returns how many it had.
  int remove(const PairwiseRow& row) {
    const int found = count(row);
    const std::vector<int> values = values_of(row);
    for (std::size_t a = 0; a < values.size(); ++a)
      for (std::size_t b = a + 1; b < values.size(); ++b) flags_[at(values[a], values[b])] = 0;
    return found;
  }
  /// Factor, value, factor, value of the first pair in their order.
  std::optional<std::array<int, 4>> first() {
    const auto found = std::find(flags_.begin() + static_cast<std::ptrdiff_t>(first_), flags_.end(), 1);
    first_ = static_cast<std::size_t>(found - flags_.begin());
    if (found == flags_.end()) return std::nullopt;
    const int a = static_cast<int>(first_) / values_, b = static_cast<int>(first_) % values_;
    return std::array{factor_of(a), a - begins_[factor_of(a)], factor_of(b), b - begins_[factor_of(b)]};
  }
  void remove_first() { flags_[first_] = 0; }  // that first() gave

 private:
  std::size_t at(int a, int b) const {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(values_) + static_cast<std::size_t>(b);
  }
  int factor_of(int value) const {
    return static_cast<int>(std::upper_bound(begins_.begin(), begins_.end(), value) - begins_.begin()) - 1;
  }
  std::vector<int> values_of(const PairwiseRow& row) const {
    std::vector<int> values(row);
    for (std::size_t f = 0; f < row.size(); ++f) values[f] += begins_[f];
    return values;
  }

  std::vector<int> begins_;  // of each factor's values, which are numbered across all factors
  int values_ = 0;
  std::vector<char> flags_;  // [values_][values_]: 1 if the pair is in the set
  std::size_t first_ = 0;    // no flag ahead of it is set
};

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
  Random random(seed, 5);
  const int count = static_cast<int>(factors.size());
  const auto below = [&](std::size_t n) { return static_cast<int>(random.below(n)); };
  std::vector<int> sizes;
  for (const Factor<Config>& factor : factors) sizes.push_back(static_cast<int>(factor.values.size()));
  PairSet missing(sizes);
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
  while (const std::optional<std::array<int, 4>> first = missing.first()) {
    const std::array<int, 4>& wanted = *first;
    PairwiseRow found;
    const bool never = is_lonely(wanted[0], wanted[1]) || is_lonely(wanted[2], wanted[3]);
    for (int tried = 0; !never && tried < attempts && found.empty();) {
      // Some rows with this pair; those with most of the other missing pairs come first.
      std::vector<std::pair<int, PairwiseRow>> drawn;
      for (int i = 0; i < 20; ++i, ++tried) {
        PairwiseRow row = draw(tried);
        row[wanted[0]] = wanted[1];
        row[wanted[2]] = wanted[3];
        const int fresh = missing.count(row);
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
      missing.remove_first();
      const auto text = [&](int f, int value) { return factors[f].name + "=" + std::to_string(value); };
      covering.excluded.push_back(text(wanted[0], wanted[1]) + " " + text(wanted[2], wanted[3]));
      continue;
    }
    covering.pairs += static_cast<std::size_t>(missing.remove(found));
    for (int f = 0; f < count; ++f) taken.insert({f, found[f]});
    covering.rows.push_back(std::move(found));
  }
  return covering;
}

}  // namespace kernelwright::test
