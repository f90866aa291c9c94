#include "binding/python/nanobind.h"

#include "declaration/errors.h"

namespace nb = nanobind;

namespace tensor_ops {

nb::object object_of(Owned owned) {
  if (!owned) throw PythonError();
  return nb::steal(owned.release());
}

std::string text_of(nb::handle object) { return nb::cast<std::string>(nb::str(object)); }

nb::dict dict_from(nb::handle object) {
  auto* const type = reinterpret_cast<PyObject*>(&PyDict_Type);
  return nb::cast<nb::dict>(nb::handle(type)(object));
}

CallbackError::CallbackError(nb::python_error&& error) : nb::python_error(std::move(error)) {
  const std::string message = str_text(value().ptr());
  what_ = type_name(value().ptr()) + (message.empty() ? "" : ": " + message);
}

}  // namespace tensor_ops
