/// What Kernelwright asks of NVRTC, and what it makes of the answer, wherever NVRTC runs.
#include "kernelwright/runtime/compile/compiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "contract/attention_params.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/compile/compiler_identity.h"
#include "kernelwright/runtime/compile/elf_file.h"
#include "kernelwright/runtime/compile/failed_sources.h"
#include "kernelwright/runtime/compile/nvrtc.h"
#include "kernelwright/runtime/compile/nvrtc_path.h"
#include "kernelwright/runtime/compile/ptxas_log.h"
#include "kernelwright/runtime/process/interrupt.h"

namespace kernelwright {
namespace {

constexpr int kLogLinesInError = 12;

/// Keeps the text that a person needs to compile a failed source by hand. Best effort: "" if it could not be written.
std::string keep_source(const std::string& dir, const SourceUnit& unit, std::string why) noexcept {
  try {
    for (char& c : why)
      if (c == '\n') c = ' ';  // the reason is a comment of one line
    return keep_failed_source(dir, unit.entry, unit.flattened() + fmt::format("\n// {}\n", why));
  } catch (const std::exception&) {
    return {};
  }
}

std::string kept_words(const std::string& path) { return path.empty() ? "could not be kept" : path; }

/// "NVRTC 13.0 build 9e107d9d372bb682", of the identity "nvrtc:9e107d9d372bb6826bd81d3542a419d6+builtins:...".
std::string name_of_compiler(int version, std::string_view identity) {
  constexpr std::string_view kPrefix = "nvrtc:";
  if (identity.starts_with(kPrefix)) identity.remove_prefix(kPrefix.size());
  return fmt::format("NVRTC {} build {}", nvrtc_version_text(version),
                     identity.substr(0, std::min<std::size_t>(identity.find('+'), 16)));
}

/// What a failed compile reports about a user's own header: "/problem/mask/file: \"my_mask.cuh\" does not compile:
/// my_mask.cuh(3): error: ...\n", with the log's first error. An error outside of the header may still come from it:
/// from a bracket that it leaves open, or a macro. The text is then "... the kernel around \"my_mask.cuh\" does not
/// compile: ...". "" for a unit without such headers.
std::string user_fault(const SourceUnit& unit, std::string_view log) {
  while (!log.empty()) {
    std::string line(log.substr(0, log.find('\n')));
    log.remove_prefix(std::min(log.size(), line.size() + 1));
    if (line.find("error:") == line.npos) continue;
    for (const UserHeader& source : unit.sources) {
      const std::string name = source.file.empty() ? source.include : source.file;
      const std::size_t at = line.find(source.include + "(");
      const std::string type = "\"" + source.type.substr(source.type.rfind(':') + 1) + "\"";
      if (at == line.npos && line.find(source.subject) == line.npos && line.find(type) == line.npos) continue;
      if (at != line.npos) line.replace(at, source.include.size(), name);
      return fmt::format("{}/{}: \"{}\" does not compile as {}: {}\n", source.field,
                         source.file.empty() ? "text" : "file", name, source.type, line);
    }
    if (unit.sources.empty()) return {};
    const UserHeader& first = unit.sources.front();
    return fmt::format("{}/{}: the kernel around \"{}\" does not compile: {}\n", first.field,
                       first.file.empty() ? "text" : "file", first.file.empty() ? first.include : first.file, line);
  }
  return {};
}

constexpr std::string_view kArchOption = "--gpu-architecture=";

/// The identity of the compiler at `path`; "" if there is none, or if the headers of its files show that it is broken.
std::string identity_if_whole(const std::string& path) {
  if (path.empty() || !library_fault(path).empty()) return "";
  for (const std::string& builtins : builtins_beside(path))
    if (!library_fault(builtins).empty()) return "";
  return compiler_identity(path).value_or("");
}

bool is_elf(std::string_view bytes) {
  return bytes.starts_with(
      "\x7f"
      "ELF");
}

CompileRequest request_of(const SourceUnit& unit) {
  CompileRequest request;
  request.kernel = unit.kernel;
  request.arch = unit.arch;
  request.source = unit.source;
  request.headers.reserve(unit.headers.size() + 1);
  for (const TemplateFile& header : unit.headers) request.headers.emplace_back(header.path, header.text);
  request.headers.emplace_back("spec.h", unit.spec_header);
  request.options = unit.options;
  return request;
}

class NoCompiler final : public SourceCompiler {
 public:
  explicit NoCompiler(std::string why) : why_(std::move(why)) {}
  CompileAnswer compile(const CompileRequest& request) override { throw MissingError(request.what() + ": " + why_); }
  int version() override { throw MissingError(why_); }

