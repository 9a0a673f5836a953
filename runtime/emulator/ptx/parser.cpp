// The module: its directives in the order of the PTX ISA's chapter on directives, and an entry up to its body. A state
// machine with few states: each read_x() begins after the directive's name and ends after its last token.
#include "kernelwright/runtime/emulator/ptx/parser.h"

#include <fmt/core.h>

#include <algorithm>

#include "kernelwright/runtime/emulator/ptx/reader.h"

namespace kernelwright::emulator {

const Entry* Module::find(std::string_view name) const {
  const auto at = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.name == name; });
  return at == entries.end() ? nullptr : &*at;
}

const Function* Module::find_function(std::string_view name) const {
  const auto at =
      std::find_if(functions.begin(), functions.end(), [&](const Function& function) { return function.name == name; });
  if (at == functions.end()) return nullptr;
  return at->alias < 0 ? &*at : &functions[static_cast<std::size_t>(at->alias)];
}

std::unique_ptr<Module> parse_ptx(std::string text) {
  if (text.size() > kMaxTextBytes)
    throw PtxError(1, fmt::format("the text has {} bytes, and at most {} are read", text.size(), kMaxTextBytes));
  auto module = std::make_unique<Module>();
  module->text = std::move(text);
  Reader(*module).read();
  return module;
}

void Reader::read() {
  read_preamble();
  for (;;) {
    read_leading_alignment();
    const Token token = lexer_.next();
    if (token.kind == Token::Kind::kEnd) break;
    if (token.is(';')) continue;
    if (token.kind != Token::Kind::kDirective) refuse_token(token, "a directive of the module");
    // These words before a variable, an entry or a function say how it is linked. The emulator links nothing.
    const bool links = token.is(".visible") || token.is(".weak") || token.is(".common");
    const bool external = token.is(".extern");
    if (links || external) read_leading_alignment();
    const Token what = links || external ? lexer_.expect(Token::Kind::kDirective, "what is linked") : token;
    if (what.is(".global")) {
      read_variables(StateSpace::kGlobal, external);
    } else if (what.is(".const")) {
      read_variables(StateSpace::kConst, external);
    } else if (what.is(".shared")) {
      read_variables(StateSpace::kShared, external);
    } else if (what.is(".entry") && !external) {
      read_entry();
    } else if (what.is(".func")) {
      read_function();
    } else if (what.is(".alias")) {
      read_alias();
    } else if (links || external) {
      throw PtxError(what.line, fmt::format("found {} behind {}, which is not modelled", shown(what), token.text));
    } else if (what.is(".file")) {
      read_file();
    } else if (what.is(".loc")) {
      read_location();
    } else if (what.is(".section")) {
      read_section();
    } else if (what.is(".pragma")) {
      read_pragma();
    } else {
      throw PtxError(what.line, fmt::format("the directive {} is not modelled", shown(what)));
    }
  }
  check_files();
  module_.global_image.resize(global_bytes_);
}

void Reader::read_preamble() {
  const auto directive = [&](std::string_view name) {
    if (!lexer_.peek().is(name)) refuse_token(lexer_.peek(), fmt::format("{}", name));
    lexer_.next();
  };
  directive(".version");
  const Token version = lexer_.expect(Token::Kind::kNumber, "a version such as 8.8");
  const bool digits = version.text.find_first_not_of("0123456789.") == std::string_view::npos;
  if (!digits || std::count(version.text.begin(), version.text.end(), '.') != 1)
    refuse_token(version, "a version such as 8.8");
  module_.version = version.text;
  directive(".target");
  const Token target = lexer_.expect(Token::Kind::kWord, "a target such as sm_90a");
  if (target.text.rfind("sm_", 0) != 0) refuse_token(target, "a target such as sm_90a");
  module_.target = target.text;
  while (lexer_.take(',')) {
    const Token option = lexer_.expect(Token::Kind::kWord, "a target option");
    if (option.text != "debug")
      throw PtxError(option.line, fmt::format("the target option {} is not modelled", shown(option)));
  }
  directive(".address_size");
  const Token size = lexer_.peek();
  if (lexer_.integer(64, "an address size") != 64) refuse_token(size, "an address size of 64");
}

