// The rules of a launch's arguments, each with its words. Rules that hold make no text.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "contract/route.h"
#include "kernelwright/runtime/launch/matrix.h"
#include "kernelwright/runtime/launch/rules.h"
#include "kernelwright/runtime/route/launch.h"

namespace kernelwright::detail {
namespace {

class RouteRules : public ArgumentRules {
 public:
  RouteRules(const RouteSpec& spec, const RouteTensors& t) : spec_(spec), t_(t) {}

  /// Must hold before any arithmetic on tokens.
  bool tokens_hold() {
    const std::int64_t most = most_tokens(spec_);
    const bool wrong = t_.tokens < 0 || t_.tokens > most;
    bad(wrong, "/tokens", [&] { return fmt::format("{} is outside [0, {}]", t_.tokens, most); });
    return !wrong;
  }

  void operands() {
    const std::int64_t pairs = t_.tokens * spec_.top_k, rows = most_sorted_rows(spec_, t_.tokens);
    if (spec_.sorts) written("starts", t_.starts, spec_.buckets + 1);
    if (spec_.sorts && rows > 0) written("source_rows", t_.source_rows, rows);
    if (spec_.sorts && t_.sorted_weights) written("sorted_weights", t_.sorted_weights, rows);
    bad(spec_.given && t_.logits, "/logits",
        [] { return std::string("is given, and so are the experts; leave it out"); });
    bad(!spec_.sorts && t_.sorted_weights, "/sorted_weights",
        [] { return std::string("is given, and the problem does not sort; leave it out"); });
    if (t_.tokens > 0) {
      array("ids", t_.ids, pairs, !spec_.given);
      if (!spec_.given || t_.sorted_weights) array("weights", t_.weights, pairs, !spec_.given);
      if (spec_.sorts) written("positions", t_.positions, pairs);
      if (!spec_.given) logits();
      if (spec_.biased) read("bias", t_.bias, spec_.experts);
      if (spec_.mapped) read("local_ids", t_.local_ids, spec_.experts);
      const RouteLaunch launch = plan_launch(spec_, t_.tokens);
      if (launch.sorts_apart) {
        workspace(t_.workspace, t_.workspace_bytes, launch.workspace_bytes,
                  [&] { return fmt::format("to sort {} tokens; see RouteKernel::workspace_bytes()", t_.tokens); });
        note("workspace", words(t_.workspace, static_cast<std::int64_t>(launch.workspace_bytes / 4)), true);
      }
    }
    overlaps();
  }

  void numbers() {
    bad(t_.factor && (!(*t_.factor >= 0) || std::isinf(*t_.factor)), "/factor",
        [&] { return fmt::format("{} is no finite number from 0 on", *t_.factor); });
  }

  using ArgumentRules::pdl;

 private:
  struct Array {
    const char* name;
    Matrix of;
    bool written;
  };
  void note(const char* name, const Matrix& of, bool is_written) { arrays_[count_++] = {name, of, is_written}; }
  static Matrix words(DevicePtr address, std::int64_t count) { return {address, DType::kF32, 1, count, count}; }
  void array(const char* name, DevicePtr address, std::int64_t count, bool is_written) {
    const std::string path = std::string("/") + name;
    not_null(path, address);
    aligned(path, address, 4);
    span_within_memory(path, address, static_cast<std::uint64_t>(count) * 4);
    note(name, words(address, count), is_written);
  }
  void written(const char* name, DevicePtr address, std::int64_t count) { array(name, address, count, true); }
  void read(const char* name, DevicePtr address, std::int64_t count) { array(name, address, count, false); }

  void logits() {
    const Matrix of{t_.logits, spec_.logits, t_.tokens, spec_.experts, t_.logits_stride};
    matrix("/logits", of, 16);
    const int step = contract::logits_of_load(spec_.experts, spec_.groups, bits_of(spec_.logits) / 8);
    bad(of.rows > 1 && of.stride % step != 0, "/logits_stride", [&] {
      return fmt::format("{} elements put tokens off what a lane loads at once; it takes a multiple of {}", of.stride,
                         step);
    });
    note("logits", of, false);
  }
  /// What is written overlaps nothing else.
  void overlaps() {
    for (std::size_t i = 0; i < count_; ++i)
      for (std::size_t j = i + 1; j < count_; ++j) {
        const Array &one = arrays_[i], &other = arrays_[j];
        const bool apart =
            !(one.written || other.written) || !one.of.address || !other.of.address || !one.of.overlaps(other.of);
        if (!apart)
          bad(true, std::string("/") + one.name,
              [&] { return fmt::format("overlaps {}; give one of them other memory", other.name); });
      }
  }

  const RouteSpec& spec_;
  const RouteTensors& t_;
  std::array<Array, 10> arrays_{};
  std::size_t count_ = 0;
};

}  // namespace

std::vector<Violation> broken_rules(const LoadedRoute& kernel, const RouteTensors& t) {
  RouteRules rules(kernel.spec, t);
  if (rules.tokens_hold()) rules.operands();
  rules.numbers();
  rules.pdl(t.pdl, kernel.has_pdl, kernel.spec.arch);
  return std::move(rules).broken();
}

}  // namespace kernelwright::detail
