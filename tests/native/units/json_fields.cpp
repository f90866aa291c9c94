// JSON with more values than any model has is refused before anything is made of it.
#include "decode/program/json_fields.h"

#include <string>

#include "declaration/errors.h"
#include "require.h"

namespace {

using namespace tensor_ops::decode;

std::string lists(std::size_t count) {
  std::string json = "[";
  for (std::size_t i = 0; i < count; ++i) json += "[],";
  return json + "0]";
}

}  // namespace

int main() {
  const Json made = parse_json(lists(1000), "a text");
  require(made.items.size() == 1001, made.items.size(), " items");
  try {
    parse_json(lists(kMostValues / 2), "a text");
  } catch (const tensor_ops::ValueError& error) {
    const std::string found = error.what();
    const std::string expected = "a text: JSON: about 1048577 values; expected at most 1048576";
    require(found == expected, found);
    return 0;
  }
  require(false, "too many values were read");
}
