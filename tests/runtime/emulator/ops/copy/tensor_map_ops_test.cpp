/// Kernels that make tensor maps of zeros, and im2col copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "kernelwright/runtime/emulator/machine/tensor_map.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/ptx_kernel.h"

namespace kernelwright::emulator {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::string texts(const LaunchReport& report) {
  std::string all = report.fault;
  for (const HazardReport& hazard : report.hazards) all += "\n" + hazard.text();
  return all;
}

constexpr std::uint32_t kTensorWords = 512;

/// `in`: 128 bytes for a map (zeros, or `map` with the tensor's address), 128 bytes of zeros, then the words 0, 1, ….
struct MapRun {
  LaunchReport report;
  std::vector<std::uint32_t> out, tensor;
};
MapRun run_map(const std::string& body, const LaunchShape& shape, Options options,
               const TensorMapDescription* map = nullptr) {
  Emulator emulator(options);
  const auto module = emulator.load(test::ptx_kernel(body, "sm_100a"));
  const std::uint64_t out = emulator.memory().allocate(4096), in = emulator.memory().allocate(256 + kTensorWords * 4);
  std::memset(reinterpret_cast<void*>(out), 0, 4096);
  std::memset(reinterpret_cast<void*>(in), 0, 256);
  auto* words = reinterpret_cast<std::uint32_t*>(in + 256);
  for (std::uint32_t i = 0; i < kTensorWords; ++i) words[i] = i;
  if (map) {
    TensorMapDescription placed = *map;
    placed.address = in + 256;
    const TensorMap encoded = encode_tensor_map(placed);
    std::memcpy(reinterpret_cast<void*>(in), encoded.bytes, sizeof encoded);
  }
  const std::uint64_t arguments[] = {out, in};
  MapRun run;
  run.report = emulator.launch(*module, "test", shape, std::as_bytes(std::span(arguments)));
  run.out.assign(reinterpret_cast<const std::uint32_t*>(out), reinterpret_cast<const std::uint32_t*>(out) + 1024);
  run.tensor.assign(words, words + kTensorWords);
  return run;
}

/// Sets every field of the map at `at` (in `space`): 16 rows of 32 words, boxes of 4 rows of 8 words, swizzle 32B.
std::string set_every_field(const std::string& space, const std::string& at) {
  std::string text;
  const auto replace = [&](const char* field, const char* type, const char* value) {
    text += std::string("@!%p1 tensormap.replace.tile.") + field + "." + space + ".b1024." + type + " [" + at + "], " +
            value + ";\n";
  };
  replace("global_address", "b64", "%rd3");
  replace("rank", "b32", "%r30");
  replace("box_dim", "b32", "0, %r31");
  replace("box_dim", "b32", "1, %r32");
  replace("global_dim", "b32", "0, %r33");
  replace("global_dim", "b32", "1, %r34");
  replace("global_stride", "b64", "0, %rd20");
  replace("element_stride", "b32", "0, %r30");
  replace("element_stride", "b32", "1, %r30");
  replace("elemtype", "b32", "2");
  replace("interleave_layout", "b32", "0");
  replace("swizzle_mode", "b32", "1");
  replace("swizzle_atomicity", "b32", "0");
  replace("fill_mode", "b32", "0");
  return text;
}

constexpr const char* kBegin = R"(
      mov.u32 %r10, data; add.u32 %r11, %r10, 1024; add.u32 %r13, %r10, 256; setp.ne.u32 %p1, %r2, 0;
      add.u64 %rd3, %rd1, 256; shl.b32 %r16, %r2, 2; cvt.u64.u32 %rd7, %r16;
      mov.u32 %r30, 1; mov.u32 %r31, 8; mov.u32 %r32, 4; mov.u32 %r33, 32; mov.u32 %r34, 16; mov.u64 %rd20, 128;
      @%p1 bra READY;
      mbarrier.init.shared::cta.b64 [%r10], 1;
      fence.proxy.async.shared::cta;
    READY:
      bar.warp.sync 0xffffffff;
    )";

/// Lane l stores words l, l + 32, … of the box, `words` in all.
std::string store_out(int words) {
  std::string text = R"(
    WAIT:
      mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0;
      @!%p3 bra WAIT;
      add.u32 %r17, %r11, %r16; add.u64 %rd8, %rd0, %rd7;
    )";
  for (int at = 0; at < words; at += 32)
    text += "ld.shared.u32 %r18, [%r17+" + std::to_string(at * 4) + "]; st.global.u32 [%rd8+" + std::to_string(at * 4) +
            "], %r18;\n";
  return text;
}

