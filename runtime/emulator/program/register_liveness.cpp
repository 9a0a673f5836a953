// Two bit-vector dataflow problems over basic blocks. Backwards: which registers may still be read. Forwards: which
// registers may have been written; without this, a register first written under a guard would seem to be in use from
// the entry's beginning. Most registers live within one block and take no part in either problem.
#include "kernelwright/runtime/emulator/program/register_liveness.h"

#include <algorithm>
#include <cstdint>

#include "kernelwright/runtime/emulator/program/register_slots.h"

namespace kernelwright::emulator {
namespace {

constexpr std::size_t kMaxWords = std::size_t{1} << 21;  // limit of one bit matrix: 16 MiB

using Word = std::uint64_t;

/// A row of bits for each block.
class BitMatrix {
 public:
  BitMatrix(std::size_t rows, std::size_t words) : words_(words), bits_(rows * words) {}
  Word* row(std::size_t i) { return bits_.data() + i * words_; }
  void set(std::size_t i, std::size_t bit) { row(i)[bit / 64] |= Word{1} << (bit % 64); }
  bool get(std::size_t i, std::size_t bit) { return row(i)[bit / 64] >> (bit % 64) & 1; }

 private:
  std::size_t words_;
  std::vector<Word> bits_;
};

/// Edges by block: those of b are list[start[b]] … list[start[b + 1] - 1].
struct Edges {
  std::vector<std::size_t> start;
  std::vector<int> list;
};

struct Graph {
  std::vector<int> begin;  // the first instruction of each block, and one past the last
  Edges next, previous;
  std::vector<int> order;  // reverse postorder; unreachable blocks come last

