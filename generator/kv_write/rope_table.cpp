#include "kernelwright/generator/kv_write/rope_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "kernelwright/generator/error.h"

namespace kernelwright {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;
constexpr int kWidest = 1024;

bool has_origin(RopeScaling scaling) {
  return scaling == RopeScaling::kLlama3 || scaling == RopeScaling::kYarn || scaling == RopeScaling::kLongrope;
}

class RopeRules {
 public:
  explicit RopeRules(const RopeTable& rope) : rope_(rope) {}

  std::vector<Violation> broken() && {
    if (rope_.width < 2 || rope_.width > kWidest || rope_.width % 2 != 0)
      bad("/width", fmt::format("{} is no even number in [2, {}]", rope_.width, kWidest));
    if (to_string(rope_.scaling) == "?")
      bad("/scaling", fmt::format("{} is no scaling; it takes one of {}", static_cast<int>(rope_.scaling),
                                  all_words<RopeScaling>()));
    above("/theta", rope_.theta, 1, rope_.scaling == RopeScaling::kYarn ? "above 1" : "from 1 on");
    above("/factor", rope_.factor, std::numeric_limits<double>::min(), "above 0");
    if (has_origin(rope_.scaling)) above("/original_positions", rope_.original_positions, 2, "from 2 on");
    if (rope_.scaling == RopeScaling::kYarn && rope_.theta == 1) bad("/theta", "1 does not fit yarn; it is above 1");
    if (rope_.scaling == RopeScaling::kLlama3 &&
        !(rope_.low > 0 && rope_.high > rope_.low && std::isfinite(rope_.high)))
      bad("/high", fmt::format("{} does not lie above low, {}, which is above 0", rope_.high, rope_.low));
    if (rope_.scaling == RopeScaling::kYarn &&
        !(rope_.beta_slow > 0 && rope_.beta_fast >= rope_.beta_slow && std::isfinite(rope_.beta_fast)))
      bad("/beta_fast",
          fmt::format("{} is less than beta_slow, {}, which is above 0", rope_.beta_fast, rope_.beta_slow));
    check_factors();
    if (!(rope_.share >= 0 && rope_.share <= 1)) bad("/share", fmt::format("{} is outside [0, 1]", rope_.share));
    if (rope_.attention_factor)
      above("/attention_factor", *rope_.attention_factor, std::numeric_limits<double>::min(), "above 0");
    return std::move(violations_);
  }

 private:
  void bad(const char* path, std::string message) { violations_.push_back({path, std::move(message)}); }
  void above(const char* path, double value, double least, const char* words) {
    if (!(value >= least) || std::isinf(value))
      bad(path, fmt::format("{} does not fit; it is a finite number {}", value, words));
  }
  void check_factors() {
    if (rope_.scaling != RopeScaling::kLongrope) return;
    if (rope_.factors.size() != static_cast<std::size_t>(std::max(0, rope_.width / 2)))
      bad("/factors",
          fmt::format("has {} numbers; longrope has one for each of {} pairs", rope_.factors.size(), rope_.width / 2));
    for (const double factor : rope_.factors)
      if (!(factor > 0) || std::isinf(factor))
        return bad("/factors", fmt::format("{} is no finite number above 0", factor));
  }

  const RopeTable& rope_;
  std::vector<Violation> violations_;
};

void require_sound(const RopeTable& rope) {
  if (auto violations = RopeRules(rope).broken(); !violations.empty()) throw ConfigError(std::move(violations));
}

double llama3(const RopeTable& rope, double frequency) {
  const double rotations = rope.original_positions * frequency / kTurn;
  const double slow = frequency / rope.factor;
  if (rotations < rope.low) return slow;
  if (rotations > rope.high) return frequency;
  const double blend = (rotations - rope.low) / (rope.high - rope.low);
  return (1 - blend) * slow + blend * frequency;
}

/// The pair that turns `rotations` times over the original positions, as a fraction.
double pair_of(const RopeTable& rope, double rotations) {
  return rope.width * std::log(rope.original_positions / (rotations * kTurn)) / (2 * std::log(rope.theta));
}

/// The share of its own speed that pair i keeps: 1 for fast pairs, 0 for slow ones.
double yarn_share(const RopeTable& rope, int pair) {
  double first = pair_of(rope, rope.beta_fast), last = pair_of(rope, rope.beta_slow);
  if (rope.truncate) first = std::floor(first), last = std::ceil(last);
  first = std::max(first, 0.0);
  last = std::min(last, rope.width - 1.0);
  if (first == last) last += 0.001;  // no division by 0, as the models' own code has it
  return 1 - std::clamp((pair - first) / (last - first), 0.0, 1.0);
}

double yarn_growth(double factor, double mscale) { return factor > 1 ? 0.1 * mscale * std::log(factor) + 1 : 1; }

double frequency_of(const RopeTable& rope, int pair) {
  const double frequency = std::pow(rope.theta, -2.0 * pair / rope.width);
  switch (rope.scaling) {
    case RopeScaling::kDefault: break;
    case RopeScaling::kLlama3: return llama3(rope, frequency);
    case RopeScaling::kYarn: {
      const double share = yarn_share(rope, pair);
      return frequency * share + frequency / rope.factor * (1 - share);
    }
    case RopeScaling::kLongrope: return frequency / rope.factors[static_cast<std::size_t>(pair)];
    case RopeScaling::kProportional:
      if (pair >= static_cast<int>(rope.share * rope.width / 2)) return 0;
      break;
  }
  return frequency / rope.factor;
}

}  // namespace

std::vector<double> rope_frequencies(const RopeTable& rope) {
  require_sound(rope);
  std::vector<double> frequencies(static_cast<std::size_t>(rope.width / 2));
  for (int pair = 0; pair < rope.width / 2; ++pair)
    frequencies[static_cast<std::size_t>(pair)] = frequency_of(rope, pair);
  return frequencies;
}

double rope_attention_factor(const RopeTable& rope) {
  require_sound(rope);
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.scaling == RopeScaling::kYarn) {
    if (rope.mscale != 0 && rope.mscale_all != 0)
      return yarn_growth(rope.factor, rope.mscale) / yarn_growth(rope.factor, rope.mscale_all);
    return yarn_growth(rope.factor, 1);
  }
  if (rope.scaling == RopeScaling::kLongrope && rope.factor > 1)
    return std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_positions));
  return 1;
}

std::vector<float> rope_table(const RopeTable& rope, std::int64_t first, std::int64_t rows) {
  constexpr std::int64_t kMostPositions = std::numeric_limits<std::int32_t>::max();
  const std::vector<double> frequencies = rope_frequencies(rope);
  if (first < 0 || rows < 0 || first > kMostPositions || rows > kMostPositions - first)
    throw ConfigError("/rows", fmt::format("{} rows from {} on are no positions of 31 bits", rows, first));
  const double scale = rope_attention_factor(rope);
  std::vector<float> table(static_cast<std::size_t>(rows) * 2 * frequencies.size());
  float* to = table.data();
  for (std::int64_t row = 0; row < rows; ++row, to += 2 * frequencies.size()) {
    for (std::size_t pair = 0; pair < frequencies.size(); ++pair) {
      const double angle = static_cast<double>(first + row) * frequencies[pair];
      to[pair] = static_cast<float>(scale * std::cos(angle));
      to[frequencies.size() + pair] = static_cast<float>(scale * std::sin(angle));
    }
  }
  return table;
}

}  // namespace kernelwright