void Reader::read_file() {
  const int line = lexer_.peek().line;
  const auto index = static_cast<std::size_t>(lexer_.integer(kMaxFiles, "a file's index"));
  const Token name = lexer_.expect(Token::Kind::kString, "a file's name in quotes");
  if (module_.files.size() <= index) module_.files.resize(index + 1);
  if (!module_.files[index].empty()) throw PtxError(line, fmt::format("file {} is named twice", index));
  module_.files[index] = name.text;
  for (int i = 0; i < 2 && lexer_.take(','); ++i)
    lexer_.integer(~std::uint64_t{0}, i == 0 ? "a file's time stamp" : "a file's size");
}

// .loc file line column [, function_name label [+ offset], inlined_at file line column]
void Reader::read_location() {
  const int text_line = lexer_.peek().line;
  const auto position = [&] {
    const auto file = static_cast<int>(lexer_.integer(kMaxFiles, "a file's index"));
    const auto line = static_cast<int>(lexer_.integer(1 << 30, "a line"));
    lexer_.integer(1 << 30, "a column");
    if (file_lines_.size() <= static_cast<std::size_t>(file)) file_lines_.resize(static_cast<std::size_t>(file) + 1);
    int& first = file_lines_[static_cast<std::size_t>(file)];
    if (first == 0) first = text_line;
    return SourceLine{file, line};
  };
  source_ = position();
  if (!lexer_.take(',')) return;
  const auto attribute = [&](std::string_view name) {
    const Token word = lexer_.expect(Token::Kind::kWord, name);
    if (word.text != name) refuse_token(word, name);
  };
  attribute("function_name");
  lexer_.expect(Token::Kind::kWord, "a label of .debug_str");
  if (lexer_.take('+')) lexer_.integer(1 << 30, "an offset into .debug_str");
  lexer_.expect(',', "before inlined_at");
  attribute("inlined_at");
  position();
}

// .file directives follow the entries, so a .loc can be checked against them only at the end.
void Reader::check_files() const {
  for (std::size_t file = 0; file < file_lines_.size(); ++file) {
    const bool named = file < module_.files.size() && !module_.files[file].empty();
    if (file_lines_[file] != 0 && !named)
      throw PtxError(file_lines_[file], fmt::format("this .loc is in file {}, which no .file names", file));
  }
}

// Debug data: names to which .loc refers. It is read but not kept.
void Reader::read_section() {
  lexer_.expect(Token::Kind::kDirective, "a section's name");
  lexer_.expect('{', "before a section's data");
  const auto item = [&] {
    if (lexer_.peek().kind == Token::Kind::kDirective) {
      lexer_.next();  // the address of another section
    } else if (lexer_.peek().kind == Token::Kind::kWord) {
      lexer_.next();
    } else {
      lexer_.take('-');
      lexer_.integer(~std::uint64_t{0}, "a number or a label");
    }
  };
  while (!lexer_.take('}')) {
    const Token token = lexer_.next();
    if (token.kind == Token::Kind::kWord) {
      lexer_.expect(':', "behind a label");
      continue;
    }
    if (!token.is(".b8") && !token.is(".b16") && !token.is(".b32") && !token.is(".b64"))
      refuse_token(token, "a label, .b8, .b16, .b32, .b64 or the section's '}'");
    do {
      item();
      while (lexer_.peek().is('+') || lexer_.peek().is('-')) {
        lexer_.next();
        item();
      }
    } while (lexer_.take(','));
  }
}

void Reader::read_pragma() {
  // Hints to ptxas. Other pragmas might have a meaning, and are refused.
  static constexpr std::string_view kHints[] = {"nounroll", "used_bytes_mask", "enable_smem_spilling", "frequency"};
  do {
    const Token pragma = lexer_.expect(Token::Kind::kString, "a pragma in quotes");
    const std::string_view word = pragma.text.substr(0, pragma.text.find(' '));
    if (std::find(std::begin(kHints), std::end(kHints), word) == std::end(kHints))
      throw PtxError(pragma.line, fmt::format("the pragma {} is not modelled", shown(pragma)));
  } while (lexer_.take(','));
  lexer_.expect(';', "behind .pragma");
}

