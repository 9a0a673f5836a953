#include "runtime/emulator/mutation/mutants.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <map>
#include <optional>

namespace kernelwright::test {
namespace {

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; });
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// A load or store that also synchronises: only its order can be taken away.
bool orders_memory(std::string_view opcode) {
  return starts_with_any(opcode, {"ld.", "st.", "atom.", "red."}) &&
         (contains(opcode, ".acquire") || contains(opcode, ".release") || contains(opcode, ".acq_rel"));
}

/// mbarrier.inval is not among them: it ends an object's life and orders nothing.
bool synchronises(std::string_view opcode) {
  if (orders_memory(opcode)) return true;
  return starts_with_any(opcode, {"bar.",
                                  "barrier.",
                                  "mbarrier.init",
                                  "mbarrier.arrive",
                                  "mbarrier.expect_tx",
                                  "mbarrier.complete_tx",
                                  "mbarrier.try_wait",
                                  "mbarrier.test_wait",
                                  "fence.",
                                  "membar.",
                                  "cp.async.commit_group",
                                  "cp.async.wait_",
                                  "cp.async.mbarrier.arrive",
                                  "cp.async.bulk.commit_group",
                                  "cp.async.bulk.wait_group",
                                  "wgmma.fence",
                                  "wgmma.commit_group",
                                  "wgmma.wait_group",
                                  "tcgen05.commit",
                                  "tcgen05.wait::",
                                  "tcgen05.fence::",
                                  "tcgen05.dealloc",
                                  "setmaxnreg.",
                                  "griddepcontrol."});
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

/// At commas outside of brackets and braces.
std::vector<std::string> split_operands(std::string_view text) {
  std::vector<std::string> operands;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      const std::string_view operand = trimmed(text.substr(begin, i - begin));
      if (!operand.empty()) operands.emplace_back(operand);
      begin = i + 1;
    } else if (text[i] == '[' || text[i] == '{' || text[i] == '(') {
      ++depth;
    } else if (text[i] == ']' || text[i] == '}' || text[i] == ')') {
      --depth;
    }
  }
  return operands;
}

/// Follows the .loc lines of a text.
class Locations {
 public:
  explicit Locations(std::string_view ptx) {
    for (std::size_t at = ptx.find("\t.file\t"); at != ptx.npos; at = ptx.find("\t.file\t", at + 1)) {
      const std::size_t open = ptx.find('"', at), close = ptx.find('"', open + 1);
      std::string name(ptx.substr(open + 1, close - open - 1));
      files_[number(ptx.substr(at + 7))] = std::move(name);
    }
  }
  /// One .loc line: file line column [, function_name label, inlined_at file line column].
  void read(std::string_view line) {
    const auto place = [](std::string_view text) {
      Place place{};
      const std::string copy(text);
      std::sscanf(copy.c_str(), "%d %d %d", &place[0], &place[1], &place[2]);
      return place;
    };
    here_ = place(line.substr(line.find(".loc") + 4));
    const std::size_t inlined = line.find("inlined_at ");
    if (inlined == line.npos)
      callers_.erase(here_);
    else
      callers_[here_] = place(line.substr(inlined + 11));
  }
  std::vector<SourceFrame> frames() const {
    std::vector<SourceFrame> all;
    constexpr std::size_t kDeepest = 32;  // the .loc lines of a recursive inlining would go round
    for (Place at = here_; at[0] != 0 && all.size() < kDeepest;) {
      const auto file = files_.find(at[0]);
      all.push_back({file == files_.end() ? "?" : file->second, at[1]});
      const auto caller = callers_.find(at);
      at = caller == callers_.end() ? Place{} : caller->second;
    }
    return all;
  }
  void forget() { here_ = {}; }

 private:
  using Place = std::array<int, 3>;  // file, line, column
  static int number(std::string_view text) {
    int value = 0;
    std::from_chars(text.data() + text.find_first_not_of(" \t"), text.data() + text.size(), value);
    return value;
  }
  std::map<int, std::string> files_;
  std::map<Place, Place> callers_;
  Place here_{};
};

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' || c == '%';
}

