#include <algorithm>

#include "kernels/arithmetic.cuh"
#include "kernels/row_grid.cuh"
#include "launch/memory.h"
#include "op.h"

namespace tensor_ops {
namespace {

struct LayerArrays {
  void* array[4];  // x, weight, bias or null, y
};

// A mean as hi + lo, and the variance.
template <class A>
struct Moments {
  A mean, rest, variance;
};

// The elements of a row as they are, or times a factor.
struct Plain {
  template <class A>
  __device__ __forceinline__ A operator()(A x) const {
    return x;
  }
};
struct Scaled {
  double factor;
  __device__ __forceinline__ double operator()(double x) const { return x * factor; }
};

// What brings a row of double near 1 whose variance, or that of several such rows together, is not
// safe. NaN comes from an overflow, or stays what it is. Rows of equal large elements have no
// variance, and are not to overflow.
__device__ __forceinline__ double scaling_factor(double mean, double with_eps) {
  if (!(with_eps <= 1e290 && magnitude(mean) <= 1e140)) return kShrink;
  return with_eps < 1e-290 && magnitude(mean) < 1e-100 ? kGrow : 1;
}

// eps of a row times a factor: where it is not 0, neither is the result, so that rows of equal
// elements are 0.
__device__ __forceinline__ double scaled_eps(double eps, double factor) {
  return eps > 0 ? at_least((eps * factor) * factor, 0x1p-1022) : 0;
}

// A row, or a part of one. The weight and the bias may have other elements than x: float32.
template <class Element, class Weight>
struct LayerRow {
  using R = Real<Element>;
  static constexpr int kCount = kWidth<Element>;
  using Vector = Packed<Element, kCount>;

  const Element* x;
  const Weight *weight, *bias;
  Element* y;
  int n;
  bool whole;

  __device__ __forceinline__ LayerRow(const LayerArrays& arrays, const Rows& rows, std::int64_t row,
                                      std::int64_t first, int n_, bool whole_)
      : n(n_), whole(whole_) {
    const RowOffsets<4> offset(rows, row);
    const auto at = [&](auto type, int k) {
      return static_cast<decltype(type)*>(arrays.array[k]) + offset.of[k] + first;
    };
    x = at(Element(), 0);
    weight = at(Weight(), 1);
    bias = arrays.array[2] ? at(Weight(), 2) : nullptr;
    y = at(Element(), 3);
  }

  // y = ((x - mean) - rest) * scale * weight + bias, computed in A, of x as `given` has it.
  template <class A, class Given>
  __device__ __forceinline__ void write(int first, const Vector& in, A mean, A rest, A scale,
                                        Given given) const {
    const auto w = load_part<Weight, kCount>(weight, first, n, whole);
    Packed<Weight, kCount> b{};
    if (bias) b = load_part<Weight, kCount>(bias, first, n, whole);
    Vector result;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const A deviation = (given(static_cast<A>(real(in.element[i]))) - mean) - rest;
      A value = (deviation * scale) * static_cast<A>(real(w.element[i]));
      if (bias) value += static_cast<A>(real(b.element[i]));
      result.element[i] = rounded_to<Element>(static_cast<R>(value));
    }
    store_part(result, y, first, n, whole);
  }

  // visit(first, vector) for each vector of a lane.
  template <class Visit>
  __device__ __forceinline__ void each(int lane, int lanes, Visit visit) const {
#pragma unroll 2
    for (int first = lane * kCount; first < n; first += lanes * kCount)
      visit(first, load_part<Element, kCount>(x, first, n, whole));
  }

  // The sum of function(x) over the row.
  template <class Team, class Function>
  __device__ __forceinline__ double sum(Team& team, Function function) const {
    double total = 0;
    each(team.lane(), team.lanes(), [&](int first, const Vector& in) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (first + i < n) total += function(static_cast<double>(real(in.element[i])));
    });
    return team.combine(total, Plus());
  }

  // In double, of `count` elements: the mean is made good once, so that a row of equal elements has
  // no deviations at all.
  template <class Team, class Given>
  __device__ __forceinline__ Moments<double> exact_moments(Team& team, double count,
                                                           Given given) const {
    const double mean = sum(team, [=](double v) { return given(v); }) / count;
    const double rest = sum(team, [=](double v) { return given(v) - mean; }) / count;
    const double squares = sum(team, [=](double v) {
      const double deviation = (given(v) - mean) - rest;
      return deviation * deviation;
    });
    return {mean, rest, squares / count};
  }

  template <class A, class Team, class Given>
  __device__ __forceinline__ void write_all(const Team& team, const Moments<A>& moments, A scale,
                                            Given given) const {
    each(team.lane(), team.lanes(), [&](int first, const Vector& in) {
      write(first, in, moments.mean, moments.rest, scale, given);
    });
  }
};