std::string load_2d(const std::string& map) {
  return "@%p1 bra WAIT;\nmov.u32 %r20, 16; mov.u32 %r21, 3;\n"
         "mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 128;\n"
         "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r11], [" +
         map + ", {%r20, %r21}], [%r10];\n" + store_out(32);
}

void expect_box(const MapRun& run) {
  ASSERT_THAT(texts(run.report), IsEmpty());
  for (std::uint32_t i = 0; i < 32; ++i) {
    const std::uint32_t place = i ^ (i >> 3 & 4);  // 16-byte units of rows of 32 bytes
    EXPECT_EQ(run.out[place], (3 + i / 8) * 32 + 16 + i % 8) << i;
  }
}

TEST(TensorMapReplace, MakesAMapOfZerosInSharedMemory) {
  const std::string body = kBegin + std::string(R"(
      mov.u32 %r18, 0; add.u32 %r17, %r13, %r16; st.shared.u32 [%r17], %r18;
      bar.warp.sync 0xffffffff;
    )") + set_every_field("shared::cta", "%r13") +
                           R"(
      bar.warp.sync 0xffffffff;
      tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [%r13], 128;
      fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
    )" + load_2d("%rd1");
  for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom})
    expect_box(
        run_map(body, {.block = {32}, .dynamic_shared_bytes = 4096}, {.hazards = true, .completion = completion}));
}

TEST(TensorMapReplace, MakesAMapOfZerosInGlobalMemory) {
  const std::string body = kBegin + set_every_field("global", "%rd1") + R"(
      fence.proxy.tensormap::generic.release.gpu;
      fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
    )" + load_2d("%rd1");
  for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom})
    expect_box(
        run_map(body, {.block = {32}, .dynamic_shared_bytes = 4096}, {.hazards = true, .completion = completion}));
}

TEST(TensorMapReplace, JudgesAMapWhenItIsUsed) {
  // Seven dimensions are no fault until a copy reads them.
  const std::string edit = kBegin + std::string(R"(
      mov.u32 %r30, 6;
      tensormap.replace.tile.rank.global.b1024.b32 [%rd1], %r30;
      fence.proxy.tensormap::generic.release.gpu;
      fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
    )");
  EXPECT_THAT(texts(run_map(edit, {.block = {32}, .dynamic_shared_bytes = 4096}, {}).report), IsEmpty());
  EXPECT_THAT(texts(run_map(edit + load_2d("%rd1"), {.block = {32}, .dynamic_shared_bytes = 4096}, {}).report),
              HasSubstr("/tensor_map/rank: 7 is outside [1, 5]"));
}

TEST(TensorMapCopyAndFence, RefusesPartOfAWarpAndOtherAddresses) {
  const auto fault = [](const std::string& lines) {
    return texts(run_map(kBegin + lines, {.block = {32}, .dynamic_shared_bytes = 4096}, {}).report);
  };
  const std::string copy =
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [%r13], 128;\n";
  EXPECT_THAT(fault("add.u64 %rd1, %rd1, %rd7;\n" + copy), HasSubstr("differ between the lanes"));
  EXPECT_THAT(fault("add.u64 %rd1, %rd1, 64;\n" + copy), HasSubstr("is not a multiple of 128"));
  EXPECT_THAT(fault("@%p1 " + copy), testing::Not(IsEmpty()));
}

/// N = 2 images of H = 4 rows of W = 4 pixels of C = 16 words; pixels of 8 channels, 8 in a column.
TensorMapDescription im2col_map() {
  TensorMapDescription map;
  map.element = TensorElement::kU32;
  map.mode = TensorMapMode::kIm2col;
  map.rank = 4;
  map.dims[0] = 16, map.dims[1] = map.dims[2] = 4, map.dims[3] = 2;
  map.strides_bytes[0] = 64, map.strides_bytes[1] = 256, map.strides_bytes[2] = 1024;
  map.box[0] = 8, map.box[1] = 8;
  // A filter of 3 x 3 and one pixel of padding.
  for (int d = 0; d < 2; ++d) map.corners[d].lower = -1, map.corners[d].upper = -1;
  return map;
}

constexpr const char* kIm2colLoad =
    "mov.u32 %r20, 8; mov.u32 %r21, 1; mov.u32 %r22, 2; mov.u32 %r23, 0; mov.u16 %h1, 2; mov.u16 %h2, 1;\n"
    "mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 256;\n"
    "cp.async.bulk.prefetch.tensor.4d.L2.global.im2col [%rd1, {%r20, %r21, %r22, %r23}], {%h1, %h2};\n"
    "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r11], "
    "[%rd1, {%r20, %r21, %r22, %r23}], [%r10], {%h1, %h2};\n";

