// linear: x W^T + bias.
#include "decode/executor/node.h"
#include "decode/kernels/product_phases.h"

DEFINE_NODE(linear, ProductPhases<Sums<decode::LinearNode::kBias>>::kernels)
