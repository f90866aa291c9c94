// softmax: exp(scale * x) over its sum, computed from the row's largest product so that nothing
// overflows.
#include "op.clh"
#include "rows.clh"
#include "exp.clh"

// log2_e times the scale and the scale's mantissa, each as hi + lo. The first is for scales and
// products in an ordinary range; the other and the exponent are for any, which a REAL may not hold.
typedef struct {
  REAL factor_hi, factor_lo, mantissa_hi, mantissa_lo;
  int is_ordinary;
  int exponent;
} Scale;

typedef struct {
  global const Element* x;
  global Element* y;
  size_t n;
  Scale scale;
  local V* kept;
} Row;

#define ARGUMENTS                                                                     \
  global const Element *x, global Element *y, REAL factor_hi, REAL factor_lo,         \
      REAL mantissa_hi, REAL mantissa_lo, int is_ordinary, int exponent
#define ROW                                                                           \
  {x + r * n, y + r * n, n,                                                           \
   {factor_hi, factor_lo, mantissa_hi, mantissa_lo, is_ordinary, exponent}, kept_room}

// Products of larger magnitude have too few digits behind the binary point.
#ifdef ELEMENT_float64
#define MOST_ORDINARY 0x1p40
#else
#define MOST_ORDINARY 0x1p16f
#endif

#define GREATER_OF(a, b) choose((b) > (a), b, a)

// This lane's share of the greatest of [begin, end); NaN is passed over.
static REAL greatest_of(Row row, size_t begin, size_t end) {
  V most[4] = {ALL(-INFINITY), ALL(-INFINITY), ALL(-INFINITY), ALL(-INFINITY)};
#define STEP(i, count, u)                                                       \
  {                                                                             \
    const V value = get_or(row.x + (i), count, load_one(row.x + (i)));          \
    most[u] = GREATER_OF(most[u], value);                                       \
  }
  EACH_VECTOR(begin, end, STEP)
#undef STEP
  return greatest_of_vector(GREATER_OF(GREATER_OF(most[0], most[1]), GREATER_OF(most[2], most[3])));
}

static bool is_ordinary_row(Row row, REAL greatest) {
  return row.scale.is_ordinary && fabs(row.scale.factor_hi * greatest) < MOST_ORDINARY;
}

// Exponentials are multiplied by 2^(HEADROOM - k), where 2^k is about the row's largest: those that
// are not negligible beside it are then no subnormals. This is SHIFT and that exponent.
#ifdef ELEMENT_float64
#define HEADROOM 60
#else
#define HEADROOM 24
#endif
static REAL base_of(Row row, REAL greatest) {
  const REAL k = fma(greatest, row.scale.factor_hi, (REAL)SHIFT) - (REAL)SHIFT;
  return (REAL)SHIFT + HEADROOM - k;
}

// exp(scale * x) so multiplied: scale * x is nowhere rounded before the nearest integer has been
// taken from it.
static V exponential(Row row, REAL base, V x) {
  const V factor = ALL(row.scale.factor_hi);
  const V shifted = fused(x, factor, ALL(base));
  const V rest = fused(x, factor, base - shifted);
#if IS_HALF
  const V r = rest;
#else
  const V r = fused(x, ALL(row.scale.factor_lo), rest);
#endif
  // Subnormal results are 0.
  return choose(shifted < (REAL)(SHIFT + 2 - BIAS), ALL(0), exp2_ordinary(shifted, r));
}

// Between summing and writing exponentials are kept, in local memory or in y; where y cannot hold them
// as they are, or is to go past the caches, they are computed again.
#if defined(KEPT)
#define ROW_MEMORY local V kept_room[KEPT / WIDTH + 1]
static void keep(Row row, V value, size_t i, size_t count) {
  *(local V*)((local REAL*)row.kept + i) = value;
}
static V kept(Row row, REAL base, size_t i, size_t count) {
  return *(local V*)((local REAL*)row.kept + i);
}
#else
#define ROW_MEMORY local V* kept_room = 0
#if IS_HALF || defined(STREAMS)
static void keep(Row row, V value, size_t i, size_t count) {}
static V kept(Row row, REAL base, size_t i, size_t count) {
  return exponential(row, base, get(row.x + i, count));
}
#else
static void keep(Row row, V value, size_t i, size_t count) { put(value, row.y + i, count); }
static V kept(Row row, REAL base, size_t i, size_t count) { return get(row.y + i, count); }
#endif
#endif

// This lane's share of the sum.
static REAL sum_exponentials(Row row, REAL base, size_t begin, size_t end) {
  Sum total = {0, 0};
#define ADD(i, count, u)                                             \
  {                                                                  \
    const V value = exponential(row, base, get(row.x + (i), count)); \
    keep(row, value, i, count);                                      \
    sums[u] += only(value, count);                                   \
  }
  SUM_UP(total, begin, end, ADD)
#undef ADD
  return value_of(total);
}