// Rarely called: inlined they would take registers from their callers.
template <class Element, class Weight, class Team>
__device__ __noinline__ void layer_norm_careful_row(const LayerRow<Element, Weight>& row,
                                                    Team& team, int n, double eps, bool is_mine) {
  const Moments<double> moments = row.exact_moments(team, n, Plain());
  if (is_mine) row.write_all(team, moments, 1 / sqrt(moments.variance + eps), Plain());
}

template <class Element, class Weight, class Team>
__device__ __noinline__ void layer_norm_scaled_row(const LayerRow<Element, Weight>& row, Team& team,
                                                   int n, double eps, double factor, bool is_mine) {
  const Scaled scaled{factor};
  const Moments<double> moments = row.exact_moments(team, n, scaled);
  const double scale = 1 / sqrt(moments.variance + scaled_eps(eps, factor));
  if (is_mine) row.write_all(team, moments, scale, scaled);
}

template <class Element, class Weight, int kVectors, bool kCluster>
__global__ void __launch_bounds__(kMostLanes, 1)
    layer_norm_rows(const __grid_constant__ LayerArrays arrays, const __grid_constant__ Rows rows,
                    int n, double eps, bool whole) {
  if constexpr (!kCluster || HAS_CLUSTERS) {
    using R = Real<Element>;
    using Row = LayerRow<Element, Weight>;
    Team<kCluster> team;
    for (std::int64_t turn = team.first_row(); turn - threadIdx.y < rows.count;
         turn += team.row_step()) {
      const bool is_live = turn < rows.count;
      const Row row(arrays, rows, is_live ? turn : 0, 0, is_live ? n : 0, whole);
      RowShare<Element, kVectors> share;
      share.load(row.x, row.n, team.lane(), team.lanes(), whole, Element{});
      R sum = 0;
#pragma unroll
      for (int j = 0; j < kVectors; ++j)
#pragma unroll
        for (int i = 0; i < Row::kCount; ++i) sum += share.at(j, i);
      const R count = static_cast<R>(n), mean = team.combine(sum, Plus()) / count;
      share.forget_conversions();

      R deviations = 0, squares = 0;
#pragma unroll
      for (int j = 0; j < kVectors; ++j)
#pragma unroll
        for (int i = 0; i < Row::kCount; ++i)
          if ((j * team.lanes() + team.lane()) * Row::kCount + i < row.n) {
            const R deviation = share.at(j, i) - mean;
            deviations += deviation;
            squares = fused(deviation, deviation, squares);
          }
      const R rest = team.combine(deviations, Plus()) / count;
      const R square = team.combine(squares, Plus()) / count;
      share.forget_conversions();

      // Where the mean is far from exact, the deviations have lost digits to what it lacks.
      const R variance = square - rest * rest, with_eps = variance + static_cast<R>(eps);
      const bool safe = is_safe(with_eps) && rest * rest <= variance;
      if (safe && is_live) {
        const R scale = 1 / sqrt(with_eps);
#pragma unroll
        for (int j = 0; j < kVectors; ++j)
          row.write((j * team.lanes() + team.lane()) * Row::kCount, share.vector[j], mean, rest,
                    scale, Plain());
      }
      if (any_of_warp(!safe)) {
        if constexpr (sizeof(R) == 8)
          layer_norm_scaled_row(row, team, n, eps, scaling_factor(mean, with_eps),
                                is_live && !safe);
        else
          layer_norm_careful_row(row, team, n, eps, is_live && !safe);
      }
    }
  }
}

// --- Rows in parts -------------------------------------------------------------------------------

// Each part leaves its mean and its sum of squared deviations from it. A part of double leaves
// those of the part times a factor, and the factor too: 1 where they are safe.
template <class Element>
__global__ void __launch_bounds__(kMostLanes, 1)
    layer_norm_measure_parts(const __grid_constant__ LayerArrays arrays,
                             const __grid_constant__ Rows rows, std::int64_t n,
                             const __grid_constant__ RowParts parts, bool whole, double eps,
                             double* found) {
  using Row = LayerRow<Element, Element>;
  Team<false> team;
  for (std::int64_t turn = blockIdx.x; turn < rows.count * parts.count; turn += gridDim.x) {
    const PartPlace at(turn, parts, n);
    const Row row(arrays, rows, at.row, at.first, at.n, whole);
    Moments<double> moments = row.exact_moments(team, at.n, Plain());
    if constexpr (sizeof(Element) == 8) {
      const double factor = scaling_factor(moments.mean, moments.variance + eps);
      if (factor != 1) moments = row.exact_moments(team, at.n, Scaled{factor});
      if (team.lane() == 0) found[2 * rows.count * parts.count + turn] = factor;
    }
    if (team.lane() != 0) continue;
    found[2 * turn] = moments.mean + moments.rest;
    found[2 * turn + 1] = moments.variance * at.n;
  }
}

