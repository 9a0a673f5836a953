/// Finds the declaration that a name refers to at its place. The table has the declarations of all scopes that are open
/// while PTX is read; an inner one hides an outer one. A range such as %r<5000> is one entry. Every look-up takes
/// constant time, however many scopes are open.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kernelwright::emulator {

struct Binding {
  enum class Kind : std::uint8_t {
    kRegister,  // `index` is an index into Body::registers
    kVector,    // `count` registers from `index` on
    kVariable,  // an entry's parameter, or a variable
    kFrame,     // a variable of a function's frame, or a .param of a body: an argument or the result of a call
    kFunction,  // an entry or a function
  };
  Kind kind = Kind::kVariable;
  int index = -1;         // of a register: see kRegister; of a function: index into Module::functions; else -1
  std::string_view name;  // under which Body::variables has the variable; empty: the declared name
  int depth = 0;          // depth of the declaring scope; the table sets it
  int count = 1;          // of a vector's registers
};

class SymbolTable {
 public:
  void enter() { starts_.push_back(undo_.size()); }
  /// Removes the declarations since the matching enter().
  void leave();
  int depth() const { return static_cast<int>(starts_.size()); }

  /// Returns false, and declares nothing, if this same scope already has the name.
  bool declare(std::string_view name, Binding binding);
  /// Declares prefix0 … prefix(count-1), as registers from index `first` on.
  bool declare_range(std::string_view prefix, int first, int count);

  /// The innermost declaration. If a range has the name, kind, index and depth are those of the register.
  bool find(std::string_view name, Binding& found) const;

 private:
  struct Range {
    int first = 0, count = 0, depth = 0;
  };
  struct Undo {
    std::string_view name;
    bool range = false, had = false;  // `had`: the name had an outer declaration, which leave() restores
    Binding binding;
    Range outer;
  };
  bool find_in_range(std::string_view prefix, std::string_view digits, Binding& found) const;

  std::unordered_map<std::string_view, Binding> names_;
  std::unordered_map<std::string_view, Range> ranges_;
  bool digit_ended_prefix_ = false;  // rare: %r12 may then be register 2 of %r1<...> or register 12 of %r<...>
  std::vector<Undo> undo_;
  std::vector<std::size_t> starts_;
};

}  // namespace kernelwright::emulator
