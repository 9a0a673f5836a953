/// The scales of a work item's keys and values, where a role walks many items.
#pragma once

#include "contract/attention_params.h"
#include "contract/words.h"
#include "policy/item_record.cuh"

namespace kernelwright::policy {

/// A base class: without scales it takes no room. RowMap: attention_item.cuh.
template <ScaleKind kScales, class RowMap>
class ItemScales {
  float key_ = 1;

 protected:
  enum : bool { kScaled = true };

  /// The role is now on `item`.
  __device__ __forceinline__ void take_scales(const contract::AttentionParams& params, const PostedItem& item) {
    key_ = scale_of(params.k_scale, item);
  }
  /// The factor of the item's scores.
  __device__ __forceinline__ float score_scale(const contract::AttentionParams& params) const {
    return params.scale * key_;
  }
  /// The factors of scores and outputs of any item.
  __device__ __forceinline__ static float score_scale(const contract::AttentionParams& params, const PostedItem& item) {
    return params.scale * scale_of(params.k_scale, item);
  }
  __device__ __forceinline__ static float value_scale(const contract::AttentionParams& params, const PostedItem& item) {
    return scale_of(params.v_scale, item);
  }

 private:
  __device__ __forceinline__ static float scale_of(const float* scales, const PostedItem& item) {
    return scales[kScales == ScaleKind::kPerHead ? RowMap{item.rows().head}.kv_head() : 0];
  }
};

template <class RowMap>
class ItemScales<ScaleKind::kNone, RowMap> {
 protected:
  enum : bool { kScaled = false };
  __device__ __forceinline__ void take_scales(const contract::AttentionParams&, const PostedItem&) {}
  __device__ __forceinline__ static float score_scale(const contract::AttentionParams& params) { return params.scale; }
  __device__ __forceinline__ static float score_scale(const contract::AttentionParams& params, const PostedItem&) {
    return params.scale;
  }
  __device__ __forceinline__ static float value_scale(const contract::AttentionParams&, const PostedItem&) { return 1; }
};

}  // namespace kernelwright::policy
