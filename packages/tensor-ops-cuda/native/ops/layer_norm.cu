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

// A row, or a part of one.
template <class Element>
struct LayerRow {
  using R = Real<Element>;
  static constexpr int kCount = kWidth<Element>;
  using Vector = Packed<Element, kCount>;

  const Element *x, *weight, *bias;
  Element* y;
  int n;
  bool whole;

  __device__ __forceinline__ LayerRow(const LayerArrays& arrays, const Rows& rows, std::int64_t row,
                                      std::int64_t first, int n_, bool whole_)
      : n(n_), whole(whole_) {
    const RowOffsets<4> offset(rows, row);
    const auto at = [&](int k) {
      return static_cast<Element*>(arrays.array[k]) + offset.of[k] + first;
    };
    x = at(0);
    weight = at(1);
    bias = arrays.array[2] ? at(2) : nullptr;
    y = at(3);
  }

  // y = ((x - mean) - rest) * scale * weight + bias, computed in A.
  template <class A>
  __device__ __forceinline__ void write(int first, const Vector& in, A mean, A rest,
                                        A scale) const {
    const auto w = load_part<Element, kCount>(weight, first, n, whole);
    Vector b{};
    if (bias) b = load_part<Element, kCount>(bias, first, n, whole);
    Vector result;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const A deviation = (static_cast<A>(real(in.element[i])) - mean) - rest;
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
  template <class Team>
  __device__ __forceinline__ Moments<double> exact_moments(Team& team, double count) const {
    const double mean = sum(team, [](double v) { return v; }) / count;
    const double rest = sum(team, [=](double v) { return v - mean; }) / count;
    const double squares = sum(team, [=](double v) {
      const double deviation = (v - mean) - rest;
      return deviation * deviation;
    });
    return {mean, rest, squares / count};
  }

  template <class A, class Team>
  __device__ __forceinline__ void write_all(const Team& team, const Moments<A>& moments,
                                            A scale) const {
    each(team.lane(), team.lanes(),
         [&](int first, const Vector& in) { write(first, in, moments.mean, moments.rest, scale); });
  }
};

// Rarely called: inlined it would take registers from its callers.
template <class Element, class Team>
__device__ __noinline__ void layer_norm_careful_row(const LayerRow<Element>& row, Team& team, int n,
                                                    double eps, bool is_mine) {
  const Moments<double> moments = row.exact_moments(team, n);
  if (is_mine) row.write_all(team, moments, 1 / sqrt(moments.variance + eps));
}

template <class Element, int kVectors, bool kCluster>
__global__ void __launch_bounds__(kMostLanes, 1)
    layer_norm_rows(const __grid_constant__ LayerArrays arrays, const __grid_constant__ Rows rows,
                    int n, double eps, bool whole) {
  if constexpr (!kCluster || HAS_CLUSTERS) {
    using R = Real<Element>;
    using Row = LayerRow<Element>;
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
                    scale);
      }
      if (any_of_warp(!safe)) layer_norm_careful_row(row, team, n, eps, is_live && !safe);
    }
  }
}

// --- Rows in parts -------------------------------------------------------------------------------

// Each part leaves its mean and its sum of squared deviations from it.
template <class Element>
__global__ void __launch_bounds__(kMostLanes, 1)
    layer_norm_measure_parts(const __grid_constant__ LayerArrays arrays,
                             const __grid_constant__ Rows rows, std::int64_t n,
                             const __grid_constant__ RowParts parts, bool whole, double* found) {
  Team<false> team;
  for (std::int64_t turn = blockIdx.x; turn < rows.count * parts.count; turn += gridDim.x) {
    const PartPlace at(turn, parts, n);
    const LayerRow<Element> row(arrays, rows, at.row, at.first, at.n, whole);
    const Moments<double> moments = row.exact_moments(team, at.n);
    if (team.lane() != 0) continue;
    found[2 * turn] = moments.mean + moments.rest;
    found[2 * turn + 1] = moments.variance * at.n;
  }
}

