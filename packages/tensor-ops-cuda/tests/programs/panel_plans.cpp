// The panels that matrices are divided into, for the tests of packing.cpp.
#include <string>
#include <vector>

#include "declaration/errors.h"
#include "decode/executor/packing.h"

using namespace tensor_ops::decode;

#pragma GCC visibility push(default)
extern "C" {

// Writes how many warps share a tile of each panel, and returns the number of panels.
int plan_of(int format, int rows, int columns, int* warps) {
  const auto size = [](int count) { return static_cast<std::size_t>(count); };
  const PanelPlan plan = plan_panels(WeightFormat{format}, size(rows), size(columns));
  for (const Panel& panel : plan.panels) *warps++ = 1 << panel.log2_split;
  return static_cast<int>(plan.panels.size());
}

// Null where the panels of a matrix are right, whose tiles are shared by so many warps.
const char* refusal_of(int count, const int* log2_warps) {
  static std::string message;
  std::vector<Panel> panels(static_cast<std::size_t>(count));
  for (Panel& panel : panels) panel.log2_split = *log2_warps++;
  try {
    require_shared_tiles(panels);
  } catch (const tensor_ops::Error& error) {
    message = error.what();
    return message.c_str();
  }
  return nullptr;
}
}
#pragma GCC visibility pop
