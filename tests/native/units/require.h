// Checks of the programs of this folder.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "declaration/errors.h"

// Ends the program unless the condition holds; what follows it says what is wrong.
template <class... Parts>
void require(bool holds, const Parts&... parts) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", tensor_ops::text(parts...).c_str());
  std::exit(1);
}
