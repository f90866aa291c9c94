// Calls ops of the fake backend, by typed methods and by name, and prints what arrived there: the
// driver of test_calls.py.
#include <dlfcn.h>
#include <tensor_ops/backend/backends.h>

#include <cstring>
#include <iostream>
#include <string>
#include <type_traits>
#include <vector>

using namespace tensor_ops::backend;

// Constants cannot be outputs, and numbers of unknown dtypes no arrays.
using Constants = std::vector<float>;
static_assert(std::is_constructible<ConstArray, const Constants&>::value);
static_assert(!std::is_constructible<Array, const Constants&>::value);
static_assert(!std::is_constructible<Array, const float*, Extents>::value);
static_assert(!std::is_constructible<ConstArray, const std::vector<int>&>::value);
static_assert(std::is_convertible<Array, ConstArray>::value);
static_assert(!std::is_convertible<ConstArray, Array>::value);

namespace {

// A struct with the members of DLPack's DLTensor, under names of our own.
struct Tensor {
  void* data;
  struct {
    int device_type;
    std::int32_t device_id;
  } device;
  std::int32_t ndim;
  struct {
    std::uint8_t code, bits;
    std::uint16_t lanes;
  } dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

// The fake's notes of the last call.
std::string arrived(const Backend& backend) {
  void* const library = dlopen(backend.library().c_str(), RTLD_NOW | RTLD_NOLOAD);
  const char* (*last_call)() = nullptr;
  void* const address = dlsym(library, "fake_last_call");
  std::memcpy(&last_call, &address, sizeof last_call);
  return last_call();
}

const char* type_of(const Error& error) {
  if (dynamic_cast<const ValueError*>(&error) != nullptr) return "ValueError";
  if (dynamic_cast<const TypeError*>(&error) != nullptr) return "TypeError";
  if (dynamic_cast<const MemoryError*>(&error) != nullptr) return "MemoryError";
  if (dynamic_cast<const UnavailableError*>(&error) != nullptr) return "UnavailableError";
  return "Error";
}

template <class Call>
void show(const char* what, const Backend& backend, const Call& call) {
  try {
    call();
    std::cout << what << ": " << arrived(backend) << '\n';
  } catch (const Error& error) {
    std::cout << what << ": " << type_of(error) << ": " << error.what() << '\n';
  }
}

}  // namespace

int main() {
  auto& b = *BackendRegistry::get_instance().get_backend("cpp");
  std::vector<float> x(6, 1.1f), y(6), h(6), row(3);
  const std::vector<float> weight(3);
  std::vector<double> wide(6);
  std::vector<Float16> half(6);
  const Array rows(x, {2, 3}), results(y, {2, 3});

  show("typed", b, [&] { b.rms_norm(rows, weight, results); });
  std::cout << (y[0] == 0 ? "nothing written" : "written") << '\n';
  show("eps", b, [&] { b.rms_norm(rows, weight, results, 1e-3); });
  show("options", b, [&] { b.rms_norm(rows, weight, results, 1e-6, {2, &x}); });
  show("vectors", b, [&] { b.gelu(x, y); });
  show("choice", b, [&] { b.gelu(wide, wide, Approximate::kNone); });
  show("flag", b, [&] { b.rope(rows, row, row, results, true); });
  show("bias", b, [&] { b.layer_norm(rows, weight, row, results); });
  show("no bias", b, [&] { b.layer_norm(rows, weight, {}, results, 1e-3); });
  show("two outputs", b, [&] { b.add_rms_norm(rows, rows, weight, results, {h, {2, 3}}); });
  show("missing in the library", b, [&] { b.softmax(x, y); });

  show("pointer", b, [&] { b.gelu({x.data(), {2, 3}}, {y.data(), {2, 3}, {12, 4}}); });
  show("const pointer", b, [&] { b.gelu({weight.data(), {3}}, row); });
  show("half", b, [&] { b.gelu(half, {half.data(), {6}}); });
  show("bits", b, [&] {
    b.gelu({static_cast<const void*>(half.data()), DType::kBFloat16, {3}, {4}},
           {static_cast<void*>(half.data()), DType::kBFloat16, {3}});
  });
  show("device", b,
       [&] { b.gelu({x.data(), {6}, {}, Device::cuda(1)}, {y.data(), {6}, {}, Device::cuda(1)}); });
  show("nine axes", b, [&] {
    b.gelu({x.data(), {1, 1, 1, 1, 1, 1, 1, 2, 3}}, {y.data(), {1, 1, 1, 1, 1, 1, 1, 2, 3}});
  });
  const std::size_t three = 3;
  const int two = 2;
  show("sizes", b, [&] { b.gelu({x, {two, three}}, {y.data(), {two, three}, {4 * three, 4u}}); });
  show("scalar array", b, [&] { b.gelu({x.data(), {}}, {y.data(), {}}); });

  std::int64_t shape[] = {2, 3}, strides[] = {3, 1};
  Tensor tensor{x.data(), {1, 0}, 2, {2, 32, 1}, shape, nullptr, 0};
  show("dlpack", b, [&] { b.gelu(from_dlpack(tensor), results); });
  tensor.strides = strides;
  tensor.byte_offset = 4;
  tensor.dtype = {4, 16, 1};
  tensor.device = {2, 3};
  x[1] = 7.0f;
  show("dlpack with strides", b, [&] { b.gelu(from_dlpack(tensor), results); });
  std::cout << (std::memcmp(y.data(), &x[1], 2) == 0 ? "offset counts" : "offset ignored") << '\n';
  tensor.dtype = {0, 32, 1};
  show("dlpack of integers", b, [&] { b.gelu(from_dlpack(tensor), results); });
  tensor.dtype = {2, 32, 4};
  show("dlpack of vectors", b, [&] { b.gelu(from_dlpack(tensor), results); });
  tensor.dtype = {2, 32, 1};
  tensor.shape = nullptr;
  show("dlpack without a shape", b, [&] { b.gelu(from_dlpack(tensor), results); });

  show("generic", b, [&] { b.call("rms_norm", {rows, weight}, {results}); });
  show("generic by name", b, [&] {
    b.call("layer_norm", {{"weight", weight}, {"x", rows}}, {{"y", results}}, {{"eps", 1}});
  });
  show("generic choice", b, [&] { b.call("gelu", {x}, {y}, {{"approximate", "none"}}); });
  show("generic flag", b, [&] { b.call("rope", {x, row, row}, {y}, {{"interleaved", true}}); });
  show("generic options", b, [&] { b.call("gelu", {x}, {y}, {}, {5}); });
  show("generic outputs", b, [&] { b.call("add_rms_norm", {x, x, weight}, {{"h", h}, {"y", y}}); });
  show("generic without x", b, [&] { b.call("gelu", {}, {}); });

  show("no such op", b, [&] { b.call("rmsnorm", {x}, {y}); });
  show("no such input", b, [&] { b.call("gelu", {{"input", x}}, {y}); });
  show("no such output", b, [&] { b.call("gelu", {x}, {{"z", y}}); });
  show("no such setting", b, [&] { b.call("rms_norm", {x, row}, {y}, {{"epsilon", 1e-5}}); });
  show("too many inputs", b, [&] { b.call("gelu", {x, x}, {y}); });
  show("twice", b, [&] { b.call("gelu", {{"x", x}, {"x", x}}, {y}); });
  show("setting twice", b, [&] { b.call("rms_norm", {x, row}, {y}, {{"eps", 1}, {"eps", 2}}); });
  show("wrong word", b, [&] { b.call("gelu", {x}, {y}, {{"approximate", "erf"}}); });
  show("word for a number", b, [&] { b.call("rms_norm", {x, row}, {y}, {{"eps", "big"}}); });
  show("number for a word", b, [&] { b.call("gelu", {x}, {y}, {{"approximate", 1}}); });
  show("wrong shape", b, [&] { b.gelu({x, {2, 2}}, y); });
  show("negative shape", b, [&] { b.gelu({x, {-2, -3}}, y); });
  show("overflowing shape", b, [&] { b.gelu({x, {std::int64_t{1} << 62, 8}}, y); });
  show("strides without axes", b, [&] { b.gelu({x.data(), {6}, {4, 4}}, y); });

  std::cout << "ops:";
  for (const tensor_ops_op* op : b.ops()) std::cout << ' ' << op->name;
  std::cout << (b.has_op("gelu") && !b.has_op("softmax") ? " as they should" : " wrongly") << '\n';
}
