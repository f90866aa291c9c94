// Rows scaled to a root mean square of one: of an array, or of the sum of two that is kept as well.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/arithmetic.cuh"
#include "kernels/row_grid.cuh"
#include "launch/memory.h"

namespace tensor_ops {

// x, the residual where there is one, the weight, y and, where there is a residual, the sum h.
struct RmsArrays {
  void* array[5];
};

// What x is added to, if to anything, and the weight may have other elements than x: float32.
template <class X, class Residual_, class Weight_, bool kHasResidual_>
struct RmsTypes {
  using Element = X;
  using Residual = Residual_;
  using Weight = Weight_;
  static constexpr bool kHasResidual = kHasResidual_;
};

// A row, or a part of one.
template <class Types>
struct RmsRow {
  using Element = typename Types::Element;
  using Residual = typename Types::Residual;
  using Weight = typename Types::Weight;
  using R = Real<Element>;
  static constexpr int kCount = kWidth<Element>;
  struct Vectors {
    Packed<Element, kCount> x;
    Packed<Residual, kCount> residual;  // set where there is one
  };

  const Element* x;
  const Residual* residual;
  const Weight* weight;
  Element* y;
  Residual* h;
  int n;
  bool whole;

  __device__ __forceinline__ RmsRow(const RmsArrays& arrays, const Rows& rows, std::int64_t row,
                                    std::int64_t first, int n_, bool whole_)
      : n(n_), whole(whole_) {
    constexpr int kArrays = Types::kHasResidual ? 5 : 3, kWeight = Types::kHasResidual ? 2 : 1;
    const RowOffsets<kArrays> offset(rows, row);
    const auto set = [&](auto& pointer, int k) {
      using Pointer = std::remove_reference_t<decltype(pointer)>;
      pointer = static_cast<Pointer>(arrays.array[k]) + offset.of[k] + first;
    };
    set(x, 0);
    set(weight, kWeight);
    set(y, kWeight + 1);
    if constexpr (Types::kHasResidual) {
      set(residual, 1);
      set(h, 4);
    }
  }

  template <class A>
  __device__ __forceinline__ static A sum_at(const Vectors& in, int i) {
    A sum = real(in.x.element[i]);
    if constexpr (Types::kHasResidual) sum += static_cast<A>(real(in.residual.element[i]));
    return sum;
  }

  // The sum times a power of two: of numbers whose sum overflows too. Small sums are multiplied
  // after adding, since their terms may be large and cancel.
  __device__ __forceinline__ static double scaled_sum_at(const Vectors& in, int i, double factor) {
    if (factor > 1) return sum_at<double>(in, i) * factor;
    double sum = real(in.x.element[i]) * factor;
    if constexpr (Types::kHasResidual) sum += real(in.residual.element[i]) * factor;
    return sum;
  }

  template <class A>
  __device__ __forceinline__ static A plus_squares(A sum, const Vectors& in) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const A value = sum_at<A>(in, i);
      sum = fused(value, value, sum);
    }
    return sum;
  }

  // y = normalised(vectors, i) * weight, computed in A, and the sum.
  template <class A, class Normalised>
  __device__ __forceinline__ void write(int first, const Vectors& in, Normalised normalised) const {
    const auto w = load_part<Weight, kCount>(weight, first, n, whole);
    Packed<Element, kCount> result;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const A value = normalised(in, i) * static_cast<A>(real(w.element[i]));
      result.element[i] = rounded_to<Element>(static_cast<R>(value));
    }
    store_part(result, y, first, n, whole);
    if constexpr (Types::kHasResidual) {
      Packed<Residual, kCount> sum;
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum.element[i] = rounded_to<Residual>(sum_at<R>(in, i));
      store_part(sum, h, first, n, whole);
    }
  }

  // visit(first, vectors) for each vector of a lane.
  template <class Visit>
  __device__ __forceinline__ void each(int lane, int lanes, Visit visit) const {
#pragma unroll 2
    for (int first = lane * kCount; first < n; first += lanes * kCount) {
      Vectors in;
      in.x = load_part<Element, kCount>(x, first, n, whole);
      if constexpr (Types::kHasResidual)
        in.residual = load_part<Residual, kCount>(residual, first, n, whole);
      visit(first, in);
    }
  }

  template <class Team>
  __device__ __forceinline__ double exact_squares(Team& team) const {
    double sum = 0;
    each(team.lane(), team.lanes(), [&](int, const Vectors& in) { sum = plus_squares(sum, in); });
    return team.combine(sum, Plus());
  }

  // The squares of the row times a factor.
  template <class Team>
  __device__ __forceinline__ double scaled_squares(Team& team, double factor) const {
    double sum = 0;
    each(team.lane(), team.lanes(), [&](int, const Vectors& in) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const double value = scaled_sum_at(in, i, factor);
        sum = fused(value, value, sum);
      }
    });
    return team.combine(sum, Plus());
  }

  template <class A, class Team>
  __device__ __forceinline__ void write_all(const Team& team, A scale) const {
    each(team.lane(), team.lanes(), [&](int first, const Vectors& in) {
      write<A>(first, in, [=](const Vectors& all, int i) { return sum_at<A>(all, i) * scale; });
    });
  }

  // Given the scale of the row times a factor. What is finite of a large row is not shrunk before
  // it is scaled, since small elements would lose digits; of a small row, the factor times the
  // scale may be infinite.
  template <class Team>
  __device__ __forceinline__ void write_scaled(const Team& team, double factor,
                                               double scale) const {
    each(team.lane(), team.lanes(), [&](int first, const Vectors& in) {
      write<double>(first, in, [=](const Vectors& all, int i) {
        const double sum = sum_at<double>(all, i);
        if (factor < 1 && is_finite(sum)) return sum * (scale * factor);
        return scaled_sum_at(all, i, factor) * scale;
      });
    });
  }
};

