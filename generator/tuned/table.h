/// The rows that the planner asks before its model: those that ship inside the library, under those of a directory. A
/// row that cannot be read is set aside with its reason and never stops a process. At 3 a.m. it is better that a server
/// starts with the model's choice than not at all. skipped() has the reasons, for a log and for `doctor`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/tuned/row.h"

namespace kernelwright {

/// A row that may serve a problem.
template <class KindOfConfig>
struct TunedMatchOf {
  std::shared_ptr<const TunedRowOf<KindOfConfig>> row;
  std::string name;     // "sm_90a/llama3-8b-decode", or the file's path where it comes from a directory
  bool exact = false;   // the very problem on the device's own class; else a neighbour
  bool lent = false;    // measured on another class of the architecture
  double distance = 0;  // row_distance(), and kLentRow if it is lent
};
using TunedMatch = TunedMatchOf<AttentionConfig>;
using GemmTunedMatch = TunedMatchOf<GemmConfig>;

/// A row that was set aside.
struct SkippedRow {
  std::string name, reason;
};

/// How far a row for `from` is from `problem`; nullopt where it may not serve it at all. Both must be of one
/// tuning_class(). The rest differs by a sum of these terms:
/// - 1 times |log2| of the query heads of a KV head, and of a decode's static queries;
/// - 1/4 times |log2| of KV heads;
/// - 1/2 times |log2| of page sizes, of chunks and of window widths;
/// - 1/2 for another query layout or output dtype;
/// - 1/4 for sinks, an LSE, offsets or starts on one side only.
///
/// A sum above kFarthestRow is too far: a schedule that was best there says little here.
std::optional<double> row_distance(const AttentionProblem& problem, const AttentionProblem& from);
inline constexpr double kFarthestRow = 3;
/// What another class of the same architecture adds to a row's distance. An H200 reads its memory 1.43 times as fast as
/// an H100, which is half a factor of two, and is equal otherwise.
inline constexpr double kLentRow = 0.5;

/// Throws ConfigError for a row that cannot be planned for its own problem: require_usable() of generator/kernels.h.
/// The table itself knows no planner.
using RowCheck = std::function<void(const AnyTunedRow&)>;

/// Immutable. Safe from any number of threads. Copies share their rows.
class TunedTable {
 public:
  /// No rows: the model decides.
  TunedTable() = default;

  /// The rows of configs/tuned/, embedded at build time. A row is read when a problem of its class is first asked for.
  static const TunedTable& shipped();

  /// The shipped rows under the rows of `directory`/<arch>/*.json. A row there takes the place of a shipped one for the
  /// same problem, device class and family; for a GEMM also for the same SM count and rows. "" is no directory. Never
  /// throws for a fault that it finds there: skipped() has it. Faults are an unreadable directory or file, and one that
  /// belongs to another user (but root) or that others may write. Faults are also the later of two files with one
  /// problem, and a row that `require_usable` refuses.
  static TunedTable with_overlay(const std::string& directory, const RowCheck& require_usable);

  /// with_overlay() of `directory`, or where that is "" of $KERNELWRIGHT_TUNED_DIR.
  static TunedTable from_environment(const std::string& directory, const RowCheck& require_usable);

  /// These rows alone, by name; for tests and for the tuner.
  static TunedTable of(std::vector<std::pair<std::string, AnyTunedRow>> rows);

  /// Rows for `problem` on a device of class `device`, the best first: rows of the very problem that were measured on
  /// that class, then neighbours by distance. Rows of other classes of the same architecture are neighbours too, which
  /// stand farther away by kLentRow. Among equals the device's own class leads, then the smaller recorded time, then
  /// the later family, then the name. With `family` rows of others are left out.
  std::vector<TunedMatch> matches(const AttentionProblem& problem, DeviceClass device,
                                  std::optional<Family> family = std::nullopt) const;

  /// Rows for the very `problem` on devices of `num_sms` SMs: those of the class `device` first, then the rows that
  /// another class of its architecture lends; the faster one first.
  std::vector<GemmTunedMatch> matches(const GemmProblem& problem, DeviceClass device, int num_sms,
                                      std::optional<Family> family = std::nullopt) const;

  /// Every row of one kind, AttentionConfig or GemmConfig, read; distance 0. What cannot be read, of whatever kind it
  /// was to be, is in the reasons of `unreadable` as well as in skipped().
  template <class KindOfConfig>
  std::vector<TunedMatchOf<KindOfConfig>> rows(std::vector<SkippedRow>* unreadable = nullptr) const;

  const std::vector<SkippedRow>& skipped() const { return skipped_; }
  const std::string& directory() const { return directory_; }

 private:
  struct Entry;
  void add(std::shared_ptr<const Entry> entry) { entries_.push_back(std::move(entry)); }
  std::vector<std::shared_ptr<const Entry>> entries_;  // the overlay's first
  std::vector<SkippedRow> skipped_;
  std::string directory_;
};

/// Geometric mean of a row's measured times in microseconds; 0 where it has none.
double mean_us(const TunedRow& row);
double mean_us(const GemmTunedRow& row);

/// Writes `row` to `directory`/<arch>/NAME.json, whole or not at all, and returns the path. NAME is `name`. It gets
/// eight digits of the row's own where a file of that name holds another problem, device class, family or range of
/// rows. Throws ConfigError for a folder that cannot be written.
std::string write_tuned_file(const std::string& directory, const std::string& name, const AnyTunedRow& row);

}  // namespace kernelwright
