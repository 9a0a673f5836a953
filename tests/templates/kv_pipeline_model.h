/// Producer and consumers of K and V, written as in a kernel, recorded as threads of a Model.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "fmt/format.h"
#include "pipeline/kv_consumer_pipeline.cuh"
#include "pipeline/tma_producer_pipeline.cuh"
#include "templates/pipeline_model.h"

namespace kernelwright::model {

using pipeline::KvOrder;

/// A tile of K is 12 bytes, one of V 24, in so many sub-stages.
template <bool kShared, KvOrder kOrder, int kStages, int kOfK = 1, int kOfV = kShared ? kOfK : 1, int kCtas = 1>
struct Tiles {
  static constexpr int element_bytes = 1, k_rows_per_cta = 1, v_cols_per_cta = 2, BK0 = 12 / kOfK, BK1 = 12 / kOfV;
  static constexpr int num_kv_stages = kStages, num_qk_stages = kOfK, num_mma_stages = kOfV, cluster = kCtas;
  static constexpr bool shared_ring = kShared;
  static constexpr KvOrder order = kOrder;
  static constexpr int gatherers = 0;
};

/// Tiles that so many threads copy by cp.async, each its share.
template <class T, int kThreads>
struct Gathered : T {
  static constexpr int gatherers = kThreads;
};

/// A work item: tiles first, first + 1, .. of the list that all items share.
struct Item {
  int first, count;
};
using Items = std::vector<Item>;

/// Offsets in a CTA's shared memory.
constexpr uint32_t kBarriers = 0, kKeys = 1024, kValues = 2048, kExtra = 3072, kExtraBytes = 3;

inline uint32_t k_tag(int tile) { return 1 + static_cast<uint32_t>(tile) * 64; }
inline uint32_t v_tag(int tile) { return 17 + static_cast<uint32_t>(tile) * 64; }
inline uint32_t extra_tag(size_t item) { return 20000 + static_cast<uint32_t>(item) * 4; }
/// The last tile of an item is short by half of V's bytes where its number is odd.
inline uint32_t v_bytes(const Item& item, int j) { return j + 1 == item.count && (item.first + j) % 2 == 1 ? 12 : 24; }
/// The bytes that come with a sub-stage: none past the tile's end.
inline uint32_t v_bytes(const Item& item, int j, uint32_t stage, uint32_t stage_bytes) {
  const uint32_t bytes = v_bytes(item, j), from = stage * stage_bytes;
  return from < bytes ? std::min(stage_bytes, bytes - from) : 0;
}

/// Calls work(std::integral_constant<int, i>) for i of kFirst .. kCount - 1.
template <int kCount, int kFirst = 0, class Work>
void unrolled(const Work& work) {
  if constexpr (kFirst < kCount) {
    work(std::integral_constant<int, kFirst>());
    unrolled<kCount, kFirst + 1>(work);
  }
}

/// The actions of a producer. With the first keys of an item, bytes of another kind come, as Q does; V comes in two
/// boxes. CTA `rank` of a cluster loads its share of each tile and sends it to all.
template <class T>
void produce(const Items& items, bool drain, uint32_t rank) {
  const uint32_t base = rank * kCtaBytes;
  pipeline::KvProducer<T> rings(base + kBarriers, base + kKeys, base + kValues);
  auto k = rings.k();
  auto v = rings.v();
  const auto send = [&](uint32_t to, uint32_t bytes, uint32_t full, uint32_t tag) {
    const uint32_t share = bytes / T::cluster, from = rank * share;
    for (uint32_t cta = 0; cta < T::cluster; ++cta)
      Recorder::copy(ptx::mapa(to, cta) + from, share, ptx::mapa(full, cta), tag + from);
  };
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    pipeline::for_each_load<T::order>(
        item.count,
        [&](int j) {
          unrolled<T::num_qk_stages>([&](auto part) {
            constexpr int kPart = part;
            k.template acquire_k<kPart>();
            const uint32_t bytes = k.tile_bytes;
            if (j == 0 && kPart == 0) {
              const auto target = k.template get_k<kPart>(true, bytes + kExtraBytes);
              Recorder::copy(base + kExtra + static_cast<uint32_t>(i) * kExtraBytes, kExtraBytes, target.full,
                             extra_tag(i));
              send(target.smem, bytes, target.full, k_tag(item.first + j));
            } else {
              const auto target = k.template get_k<kPart>(true);
              send(target.smem, bytes, target.full, k_tag(item.first + j) + kPart * bytes);
            }
          });
          k.commit_step();
        },
        [&](int j) {
          unrolled<T::num_mma_stages>([&](auto part) {
            constexpr int kPart = part;
            v.template acquire_v<kPart>();
            const uint32_t bytes = v_bytes(item, j, kPart, v.tile_bytes), tag = v_tag(item.first + j);
            const auto target = v.template get_v<kPart>(true, bytes);
            if (bytes == 0) return;
            send(target.smem, bytes / 2, target.full, tag + kPart * v.tile_bytes);
            send(target.smem + bytes / 2, bytes / 2, target.full, tag + kPart * v.tile_bytes + bytes / 2);
          });
          v.commit_step();
        });
  }
  if (drain) rings.drain();
}

