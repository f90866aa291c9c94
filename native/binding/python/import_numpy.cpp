#define TENSOR_OPS_IMPORTS_NUMPY
#include "binding/python/python.h"

namespace tensor_ops {

bool import_numpy() { return _import_array() >= 0; }

}  // namespace tensor_ops
