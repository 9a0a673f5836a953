#include "kernelwright/generator/tuned/table.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <tuple>
#include <utility>

#include "kernelwright/generator/digest.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/trusted_files.h"

namespace kernelwright {
namespace detail {
struct EmbeddedRow {
  const char *name, *arch, *tuning_class, *text;
};
extern const EmbeddedRow embedded_rows[];
extern const std::size_t embedded_row_count;
}  // namespace detail

namespace {

namespace fs = std::filesystem;

double ratio_distance(double a, double b) { return std::abs(std::log2(std::max(a, 1.0) / std::max(b, 1.0))); }

/// Keys that a window spans; one that is unbounded counts as wide.
double width(const Window& window) {
  constexpr int kWide = 1 << 17;
  const auto side = [](int keys) { return keys < 0 ? kWide : keys; };
  return 1.0 + side(window.left) + side(window.right);
}

/// Masks of one class have one shape: distances of their sizes.
double mask_distance(const Mask& a, const Mask& b) {
  double distance = ratio_distance(a.chunk, b.chunk) / 2;
  if (a.kind == MaskKind::kSlidingWindow) distance += ratio_distance(width(a.window), width(b.window)) / 2;
  for (std::size_t i = 0; i < std::min(a.operands.size(), b.operands.size()); ++i)
    distance += mask_distance(a.operands[i], b.operands[i]);
  return distance;
}

/// Equal but for what they demand of the result beyond being right: the fastest tile is the same.
bool computes_the_same(AttentionProblem a, const AttentionProblem& b) {
  a.deterministic = b.deterministic;
  a.batch_invariant = b.batch_invariant;
  return a == b;
}

template <class KindOfConfig>
Family family_of(const TunedRowOf<KindOfConfig>& row) {
  return row.schedule.family.value_or(kGeneralFamily);
}

/// Whether one row stands in the other's place: it is for the same launches, by the same family.
template <class KindOfConfig>
bool replaces(const TunedRowOf<KindOfConfig>& a, const TunedRowOf<KindOfConfig>& b) {
  return a.device == b.device && a.problem == b.problem && a.launches == b.launches && family_of(a) == family_of(b);
}
bool replaces(const AnyTunedRow& a, const AnyTunedRow& b) {
  return std::visit(
      [&]<class Row>(const Row& row) {
        const Row* other = std::get_if<Row>(&b);
        return other && replaces(row, *other);
      },
      a);
}

/// What tells rows apart that are not in each other's place.
std::string identity(const TunedRow& row) {
  return canonical_text(row.problem) + std::string(to_string(row.device)) + std::string(to_string(family_of(row)));
}
std::string identity(const GemmTunedRow& row) {
  return canonical_text(row.problem) + std::string(to_string(row.device)) + std::string(to_string(family_of(row))) +
         " " + std::to_string(row.launches.num_sms) + " " + std::to_string(row.launches.rows.least) + " " +
         std::to_string(row.launches.rows.most);
}

template <class KindOfConfig>
double geometric_mean_us(const TunedRowOf<KindOfConfig>& row) {
  double sum = 0;
  for (const auto& shape : row.provenance.shapes) sum += std::log(std::max(shape.us, 1e-9));
  return row.provenance.shapes.empty() ? 0 : std::exp(sum / static_cast<double>(row.provenance.shapes.size()));
}

/// The best first: the very problem, the nearest, the device's own class, the fastest, the later family, by name.
template <class KindOfConfig>
void sort_matches(std::vector<TunedMatchOf<KindOfConfig>>& found) {
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    const auto rank = [](const auto& match) {
      return std::tuple(!match.exact, match.distance, match.lent, mean_us(*match.row),
                        -static_cast<int>(family_of(*match.row)));
    };
    return std::tuple_cat(rank(a), std::tie(a.name)) < std::tuple_cat(rank(b), std::tie(b.name));
  });
}

