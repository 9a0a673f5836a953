// templates/tile/kv_buffer.cuh through the real NVRTC and the emulator, with every check on: keys and values from
// device memory to fragments, by each form, trait, count of stages, swizzle and split of a tile among warps. A
// fragment's elements are bits that only their row and column have, so a result is either right or wrong. Then the same
// with one mistake in the template or around it, which must be found. Skips by name if there is no NVRTC.
#include "kernelwright/runtime/compile/compiler.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernelwright/generator/template_library.h"
#include "kernelwright/runtime/emulator/emulator.h"
#include "kernelwright/runtime/emulator/numbers/number_formats.h"

namespace kernelwright {
namespace {

using emulator::Completion;

constexpr int kWarps = 2, kTileKeys = 32;         // of a CTA; in the decode form each warp has half of the keys
constexpr int kTiles = 5, kLow = 5, kHigh = 117;  // the last tile lies past all keys, the one before holds some

constexpr const char* kKernel = R"(
#include "tile/kv_buffer.cuh"
#include "tile/kv_rows.cuh"
using namespace kernelwright;
using namespace kernelwright::tile;

struct Params {
  const void* rows;
  const int32_t* pages;
  uint16_t* out;  // [tiles][warps][WN][depth]
  int64_t token_stride, page_stride;
  int32_t num_pages, num_tiles, low, high;
};
constexpr int kWarps = 2;
__shared__ __align__(1024) unsigned char shared[3 * 32 * 96 * 2];

/// Tiles of keys through `Buffer`, stage after stage in a circle, and every warp's fragments of them to `out`.
template <class Trait, KvForm kForm, DType kStored, int kStages, int kSwizzle, bool kTokenGen, int kPage>
__device__ __forceinline__ void walk(const Params& params) {
  using Buffer = KvBuffer<Trait, kForm, kStored, DType::kBf16, kStages, kTokenGen ? 32 : 32 * kWarps, kSwizzle, 80>;
  using Rows = KvRows<Storage<kStored>, kPage ? KvLayoutKind::kPaged : KvLayoutKind::kPadded, kPage>;
  static_assert(sizeof(shared) >= Buffer::bytes * (kTokenGen ? kWarps : 1));
  constexpr int kAhead = kStages - 1, kDepth = Trait::transposed ? Trait::wtile_dim1 : Buffer::num_chunks * Trait::btile_dim1;
  constexpr int kKeys = Trait::btile_dim0 * (kTokenGen ? kWarps : 1);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Buffer buffer(ptx::shared_address(shared) + (kTokenGen ? warp * Buffer::bytes : 0), kTokenGen ? lane : threadIdx.x,
                warp % Buffer::num_warps_n);
  Rows rows{static_cast<const Storage<kStored>*>(params.rows), params.token_stride, params.page_stride, params.pages,
            static_cast<unsigned>(params.num_pages)};
  const RowBound<true> bound{params.low, params.high};
  const auto synchronise = [] {
    if constexpr (kTokenGen) __syncwarp(); else __syncthreads();
  };
  const auto load = [&](int tile) {
    const int first = tile * kKeys + (kTokenGen ? warp * Trait::btile_dim0 : 0);
    if (tile < params.num_tiles) buffer.load_from_dram(rows, first, bound, tile % kStages);
    ptx::cp_async_commit_group();
  };
#pragma unroll
  for (int tile = 0; tile < kAhead; ++tile) load(tile);
  for (int tile = 0; tile < params.num_tiles; ++tile) {
    load(tile + kAhead);
    ptx::cp_async_wait_group<kAhead>();
    buffer.copy_to_shared(tile % kStages);
    synchronise();  // the tile has landed
    uint16_t* out = params.out + (tile * kWarps + warp) * Trait::wtile_dim0 * kDepth;
    const uint32_t base = buffer.fragment_base(tile % kStages);
#pragma unroll
    for (int step = 0; step < Buffer::num_chunks * Buffer::num_k_tiles; ++step) {
      uint32_t fragments[Buffer::num_mmas][2];
#pragma unroll
      for (int n = 0; n < Buffer::num_mmas; ++n) {
        if (n % 2 == 0) buffer.load_from_shared(fragments[n], fragments[n + 1], base, step, n / 2);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int k = step * 16 + i * 8 + lane % 4 * 2, column = n * 8 + lane / 4;
          const int key = Trait::transposed ? k : column, at = Trait::transposed ? column : k;
          out[key * kDepth + at] = fragments[n][i];
          out[(key + (Trait::transposed ? 1 : 0)) * kDepth + at + (Trait::transposed ? 0 : 1)] = fragments[n][i] >> 16;
        }
      }
    }
    synchronise();  // and has been read
  }
}
)";

