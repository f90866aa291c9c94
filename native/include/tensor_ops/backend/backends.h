// The C++ interface of tensor-ops: backends as shared libraries, which are found, chosen and called
// by name. Needs C++17 and nothing but this folder, tensor_ops/abi.h and the system's dlopen().
// The contents of its folder detail/ may change in any release.
#pragma once

#include "tensor_ops/backend/array.h"      // IWYU pragma: export
#include "tensor_ops/backend/backend.h"    // IWYU pragma: export
#include "tensor_ops/backend/call.h"       // IWYU pragma: export
#include "tensor_ops/backend/errors.h"     // IWYU pragma: export
#include "tensor_ops/backend/names.h"      // IWYU pragma: export
#include "tensor_ops/backend/registry.h"   // IWYU pragma: export
#include "tensor_ops/backend/selection.h"  // IWYU pragma: export
