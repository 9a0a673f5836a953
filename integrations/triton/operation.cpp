// The kinds of problem that a model may have: which tensors a request has, and how they become a launch.
#include "operation.h"

#include <algorithm>
#include <utility>

#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/problem/epilogue.h"

namespace kernelwright::triton {
namespace {

/// Collects what a problem has and a model cannot have.
class Refusals {
 public:
  void add_if(bool unsupported, const char* path, const char* message) {
    if (unsupported) found_.push_back({path, message});
  }
  void add_untyped(const std::vector<Operand>& operands) {
    for (const Operand& operand : operands)
      if (server_type(operand.dtype) == TRITONSERVER_TYPE_INVALID)
        found_.push_back({"/problem/dtype", std::string(to_string(operand.dtype)) + " of " + operand.name +
                                                " is no type of Triton; f16, bf16 and f32 are accepted"});
  }
  void throw_if_any() && {
    if (!found_.empty()) throw ConfigError(std::move(found_));
  }

 private:
  std::vector<Violation> found_;
};

/// A problem of one kind. Kind says what differs: Config, Kernel, Tensors, and functions over them.
template <class Kind>
class OperationOf : public Operation {
  using Config = typename Kind::Config;
  using Tensors = typename Kind::Tensors;

 public:
  explicit OperationOf(const Config& config) : config_(config) {
    Refusals refusals;
    Kind::refuse(config.problem, refusals);
    Kind::visit_operands(config.problem, [&](Operand operand, DevicePtr Tensors::*field) {
      operands_.push_back(std::move(operand));
      fields_.push_back(field);
    });
    refusals.add_untyped(operands_);
    std::move(refusals).throw_if_any();
  }

  std::unique_ptr<PreparedKernel> prepare(Engine& engine, int device) const override {
    // An engine that other models share may be sealed one day. A model that loads may compile all the same.
    const PrepareOptions options{.device = device, .allow_when_sealed = true};
    return std::make_unique<Prepared>(engine.prepare(config_.problem, config_.schedule, options), fields_);
  }

 private:
  class Prepared : public PreparedKernel {
   public:
    Prepared(typename Kind::Kernel kernel, std::vector<DevicePtr Tensors::*> fields)
        : kernel_(kernel), fields_(std::move(fields)) {}
    std::uint64_t workspace_bytes(const Call& call) const override {
      return Kind::workspace_bytes(kernel_, tensors_of(call));
    }
    void launch(const Call& call, Stream stream) const override { kernel_.launch(tensors_of(call), stream); }

   private:
    Tensors tensors_of(const Call& call) const {
      Tensors tensors;
      for (std::size_t i = 0; i < fields_.size(); ++i) tensors.*fields_[i] = call.addresses[i];
      Kind::set_sizes(tensors, call.sizes);
      tensors.workspace = call.workspace;
      tensors.workspace_bytes = call.workspace_bytes;
      return tensors;
    }
    typename Kind::Kernel kernel_;
    std::vector<DevicePtr Tensors::*> fields_;
  };

  Config config_;
  std::vector<DevicePtr Tensors::*> fields_;  // as operands_
};

struct GemmKind {
  using Config = GemmConfig;
  using Tensors = GemmTensors;
  using Kernel = GemmKernel;

  static void refuse(const GemmProblem& problem, Refusals& refusals) {
    const Epilogue epilogue = parse_epilogue(problem.epilogue);
    refusals.add_if(problem.scales != ScaleKind::kNone, "/problem/scales", "a model takes none");
    refusals.add_if(problem.groups.any(), "/problem/groups", "a model has one matrix b, and no groups");
    refusals.add_if(epilogue.alpha || epilogue.beta, "/problem/epilogue",
                    "alpha and beta are numbers of a launch, which no request gives; leave them out");
    refusals.add_if(epilogue.quantizes, "/problem/epilogue", "a model gives no quantised result");
  }

  template <class Visitor>
  static void visit_operands(const GemmProblem& problem, Visitor&& operand) {
    const Epilogue epilogue = parse_epilogue(problem.epilogue);
    const bool a_is_transposed = problem.layout == OperandLayout::kTn || problem.layout == OperandLayout::kTt;
    const bool b_is_transposed = problem.layout == OperandLayout::kNn || problem.layout == OperandLayout::kTn;
    using Dims = std::vector<Dimension>;
    operand({"a", problem.dtype.a, a_is_transposed ? Dims{problem.k, "m"} : Dims{"m", problem.k}}, &GemmTensors::a);
    operand({"b", problem.dtype.b, b_is_transposed ? Dims{problem.k, problem.n} : Dims{problem.n, problem.k}},
            &GemmTensors::b);
    const int columns = result_columns(problem);
    if (epilogue.bias) operand({"bias", problem.dtype.c, {problem.n}}, &GemmTensors::bias);
    if (epilogue.c) operand({"c", problem.dtype.c, {"m", columns}}, &GemmTensors::c);
    operand({"d", problem.dtype.d, {"m", columns}, true}, &GemmTensors::d);
  }

