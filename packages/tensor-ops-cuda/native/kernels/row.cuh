// A row as a group of threads computes it, and a lane's vectors of it in registers.
#pragma once

#include <cstdint>

#include "kernels/elements.cuh"

namespace tensor_ops {

// The index of the first element of vector j of a lane, which is vector j * lanes + lane of the
// row.
template <int kCount, class Group>
DEVICE int first_element(const Group& group, int j) {
  return (j * group.lanes() + group.lane()) * kCount;
}

// A row of x and of y, or a part of one. `whole` says that the row is aligned and consists of whole
// vectors. A group that has no row left is given one of no elements: it still takes part in what
// the threads of its warp do together.
template <class Element_>
struct Row {
  using Element = Element_;
  using R = Real<Element>;
  static constexpr int kCount = kWidth<Element>;
  using Vector = Packed<Element, kCount>;

  const Element* x;
  Element* y;
  int n;
  bool whole;

  template <class Other>
  DEVICE Packed<Other, kCount> load(const Other* row, int first) const {
    Packed<Other, kCount> part;
    load_part(part, row, first, n, whole);
    return part;
  }

  // Calls visit(first, vector) for each of the lane's vectors of x.
  template <class Group, class Visit>
  DEVICE void each(const Group& group, Visit visit) const {
#pragma unroll 2
    for (int first = group.lane() * kCount; first < n; first += group.lanes() * kCount)
      visit(first, load(x, first));
  }

  // Combines function(x) of all elements.
  template <class A, class Group, class Function, class Combine>
  DEVICE A combine(Group& group, A start, Function function, Combine combined) const {
    A total = start;
    each(group, [&](int first, const Vector& in) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (first + i < n) total = combined(total, function(real(in.element[i])));
    });
    return group.combine(total, combined);
  }

  // Writes value(i) to y[first + i] for the elements of a vector.
  template <class Value>
  DEVICE void write(int first, Value value) const {
    Vector result;
#pragma unroll
    for (int i = 0; i < kCount; ++i) result.element[i] = rounded_to<Element>(value(i));
    store_part(result, y, first, n, whole);
  }
};

// A lane's vectors of a row, in registers.
template <class Element, int kVectors, int kCount = kWidth<Element>>
struct RowShare {
  Packed<Element, kCount> vector[kVectors];

  template <class Group, class Any>
  DEVICE void load(const Group& group, const Row<Any>& row, const Element* from,
                   Element rest = {}) {
    const auto load_all = [&](bool whole) {
#pragma unroll
      for (int j = 0; j < kVectors; ++j)
        load_part(vector[j], from, first_element<kCount>(group, j), row.n, whole, rest);
    };
    // A single branch, so that all loads are in flight together.
    row.whole ? load_all(true) : load_all(false);
  }

  DEVICE Real<Element> at(int j, int i) const { return real(vector[j].element[i]); }

  // Calls visit(j, i) for each element i of each vector j.
  template <class Visit>
  DEVICE void each(Visit visit) const {
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
#pragma unroll
      for (int i = 0; i < kCount; ++i) visit(j, i);
  }

  // Makes the compiler convert the elements of a half type once more: the results of an earlier
  // conversion would take twice their registers while threads wait for each other.
  DEVICE void forget_conversions() {
    if constexpr (is_half<Element>) {
#pragma unroll
      for (int j = 0; j < kVectors; ++j) make_opaque(vector[j]);
    }
  }
};

}  // namespace tensor_ops
