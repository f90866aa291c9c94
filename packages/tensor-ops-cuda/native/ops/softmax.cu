#include <cmath>

#include "kernels/exp.cuh"
#include "kernels/row_grid.cuh"
#include "launch/memory.h"
#include "op.h"

namespace tensor_ops {
namespace {

struct SoftmaxArrays {
  void* array[2];  // x, y
};

// log2(e) times the scale as hi + lo, for scales and products in an ordinary range, and for any the
// scale as part * rescaled: below one, a difference that overflows may have an ordinary product, so
// that there it is taken of quarters.
template <class R>
struct Scale {
  R factor_hi, factor_lo;
  double part, rescaled;
  bool is_ordinary;

  // 1, or -1 where the smallest x has the largest exponential.
  __device__ __forceinline__ R sign() const { return rescaled < 0 ? R{-1} : R{1}; }
};

// Products of larger magnitude have too few digits behind the binary point.
template <class R>
constexpr R kMostOrdinary = sizeof(R) == 8 ? R(0x1p40) : R(0x1p16);

// A row, or a part of one, with what is known of the whole row.
template <class Element>
struct SoftmaxRow {
  using R = Real<Element>;
  static constexpr int kCount = kWidth<Element>;
  using Vector = Packed<Element, kCount>;

  const Element* x;
  Element* y;
  int n;
  bool whole;
  Scale<R> scale;

  __device__ __forceinline__ SoftmaxRow(const SoftmaxArrays& arrays, const Rows& rows,
                                        std::int64_t row, std::int64_t first, int n_, bool whole_,
                                        const Scale<R>& scale_)
      : n(n_), whole(whole_), scale(scale_) {
    const RowOffsets<2> offset(rows, row);
    x = static_cast<const Element*>(arrays.array[0]) + offset.of[0] + first;
    y = static_cast<Element*>(arrays.array[1]) + offset.of[1] + first;
  }

  // `peak` is the x with the largest exponential, up to the scale's sign.
  __device__ __forceinline__ bool is_ordinary(R peak) const {
    return scale.is_ordinary && magnitude(scale.factor_hi * peak) < kMostOrdinary<R>;
  }

  // exp(scale * x) / 2^k for k = peak_exponent(): scale * x is nowhere rounded before the nearest
  // integer, or for a half type k, has been taken from it.
  __device__ __forceinline__ R peak_exponent(R peak) const {
    return fused(peak, scale.factor_hi, Format<R>::kShift) - Format<R>::kShift;
  }
  __device__ __forceinline__ R exponential(R value, R exponent) const {
    if constexpr (is_half<Element>) {
      return fast_exp2(fused(value, scale.factor_hi, -exponent));
    } else {
      const R k = fused(value, scale.factor_hi, Format<R>::kShift) - Format<R>::kShift;
      const R rest = fused(value, scale.factor_hi, -k);
      const R r = fused(value, scale.factor_lo, rest), power = k - exponent;
      // What is no normal number is 0.
      return power < 1 - Format<R>::kBias ? R{0} : ordinary_exp2(power + Format<R>::kShift, r);
    }
  }

  // exp(scale * (x - peak)) for any numbers, with what is rounded from difference and product made
  // good.
  __device__ __forceinline__ double careful_exponential(double value, double peak) const {
    const double a = value * scale.part, b = -peak * scale.part;
    const double difference = a + b, lost = sum_error(a, b, difference);
    const double product = difference * scale.rescaled;
    const double rest =
        fused(lost, scale.rescaled, product_error(difference, scale.rescaled, product));
    if (!(product >= ExpConstants<double>::kLowest)) return product < 0 ? 0 : product;
    return scaled_exp(at_most(product, 0.0), is_finite(rest) ? rest : 0).value();
  }

  // visit(first, vector) for each vector of a lane.
  template <class Visit>
  __device__ __forceinline__ void each(int lane, int lanes, Visit visit) const {
#pragma unroll 2
    for (int first = lane * kCount; first < n; first += lanes * kCount)
      visit(first, load_part<Element, kCount>(x, first, n, whole));
  }

  template <class Function>
  __device__ __forceinline__ void write(int first, const Vector& in, Function function) const {
    Vector result;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      result.element[i] = rounded_to<Element>(function(real(in.element[i])));
    store_part(result, y, first, n, whole);
  }

  template <class Team, class Function>
  __device__ __forceinline__ void write_all(const Team& team, Function function) const {
    each(team.lane(), team.lanes(),
         [&](int first, const Vector& in) { write(first, in, function); });
  }

  template <class A, class Team, class Function, class Combine>
  __device__ __forceinline__ A combine(Team& team, A start, Function function,
                                       Combine combined) const {
    A total = start;
    each(team.lane(), team.lanes(), [&](int first, const Vector& in) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        if (first + i < n) total = combined(total, function(real(in.element[i])));
    });
    return team.combine(total, combined);
  }

