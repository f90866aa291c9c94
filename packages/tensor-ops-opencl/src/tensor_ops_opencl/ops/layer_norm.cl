// layer_norm: (x - mean) / sqrt(var + eps) * weight + bias.
#include "op.clh"

typedef struct {
  global const Element* x;
  global const Parameter *weight, *bias;  // bias may be null
  global Element* y;
  size_t n;
  REAL eps_mantissa;
  int eps_exponent;
} Row;

#define ARRAYS                                                                              \
  global const Element *x, global const Parameter *weight, global const Parameter *bias,    \
      global Element *y
#define NUMBERS REAL eps_mantissa, int eps_exponent, ulong n, ulong rows

static Row row_at(ARRAYS, NUMBERS, size_t r) {
  Row row = {x + r * n, weight, bias, y + r * n, n, eps_mantissa, eps_exponent};
  return row;
}
#define ROW_AT(r) row_at(x, weight, bias, y, eps_mantissa, eps_exponent, n, rows, r)

// The mean of the first elements, which is near that of most rows: deviations from it lose nothing
// when the mean is large and the deviations are not. The same in every lane.
static REAL centre_of(Row row) {
  V sum = ALL(0);
  const size_t count = end_of(0, 4 * WIDTH, row.n);
  for (size_t i = 0; i < count; i += WIDTH)
    sum += get(row.x + i, end_of(0, WIDTH, count - i));
  return sum_of_vector(sum) / (REAL)count;
}

typedef struct {
  REAL deviations, squares;
} Measured;

// This lane's share of the deviations from the centre, and of their squares.
static Measured measure(Row row, REAL centre, size_t begin, size_t end) {
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
  Measured measured = {value_of(deviations), value_of(squares)};
  return measured;
}

// By one work-item, scaled by a power of two so that squares neither overflow nor vanish; the mean
// is corrected once, so that a row of equal elements has no deviations at all.
RARE void write_carefully(Row row) {
  V most = ALL(0);
#define STEP(i, count, u) most = fmax(most, fabs(get(row.x + (i), count)))
  EACH_VECTOR_ALONE(0, row.n, STEP)
#undef STEP
  const int shift = shift_for(greatest_of_vector(most), row.eps_mantissa, row.eps_exponent);
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
#define ADD(i, count, u)                                                                          \
  {                                                                                               \
    const V value = only((shifted(get(row.x + (i), count), shift) - mean) - rest, count);         \
    sums[u] = fused(value, value, sums[u]);                                                         \
  }
  SUM_UP_ALONE(squares, 0, row.n, ADD)
#undef ADD
  const REAL eps = shifted_eps(row.eps_mantissa, row.eps_exponent, shift);
  const REAL scale = 1 / sqrt(value_of(squares) / n + eps);
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

// This lane's share, given what the whole row has.
static void write(Row row, REAL centre, Measured measured, size_t begin, size_t end) {
  const REAL n = (REAL)row.n, rest = measured.deviations / n, square = measured.squares / n;
  const REAL variance = isfinite(square) ? fmax(square - rest * rest, (REAL)0) : square;
  const REAL with_eps = variance + ldexp(row.eps_mantissa, row.eps_exponent);
  // Far from the mean, the deviations have lost digits to the distance.
  if (!is_safe(with_eps) || rest * rest > variance) {
    if (begin == 0 && lane() == 0) write_carefully(row);
    return;
  }
  const REAL scale = 1 / sqrt(with_eps);
#define SCALED(i, count) \
  ((((get(row.x + (i), count) - centre) - rest) * scale) * get_parameter(row.weight + (i), count))
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

kernel void whole_rows(ARRAYS, NUMBERS, uint per) {
  LANES_ROOM(room);
  for (uint k = 0; k < per; ++k) {
    const Place place = place_of(k, per, rows);
    if (LANES == 1 && !place.is_live) break;
    const Row row = ROW_AT(place.row);
    const REAL centre = centre_of(row);
    Measured measured = measure(row, centre, 0, n);
    measured.deviations = sum_of_lanes(measured.deviations, room);
    measured.squares = sum_of_lanes(measured.squares, room);
    if (place.is_live) write(row, centre, measured, 0, n);
  }
  FINISH_STREAMS();
}

// A long row in parts, each of them the work of a group. All of them need the centre when the first
// may have been overwritten already: it is handed on.
kernel void measure_parts(ARRAYS, NUMBERS, ulong part, global REAL* found) {
  LANES_ROOM(room);
  const size_t r = get_group_id(1), begin = get_group_id(0) * part, parts = get_num_groups(0);
  const Row row = ROW_AT(r);
  const REAL centre = centre_of(row);
  const Measured measured = measure(row, centre, begin, end_of(begin, part, n));
  const REAL deviations = sum_of_lanes(measured.deviations, room);
  const REAL squares = sum_of_lanes(measured.squares, room);
  if (lane() != 0) return;
  global REAL* of_row = found + r * 3 * parts + get_group_id(0);
  of_row[0] = deviations;
  of_row[parts] = squares;
  of_row[2 * parts] = centre;
}

kernel void write_parts(ARRAYS, NUMBERS, ulong part, global const REAL* found) {
  const size_t r = get_group_id(1), begin = get_group_id(0) * part, parts = get_num_groups(0);
  global const REAL* of_row = found + r * 3 * parts;
  const Measured measured = {sum_of_parts(of_row), sum_of_parts(of_row + parts)};
  write(ROW_AT(r), of_row[2 * parts], measured, begin, end_of(begin, part, n));
  FINISH_STREAMS();
}
