#include "decode/products/product.h"

#include <algorithm>
#include <cstring>

#include "decode/products/dequantize.h"

namespace tensor_ops {
namespace {

// A static variable of a function, since registrations of other files may run before this file's
// own static variables are initialised.
std::vector<const WeightFormat*>& formats() {
  static std::vector<const WeightFormat*> formats;
  return formats;
}

}  // namespace

WeightFormatRegistration::WeightFormatRegistration(const WeightFormat& format) {
  const auto by_name = [](const WeightFormat* a, const WeightFormat* b) {
    return std::strcmp(a->name, b->name) < 0;
  };
  auto& all = formats();
  all.insert(std::upper_bound(all.begin(), all.end(), &format, by_name), &format);
}

const std::vector<const WeightFormat*>& weight_formats() { return formats(); }

const WeightFormat* find_weight_format(const std::string& name) {
  for (const WeightFormat* format : formats())
    if (name == format->name) return format;
  return nullptr;
}

ActivationType activations_for(const WeightFormat& format, ActivationType wanted) {
  const auto has = [&](ActivationType type) { return product_kernel(format, type, 0).multiply; };
  if (has(wanted)) return wanted;
  const bool is_integer = wanted == ActivationType::kBFloat16 && has(ActivationType::kInt8x2);
  return is_integer ? ActivationType::kInt8x2 : ActivationType::kFloat32;
}

}  // namespace tensor_ops