// This lane's share.
static void write(Row row, REAL base, REAL total, size_t begin, size_t end) {
  const REAL factor = 1 / total;
#define STEP(i, count, u) stream(kept(row, base, i, count) * factor, row.y + (i), count)
  EACH_VECTOR(begin, end, STEP)
#undef STEP
}

// exp(scale * (x - peak)), compensated for the rounding of difference and product. Where the
// scale's exponent is not positive, a difference that overflows may have an ordinary product: there
// it is taken of quarters.
static V careful_exponential(Row row, REAL peak, V x) {
  const bool is_small = row.scale.exponent <= 0;
  const REAL part = is_small ? (REAL)0.25f : (REAL)1;
  const int exponent = row.scale.exponent + (is_small ? 2 : 0);
  const V a = x * part, b = ALL(-peak * part);
  const V sum = a + b;
  const V difference = ldexp(sum, exponent), lost = ldexp(sum_error(a, b, sum), exponent);
  const V hi = ALL(row.scale.mantissa_hi), lo = ALL(row.scale.mantissa_lo);
  const V product = difference * hi;
  const V rest = product_error(difference, hi, product) + fused(difference, lo, lost * hi);
  const V value = exp_value(scaled_exp(at_most(product, 0), choose(magnitude(rest) < (REAL)INFINITY, rest, ALL(0))));
  return choose(product != product, product, choose(product < (REAL)EXP_LOWEST, ALL(0), value));
}

// By one work-item: any scale and any numbers.
RARE void write_carefully(Row row) {
  V most = ALL(-INFINITY);
  const REAL sign = row.scale.mantissa_hi < 0 ? -1 : 1;
#define STEP(i, count, u)                                                              \
  {                                                                                    \
    const V value = get_or(row.x + (i), count, load_one(row.x + (i))) * sign;          \
    most = GREATER_OF(most, value);                                                    \
  }
  EACH_VECTOR_ALONE(0, row.n, STEP)
#undef STEP
  const REAL peak = greatest_of_vector(most) * sign;
  if (!isfinite(peak)) {  // peak - peak is NaN
#define STEP(i, count, u) put(ALL(peak - peak), row.y + (i), count)
    EACH_VECTOR_ALONE(0, row.n, STEP)
#undef STEP
    return;
  }
  Sum total = {0, 0};
#define ADD(i, count, u) \
  sums[u] += only(careful_exponential(row, peak, get(row.x + (i), count)), count)
  SUM_UP_ALONE(total, 0, row.n, ADD)
#undef ADD
  const REAL factor = 1 / value_of(total);
#define STEP(i, count, u) \
  put(careful_exponential(row, peak, get(row.x + (i), count)) * factor, row.y + (i), count)
  EACH_VECTOR_ALONE(0, row.n, STEP)
#undef STEP
}

static void whole_row(Row row, bool is_live, local REAL* room) {
  const REAL greatest = greatest_of_lanes(greatest_of(row, 0, row.n), room);
  const bool is_ordinary = is_ordinary_row(row, greatest), is_mine = is_live && is_ordinary;
  const REAL base = base_of(row, greatest);
  const REAL total = sum_of_lanes(is_mine ? sum_exponentials(row, base, 0, row.n) : 0, room);
  if (is_mine) write(row, base, total, 0, row.n);
  if (is_live && !is_ordinary && lane() == 0) write_carefully(row);
}

#define QUANTITIES 2

static REAL greatest_of_parts(global REAL* found) {
  REAL greatest = found[0];
  for (size_t i = 1; i < get_num_groups(0); ++i) greatest = GREATER(greatest, found[i]);
  return greatest;
}

static void measure_part(Row row, size_t begin, size_t end, local REAL* room, global REAL* found) {
  put_found(found, 0, greatest_of_lanes(greatest_of(row, begin, end), room));
}

static void sum_part(Row row, size_t begin, size_t end, local REAL* room, global REAL* found) {
  const REAL greatest = greatest_of_parts(found);
  REAL sum = 0;
  if (is_ordinary_row(row, greatest))
    sum = sum_exponentials(row, base_of(row, greatest), begin, end);
  put_found(found, 1, sum_of_lanes(sum, room));
}

static void write_part(Row row, size_t begin, size_t end, local REAL* room, global REAL* found) {
  const REAL greatest = greatest_of_parts(found);
  if (is_ordinary_row(row, greatest))
    write(row, base_of(row, greatest), sum_of_parts(found, 1), begin, end);
  else if (begin == 0 && lane() == 0)
    write_carefully(row);
}

#include "row_kernels.clh"
#ifdef PARTS
PART_KERNEL(sum_parts, sum_part)
#endif
