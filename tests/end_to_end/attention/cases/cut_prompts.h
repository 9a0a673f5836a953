/// Prompts whose queries come in one launch, in chunks, or one by one. With batch_invariant each query has the same
/// bits in all of them. Shared by the tests on the emulator and on a GPU.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "end_to_end/attention/cases/attention_problems.h"
#include "kernelwright/verify/attention/bound.h"
#include "kernelwright/verify/attention/case.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {

inline AttentionSchedule of_family(Family family) {
  AttentionSchedule schedule;
  schedule.family = family;
  return schedule;
}

/// o and lse of one sequence, as bytes.
inline std::vector<std::byte> of_sequence(const AttentionCase& call, const AttentionOutput& output, int sequence) {
  std::vector<std::byte> bytes;
  const std::size_t width = static_cast<std::size_t>(call.problem.head_dim.v) * bytes_of(call.problem.dtype.out);
  for (int query = 0; query < call.q_lens[static_cast<std::size_t>(sequence)]; ++query)
    for (int head = 0; head < call.problem.heads.q; ++head) {
      const std::byte* row = output.o.data() + call.o_index(sequence, query, head) * bytes_of(call.problem.dtype.out);
      bytes.insert(bytes.end(), row, row + width);
      const auto* lse = reinterpret_cast<const std::byte*>(output.lse.data() + call.lse_index(sequence, query, head));
      bytes.insert(bytes.end(), lse, lse + sizeof(float));
    }
  return bytes;
}

/// Queries [first, end) of the one sequence of `from` and the keys up to `end` become sequence `place` of `to`.
inline void copy_piece(const AttentionCase& from, AttentionCase& to, int first, int end, int place) {
  const auto copy = [&](const HostTensor& tensor, const std::byte* source, std::byte* target) {
    std::memcpy(target, source, static_cast<std::size_t>(tensor.head_dim) * bytes_of(tensor.dtype));
  };
  const int ahead = from.kv_lens[0] - from.q_lens[0];
  for (int query = first; query < end; ++query)
    for (int head = 0; head < from.problem.heads.q; ++head)
      copy(from.q, from.q_row(0, query - ahead, head), to.q_row(place, query - first, head));
  for (int key = 0; key < end; ++key)
    for (int head = 0; head < from.problem.heads.kv; ++head) {
      copy(from.k, from.k_row(0, key, head), to.k_row(place, key, head));
      copy(from.v, from.v_row(0, key, head), to.v_row(place, key, head));
    }
}

/// A prompt whose queries come in one launch, or in several.
struct CutPrompt {
  const char* name;
  AttentionProblem problem;
  AttentionSchedule schedule;
};

constexpr int kPromptStart = 21;  // with kv_starts, keys begin there

inline std::vector<CutPrompt> cut_prompts() {
  AttentionProblem small = paged(heads(dims(default_problem(), 64, 64), 4, 2), 16);
  small.q_layout = QLayout::kRagged;
  small.batch_invariant = true;
  const AttentionProblem plain = causal(small), window = windowed(small, 70);
  AttentionSchedule drafted = of_family(Family::kHopper);
  drafted.token_gen = true;
  return {{"hopper", with_sinks(plain), of_family(Family::kHopper)},
          {"hopper_window", window, of_family(Family::kHopper)},
          {"hopper_window_from_a_start", left_padded(window), of_family(Family::kHopper)},
          {"hopper_fp8", fp8(plain), of_family(Family::kHopper)},
          {"hopper_drafted", decode(plain, 4), drafted},
          {"portable", plain, of_family(Family::kPortable)},
          {"portable_window", with_alibi(window), of_family(Family::kPortable)},
          {"portable_drafted", decode(window, 4), of_family(Family::kPortable)},
          {"blackwell_window", window, of_family(Family::kBlackwell)},
          {"blackwell_chunks", masked(small, chunks(96)), of_family(Family::kBlackwell)}};
}

using Pieces = std::vector<std::pair<int, int>>;  // queries [first, end), counted as their keys are

/// For each query of the pieces, the bytes of its result. A launch has each piece as a sequence, with the keys up to
/// its end. Other sequences lie between them.
/// launch(shape, case) returns the output.
template <class Launch>
std::vector<std::vector<std::byte>> rows_of_pieces(const AttentionCase& whole, const Pieces& pieces,
                                                   const Launch& launch) {
  AttentionShape shape = shape_of(static_cast<int>(pieces.size()) * 2, 1, 1);
  for (const auto& [first, end] : pieces) {
    shape.q_lens.insert(shape.q_lens.end(), {end - first, 1 + first % 3});
    shape.kv_lens.insert(shape.kv_lens.end(), {end, end / 2 + 1});
    if (whole.problem.kv_starts) shape.kv_starts.insert(shape.kv_starts.end(), {std::min(kPromptStart, end), 0});
  }
  AttentionCase call = make_inputs(whole.problem, shape);
  call.scale = whole.scale, call.sinks = whole.sinks;
  for (int i = 0; const auto& [first, end] : pieces) copy_piece(whole, call, first, end, i++ * 2);
  const AttentionOutput output = launch(shape, call);
  std::vector<std::vector<std::byte>> results;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::vector<std::byte> rows = of_sequence(call, output, static_cast<int>(i) * 2);
    const std::size_t queries = static_cast<std::size_t>(pieces[i].second - pieces[i].first);
    for (std::size_t query = 0; query < queries; ++query)
      results.emplace_back(rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / queries * query),
                           rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / queries * (query + 1)));
  }
  return results;
}
/// Queries whose bits differ from those of the whole prompt, in launches of one query a sequence and of chunks.
template <class Launch>
std::vector<int> queries_that_differ(const AttentionProblem& problem, int keys, const Launch& launch) {
  const int most = problem.max_q_len > 0 ? problem.max_q_len : keys, first = keys - most;
  AttentionShape shape = lists({most}, {keys});
  if (problem.kv_starts) shape.kv_starts = {kPromptStart};
  AttentionCase whole = make_inputs(problem, shape);
  whole.scale *= 12;  // maxima of tiles lie far apart, so rows rescale at different tiles
  const std::vector<std::vector<std::byte>> expected = rows_of_pieces(whole, {{first, keys}}, launch);
  Pieces decodes, chunked;
  for (int at = first; at<keys; at += most> 50 ? 7 : 1) decodes.push_back({at, at + 1});
  for (const int length : {most / 3 + 1, most / 2, most}) {
    const int begin = chunked.empty() ? first : chunked.back().second;
    chunked.push_back({begin, std::min(begin + length, keys)});
  }
  std::vector<int> queries;
  for (const Pieces& pieces : {decodes, chunked}) {
    const std::vector<std::vector<std::byte>> found = rows_of_pieces(whole, pieces, launch);
    for (std::size_t i = 0; const auto& [begin, end] : pieces)
      for (int query = begin; query < end; ++query)
        if (found[i++] != expected[static_cast<std::size_t>(query - first)]) queries.push_back(query);
  }
  return queries;
}

}  // namespace kernelwright
