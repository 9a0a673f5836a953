#include "kernelwright/verify/moe_combine/bound.h"

#include <fmt/format.h>

#include <vector>

#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/moe_combine/reference.h"

namespace kernelwright {
namespace {

class TokenComparison : public RowsComparison {
 public:
  TokenComparison(const MoeCombineCase& call, const MoeCombineOutput& output, RowsVerdict& verdict)
      : RowsComparison(verdict, call.problem.dtype.out), call_(call), output_(output) {}

  void token(std::int64_t token) {
    const MoeCombineRow right = reference_row(call_, token);
    const DType out = call_.problem.dtype.out;
    std::vector<double> found(right.value.size());
    decode_row(out, output_.out.data() + static_cast<std::size_t>(token * call_.out_stride) * bytes_of(out),
               found.size(), found.data());
    for (std::size_t i = 0; i < found.size(); ++i)
      element([&] { return fmt::format("out[{}, {}]", token, i); }, found[i], right.value[i], right.error[i]);
  }

 private:
  const MoeCombineCase& call_;
  const MoeCombineOutput& output_;
};

}  // namespace

MoeCombineVerdict verify(const MoeCombineCase& call, const MoeCombineOutput& output,
                         const MoeCombineVerdictOptions& options) {
  MoeCombineVerdict verdict;
  TokenComparison comparison(call, output, verdict);
  compare_some_rows(call.tokens, call.operations(), options, verdict,
                    [&](std::int64_t token) { comparison.token(token); });
  const DType out = call.problem.dtype.out;
  comparison.untouched("out", output.out, bytes_of(out) * static_cast<std::size_t>(call.problem.width),
                       bytes_of(out) * static_cast<std::size_t>(call.out_stride));
  return verdict;
}

}  // namespace kernelwright