  std::size_t size() const { return begin.size() - 1; }
};

Edges reversed(const Edges& edges, std::size_t blocks) {
  Edges result;
  result.start.assign(blocks + 1, 0);
  for (const int to : edges.list) ++result.start[static_cast<std::size_t>(to) + 1];
  for (std::size_t b = 0; b < blocks; ++b) result.start[b + 1] += result.start[b];
  result.list.resize(edges.list.size());
  std::vector<std::size_t> at(result.start.begin(), result.start.end() - 1);
  for (std::size_t b = 0; b < blocks; ++b)
    for (std::size_t e = edges.start[b]; e < edges.start[b + 1]; ++e)
      result.list[at[static_cast<std::size_t>(edges.list[e])]++] = static_cast<int>(b);
  return result;
}

std::vector<int> reverse_postorder(const Graph& graph) {
  std::vector<int> order;
  std::vector<std::uint8_t> seen(graph.size());
  std::vector<std::pair<int, std::size_t>> stack;  // a block, and its next edge to follow
  const auto enter = [&](int block) {
    seen[static_cast<std::size_t>(block)] = 1;
    stack.emplace_back(block, graph.next.start[static_cast<std::size_t>(block)]);
  };
  enter(0);
  while (!stack.empty()) {
    auto& [block, edge] = stack.back();
    if (edge == graph.next.start[static_cast<std::size_t>(block) + 1]) {
      order.push_back(block);
      stack.pop_back();
    } else if (const int to = graph.next.list[edge++]; !seen[static_cast<std::size_t>(to)]) {
      enter(to);
    }
  }
  std::reverse(order.begin(), order.end());
  for (std::size_t b = 0; b < graph.size(); ++b)
    if (!seen[b]) order.push_back(static_cast<int>(b));
  return order;
}

Graph graph_of(const Entry& entry) {
  const std::size_t count = entry.instructions.size();
  std::vector<std::uint8_t> leads(count + 1);
  leads[0] = 1;
  for (std::size_t i = 0; i < count; ++i) {
    const Instruction& instruction = entry.instructions[i];
    for (const int target : instruction.targets) leads[static_cast<std::size_t>(target)] = 1;
    if (!instruction.targets.empty() || !falls_through(instruction)) leads[i + 1] = 1;
  }
  Graph graph;
  std::vector<int> block_at(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (leads[i]) graph.begin.push_back(static_cast<int>(i));
    block_at[i] = static_cast<int>(graph.begin.size()) - 1;
  }
  graph.begin.push_back(static_cast<int>(count));
  for (std::size_t b = 0; b < graph.size(); ++b) {
    graph.next.start.push_back(graph.next.list.size());
    const Instruction& last = entry.instructions[static_cast<std::size_t>(graph.begin[b + 1]) - 1];
    for (const int target : last.targets) graph.next.list.push_back(block_at[static_cast<std::size_t>(target)]);
    if (falls_through(last) && b + 1 < graph.size()) graph.next.list.push_back(static_cast<int>(b) + 1);
  }
  graph.next.start.push_back(graph.next.list.size());
  graph.previous = reversed(graph.next, graph.size());
  graph.order = reverse_postorder(graph);
  return graph;
}

/// Runs `update` on every block in `order`. When it reports a change, runs it again on the blocks to which `to` leads,
/// until nothing changes.
template <class Update>
void settle(const std::vector<int>& order, const Edges& to, Update&& update) {
  std::vector<std::uint8_t> stale(order.size(), 1);
  for (bool any = true; any;) {
    any = false;
    for (const int block : order) {
      const auto b = static_cast<std::size_t>(block);
      if (!stale[b]) continue;
      stale[b] = 0;
      if (!update(b)) continue;
      for (std::size_t e = to.start[b]; e < to.start[b + 1]; ++e) {
        stale[static_cast<std::size_t>(to.list[e])] = 1;
        any = true;
      }
    }
  }
}

/// Calls visit(register, written, read) for each register that an instruction names, including its guard.
template <class Visit>
void visit_registers(const Instruction& instruction, Visit&& visit) {
  if (instruction.guard >= 0) visit(static_cast<std::size_t>(instruction.guard), false, true);
  for (std::size_t i = 0; i < instruction.operands.size(); ++i) {
    const bool written = defines(instruction, i), read = reads(instruction, i);
    const auto one = [&](const Operand& operand) {
      if (operand.reg >= 0) visit(static_cast<std::size_t>(operand.reg), written, read);
      if (operand.paired >= 0) visit(static_cast<std::size_t>(operand.paired), written, read);
    };
    one(instruction.operands[i]);
    for (const Operand& element : instruction.operands[i].elements) {
      one(element);
      for (const Operand& coordinate : element.elements)
        one(coordinate);  // elements of an address; no operand nests
                          // deeper
    }
  }
}

}  // namespace

std::vector<LiveRange> live_ranges(const Entry& entry) {
  std::vector<LiveRange> ranges(entry.registers.size());
  if (entry.instructions.empty()) return ranges;
  const auto extend = [&](std::size_t reg, int at) {
    LiveRange& range = ranges[reg];
    range =
        range.first > range.last ? LiveRange{at, at} : LiveRange{std::min(range.first, at), std::max(range.last, at)};
  };
  const Graph graph = graph_of(entry);
  const std::size_t blocks = graph.size();

  // A register whose value may enter some block gets a bit.
  std::vector<int> bit(entry.registers.size(), -1), killed_in(entry.registers.size(), -1);
  std::vector<std::size_t> crossing;  // the register of each bit
  const auto each = [&](std::size_t b, auto&& visit) {
    for (int i = graph.begin[b]; i < graph.begin[b + 1]; ++i) visit(entry.instructions[static_cast<std::size_t>(i)], i);
  };
  /// The reads of an instruction come before its writes, whatever the order of its operands.
  const auto scan = [&](std::size_t b, auto&& on_exposed_read, auto&& on_write) {
    each(b, [&](const Instruction& instruction, int i) {
      visit_registers(instruction, [&](std::size_t reg, bool, bool read) {
        extend(reg, i);
        if (read && killed_in[reg] != static_cast<int>(b)) on_exposed_read(reg);
      });
      visit_registers(instruction, [&](std::size_t reg, bool written, bool) {
        if (!written) return;
        const bool kills = instruction.guard < 0;
        if (kills) killed_in[reg] = static_cast<int>(b);
        on_write(reg, kills);
      });
    });
  };
  for (std::size_t b = 0; b < blocks; ++b)
    scan(
        b,
        [&](std::size_t reg) {
          if (bit[reg] >= 0) return;
          bit[reg] = static_cast<int>(crossing.size());
          crossing.push_back(reg);
        },
        [](std::size_t, bool) {});
  if (crossing.empty()) return ranges;
  const std::size_t words = (crossing.size() + 63) / 64;
  if (blocks * words > kMaxWords) return {};

  BitMatrix live_in(blocks, words), killed(blocks, words), written_out(blocks, words);
  std::fill(killed_in.begin(), killed_in.end(), -1);
  for (std::size_t b = 0; b < blocks; ++b)
    scan(
        b, [&](std::size_t reg) { live_in.set(b, static_cast<std::size_t>(bit[reg])); },
        [&](std::size_t reg, bool kills) {
          if (bit[reg] < 0) return;
          written_out.set(b, static_cast<std::size_t>(bit[reg]));
          if (kills) killed.set(b, static_cast<std::size_t>(bit[reg]));
        });

  const auto gather = [&](const Edges& edges, BitMatrix& from, std::size_t b, std::vector<Word>& into) {
    std::fill(into.begin(), into.end(), 0);
    for (std::size_t e = edges.start[b]; e < edges.start[b + 1]; ++e) {
      const Word* row = from.row(static_cast<std::size_t>(edges.list[e]));
      for (std::size_t w = 0; w < words; ++w) into[w] |= row[w];
    }
  };
  std::vector<Word> live_out(words), written_in(words);
  settle(std::vector<int>(graph.order.rbegin(), graph.order.rend()), graph.previous, [&](std::size_t b) {
    gather(graph.next, live_in, b, live_out);
    bool changed = false;
    for (std::size_t w = 0; w < words; ++w) {
      const Word live = live_in.row(b)[w] | (live_out[w] & ~killed.row(b)[w]);
      changed |= live != live_in.row(b)[w];
      live_in.row(b)[w] = live;
    }
    return changed;
  });
  settle(graph.order, graph.next, [&](std::size_t b) {
    gather(graph.previous, written_out, b, written_in);
    bool changed = false;
    for (std::size_t w = 0; w < words; ++w) {
      const Word written = written_out.row(b)[w] | written_in[w];
      changed |= written != written_out.row(b)[w];
      written_out.row(b)[w] = written;
    }
    return changed;
  });

  for (std::size_t b = 0; b < blocks; ++b) {
    gather(graph.next, live_in, b, live_out);
    gather(graph.previous, written_out, b, written_in);
    const auto extend_all = [&](const Word* live, const Word* written, int at) {
      for (std::size_t w = 0; w < words; ++w)
        for (Word bits = live[w] & written[w]; bits != 0; bits &= bits - 1)
          extend(crossing[w * 64 + static_cast<std::size_t>(__builtin_ctzll(bits))], at);
    };
    extend_all(live_in.row(b), written_in.data(), graph.begin[b]);
    extend_all(live_out.data(), written_out.row(b), graph.begin[b + 1] - 1);
  }
  return ranges;
}

}  // namespace kernelwright::emulator
