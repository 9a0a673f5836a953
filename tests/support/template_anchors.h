/// Names for places in the templates, and changes made there. A deliberate mistake of a test stands at an anchor: a
/// function (or type) of the templates and names that one statement in it has. An anchor survives a new format, a
/// renamed argument and code that moves; it fails where its statement is gone or is no longer the only one.
///
///   drop("Cleaner::clean", "values_landed")                      the one statement of clean() that names the barrier
///   change("init_barriers", "factor_full", "kRoleWarps", "3")    of that statement: the expression becomes 3
///   drop("merge", "__syncthreads #2")                            the second of several
///
/// A statement is what ends with `;`, without the `if (..)`, `else` or `for (..)` ahead of it: those are statements of
/// their own, as is what stands before a block. So a statement that is dropped leaves an empty one.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kernelwright::test {

/// One change at an anchor.
struct TemplateEdit {
  enum class What { kDrop, kChange, kReplace, kBefore, kAfter };
  What what;
  std::string scope;  // "function", "Class::function", "Class"; "" is outside of all of them
  std::string names;  // identifiers in the statement, separated by blanks; "#n" at the end takes the n-th of several
  std::string from;   // kChange: an expression that the statement has once
  std::string text;   // what stands there instead, or besides
};

/// The statement goes.
inline TemplateEdit drop(std::string scope, std::string names) {
  return {TemplateEdit::What::kDrop, std::move(scope), std::move(names), {}, {}};
}
/// An expression of the statement becomes `to`.
inline TemplateEdit change(std::string scope, std::string names, std::string from, std::string to) {
  return {TemplateEdit::What::kChange, std::move(scope), std::move(names), std::move(from), std::move(to)};
}
/// The statement becomes `text`.
inline TemplateEdit replace(std::string scope, std::string names, std::string text) {
  return {TemplateEdit::What::kReplace, std::move(scope), std::move(names), {}, std::move(text)};
}
/// `text` stands before the statement, or behind it.
inline TemplateEdit before(std::string scope, std::string names, std::string text) {
  return {TemplateEdit::What::kBefore, std::move(scope), std::move(names), {}, std::move(text)};
}
inline TemplateEdit after(std::string scope, std::string names, std::string text) {
  return {TemplateEdit::What::kAfter, std::move(scope), std::move(names), {}, std::move(text)};
}

/// A template cut into tokens, named scopes and statements. No C++ parser: it knows what the templates are written in.
class TemplateText {
 public:
  struct Span {
    std::size_t begin, end;  // of the text
  };

  explicit TemplateText(std::string_view text) : text_(text) {
    lex();
    match_brackets();
    find_blocks();
    find_scopes();
    find_statements();
  }

  /// Statements within `scope` that have all of `names`.
  std::vector<Span> find(std::string_view scope, const std::vector<std::string>& names) const {
    const std::vector<std::string> wanted = split(scope, "::");
    std::vector<Span> found;
    for (const Statement& statement : statements_) {
      const auto has = [&](const std::string& name) {
        return std::any_of(tokens_.begin() + statement.begin, tokens_.begin() + statement.end,
                           [&](const Token& token) { return token.text == name; });
      };
      if (std::all_of(names.begin(), names.end(), has) && is_within(statement, wanted))
        found.push_back({tokens_[statement.begin].at, end_of(statement.end - 1)});
    }
    return found;
  }

  /// Where `expression` stands between `span`'s ends, token by token.
  std::vector<Span> find_expression(Span span, std::string_view expression) const {
    const TemplateText wanted(expression, Tokens{});
    std::vector<Span> found;
    for (int i = 0; i + wanted.size() <= size(); ++i) {
      const auto same = [](const Token& a, const Token& b) { return a.text == b.text; };
      if (tokens_[i].at >= span.begin && end_of(i + wanted.size() - 1) <= span.end &&
          std::equal(wanted.tokens_.begin(), wanted.tokens_.end(), tokens_.begin() + i, same))
        found.push_back({tokens_[i].at, end_of(i + wanted.size() - 1)});
    }
    return found;
  }

