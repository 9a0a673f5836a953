/// A PTX module as its text says: the parser writes it, and the decoder reads it. This file knows nothing of what
/// instructions do. Names are views into the module's own text, which the module keeps.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kernelwright::emulator {

/// The size of one register in a warp's register file. b8 registers take 16 bits.
enum class RegisterClass : std::uint8_t { kPredicate, k16, k32, k64, k128 };

enum class StateSpace : std::uint8_t { kGeneric, kParam, kConst, kGlobal, kShared, kLocal };

struct Operand {
  enum class Kind : std::uint8_t {
    kSink,             // _
    kRegister,         // %r1
    kImmediate,        // 42, -1, 0f3F800000
    kVector,           // {%r1, %r2}
    kAddress,          // [%rd1+16], [%rd1, {%r1, %r2}]: elements[0] is the base, the others come after it
    kSymbol,           // a variable with its offset; also a label
    kSpecialRegister,  // %tid.x
  };
  Kind kind = Kind::kSink;
  bool negated = false;         // !%p1, or -%f1 where the grammar allows it
  bool decimal = false;         // spelt 1.5: `immediate` has the bits of the double, until the instruction is read
  bool floating = false;        // the immediate was spelt 0f or 0d: `immediate` has its bits
  int reg = -1;                 // index into Entry::registers
  int paired = -1;              // index of the register after '|' (d|p, also _|p); -1 if there is none or it is _
  std::uint64_t immediate = 0;  // two's complement; the bits of an 0f (32) or 0d (64) constant
  std::int64_t offset = 0;      // bytes; of an address or a symbol
  std::string_view name;        // of a symbol, a special register or a vector that has a name
  std::vector<Operand> elements;
};

/// Where an instruction comes from, according to NVRTC's -lineinfo; for inlined code the innermost place. File -1:
/// unknown.
struct SourceLine {
  int file = -1;  // index into Module::files
  int line = 0;   // 0: the compiler's own code, which has no line
  bool operator==(const SourceLine&) const = default;
};

struct Instruction {
  std::string_view opcode;              // "mbarrier.try_wait.parity.shared::cta.b64"
  std::vector<std::string_view> parts;  // {"mbarrier", "try_wait", "parity", "shared::cta", "b64"}
  int guard = -1;                       // predicate register, or -1
  bool guard_negated = false;           // @!%p
  std::vector<Operand> operands;
  std::vector<int> targets;  // bra: its one target instruction; brx.idx: the table; the indexes are always valid
  int line = 0;              // line in the PTX text, from 1
  SourceLine source;
};

/// A named piece of memory. `offset` is within its space: the entry's parameters, its local memory, or the module's
/// global and constant memory. A shared variable has no fixed offset: each entry has its own layout, which
/// lay_out_shared() makes.
struct Variable {
  StateSpace space = StateSpace::kGeneric;
  std::uint64_t offset = 0, bytes = 0, alignment = 1;
  bool dynamic = false;   // extern .shared x[]: the launch decides its size
  std::string_view type;  // "f32": of a function's parameter that is one element
};

/// What entries and functions have in common.
struct Body {
  std::string_view name;
  int line = 0;         // of the name
  std::string refusal;  // why the body cannot be run; it then has only its name. "": it was read
  int refusal_line = 0;
  std::uint64_t local_bytes = 0;  // for one thread: .local variables, then arguments and results of calls
  std::vector<RegisterClass> registers;
  std::vector<Instruction> instructions;  // the last one never falls through: the parser adds a "ret" if it would
  std::map<std::string_view, Variable> variables;  // declared in the body; no name is the module's or a parameter's
  std::vector<std::string_view> shared;            // the names of shared `variables`, in order
};

/// The results and the parameters of a function, in order: their places in the local memory of its own frame.
struct Signature {
  std::vector<Variable> results, parameters;
};

/// A .func. It runs in a frame of the calling thread's local memory. The frame has the function's .local variables, its
/// parameters and results, and those of the functions that it calls. So ld.param and st.param become ld.local and
/// st.local. A parameter that the text declares as a register is loaded from the frame at the function's beginning.
struct Function : Body {
  Signature signature;
  bool defined = false;           // false: only declared
  bool is_initial_value = false;  // its address stands in a variable of the module
  int alias = -1;                 // the place in Module::functions of the function for which this one is another name
};

/// A function within the instructions of an entry that calls it: see link_functions().
struct LinkedFunction {
  std::string_view name;
  std::uint64_t address = 0;  // function_address() of its place in Module::functions
  int first_instruction = 0, end_instruction = 0;
  int first_register = 0, end_register = 0;
  std::uint64_t frame_bytes = 0, frame_alignment = 1;
  Signature signature;
};

struct Entry : Body {
  std::vector<std::pair<std::string_view, Variable>> parameters;  // in order of declaration
  std::uint64_t parameter_bytes = 0;
  int max_threads = 0;                  // .maxntid or .reqntid, product of all dimensions; 0: not given
  int required_cluster[3] = {0, 0, 0};  // .reqnctapercluster; 0: not given
  int max_registers = 0;                // .maxnreg; 0: not given
  bool explicit_cluster = false;        // .explicitcluster: the launch or the entry must give a cluster
  bool blocks_are_clusters = false;     // .blocksareclusters: the launch's grid counts clusters

  // Only a linked entry has these. The functions lie before the entry's own instructions.
  std::vector<LinkedFunction> functions;
  int start = 0;                  // the entry's first own instruction
  std::uint64_t stack_bytes = 0;  // for one thread: local_bytes, and the frames of functions
};

/// The value of the address of Module::functions[index]. It is the address of no memory.
constexpr std::uint64_t function_address(std::size_t index) { return 16 * (index + 1); }

/// A part of a variable's or a function's address among the initial values: `bytes` of it, from bit `shift` on.
struct InitialAddress {
  std::uint64_t at = 0;       // offset of the value in the module's global image
  std::uint64_t address = 0;  // offset of what it points to; of a function: its address
  bool function = false;
  int shift = 0, bytes = 8;
};

struct Module {
  std::string text;
  std::string version, target;     // "8.8", "sm_90a"
  std::vector<std::string> files;  // from .file, by index; gaps are empty
  std::map<std::string_view, Variable> variables;
  std::vector<std::string_view> shared;   // the names of shared `variables`, in order
  std::vector<std::byte> global_image;    // initial values of .global and .const variables; zero elsewhere
  std::vector<InitialAddress> addresses;  // to write over the image once its place is known
  std::vector<Entry> entries;
  std::vector<Function> functions;
  std::deque<std::string> made_names;  // spellings that the text does not have: see Reader::unique_name

  /// The entry called `name`, or null.
  const Entry* find(std::string_view name) const;
  /// The function called `name`, or for which `name` is an alias; or null.
  const Function* find_function(std::string_view name) const;

  Module() = default;
  Module(const Module&) = delete;  // names are views into `text`
  Module& operator=(const Module&) = delete;
};

}  // namespace kernelwright::emulator
