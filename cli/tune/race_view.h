/// A race for the person who watches it. In a terminal that is a table, drawn anew as times come in, which is gone at
/// the end. Elsewhere it is a plain line for each round.
#pragma once

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "cli/terminal.h"
#include "kernelwright/runtime/tune/tuner.h"

namespace kernelwright::cli {

class RaceView {
 public:
  using Label = std::function<std::string(const Standing&)>;

  /// `name` is the unit's. Entrant 0 is the model's choice.
  RaceView(std::FILE* stream, std::string name);
  ~RaceView();
  RaceView(const RaceView&) = delete;
  RaceView& operator=(const RaceView&) = delete;

  /// After a round. `in` has the round's entrants.
  void round(int round, const std::vector<const Standing*>& in, const Label& label);
  /// After a pass. `share` of the budget is spent. A table is drawn at most ten times a second.
  void pass(int round, int pass, const std::vector<const Standing*>& in, double share, const Label& label);

  /// "mlp: round 2, 32 schedules; fastest: block_n 96, 129.5 us, 1.139 x the model's choice"
  static std::string line_of(const std::string& name, int round, const std::vector<const Standing*>& in,
                             const Label& label);
  /// The fastest eight and the model's choice, with a line above them that says how far the race is.
  static std::string table_of(const std::string& name, int round, int pass, const std::vector<const Standing*>& in,
                              double share, const Label& label, const Style& style);

 private:
  void clear();

  std::FILE* stream_;
  const Style style_;
  const std::string name_;
  std::size_t drawn_ = 0;  // lines of the table on the screen
  std::chrono::steady_clock::time_point drawn_at_{};
};

}  // namespace kernelwright::cli
