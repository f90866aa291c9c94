// An op of this backend: its declaration, and what launches its kernels.
#pragma once

#include <utility>

#include "declaration/declaration.h"
#include "launch/call.h"

namespace tensor_ops {

struct Op : Declaration {
  Launcher launch;

  Op(Declaration declaration, Launcher launcher)
      : Declaration(std::move(declaration)), launch(launcher) {}
};

}  // namespace tensor_ops
