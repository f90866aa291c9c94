// Copies between a strided area of host memory and the same elements one after another.
#pragma once

#include "launch/area.h"

namespace tensor_ops {

// Large areas are copied by several threads. They may lie at any address.
void pack(const StridedArea& from, char* to);
void unpack(const char* from, const StridedArea& to);

}  // namespace tensor_ops