/// Reads the statements of one entry's body.
class BodyScanner {
 public:
  BodyScanner(std::string_view ptx, std::size_t body, std::string entry, Locations& locations,
              std::vector<SyncSite>& sites)
      : ptx_(ptx), at_(body), entry_(std::move(entry)), locations_(locations), sites_(sites) {}

  /// Scans from the '{' of the body to its '}'; returns the place after it.
  std::size_t scan() {
    int depth = 0;
    while (at_ < ptx_.size()) {
      const char c = ptx_[at_];
      if (c == '{') {
        ++depth, ++at_;
      } else if (c == '}') {
        ++at_;
        if (--depth == 0) break;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ';') {
        ++at_;
      } else if (ptx_.substr(at_, 2) == "//") {
        at_ = std::min(ptx_.find('\n', at_), ptx_.size());
      } else if (ptx_.substr(at_, 4) == ".loc") {
        const std::size_t end = std::min(ptx_.find('\n', at_), ptx_.size());
        locations_.read(ptx_.substr(at_, end - at_));
        at_ = end;
      } else if (!skip_label()) {
        statement();
      }
    }
    locations_.forget();
    return at_;
  }

 private:
  bool skip_label() {
    std::size_t end = at_;
    while (end < ptx_.size() && is_name(ptx_[end])) ++end;
    if (end == at_ || end >= ptx_.size() || ptx_[end] != ':') return false;
    at_ = end + 1;
    return true;
  }
  void statement() {
    const std::size_t begin = at_, end = std::min(ptx_.find(';', at_), ptx_.size());
    at_ = std::min(end + 1, ptx_.size());
    if (first_ == 0 && ptx_[begin] != '.') first_ = begin;
    std::string_view text = ptx_.substr(begin, end - begin);
    SyncSite site;
    if (text[0] == '@') {
      const std::size_t blank = text.find_first_of(" \t");
      if (blank == text.npos) return;
      site.guard = std::string(text.substr(0, blank)) + " ";
      text = trimmed(text.substr(blank));
    }
    const std::size_t blank = std::min(text.find_first_of(" \t\n"), text.size());
    site.opcode = text.substr(0, blank);
    if (!synchronises(site.opcode)) return;
    site.operands = split_operands(text.substr(blank));
    site.entry = entry_;
    site.entry_begin = first_;
    site.begin = begin, site.end = at_;
    site.line = 1 + static_cast<int>(std::count(ptx_.begin(), ptx_.begin() + static_cast<std::ptrdiff_t>(begin), '\n'));
    site.frames = locations_.frames();
    sites_.push_back(std::move(site));
  }

  std::string_view ptx_;
  std::size_t at_;
  std::size_t first_ = 0;  // where the first instruction is
  std::string entry_;
  Locations& locations_;
  std::vector<SyncSite>& sites_;
};

std::string assembled(const SyncSite& site, const std::string& opcode, const std::vector<std::string>& operands) {
  std::string text = site.guard + opcode;
  for (std::size_t i = 0; i < operands.size(); ++i) text += (i == 0 ? " " : ", ") + operands[i];
  return text;
}

std::optional<long> integer(const std::string& operand) {
  long value = 0;
  const auto [end, error] = std::from_chars(operand.data(), operand.data() + operand.size(), value);
  if (error != std::errc() || end != operand.data() + operand.size()) return std::nullopt;
  return value;
}

/// The site with operand `index`, a number or a b32 register, changed by `operation` ("add.s32", "xor.b32") with
/// `amount`.
std::string with_operand(const SyncSite& site, std::size_t index, const std::string& operation, long amount) {
  std::vector<std::string> operands = site.operands;
  if (const auto value = integer(operands[index])) {
    operands[index] = std::to_string(operation == "xor.b32" ? *value ^ amount : *value + amount);
    return assembled(site, site.opcode, operands) + ";";
  }
  const std::string changed = "%kw_changed";
  const std::string before = "{ .reg .b32 " + changed + "; " + operation + " " + changed + ", " + operands[index] +
                             ", " + std::to_string(amount) + "; ";
  operands[index] = changed;
  return before + assembled(site, site.opcode, operands) + "; }";
}

