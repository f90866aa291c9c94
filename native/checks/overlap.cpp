#include "checks/overlap.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>

#include "declaration/declaration.h"

namespace tensor_ops::overlap {
namespace {

// The addresses [first, last) that the elements of an array, which has some, lie in.
struct Range {
  std::uintptr_t first, last;
};

Range range_of(const ArrayView& array) {
  const auto start = reinterpret_cast<std::uintptr_t>(array.data);
  if (array.is_contiguous) return {start, start + array.size() * array.item_size()};
  Range range{start, start + array.item_size()};
  for (int d = 0; d < array.dims; ++d) {
    const std::int64_t reach = (std::int64_t{array.shape[d]} - 1) * array.strides[d];
    (reach < 0 ? range.first : range.last) += static_cast<std::uintptr_t>(reach);
  }
  return range;
}

// A number i in [0, most] that adds i * step to a sum.
struct Term {
  std::int64_t step, most;
};

// A depth-first search, the largest step first, for i * step, summed over the terms, to be a
// target. Two elements share a byte where a sum of both arrays' index times stride, and of the byte
// within the element, is the distance of their ends. All steps are positive.
class SumSearch {
 public:
  void add(std::int64_t step, std::int64_t most) {
    if (step != 0 && most > 0) terms_[count_++] = {std::abs(step), most};
  }

  bool may_reach(std::int64_t target) {
    std::sort(terms_, terms_ + count_,
              [](const Term& a, const Term& b) { return a.step > b.step; });
    merge_equal_steps();
    reach_[count_] = divisor_[count_] = 0;
    for (int t = count_ - 1; t >= 0; --t) {
      reach_[t] = reach_[t + 1] + terms_[t].step * terms_[t].most;
      divisor_[t] = std::gcd(divisor_[t + 1], terms_[t].step);
    }
    return search(0, target);
  }

 private:
  static constexpr int kMostTerms = 2 * kMaxDims + 2;

  void merge_equal_steps() {
    int kept = 0;
    for (int t = 0; t < count_; ++t) {
      if (kept > 0 && terms_[kept - 1].step == terms_[t].step)
        terms_[kept - 1].most += terms_[t].most;
      else
        terms_[kept++] = terms_[t];
    }
    count_ = kept;
  }

  bool search(int t, std::int64_t target) {
    if (target < 0 || target > reach_[t]) return false;
    if (target == 0) return true;
    if (target % divisor_[t] != 0) return false;
    if (t == count_ - 1) return true;  // a multiple within reach
    if (++steps_ > kMostSteps) return true;
    const std::int64_t step = terms_[t].step;
    // The rest has to reach what is left over.
    const std::int64_t rest = reach_[t + 1];
    const std::int64_t most = std::min(terms_[t].most, target / step);
    const std::int64_t least = target > rest ? (target - rest + step - 1) / step : 0;
    for (std::int64_t i = most; i >= least; --i)
      if (search(t + 1, target - i * step)) return true;
    return false;
  }

  static constexpr int kMostSteps = 1'000'000;
  Term terms_[kMostTerms];
  std::int64_t reach_[kMostTerms + 1], divisor_[kMostTerms + 1];
  int count_ = 0, steps_ = 0;
};

}  // namespace

// a's element at i and b's at j share a byte where a.data + i.sa + p == b.data + j.sb + q, for
// bytes p and q within the element. Counted from the lowest address of a and the highest of b, all
// terms are positive.
bool may_share_memory(const ArrayView& a, const ArrayView& b) {
  if (a.size() == 0 || b.size() == 0) return false;  // even at an address of the other
  const Range of_a = range_of(a), of_b = range_of(b);
  if (of_a.first >= of_b.last || of_b.first >= of_a.last) return false;
  SumSearch search;
  for (int d = 0; d < a.dims; ++d) search.add(a.strides[d], a.shape[d] - 1);
  for (int d = 0; d < b.dims; ++d) search.add(b.strides[d], b.shape[d] - 1);
  search.add(1, static_cast<std::int64_t>(a.item_size()) - 1);
  search.add(1, static_cast<std::int64_t>(b.item_size()) - 1);
  return search.may_reach(static_cast<std::int64_t>(of_b.last - 1 - of_a.first));
}

bool is_same_view(const ArrayView& a, const ArrayView& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.dims != b.dims ||
      !std::equal(a.shape, a.shape + a.dims, b.shape))
    return false;
  for (int d = 0; d < a.dims; ++d)
    if (a.shape[d] > 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

bool may_overlap_itself(const ArrayView& array) {
  if (array.is_contiguous || array.size() == 0) return false;
  int axis[kMaxDims], axes = 0;
  for (int d = 0; d < array.dims; ++d)
    if (array.shape[d] > 1) axis[axes++] = d;
  const auto step = [&array](int d) { return std::abs(array.strides[d]); };
  std::sort(axis, axis + axes, [&](int a, int b) { return step(a) < step(b); });
  auto reach = static_cast<std::int64_t>(array.item_size());
  for (int i = 0; i < axes; ++i) {
    if (step(axis[i]) < reach) return true;
    reach += (array.shape[axis[i]] - 1) * step(axis[i]);
  }
  return false;
}

}  // namespace tensor_ops::overlap
