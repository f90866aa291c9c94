#include "abi/guarded.h"

#include <cstdio>
#include <new>

#include "declaration/errors.h"

namespace tensor_ops {
namespace {

tensor_ops_status failed(tensor_ops_status status, const char* message,
                         tensor_ops_error* error) noexcept {
  if (error) std::snprintf(error->message, sizeof error->message, "%s", message);
  return status;
}

}  // namespace

tensor_ops_status status_of_exception(tensor_ops_error* error) noexcept {
  try {
    throw;
  } catch (const TypeError& exception) {
    return failed(TENSOR_OPS_TYPE_ERROR, exception.what(), error);
  } catch (const ValueError& exception) {
    return failed(TENSOR_OPS_VALUE_ERROR, exception.what(), error);
  } catch (const MemoryError& exception) {
    return failed(TENSOR_OPS_MEMORY_ERROR, exception.what(), error);
  } catch (const std::bad_alloc&) {
    return failed(TENSOR_OPS_MEMORY_ERROR, "there is not enough memory", error);
  } catch (const UnavailableError& exception) {
    return failed(TENSOR_OPS_UNAVAILABLE, exception.what(), error);
  } catch (const std::exception& exception) {
    return failed(TENSOR_OPS_RUNTIME_ERROR, exception.what(), error);
  } catch (...) {
    return failed(TENSOR_OPS_RUNTIME_ERROR, "an exception of an unknown type", error);
  }
}

void require_size(const char* name, std::size_t given, std::size_t expected) {
  if (given < expected)
    throw ValueError(
        text(name, ".size must be sizeof(", name, "), at least ", expected, ", got ", given));
}

}  // namespace tensor_ops
