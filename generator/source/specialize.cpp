#include "kernelwright/generator/source/specialize.h"

#include <fmt/format.h>

#include <memory>
#include <set>

#include "contract/attention_sm90.h"

namespace kernelwright {
namespace {

/// "head_dim_qk" -> "kHeadDimQk".
std::string constant_name(std::string_view field) {
  std::string name = "k";
  bool upper = true;
  for (const char c : field) {
    if (c == '_') {
      upper = true;
    } else {
      name += upper ? static_cast<char>(c - 'a' + 'A') : c;
      upper = false;
    }
  }
  return name;
}

/// "sliding_window" -> "kSlidingWindow"; "128B" -> "k128B"; "sm_90a" -> "kSm90a".
std::string enumerator_name(std::string_view word) {
  std::string name = "k";
  bool upper = true;
  for (const char c : word) {
    if (c == '_') {
      upper = true;
    } else {
      name += upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
      upper = false;
    }
  }
  return name;
}

std::string constant(std::string_view field, int value, const char* doc) {
  return fmt::format("constexpr int {} = {};  // {}\n", constant_name(field), value, doc);
}
std::string constant(std::string_view field, bool value, const char* doc) {
  return fmt::format("constexpr bool {} = {};  // {}\n", constant_name(field), value, doc);
}
std::string constant(std::string_view field, float value, const char* doc) {
  return fmt::format("constexpr float {} = {:a}f;  // {}: {}\n", constant_name(field), value, doc, value);
}
/// The device reads an architecture as a number and a swizzle as bytes, because it compares the order of both.
std::string constant(std::string_view, Arch arch, const char* doc) {
  const std::string_view word = to_string(arch);
  return fmt::format("constexpr int kArch = {};  // {}: {}\n", std::stoi(std::string(word.substr(3))), doc, word);
}
std::string constant(std::string_view, Swizzle swizzle, const char* doc) {
  return fmt::format("constexpr int kSwizzleBytes = {};  // {}\n", bytes_of(swizzle), doc);
}
/// "mask_source" -> MaskSource, a type.
std::string constant(std::string_view field, const SpecSource& source, const char* doc) {
  return fmt::format("using {} = {};  // {}\n", constant_name(field).substr(1),
                     source.exists() ? "::" + source.type : "policy::NoSource", doc);
}
template <Enum E>
std::string constant(std::string_view field, E value, const char* doc) {
  // The names q or a alone would say too little in a template.
  const std::string name = std::is_same_v<E, DType> ? constant_name(field) + "DType" : constant_name(field);
  const std::string_view word = to_string(value);
  if (word == "?")  // a family that is added has no word
    return fmt::format("constexpr {0} {1} = {0}({2});  // {3}\n", EnumTable<E>::type, name, static_cast<int>(value),
                       doc);
  return fmt::format("constexpr {0} {1} = {0}::{2};  // {3}\n", EnumTable<E>::type, name, enumerator_name(word), doc);
}

/// The name follows from the Spec alone, so that it is the same on every machine and tells kernels apart in a profile.
std::string entry_name(const Spec& spec) {
  return kernel_name(spec) + "_" + sha256(kernel_name(spec) + "\n" + canonical_text(spec)).hex().substr(0, 16);
}

/// The widths of wgmma that ptx/wgmma.cuh has to define: to define all of them would cost a compilation 30 ms.
std::string wgmma_shapes(const Spec& spec) {
  if (const auto* gemm = std::get_if<GemmSpec>(&spec))
    return gemm->family == Family::kHopper ? fmt::format("#define KERNELWRIGHT_WGMMA_N0 {}\n", gemm->product_columns())
                                           : "";
  const auto* attention = std::get_if<AttentionSpec>(&spec);
  if (attention && attention->form() == AttentionForm::kHopperLatent)  // each warpgroup has half of the columns
    return fmt::format("#define KERNELWRIGHT_WGMMA_N0 {}\n#define KERNELWRIGHT_WGMMA_N1 {}\n", attention->block_n,
                       attention->head_dim_v / 2);
  if (!attention || attention->form() != AttentionForm::kHopperPrefill) return "";
  const int v = attention->head_dim_v;
  const int scores = attention->pv_buffers > 1 ? contract::turn_columns(attention->block_n) : attention->block_n;
  const bool narrow = bits_of(attention->q) == 8, promotes = attention->promotes();
  const bool shares = attention->shares_scores();  // all but the sums of probabilities
  const int output = !narrow     ? (v + 7) / 8 * 8
                     : shares    ? int{contract::kSumRows}
                     : !promotes ? contract::summed_columns(v)
                                 : contract::group_width(v);
  std::string macros = fmt::format("#define KERNELWRIGHT_WGMMA_N0 {}\n", scores);
  if (output != scores) macros += fmt::format("#define KERNELWRIGHT_WGMMA_N1 {}\n", output);
  if (narrow && !promotes && output == v)
    macros += fmt::format("#define KERNELWRIGHT_WGMMA_N2 {}\n", +contract::kSumRows);
  return macros;
}

constexpr const char *kMaskHeader = "user/mask.cuh", *kScoreHeader = "user/score_mod.cuh";

/// Whether one header has both types: then it is included once.
bool share_header(const AttentionSpec& spec) {
  return spec.mask_source.exists() && spec.mask_source.text == spec.score_source.text;
}

/// The headers of policies come first, so that no name of a kernel can clash with theirs.
std::string open_scores(const AttentionSpec& spec) {
  std::string header = "#define KERNELWRIGHT_OPEN_SCORES\n\n#include \"policy/place.cuh\"\n";
  if (spec.mask_source.exists()) header += fmt::format("#include \"{}\"\n", kMaskHeader);
  if (spec.score_source.exists() && !share_header(spec)) header += fmt::format("#include \"{}\"\n", kScoreHeader);
  return header + "\n";
}

/// Adds the headers of policies; the unit owns them.
void add_sources(const AttentionSpec& spec, SourceUnit& unit) {
  const auto add = [&](const SpecSource& source, const char* include, const char* subject) {
    if (!source.exists()) return;
    auto text = std::make_shared<const std::string>(source.text);
    if (unit.sources.empty() || !share_header(spec)) unit.headers.push_back({include, *text, sha256(*text)});
    unit.sources.push_back({include, source.type, source.file, source.field, subject, std::move(text)});
  };
  add(spec.mask_source, kMaskHeader, "the mask's type");
  add(spec.score_source, share_header(spec) ? kMaskHeader : kScoreHeader, "the score modifier's type");
}

std::string template_path(const Spec& spec) { return std::string(kernel_template(kernel_name(spec))); }

std::string header_of(const Spec& spec, const std::string& path) {
  std::string header =
      fmt::format("// Specialisation of templates/{}\n#pragma once\n\n#include \"contract/words.h\"\n\n", path);
  header += wgmma_shapes(spec);
  if (const auto* attention = std::get_if<AttentionSpec>(&spec); attention && attention->opens_scores())
    header += open_scores(*attention);
  header += fmt::format("#define KERNELWRIGHT_ENTRY {}\n\nnamespace kernelwright::spec {{\n\n", entry_name(spec));
  std::visit(
      [&](auto fields) {
        visit_fields(fields, [&](const char* name, auto& value, const auto&, const char* doc) {
          header += constant(name, value, doc);
        });
      },
      spec);
  return header + "\n}  // namespace kernelwright::spec\n";
}

/// Whether ptxas is to use registers freely (5 is its default level, 10 the highest). It then orders the additions of
/// scaled products so that large groups take 0.6 to 1.0 % less time. Dense launches would take up to 1.7 % more.
bool uses_registers_freely(const Spec& spec) {
  const auto* gemm = std::get_if<GemmSpec>(&spec);
  return gemm && gemm->family == Family::kHopper && gemm->scales == ScaleKind::kPerBlock && gemm->has_bounds() &&
         !gemm->swap_ab && !gemm->copies();
}

}  // namespace

std::string spec_header(const Spec& spec) { return header_of(spec, template_path(spec)); }

SourceUnit specialize(const Spec& spec) { return specialize(spec, template_closure(template_path(spec))); }

SourceUnit specialize(const Spec& spec, const TemplateClosure& closure) {
  const std::string& path = closure.files.at(0).path;
  SourceUnit unit;
  unit.kernel = kernel_name(spec);
  unit.entry = entry_name(spec);
  unit.spec_header = header_of(spec, path);
  unit.spec_text = canonical_text(spec);
  unit.source = fmt::format("#include \"spec.h\"\n#include \"{}\"\n", path);
  unit.headers = closure.files;
  unit.closure = closure.digest;
  if (const auto* attention = std::get_if<AttentionSpec>(&spec)) add_sources(*attention, unit);
  unit.arch = to_string(arch_of(spec));
  // Each ptxas option stands alone, because NVRTC refuses a list. The seed keeps the PTX of two builds of one key
  // byte-identical.
  // --minimal leaves out textures and the device runtime, which no template uses: the front end takes 49.9 ms instead
  // of 57.7, and makes the same PTX. Measured on 13.0.
  unit.options = {"--gpu-architecture=" + unit.arch,
                  "--std=c++17",
                  "--frandom-seed=" + unit.entry,
                  "--no-cache",
                  "-default-device",
                  "--minimal",
                  "--ptxas-options=-v",
                  "--ptxas-options=--warn-on-spills",
                  "--ptxas-options=--warn-on-local-memory-usage"};
  if (uses_registers_freely(spec)) unit.options.emplace_back("--ptxas-options=--register-usage-level=10");
  return unit;
}

std::string SourceUnit::flattened() const {
  // Each header comes after those that it includes; the include lines themselves become comments.
  std::string out = fmt::format("// {} for {}\n// options:", entry, arch);
  for (const std::string& option : options) out += " " + option;
  out += "\n";
  std::set<std::string> done;
  const auto paste = [&](auto&& self, const std::string& path, std::string_view text) -> void {
    if (!done.insert(path).second) return;
    std::string body;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = text.substr(at, end - at);
      if (line.starts_with("#include \"")) {
        const std::string name(line.substr(10, line.find('"', 10) - 10));
        if (name == "spec.h") self(self, name, spec_header);
        for (const TemplateFile& header : headers)
          if (header.path == name) self(self, name, header.text);
      } else if (line != "#pragma once") {
        body.append(line).append("\n");
      }
      at = end + 1;
    }
    out += fmt::format("\n// ---- {}\n{}", path, body);
  };
  paste(paste, "spec.h", spec_header);
  for (const TemplateFile& header : headers) paste(paste, header.path, header.text);
  return out;
}

}  // namespace kernelwright
