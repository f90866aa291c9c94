// Copies between a box of a host operand and the same elements one after another.
#pragma once

#include "launch/problem.h"

namespace tensor_ops {

// A part of a problem's leading axes.
struct Box {
  std::int64_t begin[kMaxDims];
  std::int64_t extent[kMaxDims];
};

Box whole(const Problem& problem);

// Elements of an operand within a box by axes, the last varying fastest: once each, so that an axis
// along which it repeats is none.
struct HostArea {
  char* data;
  std::int64_t item_size;
  int axes = 0;
  std::int64_t extent[kMaxDims + 1];
  std::int64_t stride[kMaxDims + 1];  // bytes

  std::int64_t count() const;
  std::int64_t bytes() const { return count() * item_size; }
  bool is_contiguous() const;
};

// Appends an axis, as part of the last one where they lie one after another.
void add_axis(HostArea& area, std::int64_t extent, std::int64_t stride);

HostArea area_of(const Problem& problem, const Operand& operand, const Box& box);

// By several threads where it is large. The areas may lie at any address.
void pack(const HostArea& from, char* to);
void unpack(const char* from, const HostArea& to);

}  // namespace tensor_ops
