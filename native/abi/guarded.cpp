#include "abi/guarded.h"

#include <cstring>
#include <new>

#include "declaration/errors.h"

namespace tensor_ops {
namespace {

void write_message(tensor_ops_error* error, const char* message) noexcept {
  if (!error) return;
  std::strncpy(error->message, message, sizeof error->message - 1);
  error->message[sizeof error->message - 1] = '\0';
}

}  // namespace

tensor_ops_status status_of_exception(tensor_ops_error* error) noexcept {
  try {
    throw;
  } catch (const TypeError& exception) {
    write_message(error, exception.what());
    return TENSOR_OPS_TYPE_ERROR;
  } catch (const ValueError& exception) {
    write_message(error, exception.what());
    return TENSOR_OPS_VALUE_ERROR;
  } catch (const MemoryError& exception) {
    write_message(error, exception.what());
    return TENSOR_OPS_MEMORY_ERROR;
  } catch (const std::bad_alloc&) {
    write_message(error, "there is not enough memory");
    return TENSOR_OPS_MEMORY_ERROR;
  } catch (const UnavailableError& exception) {
    write_message(error, exception.what());
    return TENSOR_OPS_UNAVAILABLE;
  } catch (const std::exception& exception) {
    write_message(error, exception.what());
    return TENSOR_OPS_RUNTIME_ERROR;
  } catch (...) {
    write_message(error, "an exception of an unknown type");
    return TENSOR_OPS_RUNTIME_ERROR;
  }
}

void require_size(const char* name, std::size_t given, std::size_t expected) {
  if (given < expected)
    throw ValueError(
        text(name, ".size must be sizeof(", name, "), at least ", expected, ", got ", given));
}

}  // namespace tensor_ops