  // Whichever x has the largest exponential; NaN is passed over.
  template <class Team>
  __device__ __forceinline__ R find_peak(Team& team) const {
    const R sign = scale.sign();
    return sign *
           combine(team, -static_cast<R>(INFINITY), [=](R v) { return v * sign; }, Greater());
  }

  template <class Team>
  __device__ __forceinline__ double careful_sum(Team& team, double peak) const {
    return combine(team, 0.0, [&](R v) { return careful_exponential(v, peak); }, Plus());
  }

  template <class Team>
  __device__ __forceinline__ void write_carefully(const Team& team, double peak,
                                                  double total) const {
    const double factor = is_finite(peak) ? 1 / total : NAN;
    write_all(team, [&](R v) { return static_cast<R>(careful_exponential(v, peak) * factor); });
  }
};

// Rarely called: inlined it would take registers from its callers.
template <class Element, class Team>
__device__ __noinline__ void softmax_careful_row(const SoftmaxRow<Element>& row, Team& team,
                                                 bool is_mine) {
  const double peak = row.find_peak(team);
  const double total = row.careful_sum(team, peak);
  if (is_mine) row.write_carefully(team, peak, total);
}

template <class Element, int kVectors, bool kCluster>
__global__ void __launch_bounds__(kMostLanes, 1)
    softmax_rows(const __grid_constant__ SoftmaxArrays arrays, const __grid_constant__ Rows rows,
                 int n, const __grid_constant__ Scale<Real<Element>> scale, bool whole) {
  if constexpr (!kCluster || HAS_CLUSTERS) {
    using R = Real<Element>;
    using Row = SoftmaxRow<Element>;
    constexpr R kLowest = -static_cast<R>(INFINITY);
    const Element padding = rounded_to<Element>(kLowest);
    Team<kCluster> team;
    for (std::int64_t turn = team.first_row(); turn - threadIdx.y < rows.count;
         turn += team.row_step()) {
      const bool is_live = turn < rows.count;
      const Row row(arrays, rows, is_live ? turn : 0, 0, is_live ? n : 0, whole, scale);
      RowShare<Element, kVectors> share;
      share.load(row.x, row.n, team.lane(), team.lanes(), whole, padding);
      R peak = kLowest;
#pragma unroll
      for (int j = 0; j < kVectors; ++j)
#pragma unroll
        for (int i = 0; i < Row::kCount; ++i) peak = Greater()(peak, share.at(j, i));
      peak = team.combine(peak, Greater());
      share.forget_conversions();

      const bool ordinary = row.is_ordinary(peak);
      const R exponent = row.peak_exponent(peak);
      R sum = 0;
#pragma unroll
      for (int j = 0; j < kVectors; ++j)
#pragma unroll
        for (int i = 0; i < Row::kCount; ++i) {
          const R value = row.exponential(share.at(j, i), exponent);
          sum += value;
          // A half type does not hold them as they are.
          if constexpr (!is_half<Element>) share.vector[j].element[i] = value;
        }
      const R factor = 1 / team.combine(sum, Plus());
      share.forget_conversions();

      if (ordinary && is_live) {
#pragma unroll
        for (int j = 0; j < kVectors; ++j)
          row.write((j * team.lanes() + team.lane()) * Row::kCount, share.vector[j], [&](R v) {
            return (is_half<Element> ? row.exponential(v, exponent) : v) * factor;
          });
      }
      if (any_of_warp(is_live && !ordinary)) softmax_careful_row(row, team, is_live && !ordinary);
    }
  }
}

// --- Rows in parts: each leaves its peak, and then its sum of exponentials -----------------------

template <class Element>
struct SoftmaxParts {
  SoftmaxArrays arrays;
  Rows rows;
  std::int64_t n;
  RowParts parts;
  Scale<Real<Element>> scale;
  bool whole;
  double *peaks, *sums;  // of each part of each row