/// Adds a match, unless one of the overlay stands before the shipped one that it replaces.
template <class KindOfConfig>
void add_match(std::vector<TunedMatchOf<KindOfConfig>>& found, TunedMatchOf<KindOfConfig> match) {
  const bool replaced =
      std::any_of(found.begin(), found.end(), [&](const auto& other) { return replaces(*other.row, *match.row); });
  if (!replaced) found.push_back(std::move(match));
}

}  // namespace

std::optional<double> row_distance(const AttentionProblem& problem, const AttentionProblem& from) {
  if (tuning_class(problem) != tuning_class(from)) return std::nullopt;
  // Heads that share tiles are walked in another order where sequences differ in length.
  if (problem.q_layout != from.q_layout && problem.group() > 1) return std::nullopt;
  const auto differ = [](auto a, auto b, double weight) { return a == b ? 0 : weight; };
  const double distance = ratio_distance(problem.group(), from.group()) +
                          ratio_distance(problem.max_q_len, from.max_q_len) +
                          ratio_distance(problem.heads.kv, from.heads.kv) / 4 +
                          ratio_distance(problem.kv_layout.page_size, from.kv_layout.page_size) / 2 +
                          mask_distance(problem.mask, from.mask) + differ(problem.q_layout, from.q_layout, 0.5) +
                          differ(problem.dtype.out, from.dtype.out, 0.5) + differ(problem.sinks, from.sinks, 0.25) +
                          differ(problem.lse, from.lse, 0.25) + differ(problem.kv_offsets, from.kv_offsets, 0.25) +
                          differ(problem.kv_starts, from.kv_starts, 0.25);
  if (distance > kFarthestRow) return std::nullopt;
  return distance;
}

double mean_us(const TunedRow& row) { return geometric_mean_us(row); }
double mean_us(const GemmTunedRow& row) { return geometric_mean_us(row); }

/// A row and, until it is needed, its text.
struct TunedTable::Entry {
  std::string name;
  Arch arch = Arch::kSm80;
  std::string tuning_class;
  const char* text = nullptr;  // of a shipped row, which is read on first use

  explicit Entry(std::string of) : name(std::move(of)) {}
  Entry(std::string of, AnyTunedRow row) : name(std::move(of)) {
    std::visit([this](const auto& any) { arch = any.arch, tuning_class = any.tuning_class; }, row);
    known = std::make_shared<const AnyTunedRow>(std::move(row));
  }

  /// Null if it cannot be read; then `why` says why.
  std::shared_ptr<const AnyTunedRow> row(std::string* why = nullptr) const {
    std::call_once(once, [this] {
      if (known) return;
      try {
        known = std::make_shared<const AnyTunedRow>(read_tuned_row(text));
      } catch (const Error& error) {
        reason = error.what();
      }
    });
    if (why) *why = reason;
    return known;
  }

  /// Null if it cannot be read, or is of another kind.
  template <class KindOfConfig>
  std::shared_ptr<const TunedRowOf<KindOfConfig>> row_of() const {
    const std::shared_ptr<const AnyTunedRow> any = row();
    return {any, any ? std::get_if<TunedRowOf<KindOfConfig>>(any.get()) : nullptr};
  }

  mutable std::once_flag once;
  mutable std::shared_ptr<const AnyTunedRow> known;
  mutable std::string reason;
};

const TunedTable& TunedTable::shipped() {
  // Never destroyed: compile threads plan while the process exits.
  static const TunedTable& table = *new TunedTable([] {
    TunedTable rows;
    for (std::size_t i = 0; i < detail::embedded_row_count; ++i) {
      const detail::EmbeddedRow& embedded = detail::embedded_rows[i];
      const auto arch = from_string<Arch>(embedded.arch);
      if (!arch) {
        rows.skipped_.push_back({embedded.name, std::string(embedded.arch) + " is no architecture here"});
        continue;
      }
      auto entry = std::make_shared<Entry>(embedded.name);
      entry->arch = *arch;
      entry->tuning_class = embedded.tuning_class;
      entry->text = embedded.text;
      rows.add(std::move(entry));
    }
    return rows;
  }());
  return table;
}

