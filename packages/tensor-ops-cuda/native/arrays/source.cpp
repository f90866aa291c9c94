#include "arrays/source.h"

#include <unordered_map>

#include "arrays/device_array.h"
#include "launch/errors.h"

namespace tensor_ops {
namespace {

// Also where the attribute fails.
Owned attribute_of(PyTypeObject* type, const char* name) {
  Owned value(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name));
  if (!value) PyErr_Clear();
  return value;
}

// Null where the type has none of a version that we know.
const dlpack::ExchangeAPI* exchange_api(PyTypeObject* type) {
  const Owned capsule = attribute_of(type, dlpack::kExchangeAttribute);
  if (!capsule || !PyCapsule_IsValid(capsule.get(), dlpack::kExchangeCapsule)) return nullptr;
  const auto* header = static_cast<const dlpack::ExchangeHeader*>(
      PyCapsule_GetPointer(capsule.get(), dlpack::kExchangeCapsule));
  while (header && header->version.major > 1) header = header->previous;
  return header && header->version.major == 1 ? reinterpret_cast<const dlpack::ExchangeAPI*>(header)
                                              : nullptr;
}

// A user's subclass of an array type belongs to the array's package: the one of the type that has
// the attribute.
std::string package_of(PyTypeObject* type, const char* attribute) {
  PyObject* order = type->tp_mro;
  PyTypeObject* home = type;
  for (Py_ssize_t i = 0; order && i < PyTuple_GET_SIZE(order); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(order, i));
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
  if ((facts.api = exchange_api(type))) {
    facts.source = Source::kExchange;
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

// Good until the thread's next one.
const TypeFacts& passing(TypeFacts facts) {
  thread_local TypeFacts last;
  return last = std::move(facts);
}

}  // namespace

const TypeFacts& facts_of(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  static auto* known = new std::unordered_map<PyTypeObject*, TypeFacts>;
  thread_local const TypeFacts* last = nullptr;
  if (last && last->type == type) return *last;
  const auto found = known->find(type);
  if (found != known->end()) return *(last = &found->second);
  TypeFacts facts = find_facts(type);
  // An attribute of the instance alone will do too.
  if (!facts.is_array && PyObject_HasAttrString(object, "__cuda_array_interface__"))
    return passing({type, Source::kInterface, true, nullptr, false, package_of(type, "")});
  // Remembered types are kept alive, so that there must not be too many.
  constexpr std::size_t kMostTypes = 256;
  if (!facts.is_array || known->size() >= kMostTypes) return passing(std::move(facts));
  Py_INCREF(type);
  return *(last = &known->emplace(type, std::move(facts)).first->second);
}

}  // namespace tensor_ops
