#include "decode/program/fusion.h"

#include <algorithm>

namespace tensor_ops::decode {
namespace {

class Fusion {
 public:
  Fusion(const Program& program, const FusionRules& rules)
      : program_(program),
        rules_(rules),
        writer_(program.values.size(), kAbsent),
        readers_(program.values.size()),
        is_output_(program.values.size()),
        is_taken_(program.nodes.size()) {
    for (std::size_t n = 0; n < program.nodes.size(); ++n) {
      for (std::size_t input : program.nodes[n].inputs) readers_[input].push_back(n);
      for (std::size_t output : program.nodes[n].outputs) writer_[output] = n;
    }
    for (std::size_t output : program.outputs) is_output_[output] = true;
  }

  // A phase takes the place of its product. All that it reads is written before that.
  std::vector<Phase> phases() {
    std::vector<Phase> found;
    for (std::size_t n = 0; n < program_.nodes.size(); ++n)
      if (kind_of(n).is(kProduct)) found.push_back(around_product(n));
    for (std::size_t n = 0; n < program_.nodes.size(); ++n)
      if (!is_taken_[n]) found.push_back(alone(n));
    std::sort(found.begin(), found.end(),
              [](const Phase& a, const Phase& b) { return a.main < b.main; });
    return found;
  }

 private:
  const NodeKind& kind_of(std::size_t node) const { return *program_.nodes[node].kind; }
  std::size_t output_of(std::size_t node) const { return program_.nodes[node].outputs[0]; }
  // The one node that reads a value, once, which nobody else sees; kAbsent if there is none.
  std::size_t only_reader(std::size_t value) const {
    return readers_[value].size() == 1 && !is_output_[value] ? readers_[value][0] : kAbsent;
  }

  Phase alone(std::size_t n) const {
    Phase phase{n};
    phase.nodes = {n};
    phase.reads = program_.nodes[n].inputs;
    phase.writes = program_.nodes[n].outputs;
    return phase;
  }

  Phase around_product(std::size_t n) {
    Phase phase = alone(n);
    take(phase, n);
    const std::size_t x = program_.nodes[n].inputs[0], writer = writer_[x];
    if (writer != kAbsent && only_reader(x) == n && !is_taken_[writer] &&
        rules_.before(kind_of(writer))) {
      phase.before = writer;
      phase.reads[0] = program_.nodes[writer].inputs[0];
      take(phase, writer);
    }
    const std::size_t reader = only_reader(output_of(n));
    if (reader != kAbsent && rules_.after(kind_of(reader))) {
      phase.after = reader;
      write_as(phase, reader);
    } else if (reader != kAbsent && kind_of(reader).is(kSum)) {
      add_residual(phase, reader);
    }
    std::sort(phase.nodes.begin(), phase.nodes.end());
    return phase;
  }

  // Lets the phase add the residual, unless that is only made after the product.
  void add_residual(Phase& phase, std::size_t sum) {
    const auto& added = program_.nodes[sum].inputs;
    const std::size_t residual = added[0] == output_of(phase.main) ? added[1] : added[0];
    if (writer_[residual] != kAbsent && writer_[residual] > phase.main) return;
    phase.residual = residual;
    phase.reads.push_back(residual);
    write_as(phase, sum);
  }

  void write_as(Phase& phase, std::size_t node) {
    phase.writes = program_.nodes[node].outputs;
    take(phase, node);
  }
  void take(Phase& phase, std::size_t node) {
    if (node != phase.main) phase.nodes.push_back(node);
    is_taken_[node] = true;
  }

  const Program& program_;
  const FusionRules& rules_;
  std::vector<std::size_t> writer_;                // by value: the node
  std::vector<std::vector<std::size_t>> readers_;  // by value: the nodes, for each input
  std::vector<bool> is_output_;                    // by value
  std::vector<bool> is_taken_;                     // by node
};

}  // namespace

std::vector<Phase> phases_of(const Program& program, const FusionRules& rules) {
  return Fusion(program, rules).phases();
}

}  // namespace tensor_ops::decode
