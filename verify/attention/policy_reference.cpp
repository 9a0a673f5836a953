// References of sources: functions of shared objects, and arrays.
#include "kernelwright/verify/attention/policy_reference.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/range_mask.h"
#include "kernelwright/verify/formats/npy.h"

namespace kernelwright {
namespace {

template <class Function>
Function* find_function(const PolicyReference& reference, const std::string& path) {
  // The loader would search a name without a slash in the system's library folders.
  const std::string file = std::filesystem::absolute(reference.library).string();
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* const why = dlerror();
    throw ConfigError(path + "/reference/library", fmt::format("cannot be loaded: {}", why ? why : file));
  }
  void* const symbol = dlsym(library, reference.symbol.c_str());
  if (!symbol)
    throw ConfigError(path + "/reference/symbol",
                      fmt::format("\"{}\" is no symbol of {}; a function with C linkage would do", reference.symbol,
                                  reference.library));
  return reinterpret_cast<Function*>(symbol);
}

NpyArray<float> read_named(const PolicyReference& reference, const std::string& path) try {
  return read_npy<float>(reference.array);
} catch (const ConfigError& error) {
  throw ConfigError(path + "/reference/array", error.what());
}

ScoreArray read_array(const AttentionCase& call, const PolicyReference& reference, const std::string& path) {
  const NpyArray<float> array = read_named(reference, path);
  const std::int64_t wanted[] = {call.batch, call.problem.heads.q, call.q_len, call.kv_len};
  const auto fits = [&](std::size_t i) {
    return array.shape[i] == wanted[i] || (i < 3 && array.shape[i] == 1);  // 1: one element for all
  };
  if (array.shape.size() != 4 || !(fits(0) && fits(1) && fits(2) && fits(3)))
    throw ConfigError(path + "/reference/array",
                      fmt::format("has shape {}; this call takes [{} or 1, {} or 1, {} or 1, {}]",
                                  shape_text(array.shape), wanted[0], wanted[1], wanted[2], wanted[3]));
  ScoreArray read;
  lay_out(call, {array.shape[0] != 1, array.shape[1] != 1, array.shape[2] != 1}, 0, 0, read);
  read.values = array.values;
  return read;
}

/// The common part of both kinds of policies: calls one of the three functions.
template <class Library, class Array, class Neither>
void load(const PolicySource& source, const Library& library, const Array& array, const Neither& neither) {
  if (!source.reference.library.empty())
    library();
  else if (!source.reference.array.empty())
    array();
  else
    neither();
}

}  // namespace

void load_references(AttentionCase& call) {
  const auto unchecked = [&](const std::string& path) {
    call.unchecked += (call.unchecked.empty() ? "" : "; ") + path + " is a source without a \"reference\"";
  };
  if (const OpenMask open = open_mask(call.problem.mask); open.source) {
    const PolicySource& source = open.source->source;
    const std::string& path = open.source_path;
    load(
        source,
        [&] {
          auto* const function = find_function<int(int, int, int, int, int, int)>(source.reference, path);
          call.shows = [function](const ScorePlace& at) {
            return function(at.query, at.key, at.head, at.sequence, at.q_len, at.kv_len) != 0;
          };
        },
        [&] {
          call.shows = [array = read_array(call, source.reference, path)](const ScorePlace& at) {
            return array.at(at.sequence, at.query, at.head, at.key) != 0;
          };
        },
        [&] { unchecked(path); });
  }
  if (call.problem.score_mod.kind != ScoreModKind::kSource) return;
  const PolicySource& source = call.problem.score_mod.source;
  const std::string path = "/problem/score_mod";
  load(
      source,
      [&] {
        auto* const function = find_function<double(double, int, int, int, int, int, int)>(source.reference, path);
        call.modifies = [function](double score, const ScorePlace& at) {
          return function(score, at.query, at.key, at.head, at.sequence, at.q_len, at.kv_len);
        };
      },
      [&] {
        call.modifies = [array = read_array(call, source.reference, path)](double score, const ScorePlace& at) {
          return score + array.at(at.sequence, at.query, at.head, at.key);
        };
      },
      [&] { unchecked(path); });
}

}  // namespace kernelwright