/// The actions of each thread that copies by cp.async: all of every tile is written, and nothing else comes with it.
template <class T>
void gather(const Items& items, bool drain, uint32_t thread) {
  pipeline::KvProducer<T> rings(kBarriers, kKeys, kValues);
  auto k = rings.k();
  auto v = rings.v();
  const auto copy = [&](uint32_t to, uint32_t bytes, uint32_t tag) {
    const uint32_t share = bytes / T::gatherers;
    Recorder::copy_by_thread(to + thread * share, share, tag + thread * share);
  };
  for (const Item& item : items)
    pipeline::for_each_load<T::order>(
        item.count,
        [&](int j) {
          unrolled<T::num_qk_stages>([&](auto part) {
            constexpr int kPart = part;
            k.template acquire_k<kPart>();
            copy(k.template get_k_smem<kPart>(), k.tile_bytes, k_tag(item.first + j) + kPart * k.tile_bytes);
            k.template arrive_with_copies<kPart>();
          });
          k.commit_step();
        },
        [&](int j) {
          unrolled<T::num_mma_stages>([&](auto part) {
            constexpr int kPart = part;
            v.template acquire_v<kPart>();
            copy(v.template get_v_smem<kPart>(), v.tile_bytes, v_tag(item.first + j) + kPart * v.tile_bytes);
            v.template arrive_with_copies<kPart>();
          });
          v.commit_step();
        });
  if (drain) rings.drain();
}

/// The arrivals of all lanes of a warp.
template <int kCtas>
struct AllLanes {
  void operator()(uint32_t empty) const {
    for (uint32_t lane = 0; lane < 32; ++lane) pipeline::WarpRelease<kCtas>{lane}(empty);
  }
};