// What brings a row of double near 1 whose mean of squares is not safe: NaN comes from an overflow,
// or stays what it is.
__device__ __forceinline__ double scaling_factor(double mean_square) {
  return mean_square < 1 ? kGrow : kShrink;
}

// Rarely called: inlined they would take registers from their callers.
template <class Types, class Team>
__device__ __noinline__ void rms_careful_row(const RmsRow<Types>& row, Team& team, int n,
                                             double eps, bool is_mine) {
  const double scale = 1 / sqrt(row.exact_squares(team) / n + eps);
  if (is_mine) row.write_all(team, scale);
}

template <class Types, class Team>
__device__ __noinline__ void rms_scaled_row(const RmsRow<Types>& row, Team& team, int n, double eps,
                                            double factor, bool is_mine) {
  const double squares = row.scaled_squares(team, factor);
  const double scale = 1 / sqrt(squares / n + (eps * factor) * factor);
  if (is_mine) row.write_scaled(team, factor, scale);
}

template <class Types, int kVectors, bool kCluster>
__global__ void __launch_bounds__(kMostLanes, 1)
    rms_rows(const __grid_constant__ RmsArrays arrays, const __grid_constant__ Rows rows, int n,
             double eps, bool whole) {
  if constexpr (!kCluster || HAS_CLUSTERS) {
    using Row = RmsRow<Types>;
    using R = typename Row::R;
    Team<kCluster> team;
    for (std::int64_t turn = team.first_row(); turn - threadIdx.y < rows.count;
         turn += team.row_step()) {
      const bool is_live = turn < rows.count;
      const Row row(arrays, rows, is_live ? turn : 0, 0, is_live ? n : 0, whole);
      RowShare<typename Row::Element, kVectors, Row::kCount> x;
      RowShare<typename Row::Residual, kVectors, Row::kCount> residual;
      x.load(row.x, row.n, team.lane(), team.lanes(), whole, {});
      if constexpr (Types::kHasResidual)
        residual.load(row.residual, row.n, team.lane(), team.lanes(), whole, {});
      const auto vectors = [&](int j) {
        typename Row::Vectors in;
        in.x = x.vector[j];
        if constexpr (Types::kHasResidual) in.residual = residual.vector[j];
        return in;
      };
      R squares = 0;
#pragma unroll
      for (int j = 0; j < kVectors; ++j) squares = Row::plus_squares(squares, vectors(j));
      const R mean = team.combine(squares, Plus()) / static_cast<R>(n) + static_cast<R>(eps);
      const bool safe = is_safe(mean);
      if (safe && is_live) {
        const R scale = 1 / sqrt(mean);
        x.forget_conversions();
        if constexpr (Types::kHasResidual) residual.forget_conversions();
#pragma unroll
        for (int j = 0; j < kVectors; ++j)
          row.template write<R>((j * team.lanes() + team.lane()) * Row::kCount, vectors(j),
                                [=](const typename Row::Vectors& in, int i) {
                                  return Row::template sum_at<R>(in, i) * scale;
                                });
      }
      if (any_of_warp(!safe)) {
        if constexpr (sizeof(R) == 8)
          rms_scaled_row(row, team, n, eps, scaling_factor(mean), is_live && !safe);
        else
          rms_careful_row(row, team, n, eps, is_live && !safe);
      }
    }
  }
}

// --- Rows in parts -------------------------------------------------------------------------------

