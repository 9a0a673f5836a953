#include "kernelwright/verify/attention/records.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace {

constexpr std::size_t kBlock = 128;  // latents that share a scale

std::size_t latents_of(const AttentionProblem& problem) { return static_cast<std::size_t>(problem.head_dim.v); }
std::size_t rest_of(const AttentionProblem& problem) {
  return static_cast<std::size_t>(problem.head_dim.qk) - latents_of(problem);
}

}  // namespace

int key_width(const AttentionProblem& problem) {
  if (!problem.has_records()) return problem.head_dim.qk - problem.rope.width;
  const std::size_t latents = latents_of(problem);
  return static_cast<int>(latents + latents / kBlock * sizeof(float) + rest_of(problem) * bytes_of(problem.dtype.q));
}

void encode_record(const AttentionProblem& problem, std::span<const float> key, std::byte* to) {
  const std::size_t latents = latents_of(problem);
  const auto largest = static_cast<float>(float_format(problem.dtype.kv).largest);
  std::vector<float> codes(kBlock);
  std::byte* scales = to + latents;
  for (std::size_t first = 0; first < latents; first += kBlock, scales += sizeof(float)) {
    const std::span<const float> block = key.subspan(first, kBlock);
    float top = 0;
    for (const float element : block) top = std::max(top, std::fabs(element));
    const float scale = std::max(top / largest, std::numeric_limits<float>::min());
    std::transform(block.begin(), block.end(), codes.begin(), [&](float element) { return element / scale; });
    encode_row(problem.dtype.kv, codes, to + first);
    std::memcpy(scales, &scale, sizeof scale);
  }
  encode_row(problem.dtype.q, key.subspan(latents, rest_of(problem)), scales);
}

void decode_record(const AttentionProblem& problem, const std::byte* from, std::size_t count, double* to) {
  const std::size_t latents = latents_of(problem);
  decode_row(problem.dtype.kv, from, latents, to);
  for (std::size_t i = 0; i < latents; ++i) {
    float scale;
    std::memcpy(&scale, from + latents + i / kBlock * sizeof(float), sizeof scale);
    to[i] = static_cast<double>(round_to(problem.dtype.q, static_cast<float>(to[i]) * scale));
  }
  if (count > latents)
    decode_row(problem.dtype.q, from + latents + latents / kBlock * sizeof(float), count - latents, to + latents);
}

}  // namespace kernelwright
