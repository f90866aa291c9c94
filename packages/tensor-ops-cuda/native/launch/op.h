// An op of this backend: its declaration, and what launches its kernels.
#pragma once

#include "declaration/declaration.h"
#include "launch/call.h"

namespace tensor_ops {

struct Op : Declaration {
  Launcher launch;
};

}  // namespace tensor_ops
