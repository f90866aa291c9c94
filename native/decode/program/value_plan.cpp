#include "decode/program/value_plan.h"

#include <algorithm>

#include "decode/program/pieces.h"
#include "decode/program/sizes.h"

namespace tensor_ops::decode {
namespace {

// Memory of a value: bytes that it may share with other values, or private memory.
struct Area {
  std::size_t value, begin, end;
  bool is_private;

  bool overlaps(const Area& other) const {
    if (is_private || other.is_private) return value == other.value;
    return begin < other.end && other.begin < end;
  }
};

class Planner {
 public:
  Planner(const Program& program, const std::vector<Phase>& phases)
      : program_(program), phases_(phases) {
    const std::size_t count = program.values.size();
    first_.assign(count, 0);
    last_.assign(count, 0);
    is_private_.assign(count, false);
    plan_.offset.assign(count, kAbsent);
    is_private_[kTokens] = true;
    for (std::size_t output : program.outputs) is_private_[output] = true;
    for (std::size_t p = 0; p < phases.size(); ++p) {
      for (std::size_t value : phases[p].writes) first_[value] = last_[value] = p;
      for (std::size_t value : phases[p].reads) last_[value] = p;
    }
  }

  ValuePlan plan(const std::vector<bool>& uses_shared_scratch) {
    for (const Phase& phase : phases_)
      for (std::size_t value : phase.writes)
        if (!is_private_[value]) place(value);
    find_barriers(uses_shared_scratch);
    return std::move(plan_);
  }

 private:
  std::size_t bytes_of(std::size_t value) const {
    const Value& of = program_.values[value];
    return aligned(size_product(of.name, program_.limits.rows(of.rows), of.columns, sizeof(float)));
  }
  Area area(std::size_t value) const {
    return {value, plan_.offset[value], plan_.offset[value] + bytes_of(value), is_private_[value]};
  }

  // Places a value at the lowest offset where no value lies that lives at the same time.
  void place(std::size_t value) {
    const std::size_t bytes = bytes_of(value);
    std::vector<Area> taken;
    for (std::size_t other : placed_)
      if (first_[other] <= last_[value] && first_[value] <= last_[other])
        taken.push_back(area(other));
    std::sort(taken.begin(), taken.end(),
              [](const Area& a, const Area& b) { return a.begin < b.begin; });
    std::size_t begin = 0;
    for (const Area& each : taken) {
      if (begin + bytes <= each.begin) break;
      begin = std::max(begin, each.end);
    }
    plan_.offset[value] = begin;
    add_size("values", begin, bytes);
    plan_.bytes = std::max(plan_.bytes, begin);
    placed_.push_back(value);
  }

  void find_barriers(const std::vector<bool>& uses_shared_scratch) {
    std::vector<Area> read, written;  // since the last barrier
    bool is_scratch_used = false;
    const auto overlap = [](const std::vector<Area>& areas, const Area& area) {
      return std::any_of(areas.begin(), areas.end(),
                         [&](const Area& each) { return each.overlaps(area); });
    };
    for (std::size_t p = 0; p < phases_.size(); ++p) {
      bool is_wanted = is_scratch_used && uses_shared_scratch[p];
      for (std::size_t value : phases_[p].writes)
        is_wanted |= overlap(read, area(value)) || overlap(written, area(value));
      for (std::size_t value : phases_[p].reads) is_wanted |= overlap(written, area(value));
      if (is_wanted) {
        read.clear();
        written.clear();
        is_scratch_used = false;
      }
      plan_.barrier_before.push_back(is_wanted);
      for (std::size_t value : phases_[p].reads) read.push_back(area(value));
      for (std::size_t value : phases_[p].writes) written.push_back(area(value));
      is_scratch_used |= uses_shared_scratch[p];
    }
  }

  const Program& program_;
  const std::vector<Phase>& phases_;
  std::vector<std::size_t> first_, last_;  // by value: the phases from and up to which it lives
  std::vector<bool> is_private_;
  std::vector<std::size_t> placed_;
  ValuePlan plan_;
};

}  // namespace

ValuePlan plan_values(const Program& program, const std::vector<Phase>& phases,
                      const std::vector<bool>& uses_shared_scratch) {
  return Planner(program, phases).plan(uses_shared_scratch);
}

}  // namespace tensor_ops::decode
