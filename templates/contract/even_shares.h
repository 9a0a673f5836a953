/// How the key tiles of all sequences are shared out evenly among teams of CTAs, in one place for the host and the
/// kernel (policy/even_shares.cuh). All numbers count key tiles.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

constexpr int32_t kSequenceTiles = 8;  // what a sequence costs a team beside its tiles: queries come, results go
constexpr int32_t kLeastShare = 6;     // of a team: parts of fewer tiles cost more than they give
constexpr int32_t kCutTiles = 8;       // what cutting sequences costs: parts go to memory and are merged

/// What a team's piece costs, where all `sequences` sequences together cost `total`, which is less than 2^31, and the
/// longest of them `longest`. 0: sequences stay whole, because taking turns at them ends about as early.
constexpr int32_t even_share(int32_t total, int32_t longest, int32_t sequences, int32_t teams) {
  const int32_t even = (total - 1) / teams + 1, share = even > kLeastShare ? even : kLeastShare;
  const int32_t rounds = (sequences - 1) / teams + 1;
  return int64_t{rounds} * longest <= share + kCutTiles ? 0 : share;
}

/// Words of 64 bits through which the CTAs meet that have parts of a sequence: policy/joint_merge.cuh.
constexpr int32_t kMeetingWords = 2;

}  // namespace kernelwright::contract
