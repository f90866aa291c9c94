// The kind of array that a Python object is.
#include <atomic>

#include "arrays/device_array.h"
#include "arrays/readers.h"
#include "declaration/errors.h"

namespace tensor_ops {
namespace {

// Also where the attribute fails.
Owned attribute_of(PyTypeObject* type, const char* name) {
  Owned value(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name));
  if (!value) PyErr_Clear();
  return value;
}

// A user's subclass of an array type belongs to the array's package: the one of the type that has
// the attribute.
std::string package_of(PyTypeObject* type, const char* attribute) {
  const Owned order = attribute_of(type, "__mro__");
  const Py_ssize_t count = order && PyTuple_Check(order.get()) ? PyTuple_Size(order.get()) : 0;
  PyTypeObject* home = type;
  for (Py_ssize_t i = 0; i < count; ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GetItem(order.get(), i));
    if (attribute_of(base, attribute)) home = base;
  }
  const Owned module = attribute_of(home, "__module__");
  const char* name = module && PyUnicode_Check(module.get())
                         ? PyUnicode_AsUTF8AndSize(module.get(), nullptr)
                         : nullptr;
  if (!name) PyErr_Clear();
  const std::string whole = name ? name : "";
  return whole.substr(0, whole.find('.'));
}

TypeFacts find_facts(PyTypeObject* type) {
  TypeFacts facts{type, Source::kNumPy, true, nullptr, false, {}};
  if (PyType_IsSubtype(type, &PyArray_Type)) return facts;
  if (is_device_array_type(type)) {
    facts.source = Source::kOwn;
    return facts;
  }
  facts.may_require_grad = static_cast<bool>(attribute_of(type, "requires_grad"));
  const Owned capsule = attribute_of(type, dlpack::kExchangeAttribute);
  if (capsule) facts.api = dlpack::exchange_api(capsule.get());
  if (facts.api) {
    facts.source = Source::kExchange;
    facts.package = package_of(type, dlpack::kExchangeAttribute);
  } else if (attribute_of(type, "__dlpack__") && attribute_of(type, "__dlpack_device__")) {
    facts.source = Source::kProtocol;
    facts.package = package_of(type, "__dlpack__");
  } else if (attribute_of(type, "__cuda_array_interface__")) {
    facts.source = Source::kInterface;
    facts.package = package_of(type, "__cuda_array_interface__");
  } else {
    facts.is_array = false;
  }
  return facts;
}

// The types that were seen, the last one first; most programs have one or two. An entry stays and
// never changes, so that calls of many threads read the list at once, and none takes a lock.
struct SeenType {
  const TypeFacts facts;
  const SeenType* next;
};
std::atomic<const SeenType*> seen_types{nullptr};
std::atomic<int> free_entries{256};  // remembered types are kept alive: there must not be too many

const TypeFacts* find_seen(PyTypeObject* type) {
  const SeenType* seen = seen_types.load(std::memory_order_acquire);
  while (seen && seen->facts.type != type) seen = seen->next;
  return seen ? &seen->facts : nullptr;
}

// A type that two threads see first at once gets two entries.
void remember(const TypeFacts& facts) {
  if (free_entries.load() <= 0 || free_entries.fetch_sub(1) <= 0) return;
  Py_INCREF(reinterpret_cast<PyObject*>(facts.type));
  auto* added = new SeenType{facts, seen_types.load()};
  while (!seen_types.compare_exchange_weak(added->next, added)) continue;
}

}  // namespace

TypeFacts facts_of(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (const TypeFacts* seen = find_seen(type)) return *seen;
  TypeFacts facts = find_facts(type);
  if (facts.is_array)
    remember(facts);
  else if (PyObject_HasAttrString(object, "__cuda_array_interface__"))
    // An attribute of the instance alone will do too.
    return {type, Source::kInterface, true, nullptr, false, package_of(type, "")};
  return facts;
}

}  // namespace tensor_ops
