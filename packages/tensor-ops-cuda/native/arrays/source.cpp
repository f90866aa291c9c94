// The kind of array that a Python object is.
#include <atomic>
#include <memory>

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
  const Py_ssize_t count = order && PyTuple_Check(order.get()) ? PyTuple_GET_SIZE(order.get()) : 0;
  PyTypeObject* home = type;
  for (Py_ssize_t i = 0; i < count; ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(order.get(), i));
    if (attribute_of(base, attribute)) home = base;
  }
  const Owned module = attribute_of(home, "__module__");
  const char* name =
      module && PyUnicode_Check(module.get()) ? PyUnicode_AsUTF8(module.get()) : nullptr;
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

// The types that were seen, in a hash table. What is in it stays there and never changes, so that
// calls of many threads read it at once, and none takes a lock.
class TypeCache {
 public:
  const TypeFacts* find(PyTypeObject* type) const {
    for (std::size_t slot = first_slot(type);; slot = next(slot)) {
      const TypeFacts* found = slots_[slot].load(std::memory_order_acquire);
      if (!found || found->type == type) return found;
    }
  }

  // Remembered types are kept alive, so that there must not be too many.
  void add(const TypeFacts& facts) {
    if (count_.fetch_add(1) < kMostTypes && enter(facts)) return;
    count_.fetch_sub(1);
  }

 private:
  static constexpr std::size_t kMostTypes = 256;
  static constexpr std::size_t kSlots = 2 * kMostTypes;  // a search ends at an empty one

  static std::size_t first_slot(PyTypeObject* type) {
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(type));
    return static_cast<std::size_t>(address * 0x9E3779B97F4A7C15u >> 32) % kSlots;
  }
  static std::size_t next(std::size_t slot) { return (slot + 1) % kSlots; }

  // False where another thread was first.
  bool enter(const TypeFacts& facts) {
    auto added = std::make_unique<const TypeFacts>(facts);
    for (std::size_t slot = first_slot(facts.type);; slot = next(slot)) {
      const TypeFacts* there = nullptr;
      if (slots_[slot].compare_exchange_strong(there, added.get(), std::memory_order_acq_rel)) {
        Py_INCREF(added.release()->type);
        return true;
      }
      if (there->type == facts.type) return false;
    }
  }

  std::atomic<const TypeFacts*> slots_[kSlots]{};
  std::atomic<std::size_t> count_{0};
};

TypeCache type_cache;

}  // namespace

TypeFacts facts_of(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (const TypeFacts* found = type_cache.find(type)) return *found;
  TypeFacts facts = find_facts(type);
  if (facts.is_array)
    type_cache.add(facts);
  else if (PyObject_HasAttrString(object, "__cuda_array_interface__"))
    // An attribute of the instance alone will do too.
    return {type, Source::kInterface, true, nullptr, false, package_of(type, "")};
  return facts;
}

}  // namespace tensor_ops
