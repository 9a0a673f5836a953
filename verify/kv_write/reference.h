/// What a call that writes a cache computes, in fp64 from the definition, head by head.
#pragma once

#include <functional>
#include <vector>

#include "kernelwright/verify/kv_write/case.h"

namespace kernelwright {

/// A head ahead of quantisation, and how far a sum in f32 may be off, element by element.
struct KvWriteHead {
  std::vector<double> value, error;
};
/// A head as the first step takes it.
using HeadSource = std::function<KvWriteHead(HeadsOf of, std::int64_t token, int head)>;
/// One head of a token. Without a source, the first step takes what the case has.
KvWriteHead reference_head(const KvWriteCase& call, HeadsOf of, std::int64_t token, int head,
                           const HeadSource& source = {});

}  // namespace kernelwright
