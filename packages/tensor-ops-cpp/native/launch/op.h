// An op of this backend: its declaration, and its kernels for every instruction-set level.
#pragma once

#include <vector>

#include "declaration/declaration.h"
#include "launch/run.h"

namespace tensor_ops {

struct Op : Declaration {
  std::vector<const KernelTable*> kernels;  // one per compiled level, lowest first
};

}  // namespace tensor_ops
