#include "cli/command_manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "cli/exit_code.h"
#include "cli/number_options.h"
#include "kernelwright/generator/problem/arch.h"

namespace kernelwright::cli {
namespace {

/// How an option's value is completed.
enum class Values { kNone, kWords, kFiles, kFolders };

/// One option or positional of a verb.
struct Entry {
  std::vector<std::string> names;  // "-h", "--help"; empty for a positional
  std::string positional, type, text;
  std::vector<std::string> words;  // its possible values, if there are few
  bool takes_value = false, required = false, repeats = false;
  Values values = Values::kNone;
};

struct VerbTable {
  std::string name, text;
  std::vector<Entry> options, positionals;
};

std::vector<std::string> verb_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands({})) names.push_back(verb->get_name());
  return names;
}

/// The words of CLI::IsMember, with which a type's name ends: "TEXT:{cuda,emulator,auto}".
std::vector<std::string> member_words(const std::string& type) {
  std::vector<std::string> words;
  const std::size_t begin = type.find('{'), end = type.rfind('}');
  if (begin == type.npos || end == type.npos) return words;
  std::string word;
  for (std::size_t i = begin + 1; i <= end; ++i) {
    if (i < end && type[i] != ',') {
      word += type[i];
      continue;
    }
    words.push_back(std::move(word));
    word.clear();
  }
  return words;
}

Entry entry_of(const CLI::Option& option, const CLI::App& app) {
  Entry entry;
  for (const std::string& name : option.get_snames()) entry.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) entry.names.push_back("--" + name);
  if (entry.names.empty()) entry.positional = option.get_name();
  entry.text = option.get_description();
  entry.takes_value = option.get_items_expected_max() > 0;
  entry.required = option.get_required();
  entry.repeats = entry.takes_value && option.get_items_expected_max() > 1;
  if (!entry.takes_value) return entry;
  const std::string full = option.get_type_name();
  entry.type = full.substr(0, full.find(':'));
  entry.words = member_words(full);
  if (entry.type == "ARCH")
    for (const ArchInfo& row : all_archs()) entry.words.emplace_back(row.name);
  if (entry.type == "VERB") entry.words = verb_names(app);
  entry.values = !entry.words.empty()   ? Values::kWords
                 : entry.type == "FILE" ? Values::kFiles
                 : entry.type == "DIR"  ? Values::kFolders
                                        : Values::kNone;
  if (!entry.words.empty() && entry.type == "TEXT") entry.type = "WORD";
  return entry;
}

VerbTable table_of(const CLI::App& verb, const CLI::App& app) {
  VerbTable table{verb.get_name(), verb.get_description(), {}, {}};
  for (const CLI::Option* option : verb.get_options({})) {
    Entry entry = entry_of(*option, app);
    (entry.positional.empty() ? table.options : table.positionals).push_back(std::move(entry));
  }
  return table;
}

std::vector<VerbTable> tables_of(const CLI::App& app) {
  std::vector<VerbTable> tables;
  for (const CLI::App* verb : app.get_subcommands({})) tables.push_back(table_of(*verb, app));
  return tables;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

// --- the manual page ---

/// Text escaped so that troff prints it unchanged.
std::string roff(const std::string& text) {
  std::string safe = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
  if (safe.starts_with('.') || safe.starts_with('\'')) safe = "\\&" + safe;
  return safe;
}

std::string synopsis(const VerbTable& verb) {
  std::string line = ".B kernelwright " + verb.name + "\n[\\fIoptions\\fR]";
  for (const Entry& entry : verb.positionals)
    line += fmt::format(" {}\\fI{}\\fR{}{}", entry.required ? "" : "[", roff(entry.positional),
                        entry.repeats ? " ..." : "", entry.required ? "" : "]");
  return line + "\n";
}

std::string roff_entry(const Entry& entry) {
  std::string heads;
  for (const std::string& name : entry.names)
    heads += fmt::format("{}\\fB{}\\fR", heads.empty() ? "" : ", ", roff(name));
  if (entry.names.empty()) heads = fmt::format("\\fI{}\\fR", roff(entry.positional));
  if (entry.takes_value && !entry.names.empty())
    heads += fmt::format(" \\fI{}\\fR", roff(entry.words.empty() || entry.type != "WORD"
                                                 ? entry.type
                                                 : fmt::format("{}", fmt::join(entry.words, "|"))));
  return fmt::format(".TP\n{}\n{}\n", heads, roff(entry.text));
}

struct Variable {
  const char *name, *text;
};
constexpr Variable kVariables[] = {
    {"KERNELWRIGHT_CACHE_DIR",
     "Where compiled kernels are kept; else $XDG_CACHE_HOME/kernelwright, else "
     "$HOME/.cache/kernelwright."},
    {"KERNELWRIGHT_TUNED_DIR", "Tuned rows that lie over the library's, as --tuned-dir."},
    {"KERNELWRIGHT_REMOTE", "A server that hosts share, as --remote; it may have a user and a password."},
    {"KERNELWRIGHT_REMOTE_KEYS", "As --remote-key: files, which a colon separates."},
    {"KERNELWRIGHT_REMOTE_SIGNING_KEY", "As --remote-signing-key."},
    {"KERNELWRIGHT_REMOTE_CA", "As --remote-ca."},
    {"KERNELWRIGHT_REMOTE_CERTIFICATE", "As --remote-certificate."},
    {"KERNELWRIGHT_REMOTE_CERTIFICATE_KEY", "As --remote-certificate-key."},
    {"KERNELWRIGHT_CURL", "The library, libcurl, that speaks HTTP with a remote cache."},
    {"KERNELWRIGHT_NVRTC", "The compiler library, libnvrtc, to use."},
    {"KERNELWRIGHT_COMPILE_IN",
     "Where that library runs: process (by default), workers (processes of their own), or auto (workers, else this "
     "process)."},
    {"KERNELWRIGHT_CC", "The worker program, kernelwright-cc; else it is looked for beside the command."},
    {"KERNELWRIGHT_LIBCUDA", "The driver library, libcuda, to use."},
    {"CUDA_HOME", "A CUDA toolkit, whose NVRTC and nvdisasm are used."},
    {"NO_COLOR", "Not empty: no colours on a terminal."},
};

}  // namespace

