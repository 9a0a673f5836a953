/// Shared by the parts of the parser: only parser.cpp, functions.cpp, calls.cpp, variables.cpp, body.cpp and
/// operands.cpp include it. One Reader reads one text, once.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernelwright/runtime/emulator/ptx/lexer.h"
#include "kernelwright/runtime/emulator/ptx/module.h"
#include "kernelwright/runtime/emulator/ptx/symbols.h"

namespace kernelwright::emulator {

/// Limits on what a text may ask for. Each is far above what a GPU has or a compiler emits. Each is low enough that a
/// hostile text of a few bytes cannot use up the machine's memory.
inline constexpr int kMaxNesting = 64;
inline constexpr std::uint64_t kMaxRegisters = 1'000'000;      // in the whole module
inline constexpr std::uint64_t kMaxBranchTargets = 1'000'000;  // of all brx.idx of a body together
inline constexpr std::size_t kMaxFormals = 1024;               // parameters or results of a function
inline constexpr std::uint64_t kMaxParameterBytes = 32764;     // PTX ISA, kernel function parameters, sm_70+
inline constexpr std::uint64_t kMaxSharedBytes = std::uint64_t{1} << 24;
inline constexpr std::uint64_t kMaxLocalBytes = std::uint64_t{1} << 24;  // 512 KiB on every GPU so far
inline constexpr std::uint64_t kMaxGlobalBytes = std::uint64_t{1} << 26;
inline constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 16;
inline constexpr int kMaxFiles = 1 << 16;
inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 28;

/// The parts of a fundamental type that concern its bits.
struct Type {
  std::string_view name;  // "f32"
  int bits = 0;           // 1 for pred
  bool floating = false;
};

class Reader {
 public:
  explicit Reader(Module& module) : module_(module), lexer_(module.text) {}
  void read();

 private:
  // parser.cpp: the module, and what comes before a body.
  void read_preamble();
  void read_file();
  void read_section();
  void read_location();
  void read_pragma();
  void read_entry();
  void read_definition(Entry& entry, const Token& name);
  void read_parameters(Entry& entry);
  void read_performance_directives(Entry& entry);
  void check_files() const;

  // functions.cpp, calls.cpp: functions, their parameters, and calls.
  void read_function();
  void read_function_definition(Function& function);
  int declare_function(const Token& name);
  void skip_parentheses();
  void read_formals(std::vector<Variable>& formals, bool results);
  Variable read_formal(bool result);
  void read_prototype(const Token& name);
  void read_call(Instruction& call);
  std::vector<Operand> read_actuals();
  const Signature* signature_of_call(const Instruction& call);
  void read_alias();
  void read_call_targets(const Token& name);
  void add_prototype(const Token& name, Signature signature);
  Operand pass(Operand actual, const Variable& formal, const Instruction& call, bool result);
  static void round_actual(Operand& number, const Variable& formal, const Instruction& call);
  Operand new_frame_variable(std::uint64_t bytes, std::uint64_t alignment, const Token& name);
  std::string_view unique_name(std::string_view text);
  Instruction move_to_frame(const Operand& variable, std::uint64_t bytes, const Operand& value, const Instruction& at);
  Instruction move_from_frame(const Operand& variable, std::uint64_t bytes, const Operand& to, const Instruction& at);
  void store_results(const Instruction& at);
  void read_frame_variable();
  void use_frame(Instruction& instruction);

  // variables.cpp: declarations.
  struct Declaration {  // what comes between the state space and the name
    Type type;
    int vector = 1;
    std::uint64_t alignment = 0;  // at least the type's own
    std::uint64_t element_bytes() const { return static_cast<std::uint64_t>(type.bits / 8); }
  };
  void read_leading_alignment();
  std::uint64_t read_alignment();
  Declaration read_declaration(bool parameter);
  std::vector<std::uint64_t> read_dimensions(bool& open);
  void read_variables(StateSpace space, bool external);
  void read_variable(StateSpace space, bool external, const Declaration& declaration);
  void read_initialiser(const Declaration& declaration, const std::vector<std::uint64_t>& dimensions, std::size_t level,
                        std::vector<std::byte>& bytes);
  void read_element(const Type& type, std::vector<std::byte>& bytes);
  void read_variable_address(const Type& type, const Token& first, std::vector<std::byte>& bytes);
  void add_initial_address(const Type& type, const Token& first, const InitialAddress& value, bool masked,
                           std::vector<std::byte>& bytes);
  void place(Variable& variable, std::uint64_t& end, std::uint64_t limit, const Token& name);
  void declare(const Token& name, Binding binding);

  // body.cpp: an entry's statements, its labels and branches.
  struct Label {
    int instruction = 0;
    int table = -1;  // for .branchtargets: index into tables_
  };
  struct ScopedName {
    int scope = 0;
    std::string_view name;
    bool operator==(const ScopedName&) const = default;
  };
  struct ScopedNameHash {
    std::size_t operator()(const ScopedName& key) const {
      return std::hash<std::string_view>()(key.name) ^ (static_cast<std::size_t>(key.scope) * 0x9E3779B97F4A7C15u);
    }
  };
  struct Jump {  // a branch whose labels are not known yet
    std::size_t instruction = 0;
    int scope = 0;
    std::string_view name;
    bool indexed = false;
    int line = 0;
  };
  struct BranchTable {
    int scope = 0;
    std::vector<Token> labels;
  };
  void read_body();
  void open_scope(const Token& brace);
  void close_scope();
  void read_body_directive();
  void read_registers();
  void read_label(const Token& name);
  void read_instruction();
  void emit(Instruction instruction);
  const Label* find_label(int scope, std::string_view name) const;
  void resolve_jumps();
  void end_with_return(int line);

  // operands.cpp.
  Operand read_operand();
  Operand read_scalar();
  Operand read_component(const Token& word) const;
  static void round_decimals(const Instruction& instruction, std::span<Operand> operands);
  Operand read_named(const Token& word);
  Operand read_vector();
  Operand read_address();
  std::int64_t read_offset();
  Token read_label_operand(Instruction& instruction);
  void expect_predicate(const Operand& operand, const Token& at) const;

  Module& module_;
  Lexer lexer_;
  SymbolTable symbols_;
  Body* body_ = nullptr;          // the entry or function whose header or body is being read
  Function* function_ = nullptr;  // the same, if it is a function
  SourceLine source_;
  std::vector<int> file_lines_;          // by file: the first line of the text whose .loc names it, or 0
  std::uint64_t leading_alignment_ = 0;  // for the next declaration; 0: none was given
  std::uint64_t global_bytes_ = 0;
  std::vector<InitialAddress> addresses_;  // of the variable whose initial values are being read
  std::uint64_t registers_ = 0;            // in all bodies so far

  // The state of the body that is being read.
  std::vector<int> open_;     // scopes, outermost first
  std::vector<int> parents_;  // by scope
  std::unordered_map<ScopedName, Label, ScopedNameHash> labels_;
  std::vector<Jump> jumps_;
  std::vector<BranchTable> tables_;
  bool names_frame_ = false;  // the current instruction names a variable of the frame
  std::unordered_map<ScopedName, Signature, ScopedNameHash> prototypes_;
  struct RegisterFormal {  // a parameter or result of the function that the text declares as a register
    int reg = 0;
    Operand place;
    std::uint64_t bytes = 0;
  };
  std::vector<RegisterFormal> register_parameters_, register_results_;
};

/// The type that a directive such as ".f32" names, or a type without bits.
Type type_of(std::string_view directive);

}  // namespace kernelwright::emulator