template <class Element>
__global__ void __launch_bounds__(kMostLanes, 1)
    layer_norm_write_parts(const __grid_constant__ LayerArrays arrays,
                           const __grid_constant__ Rows rows, std::int64_t n,
                           const __grid_constant__ RowParts parts, bool whole, double eps,
                           const double* found) {
  using R = Real<Element>;
  Team<false> team;
  for (std::int64_t turn = blockIdx.x; turn < rows.count * parts.count; turn += gridDim.x) {
    const PartPlace at(turn, parts, n);
    const LayerRow<Element> row(arrays, rows, at.row, at.first, at.n, whole);
    const double* of_row = found + 2 * at.row * parts.count;
    const double count = static_cast<double>(n);
    const auto size_of = [&](std::int64_t part) {
      return static_cast<double>(part + 1 < parts.count ? parts.each : n - part * parts.each);
    };
    // Around the first part's mean, so that rows of equal elements have exactly that mean.
    const double centre = of_row[0];
    const double mean = centre + sum_of_parts(team, parts.count, [&](std::int64_t part) {
                                   return (of_row[2 * part] - centre) * size_of(part);
                                 }) / count;
    const double squares = sum_of_parts(team, parts.count, [&](std::int64_t part) {
      const double deviation = of_row[2 * part] - mean;
      return of_row[2 * part + 1] + deviation * deviation * size_of(part);
    });
    const double with_eps = squares / count + eps;
    const R rough = static_cast<R>(mean);
    const Moments<R> moments{rough, static_cast<R>(mean - static_cast<double>(rough)), 0};
    if (is_safe(static_cast<R>(with_eps)))
      row.write_all(team, moments, static_cast<R>(1 / sqrt(with_eps)));
    else
      row.write_all(team, Moments<double>{mean, 0, 0}, 1 / sqrt(with_eps));
  }
}

template <class Element>
struct LayerKernels {
  static constexpr int kMostVectors = kManyVectors;

  static LayerArrays arrays_of(const Call& call) {
    LayerArrays arrays{};
    std::copy_n(call.array, 4, arrays.array);
    return arrays;
  }

  template <int kVectors, bool kCluster>
  static void rows(const Call& call, const Grid& grid, bool whole) {
    launch(call, grid, layer_norm_rows<Element, kVectors, kCluster>, arrays_of(call), call.rows,
           static_cast<int>(call.n), call.scalar[0], whole);
  }

  static void parts(const Call& call, bool whole) {
    const RowParts parts = parts_of<Element>(call);
    const Grid grid = part_grid(call, parts);
    const DeviceMemory memory(static_cast<std::size_t>(call.rows.count * parts.count) * 16,
                              call.stream);
    auto* found = static_cast<double*>(memory.data());
    launch(call, grid, layer_norm_measure_parts<Element>, arrays_of(call), call.rows, call.n, parts,
           whole, found);
    launch(call, grid, layer_norm_write_parts<Element>, arrays_of(call), call.rows, call.n, parts,
           whole, call.scalar[0], found);
  }
};

// Of x, weight, bias and y.
void launch_layer_norm(const Call& call) { launch_rows<LayerKernels>(call, 4); }

}  // namespace

DECLARE_OP(layer_norm,
           {
               "layer_norm",
               Walk::kRows,
               "Normalisation of the last axis to mean 0 and variance 1, scaled and shifted.",
               "y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias",
               {rows("x", "Input."), row("weight", "Scale of each element of a row."),
                optional_row("bias", "Added to each row."),
                non_negative("eps", 1e-5, "Added to the variance.")},
               {{"y", "The normalised rows."}},
               "J. L. Ba, J. R. Kiros and G. E. Hinton, Layer normalization, arXiv:1607.06450.",
               launch_layer_norm,
           })

}  // namespace tensor_ops