TEST(TensorIm2col, LoadsPixelsBetweenTheCorners) {
  // Base pixels (w, h) from (1, 2) on, within [-1, 3): (1, 2), (2, 2), then image 1: (-1, -1), (0, -1), (1, -1),
  // (2, -1), (-1, 0), (0, 0). The offsets (2, 1) are added.
  const std::string body = kBegin + std::string("@%p1 bra WAIT;\n") + kIm2colLoad + store_out(64);
  const int w[] = {3, 4, 1, 2, 3, 4, 1, 2}, h[] = {3, 3, 0, 0, 0, 0, 1, 1}, n[] = {0, 0, 1, 1, 1, 1, 1, 1};
  const TensorMapDescription map = im2col_map();
  for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom}) {
    const MapRun run =
        run_map(body, {.block = {32}, .dynamic_shared_bytes = 4096}, {.hazards = true, .completion = completion}, &map);
    ASSERT_THAT(texts(run.report), IsEmpty());
    for (std::uint32_t pixel = 0; pixel < 8; ++pixel)
      for (std::uint32_t c = 0; c < 8; ++c) {
        const auto index = static_cast<std::uint32_t>(((n[pixel] * 4 + h[pixel]) * 4 + w[pixel]) * 16) + 8 + c;
        EXPECT_EQ(run.out[pixel * 8 + c], w[pixel] < 4 ? index : 0) << pixel << " " << c;
      }
  }
}

/// Loads pixels from (1, 2) on, and stores them from (0, 0) on.
const std::string kIm2colStore = kBegin + std::string(R"(
      @%p1 bra WAIT;
      mov.u32 %r20, 8; mov.u32 %r21, 1; mov.u32 %r22, 2; mov.u32 %r23, 0; mov.u16 %h1, 0;
      mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 256;
      cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r11], [%rd1, {%r20, %r21, %r22, %r23}], [%r10], {%h1, %h1};
    )") + store_out(64) + R"(
      @%p1 bra DONE;
      mov.u32 %r20, 0; mov.u32 %r21, 0; mov.u32 %r22, 0;
      cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%rd1, {%r20, %r21, %r22, %r23}], [%r11];
      cp.async.bulk.commit_group;
      cp.async.bulk.wait_group 0;
    DONE:
    )";

TEST(TensorIm2col, StoresPixelsBetweenTheCorners) {
  TensorMapDescription map = im2col_map();
  for (int d = 0; d < 2; ++d) map.corners[d].lower = 0;
  // Pixels w * 4 + h of an image of 16, and 16 for the next image.
  const std::uint32_t from[] = {9, 10, 16, 17, 18, 20, 21, 22}, to[] = {0, 1, 2, 4, 5, 6, 8, 9};
  for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom}) {
    const MapRun run = run_map(kIm2colStore, {.block = {32}, .dynamic_shared_bytes = 4096},
                               {.hazards = true, .completion = completion}, &map);
    ASSERT_THAT(texts(run.report), IsEmpty());
    std::vector<std::uint32_t> expected(kTensorWords);
    for (std::uint32_t i = 0; i < kTensorWords; ++i) expected[i] = i;
    for (std::uint32_t pixel = 0; pixel < 8; ++pixel)
      for (std::uint32_t c = 0; c < 8; ++c) expected[to[pixel] * 16 + c] = from[pixel] * 16 + 8 + c;
    EXPECT_EQ(run.tensor, expected);
  }
}

TEST(TensorIm2col, RefusesStoresPastTheTensor) {
  const TensorMapDescription map = im2col_map();
  EXPECT_THAT(texts(run_map(kIm2colStore, {.block = {32}, .dynamic_shared_bytes = 4096}, {}, &map).report),
              HasSubstr("an im2col store between corners -1 and -1, which reach past the tensor"));
}

TEST(TensorSwizzleAtoms, WithAFlipAreForLoadsAlone) {
  TensorMapDescription map;
  map.element = TensorElement::kU32;
  map.dims[0] = 32, map.dims[1] = 16;
  map.strides_bytes[0] = 128;
  map.box[0] = 8, map.box[1] = 4;
  map.swizzle = Swizzle::k128B;
  map.atom = SwizzleAtom::k32BFlip8B;
  const std::string store = kBegin + std::string(R"(
      @%p1 bra DONE;
      mov.u32 %r20, 0;
      cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r20, %r20}], [%r11];
      cp.async.bulk.commit_group;
      cp.async.bulk.wait_group 0;
    DONE:
    )");
  const LaunchShape shape = {.block = {32}, .dynamic_shared_bytes = 4096};
  EXPECT_THAT(texts(run_map(store, shape, {}, &map).report), HasSubstr("which loads alone may have"));
  map.atom = SwizzleAtom::k32B;
  EXPECT_THAT(texts(run_map(store, shape, {}, &map).report), IsEmpty());
}