struct KvCase {
  bool values = false;
  std::string form = "kCpAsync";  // "kRegisterStaged"
  bool converts = false;          // e4m3 to bf16
  int stages = 1, swizzle = 128, warp_columns = 1;
  bool token_gen = false;
  int page = 0, depth = 64, block_k = 32;

  std::string name() const {
    return fmt::format("{}_{}{}_stages{}_swizzle{}_columns{}_page{}_d{}{}", values ? "values" : "keys", form,
                       converts ? "_converts" : "", stages, swizzle, warp_columns, page, depth,
                       token_gen ? "_token_gen" : "");
  }
  int block_n() const { return token_gen ? kTileKeys / kWarps : kTileKeys; }
  int warp_n() const { return block_n() / warp_columns; }
  std::string entry() const {
    const std::string trait = values ? fmt::format("ValueTrait<{}, {}, {}>", block_n(), depth, warp_n())
                                     : fmt::format("KeyTrait<{}, {}, {}, {}>", block_n(), block_k, depth, warp_n());
    return fmt::format(
        "extern \"C\" __global__ void __launch_bounds__({}) {}(const __grid_constant__ Params params) {{\n"
        "  walk<{}, KvForm::{}, DType::{}, {}, {}, {}, {}>(params);\n}}\n",
        32 * kWarps, name(), trait, form, converts ? "kE4m3" : "kBf16", stages, swizzle, token_gen, page);
  }
};

/// Every form with each count of stages and each swizzle, keys and values, whole and split tiles in turn. Then single
/// cases: the decode form, pages, and heads whose rows end in narrower strips and do not divide among the threads.
std::vector<KvCase> all_cases() {
  constexpr int kSwizzles[] = {0, 32, 64, 128};
  std::vector<KvCase> cases;
  for (const auto& [form, converts] :
       {std::pair{"kCpAsync", false}, std::pair{"kRegisterStaged", false}, std::pair{"kRegisterStaged", true}}) {
    for (int stages = 1; stages <= 3; ++stages)
      for (int i = 0; i < 4; ++i)
        cases.push_back({.values = (stages + i) % 2 == 1,
                         .form = form,
                         .converts = converts,
                         .stages = stages,
                         .swizzle = kSwizzles[i],
                         .warp_columns = 1 + (stages + i / 2) % 2,
                         .depth = kSwizzles[i] == 128 ? 64 : 32,
                         .block_k = kSwizzles[i] == 128 ? 32 : 16});
    for (const bool values : {false, true}) {
      const KvCase like{
          .values = values, .form = form, .converts = converts, .stages = 2, .swizzle = 64, .depth = 32, .block_k = 16};
      KvCase token = like, pages = like, whole_pages = like, odd = like;
      token.token_gen = true;
      pages.page = 5;
      whole_pages.page = 64, whole_pages.warp_columns = 2;
      odd.depth = 80, odd.block_k = 80, odd.swizzle = values ? 128 : 64, odd.warp_columns = 2;
      cases.insert(cases.end(), {token, pages, whole_pages, odd});
    }
  }
  return cases;
}

/// A change of the kernel's text or of one of its templates: `text` stands once in all of them.
struct Edit {
  std::string text, replacement;
};

