// Gradients of normalisations in double, for the rows whose numbers their type has no room for.
#pragma once

#include "kernels/rows.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

// Elements of a row of any type.
struct AnyRow {
  const void* data;
  double (*load)(const void* data, std::size_t i);

  double operator[](std::size_t i) const { return load(data, i); }
};
template <class Element>
AnyRow any_row(const typename Element::Storage* row) {
  return {row, [](const void* data, std::size_t i) {
            return static_cast<double>(
                Element::load(static_cast<const typename Element::Storage*>(data)[i]));
          }};
}
struct AnyResult {
  void* data;
  void (*store)(void* data, std::size_t i, double value);
};
template <class Element>
AnyResult any_result(typename Element::Storage* row) {
  return {row, [](void* data, std::size_t i, double value) {
            static_cast<typename Element::Storage*>(data)[i] =
                Element::store(static_cast<typename Element::Compute>(value));
          }};
}

// The same as wide_sum_of_chunks() of terms that come from calls.
template <class Term>
double sum_of_any(std::size_t n, Term term) {
  return sum_of_chunks(n, [&](std::size_t begin, std::size_t end) {
    constexpr std::size_t lanes = 16;
    double lane[lanes] = {}, total = 0;
    for (std::size_t i = begin; i < end; ++i) lane[i % lanes] += term(i);
    for (const double each : lane) total += each;
    return total;
  });
}

struct WideRow {
  AnyRow grad, x, weight, added;
  AnyResult result;
  double *of_weight, *of_bias;
  std::size_t n;
  double eps;
};

// The scale of a row, which is multiplied by a factor first, and the mean, which is centre + rest.
struct WideStatistics {
  double factor, centre, rest, mean_square, scale;
};

template <bool is_centred>
TENSOR_OPS_RARE WideStatistics wide_statistics(const WideRow& row, double factor) {
  const auto count = static_cast<double>(row.n);
  const auto x = [&](std::size_t i) { return row.x[i] * factor; };
  WideStatistics found{factor, 0, 0, 0, 0};
  if (is_centred) {
    found.centre = sum_of_any(row.n, x) / count;
    const auto deviation = [&](std::size_t i) { return x(i) - found.centre; };
    found.centre += sum_of_any(row.n, deviation) / count;
    found.rest = sum_of_any(row.n, deviation) / count;
  }
  const auto square = [&](std::size_t i) {
    const double deviation = (x(i) - found.centre) - found.rest;
    return deviation * deviation;
  };
  found.mean_square = sum_of_any(row.n, square) / count + wide_eps(row.eps, factor);
  found.scale = 1 / __builtin_sqrt(found.mean_square);
  return found;
}

template <bool is_centred, class C>
TENSOR_OPS_RARE WideStatistics wide_statistics(const WideRow& row) {
  WideStatistics found = wide_statistics<is_centred>(row, 1);
  if (sizeof(C) == sizeof(float) || is_safe_in(C(), found.mean_square)) return found;
  // A sum that overflows does not where its terms are smaller.
  if (is_centred && !is_finite(found.centre)) found = wide_statistics<is_centred>(row, 0x1p-64);
  double largest = 0;
  for (std::size_t i = 0; i < row.n; ++i) {
    const double deviation = (row.x[i] * found.factor - found.centre) - found.rest;
    largest = at_least(magnitude(deviation), largest);
  }
  largest /= found.factor;
  if (largest == 0 && is_finite(found.mean_square) && row.eps > 0) {
    // The divisor of a constant row has nothing but eps, however large the row is.
    found.scale = 1 / (__builtin_sqrt(row.eps) * found.factor);
    return found;
  }
  double factor = wide_factor<C>(largest);
  // eps must not overflow. Beside one as large as this the squares may vanish.
  if (factor > 1 && row.eps > 0x1p-600) factor = 0x1p300;
  return wide_statistics<is_centred>(row, factor);
}

template <bool is_centred, class C>
TENSOR_OPS_RARE void write_wide_gradient(const WideRow& row) {
  const WideStatistics of = wide_statistics<is_centred, C>(row);
  const double scale = of.scale * of.factor;
  const auto normalised = [&](std::size_t i) {
    return ((row.x[i] * of.factor - of.centre) - of.rest) * of.scale;
  };
  const auto along = [&](std::size_t i) { return row.grad[i] * row.weight[i]; };
  const auto count = static_cast<double>(row.n);
  const double mean = is_centred ? sum_of_any(row.n, along) / count : 0;
  const double product =
      sum_of_any(row.n, [&](std::size_t i) { return along(i) * normalised(i); }) / count;
  for (std::size_t i = 0; i < row.n; ++i) {
    const double grad = row.grad[i], x = normalised(i);
    double found = (grad * scale) * row.weight[i] - x * (scale * product);
    if (is_centred) found -= scale * mean;
    if (row.added.data) found += row.added[i];
    row.of_weight[i] += grad * x;
    if (is_centred) row.of_bias[i] += grad;
    row.result.store(row.result.data, i, found);
  }
}

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
