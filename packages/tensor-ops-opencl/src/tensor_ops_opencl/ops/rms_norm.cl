// rms_norm: x * weight / sqrt(mean(x^2) + eps).
#include "op.clh"
#include "rows.clh"

typedef struct {
  global const Element* x;
  global const Parameter* weight;
  global Element* y;
  size_t n;
  Eps eps;
} Row;

#define ARGUMENTS                                                                       \
  global const Element *x, global const Parameter *weight, global Element *y,           \
      REAL eps_mantissa, int eps_exponent
#define ROW {x + r * n, weight, y + r * n, n, {eps_mantissa, eps_exponent}}

static V value_at(Row row, size_t i, size_t count) { return get(row.x + i, count); }

static V shifted_value_at(Row row, size_t i, size_t count, int shift) {
  return shifted(get(row.x + i, count), shift);
}

static void write_at(Row row, size_t i, size_t count, V value, V normalised) {
  stream(normalised * get_parameter(row.weight + i, count), row.y + i, count);
}

#include "rms.clh"