 private:
  const std::string why_;
};

}  // namespace

Compiler::Compiler(std::string why_none, std::unique_ptr<SourceCompiler> without_nvrtc)
    : why_none_(std::move(why_none)), compiler_(std::move(without_nvrtc)) {}

Compiler Compiler::none(std::string why) { return Compiler(why, std::make_unique<NoCompiler>(why)); }

Compiler::Compiler(std::string nvrtc_path, std::string failed_source_dir, const MakeSourceCompiler& make)
    : path_(nvrtc_path.empty() ? find_nvrtc().value_or("") : std::move(nvrtc_path)),
      identity_(identity_if_whole(path_)),
      failed_source_dir_(std::move(failed_source_dir)),
      compiler_(make ? make(path_) : std::make_unique<Nvrtc>(path_)) {}

Compiler::~Compiler() = default;

const std::string& Compiler::path() const { return path_; }

std::string Compiler::why_not() const {
  if (!why_none_.empty()) return why_none_;
  if (path_.empty()) return "there is no NVRTC in " + nvrtc_places();
  // The loader looks up a bare name.
  if (!identity_.empty() || path_.find('/') == std::string::npos) return "";
  const std::string fault = library_fault(path_);
  return fault.empty() ? "a library beside " + path_ + " is broken" : path_ + " " + fault;
}

std::string Compiler::version() { return nvrtc_version_text(compiler_->version()); }

CacheKey Compiler::key(const SourceUnit& unit) const {
  CacheKey key;
  key.entry_stem = unit.kernel;
  key.spec = unit.spec_text;
  key.closure = unit.closure;
  key.options = unit.options;
  key.arch = unit.arch;
  key.abi = contract::kContractVersion;
  key.compiler = identity_;
  return key;
}

CompileAnswer Compiler::answer_to(const CompileRequest& request, const SourceUnit& unit) {
  const ExitHold hold;
  refuse_if_interrupted(request.what());
  try {
    return compiler_->compile(request);
  } catch (const CompilerFaultError& error) {  // it costs this kernel, and is remembered as a rejected source is
    const std::string kept = keep_source(failed_source_dir_, unit, error.what());
    throw CompileError(fmt::format("{}: {}\nsource: {}", request.what(), error.what(), kept_words(kept)), kept);
  }
}

std::string Compiler::compile_with_lines(const SourceUnit& unit) {
  CompileRequest request = request_of(unit);
  request.machine_code = false;
  // A virtual architecture: the same front end without ptxas, which takes half of the time.
  for (std::string& option : request.options)
    if (option.starts_with(kArchOption) && option.compare(kArchOption.size(), 3, "sm_") == 0)
      option.replace(kArchOption.size(), 3, "compute_");
  request.options.push_back("-lineinfo");
  CompileAnswer answer = answer_to(request, unit);
  if (!answer.compiled)
    throw CompileError(fmt::format("{}{}, with lines: {}", user_fault(unit, answer.log), request.what(),
                                   first_lines(answer.log, kLogLinesInError)));
  return std::move(answer.ptx);
}

Binary Compiler::compile(const SourceUnit& unit) {
  const CompileRequest request = request_of(unit);
  CompileAnswer answer = answer_to(request, unit);
  const std::string compiler = name_of_compiler(answer.version, identity_);
  if (!answer.compiled || !is_elf(answer.cubin)) {
    const std::string kept = keep_source(failed_source_dir_, unit, "rejected by " + compiler);
    throw CompileError(fmt::format("{}{}: {} says {}\n{}\nsource: {}", user_fault(unit, answer.log), request.what(),
                                   compiler, answer.compiled ? "that it compiled, and gives no cubin" : answer.result,
                                   first_lines(answer.log, kLogLinesInError), kept_words(kept)),
                       kept, answer.log);
  }

  PtxasReport report = read_ptxas_log(answer.log, unit.entry);
  Binary binary;
  binary.entry = unit.entry;
  binary.arch = unit.arch;
  const auto* bytes = reinterpret_cast<const std::byte*>(answer.cubin.data());
  binary.cubin.assign(bytes, bytes + answer.cubin.size());
  binary.ptx = std::move(answer.ptx);
  binary.usage = report.usage;
  binary.warnings = std::move(report.warnings);
  binary.compiler = compiler;
  binary.compile_ms = answer.milliseconds;
  return binary;
}

}  // namespace kernelwright
