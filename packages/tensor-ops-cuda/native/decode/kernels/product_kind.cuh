// Included by the file of a kind of product, decode/products/<kind>.cuh. The file has a function
// <kind>_result(phase, sum): the value of a sum of products, before a residual is added or a gate
// is applied. CMake lists the files.
#pragma once

#include <cstring>

#include "decode/kernels/plan.h"
#include "decode/program/node_slots.h"
#include "kernels/device.cuh"

namespace tensor_ops::decode {

// The struct of the kind, such as AttentionNode::Attributes.
template <class Attributes>
DEVICE Attributes attributes_of(const DevicePhase& phase) {
  static_assert(sizeof(Attributes) <= sizeof(phase.attributes));
  Attributes made;
  memcpy(&made, phase.attributes, sizeof made);
  return made;
}

}  // namespace tensor_ops::decode