std::string manual_page(const CLI::App& app, const std::string& version) {
  std::string page = fmt::format(
      ".\\\" Made from the command's option table; see cli/command_manual.cpp.\n"
      ".TH KERNELWRIGHT 1 \"\" \"{}\" \"User Commands\"\n"
      ".SH NAME\nkernelwright \\- JSON problems to specialised GPU kernels, proven right\n"
      ".SH SYNOPSIS\n.B kernelwright\n\\fIVERB\\fR [\\fIoptions\\fR] [\\fICONFIG\\fR ...]\n"
      ".SH DESCRIPTION\n{}\n.PP\nCONFIG is a JSON file, or a folder of them.\n.SH VERBS\n",
      version, roff(app.get_description()));
  for (const VerbTable& verb : tables_of(app)) {
    page += fmt::format(".SS {}\n{}.PP\n{}.\n", verb.name, synopsis(verb), roff(verb.text));
    for (const Entry& entry : verb.positionals) page += roff_entry(entry);
    for (const Entry& entry : verb.options) page += roff_entry(entry);
  }
  page += ".SH EXIT STATUS\n";
  for (const ExitCodeText& row : kExitCodes)
    page += fmt::format(".TP\n{}\n{}\n", static_cast<int>(row.code), roff(row.text));
  page += ".SH ENVIRONMENT\n";
  for (const Variable& variable : kVariables)
    page += fmt::format(".TP\n.B {}\n{}\n", variable.name, roff(variable.text));
  return page;
}

namespace {

// --- bash ---

constexpr const char* kBashHead =
    R"(# bash completion of kernelwright, made from its option table: source it, or install it where bash-completion looks.
_kernelwright() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" verb='' first='' words='' files='' i
  # bash splits --name=value at the sign.
  if [[ $current == = ]]; then current=''
  elif [[ $previous == = ]]; then previous="${COMP_WORDS[COMP_CWORD-2]}"
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ ${COMP_WORDS[i]} == -* ]] && continue
    verb="${COMP_WORDS[i]}"
    first="${COMP_WORDS[i+1]}"
    break
  done
  (( i + 1 < COMP_CWORD )) || first=''
)";
constexpr const char* kBashTail = R"(  if [[ -n $files ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen "$files" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  fi
}
complete -F _kernelwright kernelwright
)";

std::string bash_values(const Entry& entry) {
  switch (entry.values) {
    case Values::kWords: return fmt::format("words='{}'", fmt::join(entry.words, " "));
    case Values::kFiles: return "files=-f";
    case Values::kFolders: return "files=-d";
    case Values::kNone: break;
  }
  return "COMPREPLY=(); return";
}

std::string joined_names(const std::vector<Entry>& options) {
  std::string names;
  for (const Entry& entry : options)
    for (const std::string& name : entry.names) names += (names.empty() ? "" : " ") + name;
  return names;
}

std::string bash_completion(const CLI::App& app) {
  std::string text = kBashHead;
  text += fmt::format("  case \"$verb\" in\n    '') words='{} --help --version' ;;\n", fmt::join(verb_names(app), " "));
  for (const VerbTable& verb : tables_of(app)) {
    text += fmt::format("    {})\n      case \"$previous\" in\n", verb.name);
    for (const Entry& entry : verb.options)
      if (entry.takes_value)
        text += fmt::format("        {}) {} ;;\n", fmt::join(entry.names, "|"), bash_values(entry));
    text += fmt::format("        *)\n          if [[ $current == -* ]]; then words='{}'\n", joined_names(verb.options));
    if (!verb.positionals.empty() && verb.positionals[0].values == Values::kWords)
      text += fmt::format("          elif [[ -z $first ]]; then {}\n", bash_values(verb.positionals[0]));
    const bool takes_files = std::any_of(verb.positionals.begin(), verb.positionals.end(),
                                         [](const Entry& entry) { return entry.values == Values::kFiles; });
    text += fmt::format("          else {}\n          fi ;;\n      esac ;;\n",
                        takes_files ? "files=-f" : "COMPREPLY=(); return");
  }
  return text + "  esac\n" + kBashTail;
}

