// Computes by the C++ registry, on host memory and on the memory of the emulated device, whose
// runtime is in the library that the first argument names: the driver of test_library_in_cpp.py.
#include <dlfcn.h>
#include <tensor_ops/backend/backends.h>

#include <cstdio>
#include <vector>

using namespace tensor_ops::backend;

namespace {

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

void print(const char* name, const float* values, std::size_t count) {
  std::printf("%s", name);
  for (std::size_t i = 0; i < count; ++i) std::printf(" %a", static_cast<double>(values[i]));
  std::printf("\n");
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return 2;
  Backend& cuda = *BackendRegistry::get_instance().get_backend("cuda");
  std::printf("%s %d %s\n", cuda.get_name().c_str(), cuda.is_available(),
              get_default_backend()->get_name().c_str());
  std::vector<float> x(12), y(12);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = -3 + 0.5f * static_cast<float>(i);
  cuda.silu(ConstArray(x.data(), {3, 4}), Array(y.data(), {3, 4}));
  print("host", y.data(), y.size());

  void* library = dlopen(words[1], RTLD_NOW | RTLD_NOLOAD);
  void *given = nullptr, *result = nullptr, *stream = nullptr;
  const std::size_t bytes = x.size() * sizeof(float);
  const auto allocate = find<int(void**, std::size_t)>(library, "cudaMalloc");
  const auto copy = find<int(void*, const void*, std::size_t, int)>(library, "cudaMemcpy");
  allocate(&given, bytes);
  allocate(&result, bytes);
  find<int(void**, unsigned)>(library, "cudaStreamCreateWithFlags")(&stream, 1);
  copy(given, x.data(), bytes, 1);
  const Array in(given, DType::kFloat32, {3, 4}, {}, Device::cuda());
  const Array out(result, DType::kFloat32, {3, 4}, {}, Device::cuda());
  CallOptions options;
  options.stream = stream;
  cuda.silu(in, out, options);
  find<int(void*)>(library, "cudaStreamSynchronize")(stream);
  copy(y.data(), result, bytes, 2);
  print("device", y.data(), y.size());
  try {
    cuda.silu(ConstArray(x.data(), {3, 4}), out);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
  }
}
