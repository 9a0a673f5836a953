#include "kernelwright/generator/source/read_spec.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

namespace kernelwright {
namespace {

constexpr int kMostInt = 1 << 24;  // no field of a Spec has more, and no product of two overflows in 64 bits

/// The values of a text by the names of their fields.
using Lines = std::map<std::string_view, std::string_view>;

std::optional<Lines> lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n'), blank = text.find(' ');
    if (end == text.npos || blank > end || blank == 0) return std::nullopt;
    if (!lines.emplace(text.substr(0, blank), text.substr(blank + 1, end - blank - 1)).second) return std::nullopt;
    text.remove_prefix(end + 1);
  }
  return lines;
}

// Each reads one value as canonical_text() writes it.
bool read_value(std::string_view word, int& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size() && std::abs(value) <= kMostInt;
}
bool read_value(std::string_view word, float& value) {
  const std::string text(word);
  char* end = nullptr;
  value = std::strtof(text.c_str(), &end);
  return !text.empty() && end == text.c_str() + text.size() && std::isfinite(value);
}
bool read_value(std::string_view word, bool& value) {
  value = word == "true";
  return value || word == "false";
}
bool read_value(std::string_view word, SpecSource&) { return word == "none"; }
template <Enum E>
bool read_value(std::string_view word, E& value) {
  const std::optional<E> found = from_string<E>(word);
  if (found) value = *found;
  return found.has_value();
}

// Some fields are part of the text only if they do not have their default. Each of these functions gives such a field
// another value if the text has it, so that visit_fields() reaches the field.
template <class AnySpec>
void open_fields(const Lines&, AnySpec&) {}
void open_fields(const Lines& lines, AttentionSpec& spec) {
  spec.kv_starts = lines.contains("kv_starts");
  spec.tiles_from_start = lines.contains("tiles_from_start");
  spec.latent = lines.contains("latent");
  spec.balanced = lines.contains("balanced");
  spec.v_columns = lines.contains("v_columns");
  spec.mask_tensor = lines.contains("mask_tensor");
  spec.rope_width = lines.contains("rope_width") ? 1 : 0;
  spec.exp2_emulated = lines.contains("exp2_emulated") ? 1 : 0;
  if (lines.contains("pv_promote")) spec.pv_promote = 0;
  if (lines.contains("pv_buffers")) spec.pv_buffers = 2;
}
void open_fields(const Lines& lines, GemmSpec& spec) {
  if (lines.contains("groups")) spec.groups = GroupKind::kRows;
  spec.quantizes = lines.contains("quantizes");
  spec.scatter = lines.contains("scatter");
  spec.amax = lines.contains("amax");
  spec.squares = lines.contains("squares");
  spec.rstd = lines.contains("rstd");
  spec.writes_kv = lines.contains("writes_kv");
  spec.pointers = lines.contains("pointers");
}
void open_fields(const Lines& lines, RowOpSpec& spec) { spec.round_up = lines.contains("round_up"); }
void open_fields(const Lines& lines, CombineSpec& spec) { spec.lse_apart = lines.contains("lse_apart"); }

template <class OneSpec>
std::optional<Spec> read_fields(const Lines& lines) {
  OneSpec spec;
  open_fields(lines, spec);
  bool whole = true;
  visit_fields(spec, [&](const char* name, auto& value, const auto&, const char*) {
    const auto line = lines.find(name);
    whole = whole && line != lines.end() && read_value(line->second, value);
  });
  if constexpr (std::is_same_v<OneSpec, GemmSpec>)
    whole = whole && spec.math_warpgroups >= 1;  // the source's text divides by it
  return whole ? std::optional<Spec>(std::move(spec)) : std::nullopt;
}

std::optional<Spec> read_lines(std::string_view kernel, const Lines& lines) {
  if (kernel == "attention_combine") return read_fields<CombineSpec>(lines);
  if (kernel.starts_with("attention_")) return read_fields<AttentionSpec>(lines);
  if (kernel.starts_with("gemm_")) return read_fields<GemmSpec>(lines);
  if (kernel == "quantize") return read_fields<QuantizeSpec>(lines);
  if (kernel == "kv_write") return read_fields<KvWriteSpec>(lines);
  if (kernel == "row_op") return read_fields<RowOpSpec>(lines);
  if (kernel == "route") return read_fields<RouteSpec>(lines);
  if (kernel == "route_sort") return read_fields<RouteSortSpec>(lines);
  if (kernel == "moe_combine") return read_fields<MoeCombineSpec>(lines);
  return std::nullopt;
}

}  // namespace

std::optional<Spec> read_spec(std::string_view kernel, std::string_view text) {
  const std::optional<Lines> lines = lines_of(text);
  if (!lines) return std::nullopt;
  std::optional<Spec> spec = read_lines(kernel, *lines);
  if (!spec) return std::nullopt;
  // Whatever was read above, the answer is a Spec of this very text.
  if (kernel_name(*spec) != kernel || canonical_text(*spec) != text) return std::nullopt;
  return spec;
}

}  // namespace kernelwright