// The mean and the variance of a row, given what its parts have left, each times what its part's
// `less` is.
template <class Less>
__device__ __forceinline__ Moments<double> moments_of_parts(Team<false>& team, std::int64_t n,
                                                            const RowParts& parts,
                                                            const double* of_row, Less less) {
  const double count = static_cast<double>(n);
  const auto size_of = [&](std::int64_t part) {
    return static_cast<double>(part + 1 < parts.count ? parts.each : n - part * parts.each);
  };
  // Around the first part's mean, so that rows of equal elements have exactly that mean.
  const double centre = less(0, of_row[0]);
  const double mean = centre + sum_of_parts(team, parts.count, [&](std::int64_t part) {
                                 return (less(part, of_row[2 * part]) - centre) * size_of(part);
                               }) / count;
  const double squares = sum_of_parts(team, parts.count, [&](std::int64_t part) {
    const double deviation = less(part, of_row[2 * part]) - mean;
    return less(part, less(part, of_row[2 * part + 1])) + deviation * deviation * size_of(part);
  });
  return {mean, 0, squares / count};
}

template <class Element, class Weight>
__global__ void __launch_bounds__(kMostLanes, 1)
    layer_norm_write_parts(const __grid_constant__ LayerArrays arrays,
                           const __grid_constant__ Rows rows, std::int64_t n,
                           const __grid_constant__ RowParts parts, bool whole, double eps,
                           const double* found) {
  using R = Real<Element>;
  Team<false> team;
  for (std::int64_t turn = blockIdx.x; turn < rows.count * parts.count; turn += gridDim.x) {
    const PartPlace at(turn, parts, n);
    const LayerRow<Element, Weight> row(arrays, rows, at.row, at.first, at.n, whole);
    const double* of_row = found + 2 * at.row * parts.count;
    if constexpr (sizeof(R) == 8) {
      // Parts come to the least of their factors.
      const double* factors = found + (2 * rows.count + at.row) * parts.count;
      const double factor = combine_parts(
          team, parts.count, kGrow, [&](std::int64_t part) { return factors[part]; }, Lesser());
      const auto less = [&](std::int64_t part, double value) {
        return value * (factor / factors[part]);
      };
      const Moments<double> moments = moments_of_parts(team, n, parts, of_row, less);
      const double scale = 1 / sqrt(moments.variance + scaled_eps(eps, factor));
      row.write_all(team, moments, scale, Scaled{factor});
    } else {
      const Moments<double> exact = moments_of_parts(
          team, n, parts, of_row, [](std::int64_t, double value) { return value; });
      const double with_eps = exact.variance + eps;
      const R rough = static_cast<R>(exact.mean);
      const Moments<R> moments{rough, static_cast<R>(exact.mean - static_cast<double>(rough)), 0};
      if (is_safe(static_cast<R>(with_eps)))
        row.write_all(team, moments, static_cast<R>(1 / sqrt(with_eps)), Plain());
      else
        row.write_all(team, exact, 1 / sqrt(with_eps), Plain());
    }
  }
}

template <class Element, class Weight>
struct LayerKernels {
  static constexpr int kMostVectors = kManyVectors;

  static LayerArrays arrays_of(const Call& call) {
    LayerArrays arrays{};
    std::copy_n(call.array, 4, arrays.array);
    return arrays;
  }

  template <int kVectors, bool kCluster>
  static void rows(const Call& call, const Grid& grid, bool whole) {
    launch(call, grid, layer_norm_rows<Element, Weight, kVectors, kCluster>, arrays_of(call),
           call.rows, static_cast<int>(call.n), call.scalar[0], whole);
  }

  static void parts(const Call& call, bool whole) {
    const RowParts parts = parts_of<Element>(call);
    const Grid grid = part_grid(call, parts);
    constexpr std::size_t kFound = sizeof(Element) == 8 ? 3 : 2;
    const DeviceMemory memory(
        static_cast<std::size_t>(call.rows.count * parts.count) * kFound * sizeof(double),
        call.stream);
    auto* found = static_cast<double*>(memory.data());
    launch(call, grid, layer_norm_measure_parts<Element>, arrays_of(call), call.rows, call.n, parts,
           whole, call.scalar[0], found);
    launch(call, grid, layer_norm_write_parts<Element, Weight>, arrays_of(call), call.rows, call.n,
           parts, whole, call.scalar[0], found);
  }
};

// Of x, weight, bias and y.
void launch_layer_norm(const Call& call) {
  with_element(call.dtype, [&](auto x) {
    using X = decltype(x);
    with_wide_element<X>(call.array_dtype[1], [&](auto weight) {
      launch_rows<X, LayerKernels<X, decltype(weight)>>(call, 4);
    });
  });
}

}  // namespace

DECLARE_OP(layer_norm,
           {
               "layer_norm",
               Walk::kRows,
               "Normalisation of the last axis to mean 0 and variance 1, scaled and shifted.",
               "y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias",
               {rows("x", "Input."), wide(row("weight", "Scale of each element of a row.")),
                like("weight", optional_row("bias", "Added to each row.")),
                non_negative("eps", 1e-5, "Added to the variance.")},
               {{"y", "The normalised rows."}},
               "J. L. Ba, J. R. Kiros and G. E. Hinton, Layer normalization, arXiv:1607.06450.",
               launch_layer_norm,
           })

}  // namespace tensor_ops
