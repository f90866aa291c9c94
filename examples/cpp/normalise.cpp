// Normalises the rows of a matrix on the best backend of this machine.
#include <tensor_ops/backend/backends.h>

#include <iostream>
#include <vector>

using namespace tensor_ops::backend;

int main() try {
  const Backend& backend = *get_default_backend();
  std::vector<float> rows{3, 4, -5, 12};
  const std::vector<float> weight{1, 1};
  std::vector<float> normalised(rows.size());

  backend.rms_norm(ConstArray(rows, {2, 2}), weight, Array(normalised, {2, 2}));

  std::cout << "on " << backend.get_name() << ":";
  for (const float value : normalised) std::cout << ' ' << value;
  std::cout << '\n';
} catch (const Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
