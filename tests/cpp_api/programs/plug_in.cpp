// A library of a program that uses the registry within: the test opens and closes it.
#include <tensor_ops/backend/backends.h>

using namespace tensor_ops::backend;

extern "C" __attribute__((visibility("default"))) int beside_is_found() {
  const Backend* const backend = BackendRegistry::get_instance().get_backend("cpp");
  return backend != nullptr && backend->is_available() && get_default_backend() == backend;
}
