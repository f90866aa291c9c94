// Rows scaled to a root mean square of one: of an array, or of the sum of two that is kept as well.
#pragma once

#include "kernels/arithmetic.cuh"
#include "kernels/row_grid.cuh"
#include "launch/memory.h"

namespace tensor_ops {

// The inputs, the weight, y and, where there are two inputs, their sum.
struct RmsArrays {
  void* array[5];
};

// A row, or a part of one.
template <class Element, int kInputs>
struct RmsRow {
  using R = Real<Element>;
  static constexpr int kCount = kWidth<Element>;
  using Vector = Packed<Element, kCount>;
  struct Vectors {
    Vector of[kInputs];
  };

  const Element* input[kInputs];
  const Element* weight;
  Element *y, *h;  // the same array where there is no sum to keep
  int n;
  bool whole;

  __device__ __forceinline__ RmsRow(const RmsArrays& arrays, const Rows& rows, std::int64_t row,
                                    std::int64_t first, int n_, bool whole_)
      : n(n_), whole(whole_) {
    constexpr int kArrays = 2 * kInputs + 1;
    const RowOffsets<kArrays> offset(rows, row);
    Element* start[kArrays];
#pragma unroll
    for (int k = 0; k < kArrays; ++k)
      start[k] = static_cast<Element*>(arrays.array[k]) + offset.of[k] + first;
#pragma unroll
    for (int k = 0; k < kInputs; ++k) input[k] = start[k];
    weight = start[kInputs];
    y = start[kInputs + 1];
    h = start[kArrays - 1];
  }

  template <class A>
  __device__ __forceinline__ static A sum_at(const Vectors& in, int i) {
    A sum = real(in.of[0].element[i]);
    if constexpr (kInputs == 2) sum += static_cast<A>(real(in.of[1].element[i]));
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

  // y = sum * scale * weight, computed in A, and the sum.
  template <class A>
  __device__ __forceinline__ void write(int first, const Vectors& in, A scale) const {
    const auto w = load_part<Element, kCount>(weight, first, n, whole);
    Vector result;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const A value = (sum_at<A>(in, i) * scale) * static_cast<A>(real(w.element[i]));
      result.element[i] = rounded_to<Element>(static_cast<R>(value));
    }
    store_part(result, y, first, n, whole);
    if constexpr (kInputs == 2) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) result.element[i] = rounded_to<Element>(sum_at<R>(in, i));
      store_part(result, h, first, n, whole);
    }
  }

  // visit(first, vectors) for each vector of a lane.
  template <class Visit>
  __device__ __forceinline__ void each(int lane, int lanes, Visit visit) const {
#pragma unroll 2
    for (int first = lane * kCount; first < n; first += lanes * kCount) {
      Vectors in;
#pragma unroll
      for (int k = 0; k < kInputs; ++k)
        in.of[k] = load_part<Element, kCount>(input[k], first, n, whole);
      visit(first, in);
    }
  }

  template <class Team>
  __device__ __forceinline__ double exact_squares(Team& team) const {
    double sum = 0;
    each(team.lane(), team.lanes(), [&](int, const Vectors& in) { sum = plus_squares(sum, in); });
    return team.combine(sum, Plus());
  }

  template <class A, class Team>
  __device__ __forceinline__ void write_all(const Team& team, A scale) const {
    each(team.lane(), team.lanes(), [&](int first, const Vectors& in) { write(first, in, scale); });
  }
};

// Rarely called: inlined it would take registers from its callers.
template <class Element, int kInputs, class Team>
__device__ __noinline__ void rms_careful_row(const RmsRow<Element, kInputs>& row, Team& team, int n,
                                             double eps, bool is_mine) {
  const double scale = 1 / sqrt(row.exact_squares(team) / n + eps);
  if (is_mine) row.write_all(team, scale);
}

