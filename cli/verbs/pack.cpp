// kernelwright pack: the kernels of configs and plans in one file, which an engine mounts; and what is in such a file.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/compile_jobs.h"
#include "cli/exit_code.h"
#include "cli/explain/resources.h"
#include "cli/oci_layout.h"
#include "cli/output_file.h"
#include "cli/terminal.h"
#include "cli/verbs/verbs.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/runtime/cache/bundle.h"

namespace kernelwright::cli {
namespace {

std::string kernels_text(std::size_t count) { return fmt::format("{} kernel{}", count, count == 1 ? "" : "s"); }

/// The bundle at `path`, signed as --bundle-key asks. Throws ConfigError with the reason why there is none.
std::unique_ptr<Bundle> open_bundle(const std::string& path, const BundleTrust& trust) {
  auto bundle = std::make_unique<Bundle>(path, Payload::kUnpack, EventSink{}, trust);
  if (!bundle->fault().empty()) throw ConfigError(path, bundle->fault().substr(path.size() + 2));
  return bundle;
}

/// "signed by 0123456789ab", "signed, and not checked" or "not signed".
std::string signature_text(const Bundle& bundle) {
  if (bundle.signer()) return "signed by " + bundle.signer()->name();
  return bundle.is_signed() ? "signed, and not checked: no --bundle-key" : "not signed";
}

/// The key of --sign, if it was given. Throws before anything compiles.
std::optional<SigningKey> signing_key(const Options& options) {
  if (options.signing_key.empty()) return std::nullopt;
  SigningKey key = read_signing_key(options.signing_key);
  key.public_key();  // throws without libsodium
  return key;
}

int make_bundle(const Options& options) {
  if (options.pack_file.empty() && options.oci_folder.empty())
    throw ConfigError("command line", "pack needs --output FILE, or --oci DIR");
  const std::optional<SigningKey> key = signing_key(options);
  Configs configs = read_configs(options);
  std::vector<CompileJob> jobs = plan_jobs(configs, options);
  require_address_space();
  KernelStore store(cache_options(options));
  const CompileTotals totals = build_all(store, jobs);
  print_errors(jobs);
  print_skipped(configs.skipped);
  if (totals.exit_code() != kDone) return totals.exit_code();
  BundleWriter writer(KERNELWRIGHT_VERSION);
  for (const CompileJob& job : jobs) {
    const CacheKey of_kernel = store.key(job.spec);
    if (of_kernel.compiler.empty()) throw MissingError("pack needs NVRTC, by whose build a bundle names its kernels");
    writer.add(job.named->name(), of_kernel, *job.binary);
  }
  const std::vector<std::byte> bytes = writer.finish(key ? &*key : nullptr);
  if (!options.pack_file.empty()) write_output_file(options.pack_file, bytes);
  if (!options.oci_folder.empty()) write_oci_layout(options.oci_folder, bytes);
  const std::string& place = options.pack_file.empty() ? options.oci_folder : options.pack_file;
  if (options.json)
    fmt::print("{}\n", JsonValue::object()
                           .set("file", place)
                           .set("bytes", bytes.size())
                           .set("sha256", sha256(bytes).hex())
                           .set("kernels", totals.kernels)
                           .set("compiled", totals.compiled)
                           .set("milliseconds", totals.milliseconds)
                           .dump());
  else
    fmt::print("{} of {} problem{}, {} compiled in {}: {}, {}\n", kernels_text(totals.kernels), configs.usable.size(),
               configs.usable.size() == 1 ? "" : "s", totals.compiled, duration_text(totals.milliseconds), place,
               size_text(static_cast<double>(bytes.size())));
  return kDone;
}

int list_bundle(const std::string& path, const BundleTrust& trust, bool json) {
  const std::unique_ptr<Bundle> bundle = open_bundle(path, trust);
  if (json) {
    fmt::print("{}\n", bundle->manifest().to_json().dump());
    return kDone;
  }
  const Style style(stdout);
  Table table({"problem", "arch", "kernels", "cubins"});
  const BundleManifest& manifest = bundle->manifest();
  for (const BundledProblem& problem : manifest.problems) {
    std::map<std::string, int> counts;
    std::uint64_t bytes = 0;
    for (const Digest& key : problem.kernels) {
      const auto entry = std::ranges::lower_bound(manifest.entries, key, {}, &BundledEntry::key);
      ++counts[entry->kernel];
      bytes += entry->cubin_bytes;
    }
    std::string names;
    for (const auto& [name, count] : counts)
      names += (names.empty() ? "" : ", ") + name + (count > 1 ? fmt::format(" x{}", count) : "");
    table.row({problem.name, problem.arch, names, size_text(static_cast<double>(bytes))});
  }
  fmt::print("{}{} {}: {}, {}, by kernelwright {} and compiler {}, {}\n", table.text(style), style.dim("bundle"), path,
             kernels_text(manifest.entries.size()), size_text(static_cast<double>(bundle->file_bytes())),
             manifest.library, manifest.compiler.substr(0, 12), signature_text(*bundle));
  return kDone;
}

int verify_bundle(const std::string& path, const BundleTrust& trust, bool json) {
  const std::unique_ptr<Bundle> bundle = open_bundle(path, trust);
  const auto bad = bundle->verify();
  const Style style(stdout);
  JsonValue rows = JsonValue::array();
  for (const auto& [key, reason] : bad) {
    rows.push(JsonValue::object().set("key", key.hex()).set("reason", reason));
    if (!json) fmt::print("  {}  {}\n", key.hex().substr(0, 12), style.bad(reason));
  }
  if (json)
    fmt::print("{}\n", JsonValue::object()
                           .set("file", path)
                           .set("checked", bundle->manifest().entries.size())
                           .set("bytes", bundle->file_bytes())
                           .set("signed", bundle->is_signed())
                           .set("signer", bundle->signer() ? JsonValue(bundle->signer()->name()) : JsonValue())
                           .set("bad", std::move(rows))
                           .set("verdict", bad.empty() ? "ok" : "failed")
                           .dump());
  else
    fmt::print("{} {}, {} in {}, {}\n", style.verdict(bad.empty()), kernels_text(bundle->manifest().entries.size()),
               size_text(static_cast<double>(bundle->file_bytes())), path, signature_text(*bundle));
  return bad.empty() ? kDone : kMismatch;
}

/// What two bundles say of one problem on one architecture: "" if the same.
std::string bundled_difference(const BundledProblem* a, const BundledProblem* b, const BundleManifest& of_a,
                               const BundleManifest& of_b) {
  if (!a || !b) return a ? "in the first alone" : "in the second alone";
  if (a->kernels != b->kernels) return "other kernels";
  for (const Digest& key : a->kernels) {
    const auto in_a = std::ranges::lower_bound(of_a.entries, key, {}, &BundledEntry::key);
    const auto in_b = std::ranges::lower_bound(of_b.entries, key, {}, &BundledEntry::key);
    if (in_a->sha256 != in_b->sha256) return "other builds of the same kernels";
  }
  return "";
}

int diff_bundles(const std::string& first, const std::string& second, const BundleTrust& trust, bool json) {
  const std::unique_ptr<Bundle> a = open_bundle(first, trust), b = open_bundle(second, trust);
  using Where = std::pair<std::string, std::string>;
  std::map<Where, std::pair<const BundledProblem*, const BundledProblem*>> problems;
  for (const BundledProblem& problem : a->manifest().problems) problems[{problem.name, problem.arch}].first = &problem;
  for (const BundledProblem& problem : b->manifest().problems) problems[{problem.name, problem.arch}].second = &problem;
  const Style style(stdout);
  JsonValue rows = JsonValue::array();
  const auto tell = [&](const std::string& what, const std::string& how) {
    rows.push(JsonValue::object().set("what", what).set("difference", how));
    if (!json) fmt::print("  {}: {}\n", style.bold(what), how);
  };
  const auto compare = [&](const char* what, const std::string& in_a, const std::string& in_b) {
    if (in_a != in_b) tell(what, in_a + " -> " + in_b);
  };
  compare("library", a->manifest().library, b->manifest().library);
  compare("compiler", a->manifest().compiler, b->manifest().compiler);
  std::size_t alike = 0;
  for (const auto& [where, pair] : problems) {
    const std::string how = bundled_difference(pair.first, pair.second, a->manifest(), b->manifest());
    how.empty() ? static_cast<void>(++alike) : tell(where.first + " on " + where.second, how);
  }
  const bool same = rows.elements().empty();
  if (json)
    fmt::print("{}\n",
               JsonValue::object().set("same", same).set("alike", alike).set("differences", std::move(rows)).dump());
  else
    fmt::print("{} of {} problems alike\n", alike, problems.size());
  return same ? kDone : kMismatch;
}

}  // namespace

int pack(const Options& options) {
  const std::vector<std::string>& words = options.configs;
  const auto takes = [&](std::size_t files) {
    if (words.size() != files + 1)
      throw ConfigError("command line", fmt::format("pack {} takes {} file{}, and has {}", words[0], files,
                                                    files == 1 ? "" : "s", words.size() - 1));
  };
  if (words.front() == "ls") return takes(1), list_bundle(words[1], bundle_trust(options), options.json);
  if (words.front() == "verify") return takes(1), verify_bundle(words[1], bundle_trust(options), options.json);
  if (words.front() == "diff") return takes(2), diff_bundles(words[1], words[2], bundle_trust(options), options.json);
  return make_bundle(options);
}

}  // namespace kernelwright::cli
