// Runs every op of the C++ backend on a few rows by its method, and prints the bits of the results:
// the driver of test_real_library.py.
#include <tensor_ops/backend/backends.h>

#include <cstdio>
#include <vector>

using namespace tensor_ops::backend;

namespace {

std::vector<float> numbers(std::size_t count, float first, float step) {
  std::vector<float> found(count);
  for (std::size_t i = 0; i < count; ++i) found[i] = first + step * static_cast<float>(i);
  return found;
}

void print(const char* name, const std::vector<float>& values) {
  std::printf("%s", name);
  for (const float value : values) std::printf(" %a", static_cast<double>(value));
  std::printf("\n");
}

}  // namespace

int main() {
  const Backend& cpp = *get_default_backend();
  std::printf("%s %s %s\n", cpp.get_name().c_str(), cpp.version().c_str(),
              cpp.devices().at(0).name.c_str());
  auto a = numbers(24, -3.0f, 0.25f);
  auto b = numbers(24, 1.0f, -0.125f);
  auto weight = numbers(8, 0.5f, 0.25f), half = numbers(4, 0.25f, 0.125f);
  std::vector<float> out(24), sum(24);
  const Array x(a, {3, 8}), other(b, {3, 8}), y(out, {3, 8}), h(sum, {3, 8});
  cpp.rms_norm(x, weight, y, 1e-3);
  print("rms_norm", out);
  cpp.add_rms_norm(x, other, weight, y, h);
  print("add_rms_norm", out);
  print("sum", sum);
  cpp.layer_norm(x, weight, {}, y);
  print("layer_norm", out);
  cpp.layer_norm(x, weight, weight, y);
  print("layer_norm_bias", out);
  cpp.silu(x, y);
  print("silu", out);
  cpp.gelu(x, y);
  print("gelu", out);
  cpp.gelu(x, y, Approximate::kNone);
  print("gelu_none", out);
  cpp.silu_mul(x, other, y);
  print("silu_mul", out);
  cpp.gelu_mul(x, other, y, Approximate::kNone);
  print("gelu_mul_none", out);
  cpp.softmax(x, y, 0.5, {1});
  print("softmax", out);
  cpp.rope(x, half, half, y);
  print("rope", out);
  cpp.rope(x, half, half, y, true);
  print("rope_interleaved", out);
  // Every second row of x, backwards, into itself.
  cpp.call("silu", {{"x", Array(a.data() + 16, {2, 8}, {-64, 4})}},
           {{"y", Array(a.data() + 16, {2, 8}, {-64, 4})}});
  print("in_place", a);
  const auto refused = [](const char* what, const auto& call) {
    try {
      call();
      std::printf("%s passed\n", what);
    } catch (const TypeError& error) {
      std::printf("%s TypeError: %s\n", what, error.what());
    } catch (const ValueError& error) {
      std::printf("%s ValueError: %s\n", what, error.what());
    }
  };
  std::vector<double> wide(24);
  refused("dtype", [&] { cpp.silu(x, {wide, {3, 8}}); });
  refused("shape", [&] { cpp.rms_norm(x, half, y); });
  refused("missing", [&] { cpp.call("rms_norm", {x}, {y}); });
  refused("negative", [&] { cpp.rms_norm(x, weight, y, -1.0); });
  refused("overlap", [&] { cpp.silu({a.data(), {4}}, {a.data() + 1, {4}}); });
  refused("null", [&] { cpp.silu({static_cast<float*>(nullptr), {4}}, {out.data(), {4}}); });
  refused("device", [&] { cpp.silu({a.data(), {4}, {}, Device::cuda()}, {out.data(), {4}}); });
}
