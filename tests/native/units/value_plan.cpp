// Where values lie and where threads meet, beside what follows from the memory line by line.
#include "decode/program/value_plan.h"

#include <algorithm>
#include <random>
#include <set>

#include "require.h"

namespace {

using namespace tensor_ops::decode;

constexpr std::size_t kLine = 64;

Program random_program(std::mt19937& random) {
  const auto below = [&](std::size_t count) { return random() % count; };
  Program program{};
  program.limits.max_tokens = 1 + below(5);
  program.limits.max_selected = 1 + below(5);
  program.values.push_back({"tokens", Rows::kTokens, 1, true});
  const std::size_t nodes = 1 + below(24);
  for (std::size_t n = 0; n < nodes; ++n) {
    Node node{};
    for (std::size_t slots = below(4); slots > 0; --slots) {
      // Values that were made lately, as in models, or any.
      const std::size_t count = program.values.size(), lately = std::min<std::size_t>(count, 4);
      const std::size_t input = below(2) ? below(count) : count - 1 - below(lately);
      node.inputs.push_back(below(6) ? input : kAbsent);
    }
    for (std::size_t outputs = 1 + below(5) / 4; outputs > 0; --outputs) {
      node.outputs.push_back(program.values.size());
      program.values.push_back({"value", below(2) ? Rows::kTokens : Rows::kSelected,
                                below(4) ? 1 + below(100) : 16 * (1 + below(20)), false});
      if (below(5) == 0) program.outputs.push_back(node.outputs.back());
    }
    program.nodes.push_back(node);
  }
  return program;
}

// The memory of every value, in lines. What has memory of its own has lines that no other has.
class Memory {
 public:
  Memory(const Program& program, const ValuePlan& plan) : lines_(program.values.size()) {
    std::size_t own = plan.bytes / kLine;
    for (std::size_t v = 0; v < lines_.size(); ++v) {
      const Value& value = program.values[v];
      const std::size_t bytes = program.limits.rows(value.rows) * value.columns * sizeof(float);
      const bool is_own =
          v == kTokens || std::count(program.outputs.begin(), program.outputs.end(), v) > 0;
      if (is_own) {
        lines_[v] = {own++};
        continue;
      }
      require(plan.offset[v] % kLine == 0, "value ", v, " is not aligned");
      require(plan.offset[v] + bytes <= plan.bytes, "value ", v, " ends behind the memory");
      for (std::size_t at = 0; at < bytes; at += kLine)
        lines_[v].insert((plan.offset[v] + at) / kLine);
      end_ = std::max(end_, *lines_[v].rbegin() + 1);
    }
  }

  bool overlap(std::size_t a, std::size_t b) const {
    return std::any_of(lines_[a].begin(), lines_[a].end(),
                       [&](std::size_t line) { return lines_[b].count(line) > 0; });
  }
  std::size_t end() const { return end_ * kLine; }

 private:
  std::vector<std::set<std::size_t>> lines_;
  std::size_t end_ = 0;
};

// Each value has, until the last node that reads it, what was written to it.
void check_values(const Program& program, const Memory& memory) {
  const std::size_t count = program.nodes.size();
  for (std::size_t n = 0; n < count; ++n)
    for (std::size_t value : program.nodes[n].outputs) {
      std::size_t last = n;
      for (std::size_t m = n; m < count; ++m)
        for (std::size_t input : program.nodes[m].inputs)
          if (input == value) last = m;
      for (std::size_t m = n; m <= last; ++m)
        for (std::size_t other : program.nodes[m].outputs)
          require(other == value || !memory.overlap(value, other), "node ", m,
                  " overwrites what node ", n, " has written and node ", last, " reads");
      for (std::size_t input : program.nodes[n].inputs)
        require(input == kAbsent || !memory.overlap(value, input), "node ", n,
                " overwrites what it reads");
    }
}

// Whether threads may not be at both nodes at the same time.
bool conflict(const Node& before, bool before_uses_shared, const Node& after,
              bool after_uses_shared, const Memory& memory) {
  const auto overlap = [&](const std::vector<std::size_t>& some,
                           const std::vector<std::size_t>& others) {
    for (std::size_t each : some)
      for (std::size_t other : others)
        if (each != kAbsent && memory.overlap(each, other)) return true;
    return false;
  };
  return overlap(before.outputs, after.outputs) || overlap(after.inputs, before.outputs) ||
         overlap(before.inputs, after.outputs) || (before_uses_shared && after_uses_shared);
}

// Threads meet before a node exactly if it may not run beside one since they have met last.
void check_barriers(const Program& program, const ValuePlan& plan,
                    const std::vector<bool>& uses_shared, const Memory& memory) {
  std::size_t met = 0;
  for (std::size_t n = 0; n < program.nodes.size(); ++n) {
    bool is_wanted = false;
    for (std::size_t m = met; m < n; ++m)
      is_wanted |=
          conflict(program.nodes[m], uses_shared[m], program.nodes[n], uses_shared[n], memory);
    require(plan.barrier_before[n] == is_wanted, "threads ", is_wanted ? "do not " : "",
            "meet before node ", n, " of ", program.nodes.size());
    if (is_wanted) met = n;
  }
}

ValuePlan plan_of(const Program& program, const std::vector<bool>& uses_shared) {
  std::vector<Phase> alone;
  for (std::size_t n = 0; n < program.nodes.size(); ++n) {
    Phase phase{n};
    for (std::size_t input : program.nodes[n].inputs)
      if (input != kAbsent) phase.reads.push_back(input);
    phase.writes = program.nodes[n].outputs;
    alone.push_back(phase);
  }
  return plan_values(program, alone, uses_shared);
}

// A chain of nodes of one row each, the last of which is the output.
Program chain(std::size_t nodes, std::size_t columns) {
  Program program{};
  program.limits.max_tokens = program.limits.max_selected = 1;
  program.values.push_back({"tokens", Rows::kTokens, 1, true});
  for (std::size_t n = 0; n < nodes; ++n) {
    Node node{};
    node.inputs = {n};
    node.outputs = {n + 1};
    program.values.push_back({"value", Rows::kTokens, columns, false});
    program.nodes.push_back(node);
  }
  program.outputs = {nodes};
  return program;
}

void check_chain() {
  const ValuePlan plan = plan_of(chain(10, 16), std::vector<bool>(10));
  require(plan.bytes == 2 * kLine, "a chain takes ", plan.bytes, " bytes, not those of two values");
  const std::vector<bool> expected{false, true, true, true, true, true, true, true, true, true};
  require(plan.barrier_before == expected, "threads do not meet before every node of a chain");
  const ValuePlan outputs = plan_of(chain(1, 16), {false});
  require(outputs.bytes == 0, "an output takes memory beside its own");
}

}  // namespace

int main() {
  check_chain();
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const Program program = random_program(random);
    std::vector<bool> uses_shared;
    for (std::size_t n = 0; n < program.nodes.size(); ++n) uses_shared.push_back(random() % 6 == 0);
    const ValuePlan plan = plan_of(program, uses_shared);
    const Memory memory(program, plan);
    require(memory.end() == plan.bytes, "the values end at ", memory.end(), " of ", plan.bytes);
    check_values(program, memory);
    check_barriers(program, plan, uses_shared, memory);
  }
}
