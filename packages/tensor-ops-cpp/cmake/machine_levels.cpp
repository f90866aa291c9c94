// Prints the instruction-set levels that the processor has, for builds that are for it alone.
#include <cstdio>

#include "isa/isa.cpp"

int main() {
  for (const tensor_ops::Level& level : tensor_ops::compiled_levels())
    if (level.cpu_has()) std::printf("%s;", level.name);
}
