// add_rms_norm: h = x + residual; y = h * weight / sqrt(mean(h^2) + eps), y from the sum before it
// is rounded. h has the residual's type.
#include "op.clh"

typedef struct {
  global const Element* x;
  global const Residual* residual;
  global const Parameter* weight;
  global Element* y;
  global Residual* h;
  size_t n;
  REAL eps_mantissa;
  int eps_exponent;
} Row;

#define ARRAYS                                                                               \
  global const Element *x, global const Residual *residual, global const Parameter *weight,  \
      global Element *y, global Residual *h
#define NUMBERS REAL eps_mantissa, int eps_exponent, ulong n, ulong rows

static Row row_at(ARRAYS, NUMBERS, size_t r) {
  const size_t first = r * n;
  Row row = {x + first, residual + first, weight,       y + first,
             h + first, n,                eps_mantissa, eps_exponent};
  return row;
}
#define ROW_AT(r) row_at(x, residual, weight, y, h, eps_mantissa, eps_exponent, n, rows, r)

static V sum_at(Row row, size_t i, size_t count) {
  return get(row.x + i, count) + get_residual(row.residual + i, count);
}

// The same sum over 2^shift. A sum that overflows does not where its terms are divided; a small one
// is multiplied as a whole, since its terms may be large and cancel.
static V shifted_sum_at(Row row, size_t i, size_t count, int shift) {
  if (shift < 0) return shifted(sum_at(row, i, count), shift);
  return shifted(get(row.x + i, count), shift) +
         shifted(get_residual(row.residual + i, count), shift);
}

// This lane's share.
static REAL sum_of_squares(Row row, size_t begin, size_t end) {
  Sum total = {0, 0};
#define ADD(i, count, u)                       \
  {                                            \
    const V value = sum_at(row, i, count);     \
    sums[u] = fused(value, value, sums[u]);      \
  }
  SUM_UP(total, begin, end, ADD)
#undef ADD
  return value_of(total);
}

static REAL mean_square(Row row, REAL squares) {
  return squares / (REAL)row.n + ldexp(row.eps_mantissa, row.eps_exponent);
}

static REAL largest_shifted_sum(Row row, int shift) {
  V most = ALL(0);
#define STEP(i, count, u) most = fmax(most, fabs(shifted_sum_at(row, i, count, shift)))
  EACH_VECTOR_ALONE(0, row.n, STEP)
#undef STEP
  return greatest_of_vector(most);
}

// By one work-item, scaled by a power of two so that neither sums nor squares overflow or vanish.
RARE void write_carefully(Row row) {
  int shift = 0;
  REAL largest = largest_shifted_sum(row, shift);
  if (isinf(largest)) {
    shift = 2;
    largest = largest_shifted_sum(row, shift);
  }
  shift += shift_for(largest, row.eps_mantissa, row.eps_exponent - 2 * shift);
  Sum total = {0, 0};
#define ADD(i, count, u)                                      \
  {                                                           \
    const V value = shifted_sum_at(row, i, count, shift);     \
    sums[u] = fused(value, value, sums[u]);                     \
  }
  SUM_UP_ALONE(total, 0, row.n, ADD)
#undef ADD
  const REAL eps = shifted_eps(row.eps_mantissa, row.eps_exponent, shift);
  const REAL scale = 1 / sqrt(value_of(total) / (REAL)row.n + eps);
#define STEP(i, count, u)                                                                     \
  {                                                                                           \
    const V sum = sum_at(row, i, count), small = shifted_sum_at(row, i, count, shift);        \
    put((small * scale) * get_parameter(row.weight + (i), count), row.y + (i), count);        \
    put_residual(sum, row.h + (i), count);                                                    \
  }
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
#define STEP(i, count, u)                                                                \
  {                                                                                      \
    const V sum = sum_at(row, i, count);                                                 \
    stream((sum * scale) * get_parameter(row.weight + (i), count), row.y + (i), count);  \
    stream_residual(sum, row.h + (i), count);                                            \
  }
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
