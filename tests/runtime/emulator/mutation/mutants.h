/// Kernels with one synchronisation instruction deleted or altered, which a checker must find. The change is made in
/// the text of the PTX, so that everything else about the kernel stays the same.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kernelwright::test {

/// A place in a source file.
struct SourceFrame {
  std::string file;  // as .file names it
  int line = 0;
  bool operator==(const SourceFrame&) const = default;
};

/// A synchronisation instruction of a PTX text.
struct SyncSite {
  std::string entry;
  std::size_t entry_begin = 0;     // in the text: where the entry's first instruction is
  std::size_t begin = 0, end = 0;  // in the text: from its guard to behind its ';'
  std::string guard;               // "@%p1 " or ""
  std::string opcode;
  std::vector<std::string> operands;
  int line = 0;                     // of the text, from 1
  std::vector<SourceFrame> frames;  // innermost first; empty without -lineinfo
  std::string text() const;         // "@%p1 bar.sync 0"
};

struct Mutant {
  std::size_t site = 0;     // index into the sites
  std::string change;       // "delete", "parity flipped", "expects 16 bytes more"
  std::string replacement;  // replaces the site: statements, or nothing
};

/// All synchronisation instructions of all entries: barriers, mbarriers, fences, groups of copies and of wgmma,
/// tcgen05's commits, waits, fences and deallocations, setmaxnreg, griddepcontrol. Also loads, stores and atomics with
/// release or acquire. Executed or not.
std::vector<SyncSite> sync_sites(std::string_view ptx);

/// All changes of one site. Deleting a wait makes its predicate true. A load or store is not deleted: it loses its
/// release or acquire.
std::vector<Mutant> mutants_of(const SyncSite& site, std::size_t index);

/// Stops with a fault where the site would be executed.
std::string trap_at(const SyncSite& site);
/// `ptx` that stops with a fault where the site's entry begins.
std::string with_trap_at_entry(std::string_view ptx, const SyncSite& site);

/// `ptx` with the site replaced.
std::string with_replacement(std::string_view ptx, const SyncSite& site, std::string_view replacement);

}  // namespace kernelwright::test
