#include "runtime/emulator/mutation/mutation_report.h"

#include <fmt/format.h>

#include <map>

namespace kernelwright::test {
namespace {

/// "mbarrier.arrive.expect_tx.shared::cta.b64" -> "mbarrier.arrive.expect_tx": the name by which a reader knows the
/// instruction.
std::string family_of(const std::string& opcode) {
  for (const char* family : {"mbarrier.arrive.expect_tx",
                             "mbarrier.arrive",
                             "mbarrier.init",
                             "mbarrier.expect_tx",
                             "mbarrier.try_wait",
                             "mbarrier.test_wait",
                             "cp.async.bulk.wait_group",
                             "cp.async.bulk.commit_group",
                             "cp.async.wait_group",
                             "cp.async.wait_all",
                             "cp.async.commit_group",
                             "cp.async.mbarrier.arrive",
                             "barrier.cluster.arrive",
                             "barrier.cluster.wait",
                             "bar.warp.sync",
                             "bar.sync",
                             "bar.arrive",
                             "barrier.sync",
                             "fence.proxy.async",
                             "fence.mbarrier_init",
                             "wgmma.fence",
                             "wgmma.commit_group",
                             "wgmma.wait_group",
                             "setmaxnreg",
                             "griddepcontrol.wait",
                             "griddepcontrol.launch_dependents"})
    if (opcode.rfind(family, 0) == 0) return family;
  return opcode;
}

template <class KeyOf>
std::string table_of(const std::vector<MutantResult>& results, const char* title, KeyOf&& key_of) {
  std::map<std::string, MutationScore> rows;
  for (const MutantResult& result : results) rows[key_of(result)].add(result.fate);
  std::string text = fmt::format(
      "| {} | mutants | reported | stopped | wrong output only | silent | equivalent | found |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|\n",
      title);
  for (const auto& [key, score] : rows)
    if (score.mutants > 0)
      text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {:.0f} % |\n", key, score.mutants, score.reported,
                          score.stopped, score.wrong_output, score.silent, score.equivalent, score.adjusted_percent());
  return text;
}

std::string in_quotes(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

}  // namespace

void MutationScore::add(Fate fate) {
  if (fate == Fate::kNotExecuted) return;
  ++mutants;
  reported += fate == Fate::kReported;
  stopped += fate == Fate::kStopped;
  wrong_output += fate == Fate::kWrongOutput;
  silent += fate == Fate::kSilent;
  equivalent += fate == Fate::kEquivalent;
}

double MutationScore::raw_percent() const { return mutants == 0 ? 0 : 100.0 * found() / mutants; }

double MutationScore::adjusted_percent() const {
  return mutants == equivalent ? 100 : 100.0 * found() / (mutants - equivalent);
}

MutationScore score_of(const std::vector<MutantResult>& results) {
  MutationScore score;
  for (const MutantResult& result : results) score.add(result.fate);
  return score;
}

std::string markdown_of(const std::vector<MutantResult>& results, const std::vector<Equivalent>& equivalents) {
  const MutationScore score = score_of(results);
  std::string text = fmt::format(
      "{} mutants: {} reported, {} stopped by a deadlock or fault, {} with wrong output only, {} silent, {} "
      "equivalent.\nFound: **{:.1f} %** of all, **{:.1f} %** of those that are not equivalent; {:.1f} % are claimed "
      "equivalent.\n\n",
      score.mutants, score.reported, score.stopped, score.wrong_output, score.silent, score.equivalent,
      score.raw_percent(), score.adjusted_percent(), score.mutants ? 100.0 * score.equivalent / score.mutants : 0.0);
  text += "## By kernel\n\n" + table_of(results, "kernel", [](const MutantResult& result) { return result.kernel; });
  text += "\n## By instruction\n\n" +
          table_of(results, "instruction", [](const MutantResult& result) { return family_of(result.site.opcode); });
  text += "\n## By grade of the gravest report\n\n" + table_of(results, "grade", [](const MutantResult& result) {
            return result.grade.empty() ? std::string("none") : result.grade;
          });
  text += "\n## Under which completion policy it was found first\n\n" +
          table_of(results, "policy", [](const MutantResult& result) {
            return result.completion.empty() ? std::string("none") : result.completion;
          });
  text += "\n## Not found\n\n";
  bool any = false;
  for (const MutantResult& result : results)
    if (result.fate == Fate::kSilent || result.fate == Fate::kWrongOutput) {
      any = true;
      text += fmt::format("- {}, {} ({}): `{}`, {}: {}\n", result.kernel, result.source, result.key.source,
                          result.site.text(), result.change, name_of(result.fate));
    }
  if (!any) text += "Nothing.\n";
  text += "\n## Equivalent, and why\n\n";
  for (const Equivalent& entry : equivalents)
    if (entry.count > 0)
      text += fmt::format("- {} ({}×), `{}`, `{}`, {}: {}\n", entry.pattern.kernel, entry.count, entry.pattern.source,
                          entry.pattern.instruction, entry.pattern.change, entry.reason);
  return text;
}

std::string csv_of(const std::vector<MutantResult>& results) {
  std::string text = "kernel,ptx_line,source,source_line,instruction,change,outcome,found_by,completion,grade\n";
  for (const MutantResult& result : results)
    text += fmt::format("{},{},{},{},{},{},{},{},{},{}\n", result.kernel, result.site.line, in_quotes(result.source),
                        in_quotes(result.key.source), in_quotes(result.site.text()), in_quotes(result.change),
                        name_of(result.fate), in_quotes(result.found_by), result.completion, result.grade);
  return text;
}

}  // namespace kernelwright::test
