// add_rms_norm: h = x + residual; y = h * weight / sqrt(mean(h^2) + eps), y from the sum before it
// is rounded. h has the residual's type.
#include "op.clh"
#include "rows.clh"

typedef struct {
  global const Element* x;
  global const Residual* residual;
  global const Parameter* weight;
  global Element* y;
  global Residual* h;
  size_t n;
  Eps eps;
} Row;

#define ARGUMENTS                                                                            \
  global const Element *x, global const Residual *residual, global const Parameter *weight,  \
      global Element *y, global Residual *h, REAL eps_mantissa, int eps_exponent
#define ROW                                                                  \
  {x + r * n, residual + r * n, weight, y + r * n, h + r * n, n,             \
   {eps_mantissa, eps_exponent}}

static V value_at(Row row, size_t i, size_t count) {
  return get(row.x + i, count) + get_residual(row.residual + i, count);
}

// A sum that overflows does not where its terms are divided; a small one is multiplied as a whole,
// since its terms may be large and cancel.
static V shifted_value_at(Row row, size_t i, size_t count, int shift) {
  if (shift < 0) return shifted(value_at(row, i, count), shift);
  return shifted(get(row.x + i, count), shift) +
         shifted(get_residual(row.residual + i, count), shift);
}

static void write_at(Row row, size_t i, size_t count, V value, V normalised) {
  stream(normalised * get_parameter(row.weight + i, count), row.y + i, count);
  stream_residual(value, row.h + i, count);
}

#include "rms.clh"