  static void set_sizes(GemmTensors& tensors, const Sizes& sizes) { tensors.m = static_cast<int>(sizes.at("m")); }
  static std::uint64_t workspace_bytes(const GemmKernel& kernel, const GemmTensors& tensors) {
    return kernel.workspace_bytes(tensors.m);
  }
};

/// Whether a mask, or one that it joins, reads a tensor of the launch.
bool reads_tensor(const Mask& mask) {
  return mask.kind == MaskKind::kTensor || std::any_of(mask.operands.begin(), mask.operands.end(), reads_tensor);
}

struct AttentionKind {
  using Config = AttentionConfig;
  using Tensors = AttentionTensors;
  using Kernel = AttentionKernel;

  static void refuse(const AttentionProblem& problem, Refusals& refusals) {
    refusals.add_if(problem.q_layout != QLayout::kPadded, "/problem/q_layout", "a model takes padded queries");
    refusals.add_if(problem.kv_layout.kind != KvLayoutKind::kPadded, "/problem/kv_layout", "a model takes padded keys");
    refusals.add_if(problem.v_layout != VLayout::kRows, "/problem/v_layout", "a model takes values in rows");
    refusals.add_if(problem.scales != ScaleKind::kNone, "/problem/scales", "a model takes none");
    refusals.add_if(problem.rope.width > 0, "/problem/rope", "a model takes whole heads");
    refusals.add_if(problem.kv_starts, "/problem/kv_starts", "a model's sequences begin with key 0");
    refusals.add_if(problem.cache_length != CacheLength::kAccurate, "/problem/cache_length",
                    "a model's sequences all have kv_len keys");
    refusals.add_if(reads_tensor(problem.mask), "/problem/mask", "a model takes no mask tensor");
    refusals.add_if(problem.score_mod.kind == ScoreModKind::kTensor, "/problem/score_mod",
                    "a model takes no bias tensor");
  }

  template <class Visitor>
  static void visit_operands(const AttentionProblem& problem, Visitor&& operand) {
    const auto& [q_heads, kv_heads] = problem.heads;
    const auto& [qk, v] = problem.head_dim;
    const AttentionDTypes& dtype = problem.dtype;
    operand({"q", dtype.q, {"batch", "q_len", q_heads, qk}}, &AttentionTensors::q);
    operand({"k", dtype.kv, {"batch", "kv_len", kv_heads, qk}}, &AttentionTensors::k);
    operand({"v", dtype.kv, {"batch", "kv_len", kv_heads, v}}, &AttentionTensors::v);
    if (problem.sinks) operand({"sinks", DType::kF32, {q_heads}}, &AttentionTensors::sinks);
    operand({"o", dtype.out, {"batch", "q_len", q_heads, v}, true}, &AttentionTensors::o);
    if (problem.lse) operand({"lse", DType::kF32, {"batch", q_heads, "q_len"}, true}, &AttentionTensors::lse);
  }

  static void set_sizes(AttentionTensors& tensors, const Sizes& sizes) {
    tensors.batch = static_cast<int>(sizes.at("batch"));
    tensors.q_len = static_cast<int>(sizes.at("q_len"));
    tensors.kv_len = static_cast<int>(sizes.at("kv_len"));
  }
  static std::uint64_t workspace_bytes(const AttentionKernel& kernel, const AttentionTensors& tensors) {
    return kernel.workspace_bytes(kernel.extent(tensors));
  }
};

}  // namespace

std::unique_ptr<Operation> read_operation(const std::string& path) {
  const Config config = read_config_file(path);
  if (const auto* gemm = std::get_if<GemmConfig>(&config)) return std::make_unique<OperationOf<GemmKind>>(*gemm);
  if (const auto* attention = std::get_if<AttentionConfig>(&config))
    return std::make_unique<OperationOf<AttentionKind>>(*attention);
  const char* kind = std::visit([](const auto& each) { return kKindWord<std::decay_t<decltype(each)>>; }, config);
  throw ConfigError("/kind", std::string(kind) + " is no kind of model; gemm and attention are accepted");
}

}  // namespace kernelwright::triton