TunedTable TunedTable::of(std::vector<std::pair<std::string, AnyTunedRow>> rows) {
  TunedTable table;
  for (auto& [name, row] : rows) table.add(std::make_shared<Entry>(name, std::move(row)));
  return table;
}

namespace {

/// A reason of trusted_files.h without the path that it begins with.
std::string without_path(std::string reason, const std::string& path) {
  if (!reason.starts_with(path)) return reason;
  reason.erase(0, path.size());
  return reason.substr(reason.find_first_not_of(": "));
}

}  // namespace

TunedTable TunedTable::with_overlay(const std::string& directory, const RowCheck& require_usable) {
  if (directory.empty()) return shipped();
  TunedTable table;
  table.directory_ = directory;
  const auto skip = [&](const std::string& path, const std::string& reason) {
    table.skipped_.push_back({path, reason});
  };
  const TrustedDirectory root = open_trusted_directory(directory, /*create=*/false, Trust::kOwnOrRoot);
  if (!root.fd) skip(directory, without_path(root.reason, directory));
  for (const auto& [arch, word] : EnumTable<Arch>::entries) {
    if (!root.fd) break;
    const std::string path = (fs::path(directory) / word).string();
    const TrustedDirectory folder =
        open_trusted_subdirectory(root.fd.get(), std::string(word), /*create=*/false, Trust::kOwnOrRoot);
    if (!folder.fd && !folder.absent) skip(path, without_path(folder.reason, std::string(word)));
    if (!folder.fd) continue;
    std::vector<std::string> names = names_in(folder.fd.get());
    std::erase_if(names, [](const std::string& name) { return fs::path(name).extension() != ".json"; });
    std::sort(names.begin(), names.end());  // the order of a directory is nobody's choice
    for (const std::string& name : names) {
      const std::string file = (fs::path(path) / name).string();
      const FileBytes bytes = read_trusted_file(folder.fd.get(), name, Trust::kOwnOrRoot, JsonValue::kMaxBytes);
      if (bytes.status != FileBytes::Status::kRead) {
        skip(file, bytes.status == FileBytes::Status::kAbsent ? "is gone" : bytes.reason);
        continue;
      }
      try {
        const std::string text(reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size());
        auto entry = std::make_shared<Entry>(file, read_tuned_row(text));
        if (entry->arch != arch) {
          skip(file, "/arch: the row is for " + std::string(to_string(entry->arch)) + " and lies in the folder of " +
                         std::string(word));
          continue;
        }
        const auto twin = std::find_if(table.entries_.begin(), table.entries_.end(),
                                       [&](const auto& other) { return replaces(*other->known, *entry->known); });
        if (twin != table.entries_.end()) {
          skip(file, "/problem: " + (*twin)->name + " has a row for it already");
          continue;
        }
        if (require_usable) require_usable(*entry->known);
        table.add(std::move(entry));
      } catch (const ConfigError& error) {
        skip(file, error.what());
      }
    }
  }
  for (const auto& entry : shipped().entries_) table.add(entry);
  table.skipped_.insert(table.skipped_.end(), shipped().skipped_.begin(), shipped().skipped_.end());
  return table;
}

TunedTable TunedTable::from_environment(const std::string& directory, const RowCheck& require_usable) {
  if (!directory.empty()) return with_overlay(directory, require_usable);
  // secure_getenv: a set-user-id program must not be steered by what its caller names.
  const char* named = secure_getenv("KERNELWRIGHT_TUNED_DIR");
  return with_overlay(named ? named : "", require_usable);
}