  __device__ __forceinline__ std::int64_t count() const { return rows.count * parts.count; }
  __device__ __forceinline__ PartPlace place(std::int64_t turn) const { return {turn, parts, n}; }
  __device__ __forceinline__ SoftmaxRow<Element> row(const PartPlace& at) const {
    return {arrays, rows, at.row, at.first, at.n, whole, scale};
  }
  __device__ __forceinline__ Real<Element> peak_of(Team<false>& team, std::int64_t row) const {
    const double *of_row = peaks + row * parts.count, sign = scale.sign();
    const auto found = [&](std::int64_t part) { return of_row[part] * sign; };
    return static_cast<Real<Element>>(
        sign * combine_parts(team, parts.count, -INFINITY, found, Greater()));
  }
};

template <class Element>
__global__ void __launch_bounds__(kMostLanes, 1)
    softmax_measure_parts(const __grid_constant__ SoftmaxParts<Element> all) {
  Team<false> team;
  for (std::int64_t turn = blockIdx.x; turn < all.count(); turn += gridDim.x) {
    const double peak = all.row(all.place(turn)).find_peak(team);
    if (team.lane() == 0) all.peaks[turn] = peak;
  }
}

template <class Element>
__global__ void __launch_bounds__(kMostLanes, 1)
    softmax_sum_parts(const __grid_constant__ SoftmaxParts<Element> all) {
  using R = Real<Element>;
  Team<false> team;
  for (std::int64_t turn = blockIdx.x; turn < all.count(); turn += gridDim.x) {
    const PartPlace at = all.place(turn);
    const SoftmaxRow<Element> row = all.row(at);
    const R peak = all.peak_of(team, at.row), exponent = row.peak_exponent(peak);
    const auto exponential = [&](R v) { return row.exponential(v, exponent); };
    const double sum = row.is_ordinary(peak) ? row.combine(team, R{0}, exponential, Plus())
                                             : row.careful_sum(team, peak);
    if (team.lane() == 0) all.sums[turn] = sum;
  }
}

template <class Element>
__global__ void __launch_bounds__(kMostLanes, 1)
    softmax_write_parts(const __grid_constant__ SoftmaxParts<Element> all) {
  using R = Real<Element>;
  Team<false> team;
  for (std::int64_t turn = blockIdx.x; turn < all.count(); turn += gridDim.x) {
    const PartPlace at = all.place(turn);
    const SoftmaxRow<Element> row = all.row(at);
    const R peak = all.peak_of(team, at.row), exponent = row.peak_exponent(peak);
    const double* sums = all.sums + at.row * all.parts.count;
    const double total =
        sum_of_parts(team, all.parts.count, [&](std::int64_t part) { return sums[part]; });
    const R factor = static_cast<R>(1 / total);
    if (row.is_ordinary(peak))
      row.write_all(team, [&](R v) { return row.exponential(v, exponent) * factor; });
    else
      row.write_carefully(team, peak, total);
  }
}

// Between these, products of a scale have digits to spare.
constexpr double kLeastScale = 0x1p-60, kMostScale = 0x1p60;

template <class R>
Scale<R> scale_of(double scale) {
  using C = ExpConstants<double>;
  Scale<R> result{};
  result.is_ordinary = scale > kLeastScale && scale < kMostScale;
  if (result.is_ordinary) {
    const double hi = scale * C::kLog2EHi;
    const double lo = std::fma(scale, C::kLog2EHi, -hi) + scale * C::kLog2ELo;
    result.factor_hi = static_cast<R>(hi);
    result.factor_lo = static_cast<R>((hi - static_cast<double>(result.factor_hi)) + lo);
  }
  result.part = std::fabs(scale) < 1 ? 0.25 : 1;
  result.rescaled = scale / result.part;
  return result;
}

template <class Element>
struct SoftmaxKernels {
  using R = Real<Element>;
  static constexpr int kMostVectors = kManyVectors;

  template <int kVectors, bool kCluster>
  static void rows(const Call& call, const Grid& grid, bool whole) {
    launch(call, grid, softmax_rows<Element, kVectors, kCluster>,
           SoftmaxArrays{{call.array[0], call.array[1]}}, call.rows, static_cast<int>(call.n),
           scale_of<R>(call.scalar[0]), whole);
  }

  static void parts(const Call& call, bool whole) {
    const RowParts parts = parts_of<Element>(call);
    const Grid grid = part_grid(call, parts);
    const std::int64_t count = call.rows.count * parts.count;
    const DeviceMemory memory(static_cast<std::size_t>(count) * 16, call.stream);
    auto* found = static_cast<double*>(memory.data());
    const SoftmaxParts<Element> all{
        {{call.array[0], call.array[1]}}, call.rows, call.n, parts,
        scale_of<R>(call.scalar[0]),      whole,     found,  found + count};
    launch(call, grid, softmax_measure_parts<Element>, all);
    launch(call, grid, softmax_sum_parts<Element>, all);
    launch(call, grid, softmax_write_parts<Element>, all);
  }
};

// Of x and y.
void launch_softmax(const Call& call) {
  with_element(call.dtype, [&](auto x) {
    using X = decltype(x);
    launch_rows<X, SoftmaxKernels<X>>(call, 2);
  });
}

}  // namespace

DECLARE_OP(softmax,
           {
               "softmax",
               Walk::kRows,
               "Softmax of the scaled last axis, stable for any magnitude.",
               "y = exp(scale * x - max(scale * x)) / sum(exp(scale * x - max(scale * x)))",
               {rows("x", "Input."), scalar("scale", 1.0, "Multiplies x.")},
               {{"y", "The probabilities, which add up to 1 along each row."}},
               "J. S. Bridle, Probabilistic interpretation of feedforward classification "
               "network outputs, 1990.",
               launch_softmax,
           })

}  // namespace tensor_ops