// --- zsh ---

/// Text escaped for use inside '...' and inside the brackets and colons of _arguments.
std::string zsh_text(const std::string& text) {
  std::string safe = replaced(text, "\\", "\\\\");
  for (const char* sign : {"[", "]", ":"}) safe = replaced(safe, sign, std::string("\\") + sign);
  return replaced(safe, "'", "'\\''");
}

std::string zsh_values(const Entry& entry) {
  switch (entry.values) {
    case Values::kWords: return fmt::format("({})", fmt::join(entry.words, " "));
    case Values::kFiles: return "_files";
    case Values::kFolders: return "_files -/";
    case Values::kNone: break;
  }
  return " ";
}

std::string zsh_completion(const CLI::App& app) {
  std::string text =
      "#compdef kernelwright\n# Made from the command's option table: install it as _kernelwright in a folder of "
      "$fpath.\n"
      "_kernelwright() {\n  local context state state_descr line\n  typeset -A opt_args\n"
      "  _arguments -C '(- *)'{-h,--help}'[Print this]' '(- *)--version[Print the version]' \\\n"
      "    '1:verb:->verb' '*::argument:->arguments'\n  case $state in\n    verb)\n      local -a verbs\n      "
      "verbs=(\n";
  for (const VerbTable& verb : tables_of(app)) text += fmt::format("        '{}:{}'\n", verb.name, zsh_text(verb.text));
  text += "      )\n      _describe -t verbs verb verbs ;;\n    arguments)\n      case $words[1] in\n";
  for (const VerbTable& verb : tables_of(app)) {
    text += fmt::format("        {})\n          _arguments", verb.name);
    for (const Entry& entry : verb.options)
      for (const std::string& name : entry.names)
        text += entry.takes_value ? fmt::format(" \\\n            '{}{}{}[{}]:{}:{}'", entry.repeats ? "*" : "", name,
                                                name.starts_with("--") ? "=" : "", zsh_text(entry.text),
                                                zsh_text(entry.type), zsh_values(entry))
                                  : fmt::format(" \\\n            '{}[{}]'", name, zsh_text(entry.text));
    for (std::size_t i = 0; i < verb.positionals.size(); ++i) {
      const Entry& entry = verb.positionals[i];
      text += fmt::format(" \\\n            '{}:{}:{}'", entry.repeats ? "*" : std::to_string(i + 1),
                          zsh_text(entry.positional), zsh_values(entry));
    }
    text += " ;;\n";
  }
  return text + "      esac ;;\n  esac\n}\n_kernelwright \"$@\"\n";
}

// --- fish ---

std::string fish_text(const std::string& text) { return replaced(replaced(text, "\\", "\\\\"), "'", "\\'"); }

std::string fish_values(const Entry& entry) {
  switch (entry.values) {
    case Values::kWords: return fmt::format(" -x -a '{}'", fmt::join(entry.words, " "));
    case Values::kFiles: return " -r -F";
    case Values::kFolders: return " -x -a '(__fish_complete_directories)'";
    case Values::kNone: break;
  }
  return " -x";
}

std::string fish_completion(const CLI::App& app) {
  std::string text =
      "# Made from the command's option table: install it as kernelwright.fish in a folder of $fish_complete_path.\n"
      "complete -c kernelwright -n __fish_use_subcommand -f\n"
      "complete -c kernelwright -n __fish_use_subcommand -l version -d 'Print the version'\n"
      "complete -c kernelwright -s h -l help -d 'Print this'\n";
  for (const VerbTable& verb : tables_of(app)) {
    text += fmt::format("complete -c kernelwright -n __fish_use_subcommand -f -a {} -d '{}'\n", verb.name,
                        fish_text(verb.text));
    const std::string seen = fmt::format("complete -c kernelwright -n '__fish_seen_subcommand_from {}'", verb.name);
    const bool takes_files = std::any_of(verb.positionals.begin(), verb.positionals.end(),
                                         [](const Entry& entry) { return entry.values == Values::kFiles; });
    if (!takes_files) text += seen + " -f\n";
    for (const Entry& entry : verb.positionals)
      if (entry.values == Values::kWords) text += fmt::format("{} -a '{}'\n", seen, fmt::join(entry.words, " "));
    for (const Entry& entry : verb.options) {
      if (std::find(entry.names.begin(), entry.names.end(), "--help") != entry.names.end()) continue;
      std::string line = seen;
      for (const std::string& name : entry.names)
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      text += fmt::format("{}{} -d '{}'\n", line, entry.takes_value ? fish_values(entry) : "", fish_text(entry.text));
    }
  }
  return text;
}

}  // namespace

std::string completion_of(const CLI::App& app, const std::string& shell) {
  return shell == "bash" ? bash_completion(app) : shell == "zsh" ? zsh_completion(app) : fish_completion(app);
}

}  // namespace kernelwright::cli
