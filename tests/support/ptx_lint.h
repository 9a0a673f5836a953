/// What PTX must not contain because a supported ptxas turns it into wrong machine code. The emulator executes PTX, so
/// it cannot see the machine code. Tests search the text of every kernel for these forms instead.
#pragma once

#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace kernelwright::test {

/// The redux.sync instructions that a condition guards closely: behind a predicate, or in a short block that a
/// conditional branch enters or skips. ptxas turns such a block into predicated instructions. If ptxas 12.9 or 13.0
/// needs both the guard of REDUX and its complement, it overwrites the guard with the complement, and the reduction is
/// skipped (13.5 is right). Returns one line of text for each such instruction, with its line number; empty if there is
/// none.
inline std::vector<std::string> guarded_reductions(std::string_view ptx) {
  // Most instructions besides moves in a block that may become predicated. This is far more than ptxas was seen to
  // take.
  constexpr int kShort = 40;
  struct Line {
    int number;
    std::string text;
  };
  struct Block {
    std::vector<Line> lines;
    std::vector<std::string> labels;
    int instructions = 0;          // not counting moves
    bool conditional_end = false;  // the block ends in a branch that may not be taken
    bool falls_through = true;     // control may continue into the next block
    std::string target;            // target of the branch at the block's end
  };
  std::vector<Block> blocks(1);
  std::istringstream stream{std::string(ptx)};
  std::string text;
  for (int number = 1; std::getline(stream, text); ++number) {
    const auto begin = text.find_first_not_of(" \t");
    if (begin == std::string::npos) continue;
    text = text.substr(begin);
    if (text.starts_with("//") || text.starts_with(".")) continue;
    if (text.starts_with("$") && text.find(':') != std::string::npos) {
      if (!blocks.back().lines.empty()) blocks.emplace_back();
      blocks.back().labels.push_back(text.substr(0, text.find(':')));
      continue;
    }
    if (text.starts_with("{") || text.starts_with("}")) continue;
    Block& block = blocks.back();
    block.lines.push_back({number, text});
    const bool predicated = text.starts_with("@");
    const std::string operation =
        predicated ? text.substr(std::min(text.find_first_of(" \t"), text.size() - 1) + 1) : text;
    if (!operation.starts_with("mov.")) ++block.instructions;
    if (operation.starts_with("bra") || operation.starts_with("ret") || operation.starts_with("exit")) {
      if (const auto dollar = operation.find('$'); operation.starts_with("bra") && dollar != std::string::npos)
        block.target = operation.substr(dollar, operation.find_first_of("; \t", dollar) - dollar);
      block.conditional_end = predicated;
      block.falls_through = predicated;
      blocks.emplace_back();
    }
  }
  std::map<std::string, std::size_t> block_of;
  for (std::size_t i = 0; i < blocks.size(); ++i)
    for (const std::string& label : blocks[i].labels) block_of[label] = i;
  // How many edges lead into a block, and whether one of them belongs to a condition.
  std::vector<int> ways(blocks.size());
  std::vector<bool> conditional(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto enter = [&](std::size_t to) {
      ++ways[to];
      if (blocks[i].conditional_end) conditional[to] = true;
    };
    if (blocks[i].falls_through && i + 1 < blocks.size()) enter(i + 1);
    if (const auto found = block_of.find(blocks[i].target); found != block_of.end()) enter(found->second);
  }
  std::vector<std::string> found;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    // A short block qualifies if one condition alone enters it, and if it ends without a condition and joins the other
    // path behind it.
    const bool predicable =
        ways[i] == 1 && conditional[i] && !blocks[i].conditional_end && blocks[i].instructions <= kShort;
    for (const Line& line : blocks[i].lines) {
      if (line.text.find("redux.sync") == std::string::npos) continue;
      if (line.text.starts_with("@") || predicable)
        found.push_back("line " + std::to_string(line.number) + ": " + line.text);
    }
  }
  return found;
}

}  // namespace kernelwright::test