std::vector<TunedMatch> TunedTable::matches(const AttentionProblem& problem, DeviceClass device,
                                            std::optional<Family> family) const {
  std::vector<TunedMatch> found;
  if (problem.heads.kv < 1) return found;  // filled in by code and not judged yet: it has no group
  std::string wanted;                      // made on first use: most tables have nothing for most architectures
  for (const auto& entry : entries_) {
    if (entry->arch != arch_of(device)) continue;
    if (wanted.empty()) wanted = tuning_class(problem);
    if (entry->tuning_class != wanted) continue;
    const std::shared_ptr<const TunedRow> row = entry->row_of<AttentionConfig>();
    if (!row || (family && family_of(*row) != *family)) continue;
    const auto apart = row_distance(problem, row->problem);
    if (!apart) continue;
    const bool lent = row->device != device;
    const double distance = *apart + (lent ? kLentRow : 0);
    if (distance > kFarthestRow) continue;
    add_match(found, {row, entry->name, !lent && computes_the_same(row->problem, problem), lent, distance});
  }
  sort_matches(found);
  return found;
}

std::vector<GemmTunedMatch> TunedTable::matches(const GemmProblem& problem, DeviceClass device, int num_sms,
                                                std::optional<Family> family) const {
  std::vector<GemmTunedMatch> found;
  std::string wanted;
  for (const auto& entry : entries_) {
    if (entry->arch != arch_of(device)) continue;
    if (wanted.empty()) wanted = tuning_class(problem);
    if (entry->tuning_class != wanted) continue;
    const std::shared_ptr<const GemmTunedRow> row = entry->row_of<GemmConfig>();
    if (!row || row->problem != problem || row->launches.num_sms != num_sms) continue;
    if (family && family_of(*row) != *family) continue;
    const bool lent = row->device != device;
    add_match(found, {row, entry->name, !lent, lent, lent ? kLentRow : 0});
  }
  sort_matches(found);
  return found;
}

template <class KindOfConfig>
std::vector<TunedMatchOf<KindOfConfig>> TunedTable::rows(std::vector<SkippedRow>* unreadable) const {
  std::vector<TunedMatchOf<KindOfConfig>> all;
  for (const auto& entry : entries_) {
    std::string why;
    if (!entry->row(&why)) {
      if (unreadable) unreadable->push_back({entry->name, why});
    } else if (auto row = entry->row_of<KindOfConfig>()) {
      all.push_back({std::move(row), entry->name, true, false, 0});
    }
  }
  return all;
}
template std::vector<TunedMatch> TunedTable::rows<AttentionConfig>(std::vector<SkippedRow>*) const;
template std::vector<GemmTunedMatch> TunedTable::rows<GemmConfig>(std::vector<SkippedRow>*) const;

std::string write_tuned_file(const std::string& directory, const std::string& name, const AnyTunedRow& row) {
  const Arch arch = std::visit([](const auto& any) { return any.arch; }, row);
  const fs::path folder = fs::path(directory) / to_string(arch);
  std::error_code code;
  // What others may write is not read again, and a umask of 002 is common.
  const auto keep_to_owner = [](const fs::path& path) {
    std::error_code ignored;
    fs::permissions(path, fs::perms::group_write | fs::perms::others_write, fs::perm_options::remove, ignored);
  };
  for (const fs::path& path : {fs::path(directory), folder})
    if (!fs::exists(path, code) && fs::create_directories(path, code)) keep_to_owner(path);
  if (!fs::is_directory(folder)) throw ConfigError(folder.string(), "cannot be made a folder: " + code.message());
  fs::path path = folder / (name + ".json");
  if (fs::exists(path, code)) try {
      if (!replaces(read_tuned_row(read_small_file(path.string())), row)) {
        const std::string text = std::visit([](const auto& any) { return identity(any); }, row);
        path = folder / (name + "-" + sha256(text).hex().substr(0, 8) + ".json");
      }
    } catch (const ConfigError&) {
      // No row: what is broken is replaced.
    }
  const fs::path fresh = path.string() + "." + std::to_string(::getpid()) + ".tmp";
  {
    std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
    out << std::visit([](const auto& any) { return write_tuned_row(any); }, row);
    if (!out.flush()) throw ConfigError(fresh.string(), "cannot be written");
  }
  keep_to_owner(fresh);
  fs::rename(fresh, path, code);
  if (code) {
    std::error_code ignored;
    fs::remove(fresh, ignored);
    throw ConfigError(path.string(), "cannot be written: " + code.message());
  }
  return path.string();
}

}  // namespace kernelwright