TEST(TensorIm2col, RefusesTheOtherModesMaps) {
  const TensorMapDescription map = im2col_map();
  const LaunchShape shape = {.block = {32}, .dynamic_shared_bytes = 4096};
  const std::string begin = kBegin + std::string("@%p1 bra WAIT;\n");
  TensorMapDescription tiled = map;
  tiled.mode = TensorMapMode::kTile;
  EXPECT_THAT(texts(run_map(begin + kIm2colLoad + store_out(64), shape, {}, &tiled).report),
              HasSubstr("a copy by im2col with a tensor map for copies of tiles"));
  const std::string tile =
      "mov.u32 %r20, 0;\ncp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r11], "
      "[%rd1, {%r20, %r20, %r20, %r20}], [%r10];\n";
  EXPECT_THAT(texts(run_map(begin + tile + store_out(64), shape, {}, &map).report),
              HasSubstr("a copy of tiles with a tensor map for copies by im2col"));
  const std::string far =
      "mov.u16 %h1, 256; mov.u16 %h2, 0; mov.u32 %r20, 0;\n"
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r11], "
      "[%rd1, {%r20, %r20, %r20, %r20}], [%r10], {%h1, %h2};\n";
  EXPECT_THAT(texts(run_map(begin + far + store_out(64), shape, {}, &map).report),
              HasSubstr("an im2col offset of 256, which does not fit into 8 bits"));
}

/// A wide map of the tensor above: 6 pixels of 16 channels.
TensorMapDescription wide_map(TensorMapMode mode) {
  TensorMapDescription map = im2col_map();
  map.mode = mode;
  map.box[0] = 16, map.box[1] = 6;
  map.swizzle = Swizzle::k64B;
  map.corners[1] = {};
  return map;
}
std::string wide_load(const std::string& mode, int halo, int bytes) {
  return kBegin + std::string("@%p1 bra WAIT;\nmov.u32 %r20, 0; mov.u32 %r21, 1; mov.u32 %r22, 2;\n") +
         "mov.u16 %h1, " + std::to_string(halo) + "; mov.u16 %h2, 1;\n" +
         "mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], " + std::to_string(bytes) + ";\n" +
         "cp.async.bulk.prefetch.tensor.4d.L2.global." + mode + " [%rd1, {%r20, %r21, %r22, %r20}], {%h1, %h2};\n" +
         "cp.async.bulk.tensor.4d.shared::cta.global." + mode +
         ".mbarrier::complete_tx::bytes [%r11], [%rd1, {%r20, %r21, %r22, %r20}], [%r10], {%h1, %h2};\n" +
         store_out(96);
}

TEST(TensorIm2col, WideCopiesGoAlongWAndToTheNextImage) {
  // Base pixels w = 1, 2 of image 0, then -1, 0, 1, 2 of image 1, all at h = 2. The offset 1 is added to w.
  const int w[] = {2, 3, 0, 1, 2, 3}, n[] = {0, 0, 1, 1, 1, 1};
  for (const auto& [mode, name, pixels] : {std::tuple(TensorMapMode::kIm2colW, "im2col::w", 6),
                                           std::tuple(TensorMapMode::kIm2colW128, "im2col::w::128", 128)}) {
    const TensorMapDescription map = wide_map(mode);
    const MapRun run = run_map(wide_load(name, 0, pixels * 64), {.block = {32}, .dynamic_shared_bytes = 16384},
                               {.hazards = true}, &map);
    ASSERT_THAT(texts(run.report), IsEmpty());
    for (std::uint32_t pixel = 0; pixel < 6; ++pixel)
      for (std::uint32_t c = 0; c < 16; ++c) {
        const std::uint32_t plain = pixel * 64 + c * 4, place = plain ^ (plain >> 3 & 0x30);
        EXPECT_EQ(run.out[place / 4], static_cast<std::uint32_t>(((n[pixel] * 4 + 2) * 4 + w[pixel]) * 16) + c)
            << name << " " << pixel << " " << c;
      }
  }
}

TEST(TensorIm2col, WideCopiesNameWhatTheyDoNotTake) {
  const LaunchShape shape = {.block = {32}, .dynamic_shared_bytes = 16384};
  TensorMapDescription map = wide_map(TensorMapMode::kIm2colW);
  EXPECT_THAT(texts(run_map(wide_load("im2col::w", 2, 384), shape, {}, &map).report),
              HasSubstr("a wide im2col copy with a halo of 2; only 0 is modelled"));
  EXPECT_THAT(texts(run_map(wide_load("im2col::w::128", 0, 384), shape, {}, &map).report),
              HasSubstr("a copy by im2col::w::128 with a tensor map for copies by im2col::w"));
}

}  // namespace
}  // namespace kernelwright::emulator
