// The products of the executor one by one, for the tests:
//
// decode_product(format, activations, variant, weight, x, tokens) -> y: x is multiplied by `tokens`
// of its rows at a time; weight has the bytes of a row of the file in each row.
// decode_dequantize(format, row, columns) -> values.
// decode_product_variants() -> names of those that the CPU has; decode_formats() -> names.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "binding/python/arrays.h"
#include "binding/python/nanobind.h"
#include "declaration/errors.h"
#include "decode/products/product.h"
#include "decode/program/activation_names.h"
#include "decode/program/pieces.h"
#include "isa/float_mode.h"
#include "isa/isa.h"

namespace nb = nanobind;

namespace tensor_ops {
namespace {

// What is given as a C-contiguous array of a dtype, converted where it is another.
template <class T>
class Given {
 public:
  explicit Given(const nb::object& object)
      : array_(PyArray_FROM_OTF(object.ptr(), NumPyType<T>::number,
                                NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_FORCECAST)) {
    if (!array_) throw TypeError(take_error_text());
  }
  int dims() const { return PyArray_NDIM(array_.array()); }
  std::size_t length(int axis) const {
    return static_cast<std::size_t>(PyArray_DIM(array_.array(), axis));
  }
  std::size_t size() const { return static_cast<std::size_t>(PyArray_SIZE(array_.array())); }
  const T* data() const { return data_of<const T>(array_); }

 private:
  Owned array_;
};

const WeightFormat& format_of(const std::string& name) {
  const WeightFormat* format = find_weight_format(name);
  if (!format) throw ValueError("no weight format is called '" + name + "'");
  return *format;
}

// Asks the system for what it grants to a process that asks. A variant that is slower than another
// can run too.
bool can_run(const ProductVariant& variant) {
  return std::strstr(variant.name, "+amx") == nullptr || variant.may_use(true);
}

std::size_t variant_of(const std::string& name) {
  const auto& variants = product_variants();
  for (std::size_t i = 0; i < variants.size(); ++i)
    if (variants[i].cpu_has && name == variants[i].name && can_run(variants[i])) return i;
  throw ValueError("this CPU has no variant of products called '" + name + "'");
}

void check_row_bytes(const WeightFormat& format, std::size_t bytes, std::size_t columns) {
  if (columns % format.block_columns || bytes != format.row_bytes(columns))
    throw ValueError(std::string("a row of ") + format.name + " with " + std::to_string(columns) +
                     " columns does not take " + std::to_string(bytes) + " bytes");
}

// Memory that is aligned to a line.
class Lines {
 public:
  explicit Lines(std::size_t bytes) : memory_(bytes + kTileAlignment) {}
  unsigned char* data() {
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (0 - at) % kTileAlignment;
  }

 private:
  std::vector<unsigned char> memory_;
};

nb::object decode_product(const std::string& format_name, const std::string& activations,
                          const std::string& variant, const nb::object& weights,
                          const nb::object& activation_rows, std::size_t tokens_at_a_time) {
  const Given<std::uint8_t> weight(weights);
  const Given<float> x(activation_rows);
  const WeightFormat& format = format_of(format_name);
  const std::size_t index = variant_of(variant);
  const ProductKernel& kernel = product_kernel(format, decode::activation_type(activations), index)
                                    .for_tokens(tokens_at_a_time);
  const PackTile pack = format.pack[product_variants()[index].level];
  if (!kernel.multiply) throw ValueError(format_name + " has no product with " + activations);
  if (weight.dims() != 2 || x.dims() != 2) throw ValueError("weight and x have two dimensions");
  if (!tokens_at_a_time) throw ValueError("tokens must be at least 1");
  const auto rows = weight.length(0);
  const auto tokens = x.length(0);
  const auto columns = x.length(1);
  const auto row_bytes = weight.length(1);
  check_row_bytes(format, row_bytes, columns);

  const DefaultFloatMode float_mode;
  const std::size_t prepared_bytes = decode::aligned(kernel.prepared_bytes(columns));
  Lines prepared(tokens * prepared_bytes);
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::size_t first = t - t % tokens_at_a_time;
    kernel.prepare(x.data() + t * columns, columns, prepared.data() + first * prepared_bytes,
                   prepared_bytes, t - first, std::min(tokens_at_a_time, tokens - first));
  }