// An error in one entry does not affect launches of another entry.
void Reader::read_entry() {
  const Token name = lexer_.expect(Token::Kind::kWord, "an entry's name");
  declare(name, {Binding::Kind::kFunction});
  const Lexer behind_name = lexer_;
  const int depth = symbols_.depth();
  Entry& entry = module_.entries.emplace_back();
  body_ = &entry;
  try {
    read_definition(entry, name);
  } catch (const PtxError& error) {
    lexer_ = behind_name;
    try {
      lexer_.skip_definition();
    } catch (const PtxError&) {
      throw error;  // the start of the next entry is unknown
    }
    entry = {};
    entry.refusal = error.message();
    entry.refusal_line = error.line();
  }
  while (symbols_.depth() > depth) symbols_.leave();
  entry.name = name.text;
  entry.line = name.line;
  source_ = {};
  body_ = nullptr;
}

void Reader::read_definition(Entry& entry, const Token& name) {
  entry.name = name.text;
  symbols_.enter();
  if (lexer_.peek().is('(')) read_parameters(entry);
  read_performance_directives(entry);
  read_body();
}

void Reader::read_parameters(Entry& entry) {
  lexer_.expect('(', "before an entry's parameters");
  if (lexer_.take(')')) return;
  do {
    read_leading_alignment();
    const Token space = lexer_.expect(Token::Kind::kDirective, ".param");
    if (!space.is(".param")) refuse_token(space, ".param");
    const Declaration declaration = read_declaration(/*parameter=*/true);
    const Token name = lexer_.expect(Token::Kind::kWord, "a parameter's name");
    bool open = false;
    std::uint64_t bytes = declaration.element_bytes() * static_cast<std::uint64_t>(declaration.vector);
    for (const std::uint64_t count : read_dimensions(open)) bytes *= count;
    if (open) throw PtxError(name.line, fmt::format("the parameter {} has no size", shown(name)));
    Variable variable{StateSpace::kParam, 0, bytes, declaration.alignment};
    place(variable, entry.parameter_bytes, kMaxParameterBytes, name);
    entry.parameters.emplace_back(name.text, variable);
    declare(name, {Binding::Kind::kVariable});
  } while (lexer_.take(','));
  lexer_.expect(')', "behind an entry's parameters");
}

void Reader::read_performance_directives(Entry& entry) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 31;
  while (!lexer_.peek().is('{')) {
    if (lexer_.peek().kind != Token::Kind::kDirective) refuse_token(lexer_.peek(), "the entry's body in braces");
    const Token directive = lexer_.next();
    const auto triple = [&](std::uint64_t(&sizes)[3]) {
      for (int i = 0; i < 3; ++i) {
        sizes[i] = i == 0 || lexer_.take(',') ? lexer_.integer(kMost, "a size") : 1;
        if (sizes[i] == 0) throw PtxError(directive.line, fmt::format("{} of size 0", directive.text));
      }
    };
    if (directive.is(".maxntid") || directive.is(".reqntid")) {
      std::uint64_t sizes[3];
      triple(sizes);
      if (sizes[0] > 1024 || sizes[1] > 1024 || sizes[2] > 1024 || sizes[0] * sizes[1] * sizes[2] > 1024)
        throw PtxError(directive.line, fmt::format("{} of {} x {} x {} threads; a CTA has 1024 at most", directive.text,
                                                   sizes[0], sizes[1], sizes[2]));
      entry.max_threads = static_cast<int>(sizes[0] * sizes[1] * sizes[2]);
    } else if (directive.is(".reqnctapercluster")) {
      std::uint64_t sizes[3];
      triple(sizes);
      for (int i = 0; i < 3; ++i) {
        if (sizes[i] > 1024) throw PtxError(directive.line, fmt::format("a cluster of {} CTAs", sizes[i]));
        entry.required_cluster[i] = static_cast<int>(sizes[i]);
      }
    } else if (directive.is(".maxnreg")) {
      entry.max_registers = static_cast<int>(lexer_.integer(1024, "a number of registers"));
    } else if (directive.is(".minnctapersm") || directive.is(".maxnctapersm") || directive.is(".maxclusterrank")) {
      lexer_.integer(kMost, "a number of CTAs");  // says how to compile, not what happens
    } else if (directive.is(".explicitcluster")) {
      entry.explicit_cluster = true;
    } else if (directive.is(".blocksareclusters")) {
      entry.blocks_are_clusters = true;
    } else if (directive.is(".pragma")) {
      read_pragma();
    } else {
      throw PtxError(directive.line,
                     fmt::format("the directive {} before an entry's body is not modelled", shown(directive)));
    }
  }
}

}  // namespace kernelwright::emulator