  /// The words, literals and signs of a text, without comments and lines of the preprocessor.
  static std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    for (const Token& token : TemplateText(text, Tokens{}).tokens_) words.push_back(token.text);
    return words;
  }

  static std::vector<std::string> split(std::string_view text, std::string_view by) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find(by, at), text.size());
      if (end > at) parts.emplace_back(text.substr(at, end - at));
      at = end + by.size();
    }
    return parts;
  }

 private:
  struct Token {
    std::string_view text;
    std::size_t at;
  };
  struct Scope {
    std::string_view name;
    int begin, end;  // tokens, both its own
  };
  struct Statement {
    int begin, end;  // tokens, the last one excluded
  };
  struct Tokens {};
  TemplateText(std::string_view text, Tokens) : text_(text) { lex(); }

  int size() const { return static_cast<int>(tokens_.size()); }
  std::size_t end_of(int i) const { return tokens_[i].at + tokens_[i].text.size(); }
  std::string_view at(int i) const { return i >= 0 && i < size() ? tokens_[i].text : std::string_view(); }
  bool is_one_of(int i, std::initializer_list<std::string_view> texts) const {
    return std::find(texts.begin(), texts.end(), at(i)) != texts.end();
  }
  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  bool is_name(int i) const {
    return !at(i).empty() && is_word(at(i)[0]) && !std::isdigit(static_cast<unsigned char>(at(i)[0]));
  }

  /// Words, literals and single signs; neither comments nor lines of the preprocessor.
  void lex() {
    for (std::size_t i = 0; i < text_.size();) {
      std::size_t end = i + 1;
      if (std::isspace(static_cast<unsigned char>(text_[i]))) {
        i = end;
        continue;
      }
      if (text_.substr(i, 2) == "//" || text_[i] == '#') {
        i = std::min(text_.find('\n', i), text_.size());
        while (i < text_.size() && text_[i - 1] == '\\') i = std::min(text_.find('\n', i + 1), text_.size());
        continue;
      }
      if (text_[i] == '"' || text_[i] == '\'') {
        while (end < text_.size() && text_[end] != text_[i]) end += text_[end] == '\\' ? 2 : 1;
        ++end;
      } else {
        while (is_word(text_[i]) && end < text_.size() && is_word(text_[end])) ++end;
      }
      tokens_.push_back({text_.substr(i, end - i), i});
      i = end;
    }
  }

  void match_brackets() {
    std::vector<int> open;
    partner_.assign(tokens_.size(), -1);
    around_.assign(tokens_.size(), -1);
    for (int i = 0; i < size(); ++i) {
      if (is_one_of(i, {")", "]", "}"}) && !open.empty()) {
        partner_[i] = open.back();
        partner_[open.back()] = i;
        open.pop_back();
      }
      around_[i] = open.empty() ? -1 : open.back();
      if (is_one_of(i, {"(", "[", "{"})) open.push_back(i);
    }
  }

  /// Braces round statements, which those of a list of values are not.
  void find_blocks() {
    is_block_.assign(tokens_.size(), false);
    for (int i = 0; i < size(); ++i) {
      if (at(i) == ";" && at(around_[i]) == "{") is_block_[around_[i]] = true;
      if (at(i) == "{" && is_one_of(i - 1, {")", "else", "do", "}", ";"})) is_block_[i] = true;
      if (at(i) == "{" && at(i - 1) == "{" && is_block_[i - 1]) is_block_[i] = true;
      if (at(i) == "extern" && at(i + 2) == "{") is_block_[i + 2] = true;
    }
  }

  void find_scopes() {
    for (int i = 0; i < size(); ++i) {
      if (is_one_of(i, {"class", "struct", "namespace"}) && !is_one_of(i - 1, {"<", ","})) {
        int brace = i + 1;
        while (brace < size() && !is_one_of(brace, {"{", ";", "(", "=", ")"})) ++brace;
        if (at(brace) != "{") continue;
        is_block_[brace] = true;
        if (at(i) != "namespace" && is_name(i + 1)) scopes_.push_back({at(i + 1), i, partner_[brace]});
      } else if (const int brace = body_of_function(i); brace >= 0) {
        is_block_[brace] = true;
        const bool is_call_operator = at(i) == "operator" && at(i + 1) == "(";
        scopes_.push_back({is_call_operator ? "operator()" : at(i), i, partner_[brace]});
      }
    }
    for (Scope& scope : scopes_)
      while (scope.begin > 0 && !ends_statement(scope.begin - 1)) --scope.begin;
  }
  /// The brace of the function that token i names where it is defined, or -1.
  int body_of_function(int i) const {
    int at_end = i + 1;
    if (at(i) == "operator" && at(i + 1) == "(" && at(i + 3) == "(") {
      at_end = i + 3;
    } else if (!is_name(i) || at(i + 1) != "(" || is_one_of(i, {"if", "for", "while", "switch", "return"}) ||
               at(i - 1) == "," || (at(i - 1) == ":" && at(i - 2) != ":")) {
      return -1;
    }
    if (partner_[at_end] < 0) return -1;
    at_end = partner_[at_end] + 1;
    while (is_one_of(at_end, {"const", "noexcept", "override"})) ++at_end;
    if (at(at_end) == "-" && at(at_end + 1) == ">")
      while (at_end < size() && !is_one_of(at_end, {"{", ";"})) ++at_end;
    if (at(at_end) == ":" && at(at_end + 1) != ":") {  // of a constructor: name(..) or name{..}, with commas between
      do {
        ++at_end;
        while (at_end < size() && !is_one_of(at_end, {"(", "{", ";"})) ++at_end;
        if (at_end >= size() || partner_[at_end] < 0) return -1;
        at_end = partner_[at_end] + 1;
      } while (at(at_end) == ",");
    }
    return at(at_end) == "{" ? at_end : -1;
  }

  bool ends_statement(int i) const {
    if (at(i) == ";") return around_[i] < 0 || (at(around_[i]) == "{" && is_block_[around_[i]]);
    if (at(i) == "{") return is_block_[i];
    if (at(i) == "}") return partner_[i] >= 0 && is_block_[partner_[i]];
    return at(i) == ":" && is_one_of(i - 1, {"public", "private", "protected"});
  }
  void find_statements() {
    int begin = 0;
    for (int i = 0; i < size(); ++i) {
      if (!ends_statement(i)) continue;
      add_statement(begin, at(i) == ";" ? i + 1 : i);
      begin = i + 1;
    }
  }
  void add_statement(int begin, int end) {
    while (begin < end) {
      int head = begin;
      if (is_one_of(begin, {"if", "for", "while", "switch"})) {
        const int open = begin + (at(begin + 1) == "constexpr" ? 2 : 1);
        head = partner_[open] + 1;
      } else if (is_one_of(begin, {"else", "do"})) {
        head = begin + 1;
      }
      if (head == begin || head >= end) break;
      statements_.push_back({begin, head});
      begin = head;
    }
    if (begin < end && !(end - begin == 1 && at(begin) == ";")) statements_.push_back({begin, end});
  }

  /// Whether the scopes round the statement, from outside in, have those of `wanted` next to each other.
  bool is_within(const Statement& statement, const std::vector<std::string>& wanted) const {
    std::vector<const Scope*> scopes;
    for (const Scope& scope : scopes_)
      if (scope.begin <= statement.begin && statement.end - 1 <= scope.end) scopes.push_back(&scope);
    if (wanted.empty()) return scopes.empty();
    std::stable_sort(scopes.begin(), scopes.end(), [](const Scope* a, const Scope* b) { return a->end > b->end; });
    const auto same = [](const Scope* scope, const std::string& name) { return scope->name == name; };
    return std::search(scopes.begin(), scopes.end(), wanted.begin(), wanted.end(), same) != scopes.end();
  }

  std::string_view text_;
  std::vector<Token> tokens_;
  std::vector<int> partner_, around_;  // of a bracket, the other one; round a token, the nearest one that opens
  std::vector<bool> is_block_;
  std::vector<Scope> scopes_;
  std::vector<Statement> statements_;
};

