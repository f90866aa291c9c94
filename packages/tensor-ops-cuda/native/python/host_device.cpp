#include "python/host_device.h"

#include <cstdlib>

#include "binding/python.h"
#include "declaration/errors.h"
#include "launch/device.h"

namespace tensor_ops {

#ifdef Py_GIL_DISABLED

// os.environ has what Python has set. getenv() must not run beside its setenv().
int chosen_host_device() {
  const Owned os(PyImport_ImportModule("os"));
  const Owned environ(os ? PyObject_GetAttrString(os.get(), "environ") : nullptr);
  const Owned value(environ ? PyObject_CallMethod(environ.get(), "get", "s", kDeviceVariable)
                            : nullptr);
  if (!value) throw PythonError();
  if (value.get() == Py_None) return host_device(nullptr);
  const char* variable = PyUnicode_AsUTF8(value.get());
  if (!variable) throw PythonError();
  return host_device(variable);
}

#else

// Python calls setenv() with the GIL.
int chosen_host_device() { return host_device(std::getenv(kDeviceVariable)); }

#endif

}  // namespace tensor_ops
