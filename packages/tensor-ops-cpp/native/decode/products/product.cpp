#include "decode/products/product.h"

#include <algorithm>
#include <cstring>

#include "decode/products/pack.h"
#include "decode/products/variants.h"
#include "isa/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tensor_ops {
namespace {

// A static variable of a function, since registrations of other files may run before this file's
// own static variables are initialised.
std::vector<const WeightFormat*>& formats() {
  static std::vector<const WeightFormat*> formats;
  return formats;
}

// What TENSOR_OPS_DOT_VARIANT needs beyond its level.
bool cpu_has_dot_products() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx);
  return ecx >> 11 & 1;  // AVX512-VNNI
#elif defined(__aarch64__) && defined(__linux__)
  return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#elif defined(__ARM_FEATURE_DOTPROD)
  return true;
#else
  return false;
#endif
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

const std::vector<ProductVariant>& product_variants() {
#define TENSOR_OPS_NAME(_, variant, name) name,
  static const std::vector<ProductVariant> variants = [] {
    const auto& levels = compiled_levels();
    std::vector<ProductVariant> all;
    for (const char* name : {TENSOR_OPS_FOR_EACH_VARIANT(TENSOR_OPS_NAME, )}) {
      const std::size_t level = std::min(all.size(), levels.size() - 1);
      const bool needs_more = all.size() >= levels.size();
      all.push_back(
          {name, level, levels[level].cpu_has() && (!needs_more || cpu_has_dot_products())});
    }
    return all;
  }();
#undef TENSOR_OPS_NAME
  return variants;
}

std::size_t fastest_product_variant(std::size_t level) {
  const auto& variants = product_variants();
  std::size_t fastest = level;
  for (std::size_t i = level; i < variants.size(); ++i)
    if (variants[i].level == level && variants[i].cpu_has) fastest = i;
  return fastest;
}

ActivationType activations_for(const WeightFormat& format, ActivationType wanted) {
  return product_kernel(format, wanted, 0).multiply ? wanted : ActivationType::kFloat32;
}

}  // namespace tensor_ops