template <class Element, int kInputs, int kVectors, bool kCluster>
__global__ void __launch_bounds__(kMostLanes, 1)
    rms_rows(const __grid_constant__ RmsArrays arrays, const __grid_constant__ Rows rows, int n,
             double eps, bool whole) {
  if constexpr (!kCluster || HAS_CLUSTERS) {
    using R = Real<Element>;
    using Row = RmsRow<Element, kInputs>;
    Team<kCluster> team;
    for (std::int64_t turn = team.first_row(); turn - threadIdx.y < rows.count;
         turn += team.row_step()) {
      const bool is_live = turn < rows.count;
      const Row row(arrays, rows, is_live ? turn : 0, 0, is_live ? n : 0, whole);
      RowShare<Element, kVectors> share[kInputs];
#pragma unroll
      for (int k = 0; k < kInputs; ++k)
        share[k].load(row.input[k], row.n, team.lane(), team.lanes(), whole, Element{});
      const auto vectors = [&](int j) {
        typename Row::Vectors in;
#pragma unroll
        for (int k = 0; k < kInputs; ++k) in.of[k] = share[k].vector[j];
        return in;
      };
      R squares = 0;
#pragma unroll
      for (int j = 0; j < kVectors; ++j) squares = Row::plus_squares(squares, vectors(j));
      const R mean = team.combine(squares, Plus()) / static_cast<R>(n) + static_cast<R>(eps);
      const bool safe = is_safe(mean);
      if (safe && is_live) {
        const R scale = 1 / sqrt(mean);
#pragma unroll
        for (int k = 0; k < kInputs; ++k) share[k].forget_conversions();
#pragma unroll
        for (int j = 0; j < kVectors; ++j)
          row.write((j * team.lanes() + team.lane()) * Row::kCount, vectors(j), scale);
      }
      if (any_of_warp(!safe)) rms_careful_row(row, team, n, eps, is_live && !safe);
    }
  }
}

// --- Rows in parts -------------------------------------------------------------------------------

template <class Element, int kInputs>
__global__ void __launch_bounds__(kMostLanes, 1)
    rms_measure_parts(const __grid_constant__ RmsArrays arrays, const __grid_constant__ Rows rows,
                      std::int64_t n, const __grid_constant__ RowParts parts, bool whole,
                      double* found) {
  Team<false> team;
  for (std::int64_t turn = blockIdx.x; turn < rows.count * parts.count; turn += gridDim.x) {
    const PartPlace at(turn, parts, n);
    const RmsRow<Element, kInputs> row(arrays, rows, at.row, at.first, at.n, whole);
    const double squares = row.exact_squares(team);
    if (team.lane() == 0) found[turn] = squares;
  }
}

template <class Element, int kInputs>
__global__ void __launch_bounds__(kMostLanes, 1)
    rms_write_parts(const __grid_constant__ RmsArrays arrays, const __grid_constant__ Rows rows,
                    std::int64_t n, const __grid_constant__ RowParts parts, bool whole, double eps,
                    const double* found) {
  using R = Real<Element>;
  Team<false> team;
  for (std::int64_t turn = blockIdx.x; turn < rows.count * parts.count; turn += gridDim.x) {
    const PartPlace at(turn, parts, n);
    const RmsRow<Element, kInputs> row(arrays, rows, at.row, at.first, at.n, whole);
    const double* of_row = found + at.row * parts.count;
    const double squares =
        sum_of_parts(team, parts.count, [&](std::int64_t part) { return of_row[part]; });
    const double mean = squares / static_cast<double>(n) + eps;
    if (is_safe(static_cast<R>(mean)))
      row.write_all(team, static_cast<R>(1 / sqrt(mean)));
    else
      row.write_all(team, 1 / sqrt(mean));
  }
}

template <class Element, int kInputs>
struct RmsKernels {
  // Two inputs take twice the registers.
  static constexpr int kMostVectors = kInputs == 1 ? kManyVectors : kFewVectors;

  static RmsArrays arrays_of(const Call& call) {
    RmsArrays arrays{};
    std::copy_n(call.array, 2 * kInputs + 1, arrays.array);
    return arrays;
  }

  template <int kVectors, bool kCluster>
  static void rows(const Call& call, const Grid& grid, bool whole) {
    launch(call, grid, rms_rows<Element, kInputs, kVectors, kCluster>, arrays_of(call), call.rows,
           static_cast<int>(call.n), call.scalar[0], whole);
  }

  static void parts(const Call& call, bool whole) {
    const RowParts parts = parts_of<Element>(call);
    const Grid grid = part_grid(call, parts);
    const DeviceMemory memory(static_cast<std::size_t>(call.rows.count * parts.count) * 8,
                              call.stream);
    auto* found = static_cast<double*>(memory.data());
    launch(call, grid, rms_measure_parts<Element, kInputs>, arrays_of(call), call.rows, call.n,
           parts, whole, found);
    launch(call, grid, rms_write_parts<Element, kInputs>, arrays_of(call), call.rows, call.n, parts,
           whole, call.scalar[0], found);
  }
};

}  // namespace tensor_ops
