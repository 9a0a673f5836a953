/// Mutants that change nothing, each with the reason why: tests/runtime/emulator/mutation/mutants_equivalent.txt.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kernelwright::test {

/// The key by which an entry is looked up. Source lines are compared by their text, so entries survive edits elsewhere
/// in a file.
struct MutantKey {
  std::string kernel;  // the subject's name
  /// "gemm_sm90.cu: wgmma_fence();", of an entry perhaps with a caller: "… < gemm_sm90.cu: run();". Without line
  /// information "softmax #3": the third instruction of that opcode in the entry.
  std::string source;
  std::string instruction;                // the opcode
  std::string change;                     // "delete"
  std::vector<std::string> callers = {};  // of a mutant: where its source line was inlined, as `source`
};

struct Equivalent {
  MutantKey pattern;  // its kernel may have shell wildcards
  std::string reason;
  int line = 0;   // of the file
  int count = 0;  // mutants that it has explained
};

/// An entry is a line "kernel | source | instruction | change", and under it, indented, the reason. A source with " <
/// another line" matches only the copy that is inlined there. Lines that begin with '#' are comments. Throws Error,
/// naming the line, for anything else and for an entry without a reason.
std::vector<Equivalent> read_equivalents(const std::string& path);

/// The entry for `key`, or null.
Equivalent* find_equivalent(std::vector<Equivalent>& equivalents, const MutantKey& key);

/// `kernel` as a shell pattern names it.
bool matches(const std::string& pattern, const std::string& kernel);

}  // namespace kernelwright::test