/// The actions of a consumer, in one order or the other. It reads sub-stages when they come, and again just before it
/// releases them. Where keys run ahead, it waits for V of every other tile between the first sub-stage of K and the
/// others. A kernel that must read V before it multiplies does the same.
template <class T, class Kv>
void consume(Kv& kv, const Items& items, uint32_t rank) {
  const uint32_t base = rank * kCtaBytes;
  constexpr uint32_t kKBytes = pipeline::KvBytes<T>::k_stage, kVBytes = pipeline::KvBytes<T>::v_stage;
  uint32_t k_at[T::num_qk_stages] = {}, v_at[T::num_mma_stages] = {};
  const auto read_extra = [&](size_t i) {
    if (T::gatherers == 0)
      Recorder::first_read(base + kExtra + static_cast<uint32_t>(i) * kExtraBytes, kExtraBytes, extra_tag(i));
  };
  bool first = true;
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    if (item.count == 0) continue;
    const auto read_k = [&](int j, auto stage, const auto& read) {
      read(k_at[stage], kKBytes, k_tag(item.first + j) + stage * kKBytes);
    };
    const auto wait_first_k = [&](int j) {
      k_at[0] = first ? kv.template wait_k<0, false>() : kv.template wait_k<0>();
      first = false;
      read_k(j, std::integral_constant<int, 0>(), Recorder::first_read);
      if (j == 0) read_extra(i);
    };
    const auto wait_more_k = [&](int j) {
      unrolled<T::num_qk_stages, 1>([&](auto stage) {
        k_at[stage] = kv.template wait_k<stage>();
        read_k(j, stage, Recorder::first_read);
      });
    };
    const auto release_k = [&](int j) {
      unrolled<T::num_qk_stages>([&](auto stage) {
        read_k(j, stage, Recorder::last_read);
        kv.template release_k<stage>();
      });
    };
    const auto read_v = [&](int j, uint32_t stage, const auto& read) {
      const uint32_t bytes = v_bytes(item, j, stage, kVBytes);
      if (bytes > 0) read(v_at[stage], bytes, v_tag(item.first + j) + stage * kVBytes);
    };
    const auto wait_v = [&](int j) {
      unrolled<T::num_mma_stages>([&](auto stage) {
        v_at[stage] = kv.template wait_v<stage>();
        read_v(j, stage, Recorder::first_read);
      });
    };
    const auto release_v = [&](int j) {
      unrolled<T::num_mma_stages>([&](auto stage) {
        read_v(j, stage, Recorder::last_read);
        kv.template release_v<stage>();
      });
    };
    if constexpr (T::order == KvOrder::kAlternating) {
      for (int j = 0; j < item.count; ++j) {
        wait_first_k(j);
        wait_more_k(j);
        if (j > 0) release_v(j - 1);
        release_k(j);
        wait_v(j);
      }
    } else {
      wait_first_k(0);
      wait_more_k(0);
      release_k(0);
      for (int j = 1; j < item.count; ++j) {
        wait_first_k(j);
        const bool looks_at_v = j % 2 == 1;
        if (looks_at_v) wait_v(j - 1);
        wait_more_k(j);
        if (!looks_at_v) wait_v(j - 1);
        release_k(j);
        release_v(j - 1);
      }
      wait_v(item.count - 1);
    }
    release_v(item.count - 1);
  }
}

template <class T>
void consume(const Items& items, uint32_t rank) {
  const uint32_t base = rank * kCtaBytes;
  pipeline::KvConsumerPipeline<T, AllLanes<T::cluster>> kv(base + kBarriers, base + kKeys, base + kValues, {});
  consume<T>(kv, items, rank);
}

template <class Run>
void record(Model& model, const std::string& name, bool producer, const Run& run) {
  model.threads.push_back({name, producer, {}});
  Recorder::thread = &model.threads.back();
  run();
  Recorder::thread = nullptr;
}

/// All threads of a CTA, or of a cluster. Tc: the traits that the consumers assume, if they differ from the producer's.
template <class T, class Tc = T>
Model model_of(const Items& items, int consumers, bool drain) {
  Model model;
  model.bytes_may_come_early = T::cluster > 1;
  for (uint32_t rank = 0; rank < T::cluster; ++rank) {
    const uint32_t base = rank * kCtaBytes;
    Recorder::model = &model;
    using Kv = pipeline::KvConsumerPipeline<T, AllLanes<T::cluster>>;
    Kv::init(base + kBarriers, T::gatherers > 0 ? T::gatherers : 1,
             static_cast<uint32_t>(consumers * pipeline::WarpRelease<T::cluster>::arrivals_per_warp));
    Recorder::model = nullptr;
    using Rings = pipeline::KvRings<T>;
    const auto slots_of = [&](uint32_t barriers, uint32_t bytes) {
      for (uint32_t b = 0; b < bytes / 2; b += 8) model.slots.push_back({barriers + b, barriers + bytes / 2 + b});
    };
    slots_of(Rings::k_barriers(base + kBarriers), Rings::KRing::bytes);
    if (!T::shared_ring) slots_of(Rings::v_barriers(base + kBarriers), Rings::VRing::bytes);
    if constexpr (T::gatherers == 0)
      record(model, fmt::format("producer {}", rank), true, [&] { produce<T>(items, drain, rank); });
    for (int g = 0; g < T::gatherers; ++g)
      record(model, fmt::format("gatherer {}", g), true, [&] { gather<T>(items, drain, static_cast<uint32_t>(g)); });
    for (int c = 0; c < consumers; ++c)
      record(model, fmt::format("consumer {}.{}", rank, c), false, [&] { consume<Tc>(items, rank); });
  }
  return model;
}

}  // namespace kernelwright::model
