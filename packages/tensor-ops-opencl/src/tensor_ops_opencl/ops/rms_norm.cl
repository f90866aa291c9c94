// rms_norm: x * weight / sqrt(mean(x^2) + eps).
#include "op.clh"

typedef struct {
  global const Element* x;
  global const Parameter* weight;
  global Element* y;
  size_t n;
  REAL eps_mantissa;
  int eps_exponent;
} Row;

#define ARRAYS global const Element *x, global const Parameter *weight, global Element *y
#define NUMBERS REAL eps_mantissa, int eps_exponent, ulong n, ulong rows

static Row row_at(ARRAYS, NUMBERS, size_t r) {
  Row row = {x + r * n, weight, y + r * n, n, eps_mantissa, eps_exponent};
  return row;
}
#define ROW_AT(r) row_at(x, weight, y, eps_mantissa, eps_exponent, n, rows, r)

// This lane's share.
static REAL sum_of_squares(Row row, size_t begin, size_t end) {
  Sum total = {0, 0};
#define ADD(i, count, u)                         \
  {                                              \
    const V value = get(row.x + (i), count);     \
    sums[u] = fused(value, value, sums[u]);        \
  }
  SUM_UP(total, begin, end, ADD)
#undef ADD
  return value_of(total);
}

static REAL mean_square(Row row, REAL squares) {
  return squares / (REAL)row.n + ldexp(row.eps_mantissa, row.eps_exponent);
}

// By one work-item, scaled by a power of two so that squares neither overflow nor vanish.
RARE void write_carefully(Row row) {
  V most = ALL(0);
#define STEP(i, count, u) most = fmax(most, fabs(get(row.x + (i), count)))
  EACH_VECTOR_ALONE(0, row.n, STEP)
#undef STEP
  const int shift = shift_for(greatest_of_vector(most), row.eps_mantissa, row.eps_exponent);
  Sum total = {0, 0};
#define ADD(i, count, u)                                         \
  {                                                              \
    const V value = shifted(get(row.x + (i), count), shift);     \
    sums[u] = fused(value, value, sums[u]);                        \
  }
  SUM_UP_ALONE(total, 0, row.n, ADD)
#undef ADD
  const REAL eps = shifted_eps(row.eps_mantissa, row.eps_exponent, shift);
  const REAL scale = 1 / sqrt(value_of(total) / (REAL)row.n + eps);
#define STEP(i, count, u)                                                                          \
  put((shifted(get(row.x + (i), count), shift) * scale) * get_parameter(row.weight + (i), count),  \
      row.y + (i), count)
  EACH_VECTOR_ALONE(0, row.n, STEP)
#undef STEP
}

// This lane's share.
static void write(Row row, REAL mean, size_t begin, size_t end) {
  if (!is_safe(mean)) {
    if (begin == 0 && lane() == 0) write_carefully(row);
    return;
  }
  const REAL scale = 1 / sqrt(mean);
#define STEP(i, count, u) \
  stream((get(row.x + (i), count) * scale) * get_parameter(row.weight + (i), count),              \
         row.y + (i), count)
  EACH_VECTOR(begin, end, STEP)
#undef STEP
}

kernel void whole_rows(ARRAYS, NUMBERS, uint per) {
  LANES_ROOM(room);
  for (uint k = 0; k < per; ++k) {
    const Place place = place_of(k, per, rows);
    if (LANES == 1 && !place.is_live) break;
    const Row row = ROW_AT(place.row);
    const REAL squares = sum_of_lanes(sum_of_squares(row, 0, n), room);
    if (place.is_live) write(row, mean_square(row, squares), 0, n);
  }
  FINISH_STREAMS();
}

// A long row in parts, each of them the work of a group.
kernel void measure_parts(ARRAYS, NUMBERS, ulong part, global REAL* found) {
  LANES_ROOM(room);
  const size_t r = get_group_id(1), begin = get_group_id(0) * part;
  const REAL squares = sum_of_squares(ROW_AT(r), begin, end_of(begin, part, n));
  const REAL total = sum_of_lanes(squares, room);
  if (lane() == 0) found[r * get_num_groups(0) + get_group_id(0)] = total;
}

kernel void write_parts(ARRAYS, NUMBERS, ulong part, global const REAL* found) {
  const size_t r = get_group_id(1), begin = get_group_id(0) * part;
  const Row row = ROW_AT(r);
  const REAL squares = sum_of_parts(found + r * get_num_groups(0));
  write(row, mean_square(row, squares), begin, end_of(begin, part, n));
  FINISH_STREAMS();
}
