// Steps over rows from .npy files: what is read, what is written, and the errors for arrays that do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "kernelwright/generator/error.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/formats/npy.h"
#include "kernelwright/verify/row_op/arrays.h"

namespace kernelwright::row_op_arrays_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RowOpArrays : public testing::Test {
 protected:
  RowOpArrays() {
    std::string name = std::filesystem::temp_directory_path() / "kernelwright-row-op-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    problem_.width = 128;
    problem_.input = RowInput::kAdd;
    problem_.norm.kind = NormKind::kRms;
  }
  ~RowOpArrays() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::vector<std::int64_t>& shape) const {
    std::vector<float> values(
        static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>())));
    std::iota(values.begin(), values.end(), 0.f);
    write_npy<float>(folder_ + "/" + name + ".npy", shape, values);
  }
  std::string refusal() const {
    try {
      read_case(problem_, folder_);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no refusal";
  }
  std::string folder_;
  RowOpProblem problem_;
};

TEST_F(RowOpArrays, AreReadAndWritten) {
  write("x", {2, 128}), write("residual", {2, 128}), write("weight", {128});
  const RowOpCase call = read_case(problem_, folder_);
  EXPECT_EQ(call.rows, 2);
  double third = 0;
  decode_row(DType::kBf16, call.x.data() + 3 * 2, 1, &third);
  EXPECT_EQ(third, 3);
  RowOpOutput output;
  output.out = call.x, output.residual_out = call.residual;
  const std::string results = folder_ + "/results";
  write_output(call, output, results);
  EXPECT_THAT(read_npy<float>(results + "/out.npy").shape, ElementsAre(2, 128));
  EXPECT_EQ(read_npy<float>(results + "/residual_out.npy").values[5], 5);
}

TEST_F(RowOpArrays, ThatDoNotFitAreNamed) {
  write("x", {2, 128}), write("residual", {3, 128}), write("weight", {64}), write("scale", {1});
  const std::string text = refusal();
  EXPECT_THAT(text, HasSubstr("residual"));
  EXPECT_THAT(text, HasSubstr("x.npy has 2 rows"));
  EXPECT_THAT(text, HasSubstr("width is 128"));
  EXPECT_THAT(text, HasSubstr("its scales are none"));
}

}  // namespace
}  // namespace kernelwright::row_op_arrays_test