// Each part leaves its sum of squares. A part of double leaves that of the part times a factor, and
// the factor too: 1 where the squares are safe.
template <class Types>
__global__ void __launch_bounds__(kMostLanes, 1)
    rms_measure_parts(const __grid_constant__ RmsArrays arrays, const __grid_constant__ Rows rows,
                      std::int64_t n, const __grid_constant__ RowParts parts, bool whole,
                      double eps, double* found) {
  using Row = RmsRow<Types>;
  Team<false> team;
  for (std::int64_t turn = blockIdx.x; turn < rows.count * parts.count; turn += gridDim.x) {
    const PartPlace at(turn, parts, n);
    const Row row(arrays, rows, at.row, at.first, at.n, whole);
    double squares = row.exact_squares(team);
    if constexpr (sizeof(typename Row::R) == 8) {
      const double mean = squares / at.n + eps;
      const double factor = is_safe(mean) ? 1 : scaling_factor(mean);
      if (factor != 1) squares = row.scaled_squares(team, factor);
      if (team.lane() == 0) found[rows.count * parts.count + turn] = factor;
    }
    if (team.lane() == 0) found[turn] = squares;
  }
}

template <class Types>
__global__ void __launch_bounds__(kMostLanes, 1)
    rms_write_parts(const __grid_constant__ RmsArrays arrays, const __grid_constant__ Rows rows,
                    std::int64_t n, const __grid_constant__ RowParts parts, bool whole, double eps,
                    const double* found) {
  using Row = RmsRow<Types>;
  using R = typename Row::R;
  Team<false> team;
  for (std::int64_t turn = blockIdx.x; turn < rows.count * parts.count; turn += gridDim.x) {
    const PartPlace at(turn, parts, n);
    const Row row(arrays, rows, at.row, at.first, at.n, whole);
    const double* of_row = found + at.row * parts.count;
    if constexpr (sizeof(R) == 8) {
      // Parts come to the least of their factors.
      const double* factors = of_row + rows.count * parts.count;
      const double factor = combine_parts(
          team, parts.count, kGrow, [&](std::int64_t part) { return factors[part]; }, Lesser());
      const double squares = sum_of_parts(team, parts.count, [&](std::int64_t part) {
        const double less = factor / factors[part];
        return (of_row[part] * less) * less;
      });
      const double mean = squares / static_cast<double>(n) + (eps * factor) * factor;
      if (factor == 1)
        row.write_all(team, 1 / sqrt(mean));
      else
        row.write_scaled(team, factor, 1 / sqrt(mean));
    } else {
      const double squares =
          sum_of_parts(team, parts.count, [&](std::int64_t part) { return of_row[part]; });
      const double mean = squares / static_cast<double>(n) + eps;
      if (is_safe(static_cast<R>(mean)))
        row.write_all(team, static_cast<R>(1 / sqrt(mean)));
      else
        row.write_all(team, 1 / sqrt(mean));
    }
  }
}

template <class Types>
struct RmsKernels {
  using Element = typename Types::Element;
  // Parts are measured without the weight, and so the same whatever its elements are.
  using Measured = RmsTypes<Element, typename Types::Residual, Element, Types::kHasResidual>;
  // Two inputs take twice the registers.
  static constexpr int kMostVectors = Types::kHasResidual ? kFewVectors : kManyVectors;
  static constexpr int kArrays = Types::kHasResidual ? 5 : 3;

  static RmsArrays arrays_of(const Call& call) {
    RmsArrays arrays{};
    std::copy_n(call.array, kArrays, arrays.array);
    return arrays;
  }

  template <int kVectors, bool kCluster>
  static void rows(const Call& call, const Grid& grid, bool whole) {
    launch(call, grid, rms_rows<Types, kVectors, kCluster>, arrays_of(call), call.rows,
           static_cast<int>(call.n), call.scalar[0], whole);
  }

  static void parts(const Call& call, bool whole) {
    const RowParts parts = parts_of<Element>(call);
    const Grid grid = part_grid(call, parts);
    constexpr std::size_t kFound = sizeof(Element) == 8 ? 2 : 1;
    const DeviceMemory memory(
        static_cast<std::size_t>(call.rows.count * parts.count) * kFound * sizeof(double),
        call.stream);
    auto* found = static_cast<double*>(memory.data());
    launch(call, grid, rms_measure_parts<Measured>, arrays_of(call), call.rows, call.n, parts,
           whole, call.scalar[0], found);
    launch(call, grid, rms_write_parts<Types>, arrays_of(call), call.rows, call.n, parts, whole,
           call.scalar[0], found);
  }
};

}  // namespace tensor_ops