/// What an edit does to a text: [begin, end) becomes `text`.
struct PlacedEdit {
  std::size_t file, begin, end;
  std::string text;
};

/// Where `edit` takes effect among `files`: one place, or none or several, which prove nothing.
inline std::vector<PlacedEdit> places_of(const TemplateEdit& edit, const std::vector<std::string_view>& files) {
  using What = TemplateEdit::What;
  std::vector<std::string> names = TemplateText::split(edit.names, " ");
  std::size_t nth = 0;  // 0: the only one
  if (!names.empty() && names.back()[0] == '#') {
    nth = std::stoul(names.back().substr(1));
    names.pop_back();
  }
  std::vector<PlacedEdit> places;
  std::size_t count = 0;
  for (std::size_t file = 0; file < files.size(); ++file) {
    const TemplateText parsed(files[file]);
    for (const TemplateText::Span& span : parsed.find(edit.scope, names)) {
      if (++count != nth && nth != 0) continue;
      if (edit.what == What::kChange) {
        for (const TemplateText::Span& part : parsed.find_expression(span, edit.from))
          places.push_back({file, part.begin, part.end, edit.text});
      } else {
        const std::size_t begin = edit.what == What::kAfter ? span.end : span.begin;
        const std::size_t end = edit.what == What::kBefore ? span.begin : span.end;
        places.push_back({file, begin, end, edit.what == What::kDrop ? ";" : " " + edit.text + " "});
      }
    }
  }
  return places;
}

}  // namespace kernelwright::test
