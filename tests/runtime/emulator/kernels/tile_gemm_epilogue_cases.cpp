// gemm_sm90 at the end of its tiles, and with operands where k is not innermost.
#include <fmt/format.h>

#include <deque>
#include <utility>

#include "runtime/emulator/kernels/tile_gemm_epilogue.h"

namespace kernelwright::test {
namespace {

class List {
 public:
  /// Ragged m, n and k, and more tiles than CTAs, unless `size` says otherwise; the whole epilogue except an
  /// activation. `change` sets the other fields of the Spec.
  template <class Change>
  EpilogueCase& add(const std::string& name, const Change& change, const GemmSize& size = {200, 264, 200},
                    int ctas = 2) {
    EpilogueCase epilogue{{tile_gemm_spec(), size, ctas, 2}, 0.5f, -2, 8};
    GemmSpec& spec = epilogue.gemm.spec;
    spec.alpha = spec.bias = spec.adds_c = true;
    change(spec);
    cases_.push_back({name, epilogue});
    return cases_.back().second;
  }
  std::vector<HopperCase> take() const {
    std::vector<HopperCase> all;
    for (const auto& [name, epilogue] : cases_) all.push_back(tile_gemm(name, epilogue));
    return all;
  }

 private:
  std::deque<std::pair<std::string, EpilogueCase>> cases_;
};

void ping_pong(GemmSpec& spec) { spec.block_m = 64, spec.roles = Roles::kPingPong; }
void plain(GemmSpec& spec) { spec.alpha = spec.bias = spec.adds_c = false; }

void epilogues(List& list) {
  list.add("f16", [](GemmSpec& spec) { plain(spec), spec.a = spec.b = spec.d = DType::kF16; });
  list.add("bias_c_relu", [](GemmSpec& spec) { spec.activation = Activation::kRelu; });
  list.add("bias_c_f16_relu_ping_pong",
           [](GemmSpec& spec) {
             ping_pong(spec), spec.block_n = 176, spec.c = DType::kF16, spec.activation = Activation::kRelu;
           },
           {200, 360, 136});
  list.add(
      "bias_c_f32_cluster2", [](GemmSpec& spec) { spec.cluster_m = 2, spec.c = DType::kF32; }, {300, 264, 72}, 4);
  list.add(
      "bias_c_halves_of_k", [](GemmSpec& spec) { spec.split_k = 2; }, {200, 200, 456}, 8);
  for (const auto& [name, dtype] : {std::pair{"bf16", DType::kBf16}, {"f32", DType::kF32}}) {
    const auto c = dtype;
    EpilogueCase& apart = list.add(fmt::format("misaligned_c_{}", name), [c](GemmSpec& spec) { spec.c = c; });
    apart.misaligned = true, apart.c_padding = 7;
  }
  EpilogueCase& in_place = list.add("c_is_d", [](GemmSpec& spec) { spec.alpha = spec.bias = false; });
  in_place.c_is_d = true, in_place.c_padding = 0;
  list.add("alpha", [](GemmSpec& spec) { plain(spec), spec.alpha = true; });
  list.add("bias", [](GemmSpec& spec) { plain(spec), spec.bias = true; });
  for (const auto& [name, activation] :
       {std::pair{"silu", Activation::kSilu}, {"gelu", Activation::kGelu}, {"gelu_tanh", Activation::kGeluTanh}}) {
    const auto act = activation;
    list.add(name, [act](GemmSpec& spec) { spec.activation = act, spec.d = DType::kF32, spec.c = DType::kF32; },
             {64, 256, 64, false});
    list.add(std::string(name) + "_alone", [act](GemmSpec& spec) { plain(spec), spec.activation = act; },
             {64, 256, 64, false});
  }
}

void dtypes(List& list) {
  for (const auto& [name, dtype] : {std::pair{"f32", DType::kF32}, {"e4m3", DType::kE4m3}, {"e5m2", DType::kE5m2}}) {
    const auto d = dtype;
    list.add(fmt::format("d_{}", name), [d](GemmSpec& spec) { plain(spec), spec.d = d; }, {200, 272, 200});
    list.add(fmt::format("d_{}_tail_bias_c", name),
             [d](GemmSpec& spec) {
               ping_pong(spec), spec.block_n = 176, spec.d = d, spec.c = d == DType::kF32 ? d : DType::kBf16;
             },
             {130, 368, 72});
    list.add(
        fmt::format("d_{}_halves_of_k", name), [d](GemmSpec& spec) { spec.split_k = 2, spec.d = d; }, {200, 208, 456},
        8);
  }
  list.add("d_f32_tail_of_8", [](GemmSpec& spec) { spec.block_n = 40, spec.d = DType::kF32; }, {130, 120, 72});
}

/// Weights take the tile's rows, a few tokens its columns.
void swapped(List& list) {
  for (const int columns : {8, 16, 24, 32, 40, 64, 72, 128})
    list.add(
        fmt::format("swapped_{}", columns),
        [columns](GemmSpec& spec) { spec.swap_ab = true, spec.block_n = columns, spec.activation = Activation::kRelu; },
        {columns - 3, 200, 200});
  for (const auto& [name, dtype] :
       {std::pair{"f16", DType::kF16}, {"f32", DType::kF32}, {"e4m3", DType::kE4m3}, {"e5m2", DType::kE5m2}}) {
    const auto d = dtype;
    list.add(fmt::format("swapped_d_{}", name),
             [d](GemmSpec& spec) {
               spec.swap_ab = true, spec.block_n = 72, spec.d = d, spec.c = d == DType::kF32 ? d : DType::kF16;
             },
             {150, 208, 72});
    list.add(fmt::format("swapped_ping_pong_d_{}", name),
             [d](GemmSpec& spec) {
               ping_pong(spec), spec.swap_ab = true, spec.block_n = 136, spec.d = d,
                                spec.c = d == DType::kF32 ? d : DType::kF16;
             },
             {150, 208, 72});
  }
  list.add("swapped_silu",
           [](GemmSpec& spec) { spec.swap_ab = true, spec.block_n = 16, spec.activation = Activation::kSilu; },
           {13, 200, 64, false});
  list.add(
      "swapped_halves_of_k", [](GemmSpec& spec) { spec.swap_ab = true, spec.split_k = 2; }, {100, 200, 456}, 4);
  // Bands of rows, where a tile has too few columns: a warp each or several.
  for (const int parts : {2, 4, 8})
    list.add(
        fmt::format("swapped_{}_parts_of_k", parts),
        [parts](GemmSpec& spec) { spec.swap_ab = true, spec.block_n = 8 * parts - 8, spec.split_k = parts; },
        {8 * parts - 9, 200, 456}, 2 * parts);
  list.add(
      "parts_of_k_of_two_waves",
      [](GemmSpec& spec) { spec.block_m = 256, spec.block_n = 72, spec.split_k = 4, spec.stages = 2; }, {300, 72, 264},
      8);
}

void layouts(List& list) {
  for (const auto& [name, layout] :
       {std::pair{"nn", OperandLayout::kNn}, {"tn", OperandLayout::kTn}, {"tt", OperandLayout::kTt}}) {
    const auto of = layout;
    list.add(name, [of](GemmSpec& spec) { plain(spec), spec.layout = of; }, {200, 264, 200});
    list.add(
        fmt::format("{}_f16_cluster2", name),
        [of](GemmSpec& spec) { plain(spec), spec.layout = of, spec.cluster_m = 2, spec.a = spec.b = DType::kF16; },
        {296, 200, 136}, 4);
    list.add(fmt::format("{}_ping_pong", name),
             [of](GemmSpec& spec) {
               plain(spec), ping_pong(spec), spec.layout = of, spec.block_n = 192, spec.k_group = 2, spec.stages = 4;
             },
             {136, 400, 328});
    list.add(fmt::format("{}_swapped", name),
             [of](GemmSpec& spec) { spec.layout = of, spec.swap_ab = true, spec.block_n = 64; }, {40, 264, 200});
  }
  list.add("tt_tail",
           [](GemmSpec& spec) { plain(spec), spec.layout = OperandLayout::kTt, spec.block_m = 256, spec.block_n = 72; },
           {264, 136, 200});
  list.add(
      "tn_halves_of_k", [](GemmSpec& spec) { spec.layout = OperandLayout::kTn, spec.split_k = 2; }, {200, 200, 456}, 8);
  list.add(
      "nn_swapped_parts_of_k",
      [](GemmSpec& spec) {
        spec.layout = OperandLayout::kNn, spec.swap_ab = true, spec.block_n = 16, spec.split_k = 4;
      },
      {11, 200, 456}, 8);
}

}  // namespace

std::vector<HopperCase> tile_gemm_epilogue_cases() {
  List list;
  epilogues(list);
  dtypes(list);
  swapped(list);
  layouts(list);
  return list.take();
}

}  // namespace kernelwright::test