/// `opcode` with `part` instead of `was`, which it has.
std::string with_part(std::string opcode, std::string_view was, std::string_view part) {
  return opcode.replace(opcode.find(was), was.size(), part);
}

}  // namespace

std::string SyncSite::text() const { return assembled(*this, opcode, operands); }

std::vector<SyncSite> sync_sites(std::string_view ptx) {
  std::vector<SyncSite> sites;
  Locations locations(ptx);
  constexpr std::string_view kEntry = ".entry ";
  for (std::size_t at = ptx.find(kEntry); at != ptx.npos; at = ptx.find(kEntry, at)) {
    at += kEntry.size();
    std::size_t end = at;
    while (end < ptx.size() && is_name(ptx[end])) ++end;
    const std::string name(ptx.substr(at, end - at));
    const std::size_t body = ptx.find('{', end);
    if (body == ptx.npos) break;
    at = BodyScanner(ptx, body, name, locations, sites).scan();
  }
  return sites;
}

std::vector<Mutant> mutants_of(const SyncSite& site, std::size_t index) {
  std::vector<Mutant> mutants;
  const auto add = [&](std::string change, std::string replacement) {
    mutants.push_back({index, std::move(change), std::move(replacement)});
  };
  const std::string& opcode = site.opcode;
  const std::vector<std::string>& operands = site.operands;
  const bool waits = starts_with_any(opcode, {"mbarrier.try_wait", "mbarrier.test_wait"});
  const bool accesses = orders_memory(opcode);
  if (!accesses) add("delete", waits ? site.guard + "setp.ne.u32 " + operands[0] + ", 1, 0;" : std::string());
  if (accesses)
    for (const char* order : {".acquire", ".release", ".acq_rel"})
      if (contains(opcode, order))
        add("relaxed", assembled(site, with_part(opcode, order, ".relaxed"), operands) + ";");
  if (contains(opcode, ".gpu") && (accesses || starts_with_any(opcode, {"fence."})))
    add("scope of a CTA", assembled(site, with_part(opcode, ".gpu", ".cta"), operands) + ";");
  if (waits && contains(opcode, ".parity")) add("parity flipped", with_operand(site, 2, "xor.b32", 1));
  if (contains(opcode, "wait_group")) {
    add("one group less", with_operand(site, 0, "add.s32", 1));
    if (contains(opcode, "bulk.wait_group") && !contains(opcode, ".read"))
      add(".read added", assembled(site, opcode + ".read", operands) + ";");
  }
  if (contains(opcode, "expect_tx")) {
    add("16 bytes more", with_operand(site, operands.size() - 1, "add.s32", 16));
    add("16 bytes less", with_operand(site, operands.size() - 1, "add.s32", -16));
  }
  if (starts_with_any(opcode, {"mbarrier.init"})) {
    add("one arrival more", with_operand(site, 1, "add.s32", 1));
    add("one arrival less", with_operand(site, 1, "add.s32", -1));
  }
  if (starts_with_any(opcode, {"mbarrier.arrive"}) && !contains(opcode, "expect_tx") && operands.size() == 2) {
    std::vector<std::string> twice = operands;
    twice.push_back("2");
    add("arrives twice", assembled(site, opcode, twice) + ";");
  }
  const bool named = starts_with_any(
      opcode, {"bar.sync", "bar.arrive", "barrier.sync", "barrier.arrive", "barrier.cta.sync", "barrier.cta.arrive"});
  if (named && operands.size() == 2) {
    add("32 threads more", with_operand(site, 1, "add.s32", 32));
    add("32 threads less", with_operand(site, 1, "add.s32", -32));
  }
  return mutants;
}

std::string trap_at(const SyncSite& site) { return site.guard + "trap;"; }

std::string with_trap_at_entry(std::string_view ptx, const SyncSite& site) {
  return std::string(ptx).insert(site.entry_begin, "trap; ");
}

std::string with_replacement(std::string_view ptx, const SyncSite& site, std::string_view replacement) {
  std::string text(ptx.substr(0, site.begin));
  text += replacement;
  text += ptx.substr(site.end);
  return text;
}

}  // namespace kernelwright::test