class KvBufferOnTheEmulator : public testing::Test {
 protected:
  void SetUp() override {
    if (compiler_.path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }

  std::string compile(const std::vector<KvCase>& cases, const Edit& edit = {}) {
    SourceUnit unit;
    unit.kernel = unit.entry = "kv_buffer";
    unit.arch = "sm_80";
    unit.source = kKernel;
    for (const KvCase& test : cases) unit.source += test.entry();
    unit.headers = template_closure("kernels/attention/decode/attention_decode_portable.cu").files;
    unit.options = {"--gpu-architecture=sm_80", "--std=c++17", "--no-cache", "-default-device", "--minimal"};
    int found = 0;
    const auto apply = [&](std::string text) {
      for (std::size_t at = text.find(edit.text); at != std::string::npos; at = text.find(edit.text, at)) {
        text.replace(at, edit.text.size(), edit.replacement);
        at += edit.replacement.size();
        ++found;
      }
      return text;
    };
    if (!edit.text.empty()) {
      unit.source = apply(unit.source);
      for (TemplateFile& header : unit.headers) {
        texts_.push_back(std::make_unique<std::string>(apply(std::string(header.text))));
        header.text = *texts_.back();
      }
      EXPECT_EQ(found, 1) << "times that there is\n" << edit.text;
    }
    return compiler_.compile_with_lines(unit);
  }

  static emulator::Options checking(Completion completion, std::uint64_t seed) {
    return {.hazards = true,
            .completion = completion,
            .seed = seed,
            .shuffle = completion == Completion::kRandom,
            .threads = 1,
            .max_instructions = 1'000'000};
  }

  /// What is wrong with one launch: "", or hazards, a fault, and the first wrong element.
  static std::string run(emulator::Emulator& machine, const emulator::LoadedModule& module, const KvCase& test) {
    // Rows end where keys do, so that a read past them faults. Rows before the first key hold bits that no key has.
    const int bytes = test.converts ? 1 : 2, page = test.page ? test.page : 1;
    const int rows = test.page ? (kHigh + page - 1) / page * page : kHigh;
    const std::int32_t num_pages = rows / page;
    const auto code = [&](int key, int at) { return test.converts ? (key * 31 + at * 7) % 0x77 : 1 + key * 256 + at; };
    std::vector<std::uint8_t> memory(static_cast<std::size_t>(rows * test.depth * bytes));
    std::vector<std::int32_t> pages;
    const int missing = test.page ? 1 : -1;
    for (int i = 0; test.page && i < num_pages; ++i) pages.push_back(i == missing ? num_pages : num_pages - 1 - i);
    for (int key = 0; key < rows; ++key) {
      const int line = test.page ? pages[static_cast<std::size_t>(key / page)] * page + key % page : key;
      for (int at = 0; at < test.depth && line < rows; ++at) {
        const int bits = key < kLow || key >= kHigh ? 0x7fff : code(key, at);
        std::memcpy(memory.data() + (line * test.depth + at) * bytes, &bits, static_cast<std::size_t>(bytes));
      }
    }
    const auto put = [&](const void* from, std::size_t size) {
      const std::uint64_t to = machine.memory().allocate(std::max<std::size_t>(size, 16));
      std::memcpy(reinterpret_cast<void*>(to), from, size);
      return to;
    };
    const std::size_t elements = static_cast<std::size_t>(kTiles * kWarps * test.warp_n() * test.depth);
    const std::vector<std::uint16_t> poison(elements, 0xdead);
    struct {
      std::uint64_t rows, pages, out;
      std::int64_t token_stride, page_stride;
      std::int32_t num_pages, num_tiles, low, high;
    } params{put(memory.data(), memory.size()),
             put(pages.data(), pages.size() * 4),
             put(poison.data(), elements * 2),
             test.depth,
             std::int64_t{page} * test.depth,
             num_pages,
             kTiles,
             kLow,
             kHigh};
    const emulator::LaunchReport report = machine.launch(module, test.name(), {.grid = {1}, .block = {32 * kWarps}},
                                                         std::as_bytes(std::span(&params, 1)));
    std::string wrong = report.fault;
    for (const auto& hazard : report.hazards) wrong += hazard.text() + "\n";
    if (!wrong.empty()) return wrong;
    const auto* out = reinterpret_cast<const std::uint16_t*>(params.out);
    for (int tile = 0; tile < kTiles; ++tile)
      for (int warp = 0; warp < kWarps; ++warp)
        for (int n = 0; n < test.warp_n(); ++n)
          for (int at = 0; at < test.depth; ++at, ++out) {
            const int part = test.token_gen ? warp : warp % test.warp_columns;
            const int key = tile * kTileKeys + part * test.warp_n() + n;
            const bool seen = key >= kLow && key < kHigh && key / page != missing;
            int expected = seen ? code(key, at) : 0;
            if (seen && test.converts)
              expected = emulator::f32_to_bf16(emulator::kE4m3Values[static_cast<std::size_t>(expected)]);
            if (*out != expected)
              return fmt::format("tile {}, warp {}, key {}, element {}: {:#x} instead of {:#x}", tile, warp, key, at,
                                 *out, expected);
          }
    return "";
  }

  Compiler compiler_;
  std::vector<std::unique_ptr<std::string>> texts_;
};

TEST_F(KvBufferOnTheEmulator, BringsEveryElementToItsFragment) {
  const std::vector<KvCase> cases = all_cases();
  const std::string ptx = compile(cases);
  EXPECT_THAT(ptx, testing::Not(testing::HasSubstr(".local"))) << "registers of a stage have no addresses";
  for (const auto& [completion, seed] : {std::pair{Completion::kLazy, 0}, std::pair{Completion::kRandom, 3}}) {
    emulator::Emulator machine(checking(completion, static_cast<std::uint64_t>(seed)));
    const auto module = machine.load(ptx);
    for (const KvCase& test : cases) EXPECT_EQ(run(machine, *module, test), "") << test.name();
  }
}

struct Fault {
  const char* name;
  Edit edit;
  KvCase test;
};

const std::vector<Fault>& faults() {
  static const std::vector<Fault> list = [] {
    const KvCase async{.stages = 2}, staged{.form = "kRegisterStaged", .stages = 2, .warp_columns = 2};
    KvCase values = staged, converted = staged, pages = staged, token = staged;
    values.values = converted.converts = token.token_gen = true;
    token.warp_columns = 1;
    pages.page = 64;
    return std::vector<Fault>{
        {"no wait for a tile to land", {"synchronise();  // the tile has landed", ""}, staged},
        {"no wait for a tile to be read", {"synchronise();  // and has been read", ""}, staged},
        {"no wait for the warp in the decode form",
         {"if constexpr (kTokenGen) __syncwarp();", "if constexpr (kTokenGen) {}"},
         token},
        {"a copy that is still on its way",
         {"cp_async_wait_group<kAhead>();", "cp_async_wait_group<kAhead + 1>();"},
         async},
        {"one slot for all stages",
         {"shared_ + stage * slot_bytes + chunk * chunk_bytes", "shared_ + chunk * chunk_bytes"},
         async},
        {"one stage of registers for all tiles",
         {"fetch<Rows::is_paged, Chunks>(source, inside, i, stage, registers_[kStage])",
          "fetch<Rows::is_paged, Chunks>(source, inside, i, stage, registers_[0])"},
         staged},
        {"another stage is stored", {"copy_one_of<0>(tile_id)", "copy_one_of<0>(tile_id ^ 1)"}, staged},
        {"rows outside keep what stands in for them", {"inside ? loaded.word[w] : 0", "loaded.word[w]"}, staged},
        {"rows outside are read", {"source = inside ? source : stand_in", "source = source"}, staged},
        {"the lower end is not looked at",
         {"return key < high && (!kLow || key >= low);", "return key < high;"},
         staged},
        {"a copy of rows outside", {"inside ? 16 : 0", "16"}, async},
        {"a page that is none",
         {"is_page(int page) const { return static_cast<unsigned>(page) < num_pages; }",
          "is_page(int) const { return true; }"},
         pages},
        {"fragments without the swizzle",
         {"((half ^ ((row * pieces / 8) & (pieces - 1))) * 16)", "(half * 16)"},
         staged},
        {"the first column's keys for every warp", {"warp_column * Trait::wtile_dim0", "0"}, staged},
        {"the first column's values for every warp", {"warp_column * Trait::wtile_dim0", "0"}, values},
        {"chunks of keys over each other",
         {"ptx::st_shared_v4(shared_ + chunk * chunk_bytes + piece_offset(i, 0), registers_",
          "ptx::st_shared_v4(shared_ + piece_offset(i, 0), registers_"},
         staged},
        {"halves of a converted piece over each other",
         {"piece_offset(i, 1), converted[1]", "piece_offset(i, 0), converted[1]"},
         converted},
        {"values that are not transposed", {"ptx::ldmatrix_x4_trans(matrix", "ptx::ldmatrix_x4(matrix"}, values},
    };
  }();
  return list;
}

TEST_F(KvBufferOnTheEmulator, FindsEveryFault) {
  for (const Fault& fault : faults()) {
    SCOPED_TRACE(fault.name);
    const std::string ptx = compile({fault.test}, fault.edit);
    std::string found;
    for (const auto& [completion, seed] :
         {std::pair{Completion::kEager, 0}, std::pair{Completion::kLazy, 0}, std::pair{Completion::kRandom, 1}}) {
      emulator::Emulator machine(checking(completion, static_cast<std::uint64_t>(seed)));
      if (found.empty()) found = run(machine, *machine.load(ptx), fault.test);
    }
    EXPECT_NE(found, "");
  }
}

}  // namespace
}  // namespace kernelwright
