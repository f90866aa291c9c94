// layer_norm: (x - mean) / sqrt(var + eps) * weight + bias.
#include "op.clh"
#include "rows.clh"

typedef struct {
  global const Element* x;
  global const Parameter *weight, *bias;  // bias may be null
  global Element* y;
  size_t n;
  Eps eps;
} Row;

#define ARGUMENTS                                                                           \
  global const Element *x, global const Parameter *weight, global const Parameter *bias,    \
      global Element *y, REAL eps_mantissa, int eps_exponent
#define ROW {x + r * n, weight, bias, y + r * n, n, {eps_mantissa, eps_exponent}}

// The mean of the first elements, which is near that of most rows: deviations from it lose nothing
// when the mean is large and the deviations are not. The same in every lane.
static REAL centre_of(Row row) {
  V sum = ALL(0);
  const size_t count = end_of(0, 4 * WIDTH, row.n);
  for (size_t i = 0; i < count; i += WIDTH)
    sum += get(row.x + i, end_of(0, WIDTH, count - i));
  return sum_of_vector(sum) / (REAL)count;
}

// The sums of the deviations from the centre, and of their squares.
typedef struct {
  REAL centre, deviations, squares;
} Measured;

static Measured measure(Row row, size_t begin, size_t end, local REAL* room) {
  const REAL centre = centre_of(row);
  Sum deviations = {0, 0}, squares = {0, 0};
  for (size_t start = begin; start < end; start += CHUNK) {
    V sums[4] = {ALL(0), ALL(0), ALL(0), ALL(0)}, of_squares[4] = {ALL(0), ALL(0), ALL(0), ALL(0)};
#define STEP(i, count, u)                                                 \
  {                                                                       \
    const V deviation = get_or(row.x + (i), count, centre) - centre;      \
    sums[u] += deviation;                                                 \
    of_squares[u] = fused(deviation, deviation, of_squares[u]);             \
  }
    EACH_VECTOR(start, end_of(start, CHUNK, end), STEP)
#undef STEP
    deviations = plus(deviations, sum_of_vector((sums[0] + sums[1]) + (sums[2] + sums[3])));
    squares = plus(squares, sum_of_vector((of_squares[0] + of_squares[1]) +
                                          (of_squares[2] + of_squares[3])));
  }
  Measured measured = {centre, sum_of_lanes(value_of(deviations), room),
                       sum_of_lanes(value_of(squares), room)};
  return measured;
}

// By one work-item, scaled by a power of two so that squares neither overflow nor vanish; the mean
// is corrected once, so that a row of equal elements has no deviations at all.
RARE void write_carefully(Row row) {
  V most = ALL(0);
#define STEP(i, count, u) most = fmax(most, fabs(get(row.x + (i), count)))
  EACH_VECTOR_ALONE(0, row.n, STEP)
#undef STEP
  const int shift = shift_for(greatest_of_vector(most), row.eps);
  const REAL n = (REAL)row.n;
  Sum total = {0, 0};
#define ADD(i, count, u) sums[u] += shifted(get(row.x + (i), count), shift)
  SUM_UP_ALONE(total, 0, row.n, ADD)
#undef ADD
  const REAL mean = value_of(total) / n;
  Sum left = {0, 0};
#define ADD(i, count, u) sums[u] += only(shifted(get(row.x + (i), count), shift) - mean, count)
  SUM_UP_ALONE(left, 0, row.n, ADD)
#undef ADD
  const REAL rest = value_of(left) / n;
  Sum squares = {0, 0};
#define ADD(i, count, u) \
  sums[u] = plus_square(sums[u], only((shifted(get(row.x + (i), count), shift) - mean) - rest, count))
  SUM_UP_ALONE(squares, 0, row.n, ADD)
#undef ADD
  const REAL scale = 1 / sqrt(value_of(squares) / n + shifted_eps(row.eps, shift));
#define STEP(i, count, u)                                                                        \
  {                                                                                              \
    const V value = (shifted(get(row.x + (i), count), shift) - mean) - rest;                     \
    const V scaled = (value * scale) * get_parameter(row.weight + (i), count);                   \
    put(row.bias != 0 ? scaled + get_parameter(row.bias + (i), count) : scaled, row.y + (i),     \
        count);                                                                                  \
  }
  EACH_VECTOR_ALONE(0, row.n, STEP)
#undef STEP
}

// Deviations have lost digits where they are subnormal. Above this variance, with eps, results are
// subnormal there too, so that it does not show.
#ifdef ELEMENT_float64
#define LEAST_SAFE 1e-30
#else
#define LEAST_SAFE 1e-14f
#endif

// This lane's share, given what the whole row has.
static void write(Row row, Measured measured, size_t begin, size_t end) {
  const REAL n = (REAL)row.n, rest = measured.deviations / n, square = measured.squares / n;
  const REAL variance = isfinite(square) ? fmax(square - rest * rest, (REAL)0) : square;
  const REAL with_eps = variance + eps_value(row.eps);
  const bool has_digits = is_safe(with_eps) && (with_eps > LEAST_SAFE || is_safe(variance));
  // Far from the mean, the deviations have lost digits to the distance.
  if (!has_digits || rest * rest > variance) {
    if (begin == 0 && lane() == 0) write_carefully(row);
    return;
  }
  const REAL scale = 1 / sqrt(with_eps);
#define SCALED(i, count) \
  ((((get(row.x + (i), count) - measured.centre) - rest) * scale) * get_parameter(row.weight + (i), count))
  if (row.bias != 0) {
#define STEP(i, count, u) \
  stream(SCALED(i, count) + get_parameter(row.bias + (i), count), row.y + (i), count)
    EACH_VECTOR(begin, end, STEP)
#undef STEP
  } else {
#define STEP(i, count, u) stream(SCALED(i, count), row.y + (i), count)
    EACH_VECTOR(begin, end, STEP)
#undef STEP
  }
}

static void whole_row(Row row, bool is_live, local REAL* room) {
  const Measured measured = measure(row, 0, row.n, room);
  if (is_live) write(row, measured, 0, row.n);
}

#define QUANTITIES 3

// Every part needs the centre when the first part may have been overwritten already: it is kept too.
static void measure_part(Row row, size_t begin, size_t end, local REAL* room, global REAL* found) {
  const Measured measured = measure(row, begin, end, room);
  put_found(found, 0, measured.deviations);
  put_found(found, 1, measured.squares);
  put_found(found, 2, measured.centre);
}

static void write_part(Row row, size_t begin, size_t end, local REAL* room, global REAL* found) {
  const Measured measured = {*found_by_parts(found, 2), sum_of_parts(found, 0),
                             sum_of_parts(found, 1)};
  write(row, measured, begin, end);
}

#include "row_kernels.clh"
