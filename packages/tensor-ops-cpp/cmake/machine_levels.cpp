// Prints the instruction-set levels that the processor has, and the variants of products, whose
// names have a "+", for builds that are for it alone.
#include <cstdio>
#include <cstdlib>

#include "decode/products/variants.cpp"
#include "isa/isa.cpp"

int main() {
#if defined(__linux__)
  setenv("TENSOR_OPS_CPP_AMX", "1", 1);  // which may be set when the library runs
#endif
  for (const tensor_ops::ProductVariant& variant : tensor_ops::product_variants())
    if (variant.cpu_has) std::printf("%s;", variant.name);
}