  Owned y = empty_array(NPY_FLOAT32, {tokens, rows});
  // Whole tiles are multiplied together, as in a step.
  constexpr std::size_t kTogether = 11;
  const std::size_t tile_bytes = format.tile_bytes(columns);
  Lines tiles(kTogether * tile_bytes);
  std::vector<float> out(tokens * kTogether * kTileRows), sums(kMostSums);
  for (std::size_t first = 0; first < rows;) {
    const std::size_t whole = std::min(kTogether, (rows - first) / kTileRows);
    const std::size_t together = kernel.multiply_tiles && whole ? whole : 1;
    const std::size_t present = std::min(together * kTileRows, rows - first);
    for (std::size_t i = 0; i < together; ++i) {
      const std::size_t row = i * kTileRows;
      pack(weight.data() + (first + row) * row_bytes, std::min(kTileRows, present - row), columns,
           tiles.data() + i * tile_bytes);
    }
    for (std::size_t t = 0; t < tokens; t += tokens_at_a_time) {
      const unsigned char* const x = prepared.data() + t * prepared_bytes;
      const std::size_t count = std::min(tokens_at_a_time, tokens - t);
      float* const to = out.data() + t * kTogether * kTileRows;
      if (together > 1)
        kernel.multiply_tiles(tiles.data(), tile_bytes, together, columns, x, prepared_bytes, count,
                              sums.data(), to, kTogether * kTileRows);
      else
        kernel.multiply(tiles.data(), columns, x, prepared_bytes, count, to, kTogether * kTileRows);
    }
    for (std::size_t t = 0; t < tokens; ++t)
      std::copy_n(out.data() + t * kTogether * kTileRows, present,
                  data_of<float>(y) + t * rows + first);
    first += present;
  }
  return object_of(std::move(y));
}

nb::object decode_dequantize(const std::string& format_name, const nb::object& given,
                             std::size_t columns) {
  const Given<std::uint8_t> row(given);
  const WeightFormat& format = format_of(format_name);
  check_row_bytes(format, row.size(), columns);
  const DefaultFloatMode float_mode;
  Owned values = empty_array(NPY_FLOAT32, {columns});
  format.dequantize(row.data(), columns, data_of<float>(values));
  return object_of(std::move(values));
}

}  // namespace

void add_decode_product(nb::module_& module) {
  module.def("decode_product", decode_product);
  module.def("decode_dequantize", decode_dequantize);
  module.def("decode_formats", [] {
    std::vector<std::string> names;
    for (const WeightFormat* format : weight_formats()) names.emplace_back(format->name);
    return names;
  });
  // What decode programs of this process are multiplied by, without asking the system for more.
  module.def("decode_products", []() -> std::pair<std::string, std::string> {
    if (!isa_choice().reason.empty()) return {};
    return {product_variants()[fastest_product_variant(isa_choice().index, false)].name,
            use_of_tiles()};
  });
  module.def("decode_has_bfloat16_products", [] {
    if (!isa_choice().reason.empty()) return false;
    const WeightFormat& format = *find_weight_format("bf16");
    const std::size_t level = isa_choice().index;
    const auto kernel = [&](std::size_t variant) {
      return product_kernel(format, ActivationType::kBFloat16, variant).multiply;
    };
    return kernel(fastest_product_variant(level, false)) != kernel(level);
  });
  module.def("decode_product_variants", [] {
    std::vector<std::string> names;
    for (const ProductVariant& variant : product_variants())
      if (variant.cpu_has && can_run(variant)) names.emplace_back(variant.name);
    return names;
  });
}

}  // namespace tensor_ops
