/// Every field of a launch's C struct reaches the C++ struct, and the right field of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "kernelwright/runtime/c/c_api_engine.h"
#include "support/paths.h"

namespace kernelwright::testing {
namespace {

/// A number of a C struct. Strides have three.
struct Number {
  std::string name, type;
  std::size_t offset;
};

std::size_t bytes_of_type(const std::string& type) {
  if (type == "int32_t" || type == "uint32_t" || type == "float") return 4;
  if (type == "int64_t" || type == "uint64_t" || type == "size_t") return 8;
  ADD_FAILURE() << "the test does not know the type " << type;
  return 8;
}

/// All numbers of a struct of c_api.h but its struct_size. Read from the header's text: the compiler does not tell
/// which bytes are padding.
std::vector<Number> numbers_of(const std::string& name, std::size_t size) {
  std::ifstream file(test::source_dir() / "runtime/c/c_api.h");
  std::ostringstream read;
  read << file.rdbuf();
  const std::string text = std::regex_replace(read.str(), std::regex(R"(/\*(.|\n)*?\*/)"), "");
  const std::string begin = "typedef struct " + name + " {";
  const std::size_t from = text.find(begin) + begin.size(), end = text.find('}', from);
  std::vector<Number> numbers;
  std::size_t offset = 0;
  const auto add = [&](const std::string& field, const std::string& type) {
    const std::size_t bytes = bytes_of_type(type);
    offset = (offset + bytes - 1) / bytes * bytes;
    numbers.push_back({field, type, offset});
    offset += bytes;
  };
  std::istringstream declarations(text.substr(from, end - from));
  for (std::string declaration; std::getline(declarations, declaration, ';');) {
    std::istringstream words(declaration);
    std::string type, field;
    words >> type;
    if (type == "const") {  // a pointer to another struct, which is no number
      offset = (offset + 7) / 8 * 8 + 8;
      continue;
    }
    while (std::getline(words >> std::ws, field, ',')) {
      if (type != "kernelwright_strides") {
        add(field, type);
        continue;
      }
      for (const char* part : {".batch", ".token", ".head"}) add(field + part, "int64_t");
    }
  }
  EXPECT_EQ((offset + 7) / 8 * 8, size) << name << ": the test does not read the header as the compiler does";
  EXPECT_EQ(numbers.at(0).name, "struct_size");
  numbers.erase(numbers.begin());
  return numbers;
}

template <class C>
void set(C& c, const Number& number, int value) {
  unsigned char* at = reinterpret_cast<unsigned char*>(&c) + number.offset;
  const float as_float = static_cast<float>(value);
  const std::int64_t wide = value;
  if (number.type == "float")
    std::memcpy(at, &as_float, sizeof as_float);
  else
    std::memcpy(at, &wide, bytes_of_type(number.type));  // little-endian
}

template <class C>
C sized() {
  C c{};
  c.struct_size = sizeof c;
  return c;
}

void print(std::ostream& to, const TensorStrides& strides) {
  to << strides.batch << '/' << strides.token << '/' << strides.head << ' ';
}
void print(std::ostream& to, const std::optional<Window>& window) {
  window ? to << window->left << '/' << window->right << ' ' : to << "- ";
}
void print(std::ostream& to, const std::optional<float>& value) { value ? to << *value << ' ' : to << "- "; }
template <class T>
void print(std::ostream& to, const T& value) {
  to << value << ' ';
}

/// What visit_fields() finds in the tensors of `given`, as text. A field that visit_fields() lacks makes no difference
/// to the text.
template <class C>
std::string text_of(C given) {
  std::ostringstream text;
  auto tensors = tensors_of(&given);
  const auto print_first = [&](const auto& value, const auto&...) { print(text, value); };
  if constexpr (requires { given.overrides; })
    visit_fields(tensors, given, print_first, print_first);
  else
    visit_fields(tensors, given, print_first);
  return text.str();
}

template <class C>
void expect_each_number_reaches(const std::string& name, C base) {
  for (const Number& number : numbers_of(name, sizeof(C))) {
    C given = base;
    if (number.name == "overrides")
      set(given, number, 0);
    else
      set(given, number, 77);
    EXPECT_NE(text_of(given), text_of(base)) << name << "." << number.name << " reaches no field";
  }
}

/// `base` with another value in every number.
template <class C>
C distinct(const std::string& name, C base) {
  int value = 1000;
  for (const Number& number : numbers_of(name, sizeof(C)))
    if (number.name != "overrides") set(base, number, ++value);
  return base;
}

void expect_same(const TensorStrides& strides, const kernelwright_strides& given) {
  EXPECT_EQ(strides.batch, given.batch);
  EXPECT_EQ(strides.token, given.token);
  EXPECT_EQ(strides.head, given.head);
}

#define EXPECT_SAME(field) EXPECT_EQ(tensors.field, c.field)

TEST(CStructs, EveryFieldOfAnAttentionLaunchReachesIt) {
  auto c = sized<kernelwright_attention_tensors>();
  c.overrides = KERNELWRIGHT_SET_SCALE | KERNELWRIGHT_SET_SOFTCAP | KERNELWRIGHT_SET_WINDOW;
  expect_each_number_reaches("kernelwright_attention_tensors", c);
  c = distinct("kernelwright_attention_tensors", c);
  const AttentionTensors tensors = tensors_of(&c);
  EXPECT_SAME(q);
  EXPECT_SAME(k);
  EXPECT_SAME(v);
  EXPECT_SAME(o);
  EXPECT_SAME(lse);
  EXPECT_SAME(q_offsets);
  EXPECT_SAME(kv_offsets);
  EXPECT_SAME(kv_lengths);
  EXPECT_SAME(kv_starts);
  EXPECT_SAME(page_table);
  EXPECT_SAME(sinks);
  EXPECT_SAME(k_scale);
  EXPECT_SAME(v_scale);
  EXPECT_SAME(q_scale);
  EXPECT_SAME(alibi_slopes);
  EXPECT_SAME(workspace);
  EXPECT_SAME(workspace_bytes);
  EXPECT_SAME(batch);
  EXPECT_SAME(q_len);
  EXPECT_SAME(kv_len);
  EXPECT_SAME(q_tokens);
  EXPECT_SAME(kv_tokens);
  EXPECT_SAME(page_table_stride);
  EXPECT_SAME(num_pages);
  EXPECT_SAME(sm_budget);
  EXPECT_SAME(q_rope);
  EXPECT_SAME(k_rope);
  EXPECT_SAME(mask);
  EXPECT_SAME(bias);
  EXPECT_TRUE(tensors.pdl && tensors.zero_padding);
  expect_same(tensors.q_strides, c.q_strides), expect_same(tensors.k_strides, c.k_strides);
  expect_same(tensors.v_strides, c.v_strides), expect_same(tensors.o_strides, c.o_strides);
  expect_same(tensors.q_rope_strides, c.q_rope_strides), expect_same(tensors.k_rope_strides, c.k_rope_strides);
  expect_same(tensors.mask_strides, c.mask_strides), expect_same(tensors.bias_strides, c.bias_strides);
  EXPECT_SAME(scale);
  EXPECT_SAME(softcap);
  EXPECT_EQ(tensors.window, (Window{c.window_left, c.window_right}));
}

TEST(CStructs, ABitSaysWhichFieldIsGiven) {
  auto c = sized<kernelwright_attention_tensors>();
  const auto given_by = [&](std::uint32_t bit) {
    c.overrides = bit;
    const AttentionTensors one = tensors_of(&c);
    return std::vector<bool>{one.scale.has_value(), one.softcap.has_value(), one.window.has_value()};
  };
  EXPECT_THAT(given_by(0), ::testing::ElementsAre(false, false, false));
  EXPECT_THAT(given_by(KERNELWRIGHT_SET_SCALE), ::testing::ElementsAre(true, false, false));
  EXPECT_THAT(given_by(KERNELWRIGHT_SET_SOFTCAP), ::testing::ElementsAre(false, true, false));
  EXPECT_THAT(given_by(KERNELWRIGHT_SET_WINDOW), ::testing::ElementsAre(false, false, true));
}

TEST(CStructs, EveryFieldOfAGemmLaunchReachesIt) {
  auto c = sized<kernelwright_gemm_tensors>();
  c.overrides = KERNELWRIGHT_SET_ALPHA | KERNELWRIGHT_SET_BETA | KERNELWRIGHT_SET_RMS_EPS;
  expect_each_number_reaches("kernelwright_gemm_tensors", c);
  c = distinct("kernelwright_gemm_tensors", c);
  GemmTensors tensors = tensors_of(&c);
  EXPECT_SAME(a);
  EXPECT_SAME(b);
  EXPECT_SAME(d);
  EXPECT_SAME(c);
  EXPECT_SAME(bias);
  EXPECT_SAME(scale_a);
  EXPECT_SAME(scale_b);
  EXPECT_SAME(a_stride);
  EXPECT_SAME(b_stride);
  EXPECT_SAME(c_stride);
  EXPECT_SAME(d_stride);
  EXPECT_SAME(scale_a_stride);
  EXPECT_SAME(scale_b_stride);
  EXPECT_SAME(scale_d);
  EXPECT_SAME(scale_d_stride);
  EXPECT_SAME(tensor_scale);
  EXPECT_SAME(amax);
  EXPECT_SAME(squares);
  EXPECT_SAME(squares_stride);
  EXPECT_SAME(squares_a);
  EXPECT_SAME(squares_a_stride);
  EXPECT_SAME(rms_eps);
  EXPECT_SAME(a_batch_stride);
  EXPECT_SAME(b_batch_stride);
  EXPECT_SAME(c_batch_stride);
  EXPECT_SAME(d_batch_stride);
  EXPECT_SAME(m);
  EXPECT_SAME(sm_budget);
  EXPECT_SAME(workspace);
  EXPECT_SAME(workspace_bytes);
  EXPECT_SAME(alpha);
  EXPECT_SAME(beta);
  EXPECT_TRUE(tensors.pdl && tensors.constant_b);

  c.overrides = KERNELWRIGHT_SET_ALPHA;
  tensors = tensors_of(&c);
  EXPECT_SAME(alpha);
  EXPECT_EQ(tensors.beta, 1);
  c.overrides = KERNELWRIGHT_SET_BETA;
  tensors = tensors_of(&c);
  EXPECT_SAME(beta);
  EXPECT_EQ(tensors.alpha, 1);
}

TEST(CStructs, EveryFieldOfAQuantiseLaunchReachesIt) {
  auto c = sized<kernelwright_quantize_tensors>();
  expect_each_number_reaches("kernelwright_quantize_tensors", c);
  c = distinct("kernelwright_quantize_tensors", c);
  const QuantizeTensors tensors = tensors_of(&c);
  EXPECT_SAME(x);
  EXPECT_SAME(elements);
  EXPECT_SAME(scales);
  EXPECT_SAME(x_stride);
  EXPECT_SAME(elements_stride);
  EXPECT_SAME(rows);
  EXPECT_SAME(k);
  EXPECT_SAME(tensor_scale);
  EXPECT_TRUE(tensors.pdl);
}

TEST(CStructs, EveryFieldOfALaunchThatWritesACacheReachesIt) {
  auto c = sized<kernelwright_kv_write_tensors>();
  c.overrides = KERNELWRIGHT_SET_EPS;
  expect_each_number_reaches("kernelwright_kv_write_tensors", c);
  c = distinct("kernelwright_kv_write_tensors", c);
  const KvWriteTensors tensors = tensors_of(&c);
  EXPECT_SAME(q);
  EXPECT_SAME(k);
  EXPECT_SAME(v);
  EXPECT_SAME(q_out);
  EXPECT_SAME(k_cache);
  EXPECT_SAME(v_cache);
  EXPECT_SAME(q_weight);
  EXPECT_SAME(k_weight);
  EXPECT_SAME(cos_sin);
  EXPECT_SAME(positions);
  EXPECT_SAME(slot_mapping);
  EXPECT_SAME(batch_indices);
  EXPECT_SAME(page_table);
  EXPECT_SAME(q_scale);
  EXPECT_SAME(k_scale);
  EXPECT_SAME(v_scale);
  EXPECT_SAME(tokens);
  EXPECT_SAME(num_pages);
  EXPECT_SAME(batch);
  EXPECT_SAME(kv_len);
  EXPECT_SAME(page_table_stride);
  EXPECT_SAME(kv_tokens);
  EXPECT_SAME(cos_sin_rows);
  EXPECT_SAME(position_bytes);
  EXPECT_SAME(eps);
  EXPECT_TRUE(tensors.pdl);
  expect_same(tensors.q_strides, c.q_strides), expect_same(tensors.k_strides, c.k_strides);
  expect_same(tensors.v_strides, c.v_strides), expect_same(tensors.q_out_strides, c.q_out_strides);
  expect_same(tensors.k_cache_strides, c.k_cache_strides), expect_same(tensors.v_cache_strides, c.v_cache_strides);
  const auto empty = sized<kernelwright_kv_write_tensors>();
  EXPECT_EQ(tensors_of(&empty).position_bytes, 4);
  EXPECT_FALSE(tensors_of(&empty).eps.has_value());
}

TEST(CStructs, EveryFieldOfALaunchOfStepsOverRowsReachesIt) {
  auto c = sized<kernelwright_row_op_tensors>();
  c.overrides = KERNELWRIGHT_SET_EPS | KERNELWRIGHT_SET_GATE_ALPHA | KERNELWRIGHT_SET_GATE_LIMIT;
  expect_each_number_reaches("kernelwright_row_op_tensors", c);
  c = distinct("kernelwright_row_op_tensors", c);
  const RowOpTensors tensors = tensors_of(&c);
  EXPECT_SAME(x);
  EXPECT_SAME(residual);
  EXPECT_SAME(residual_out);
  EXPECT_SAME(weight);
  EXPECT_SAME(out);
  EXPECT_SAME(scale);
  EXPECT_SAME(rows);
  EXPECT_SAME(x_stride);
  EXPECT_SAME(residual_stride);
  EXPECT_SAME(residual_out_stride);
  EXPECT_SAME(out_stride);
  EXPECT_SAME(scale_stride);
  EXPECT_SAME(lse);
  EXPECT_SAME(residual_lse);
  EXPECT_SAME(lse_out);
  EXPECT_SAME(lse_stride);
  EXPECT_SAME(lse_head_stride);
  EXPECT_SAME(eps);
  EXPECT_SAME(gate_alpha);
  EXPECT_SAME(gate_limit);
  EXPECT_SAME(tensor_scale);
  EXPECT_TRUE(tensors.pdl && tensors.constant_weight);
  const auto empty = sized<kernelwright_row_op_tensors>();
  EXPECT_EQ(tensors_of(&empty).tensor_scale, 1);
  EXPECT_FALSE(tensors_of(&empty).eps || tensors_of(&empty).gate_alpha || tensors_of(&empty).gate_limit);
}

TEST(CStructs, EveryFieldOfAChoiceOfExpertsReachesIt) {
  auto c = sized<kernelwright_route_tensors>();
  c.overrides = KERNELWRIGHT_SET_FACTOR;
  expect_each_number_reaches("kernelwright_route_tensors", c);
  c = distinct("kernelwright_route_tensors", c);
  const RouteTensors tensors = tensors_of(&c);
  EXPECT_SAME(logits);
  EXPECT_SAME(bias);
  EXPECT_SAME(local_ids);
  EXPECT_SAME(ids);
  EXPECT_SAME(weights);
  EXPECT_SAME(starts);
  EXPECT_SAME(source_rows);
  EXPECT_SAME(positions);
  EXPECT_SAME(sorted_weights);
  EXPECT_SAME(workspace);
  EXPECT_SAME(workspace_bytes);
  EXPECT_SAME(tokens);
  EXPECT_SAME(logits_stride);
  EXPECT_SAME(factor);
  EXPECT_TRUE(tensors.pdl);
  const auto empty = sized<kernelwright_route_tensors>();
  EXPECT_FALSE(tensors_of(&empty).factor);
}

TEST(CStructs, EveryFieldOfALayerOfExpertsReachesIt) {
  auto c = sized<kernelwright_moe_tensors>();
  c.overrides = KERNELWRIGHT_SET_FACTOR;
  expect_each_number_reaches("kernelwright_moe_tensors", c);
  c = distinct("kernelwright_moe_tensors", c);
  const MoeTensors tensors = tensors_of(&c);
  EXPECT_SAME(x);
  EXPECT_SAME(logits);
  EXPECT_SAME(bias);
  EXPECT_SAME(local_ids);
  EXPECT_SAME(ids);
  EXPECT_SAME(weights);
  EXPECT_SAME(gate_up);
  EXPECT_SAME(gate_up_scale);
  EXPECT_SAME(gate_up_bias);
  EXPECT_SAME(down);
  EXPECT_SAME(down_scale);
  EXPECT_SAME(down_bias);
  EXPECT_SAME(residual);
  EXPECT_SAME(out);
  EXPECT_SAME(workspace);
  EXPECT_SAME(workspace_bytes);
  EXPECT_SAME(tokens);
  EXPECT_SAME(x_stride);
  EXPECT_SAME(logits_stride);
  EXPECT_SAME(residual_stride);
  EXPECT_SAME(out_stride);
  EXPECT_SAME(factor);
  EXPECT_TRUE(tensors.pdl);
  const auto empty = sized<kernelwright_moe_tensors>();
  EXPECT_FALSE(tensors_of(&empty).factor);
}

TEST(CStructs, EveryFieldOfASumOverExpertsReachesIt) {
  auto c = sized<kernelwright_moe_combine_tensors>();
  expect_each_number_reaches("kernelwright_moe_combine_tensors", c);
  c = distinct("kernelwright_moe_combine_tensors", c);
  const MoeCombineTensors tensors = tensors_of(&c);
  EXPECT_SAME(rows);
  EXPECT_SAME(positions);
  EXPECT_SAME(weights);
  EXPECT_SAME(residual);
  EXPECT_SAME(out);
  EXPECT_SAME(num_rows);
  EXPECT_SAME(tokens);
  EXPECT_SAME(rows_stride);
  EXPECT_SAME(residual_stride);
  EXPECT_SAME(out_stride);
  EXPECT_TRUE(tensors.pdl);
}

}  // namespace
}  // namespace kernelwright::testing
