// rope: rotary position embedding, the rotation of pairs of elements of each row.
#include "op.clh"

// Where the angles of a row lie: leading axes that an angle array repeats make its rows come round
// again, after `period` rows that each serve `each` rows of x.
typedef struct {
  ulong each, period;
} Angles;

static size_t angles_of(Angles angles, size_t row) { return (row / angles.each) % angles.period; }

static VI is_finite(V x) { return magnitude(x) < (REAL)INFINITY; }

// a * b + c * d to 1.5 ULP, without cancellation (Kahan). Products of half types are exact.
static V sum_of_products(V a, V b, V c, V d) {
  const V product = c * d;
#if IS_HALF
  return fused(a, b, product);
#else
  return fused(a, b, product) + product_error(c, d, product);
#endif
}

// Factors so scaled that no product overflows, whose result overflows only if it is too large.
#ifdef ELEMENT_float64
#define SMALL 0x1p-540
#define LARGE 0x1p540
#else
#define SMALL 0x1p-70f
#define LARGE 0x1p70f
#endif

// A product so scaled; of an infinity it is what it is.
static V small_product(V a, V b) {
  return choose((magnitude(a) == (REAL)INFINITY) | (magnitude(b) == (REAL)INFINITY), a * b, (a * SMALL) * (b * SMALL));
}

// The same for numbers of which any may be infinite, or overflow in a product. What FMA leaves of an
// infinity is NaN: then the formula itself.
static V careful_sum_of_products(V a, V b, V c, V d) {
  const V careful = sum_of_products(a * SMALL, b * SMALL, c * SMALL, d * SMALL);
  const V plain = small_product(a, b) + small_product(c, d);
  return (choose(is_finite(careful), careful, plain) * LARGE) * LARGE;
}

typedef struct {
  V a, b;
} Pair;

RARE Pair carefully_turned(V a, V b, V c, V s, Pair y) {
  Pair result = {choose(is_finite(y.a), y.a, careful_sum_of_products(a, c, -b, s)),
                 choose(is_finite(y.b), y.b, careful_sum_of_products(b, c, a, s))};
  return result;
}

static Pair turned(V a, V b, V c, V s) {
  const Pair y = {sum_of_products(a, c, -b, s), sum_of_products(b, c, a, s)};
#ifdef ELEMENT_float16  // whose products do not overflow
  return y;
#else
  return all_of(is_finite(y.a) & is_finite(y.b)) ? y : carefully_turned(a, b, c, s, y);
#endif
}

kernel void rows_of_pairs(global const Element* x, global const Element* cos,
                          global const Element* sin, global Element* y, ulong cos_each,
                          ulong cos_period, ulong sin_each, ulong sin_period, ulong n, ulong rows,
                          ulong first, uint per) {
  const size_t pairs = n / 2;
  const Angles of_cos = {cos_each, cos_period}, of_sin = {sin_each, sin_period};
  for (uint k = 0; k < per; ++k) {
    const Place place = place_of(k, per, rows);
    if (!place.is_live) break;
    global const Element* from = x + place.row * n;
    global Element* to = y + place.row * n;
    global const Element* c = cos + angles_of(of_cos, first + place.row) * pairs;
    global const Element* s = sin + angles_of(of_sin, first + place.row) * pairs;
#ifdef INTERLEAVED
// The pairs of a row are x[2 i], x[2 i + 1].
#define STEP(i, count, u)                                                                      \
  {                                                                                            \
    const size_t whole_ = 2 * (count), head_ = whole_ < WIDTH ? whole_ : WIDTH;                \
    const size_t tail_ = whole_ - head_;                                                       \
    const V low_ = get(from + 2 * (i), head_), high_ = get(from + 2 * (i) + WIDTH, tail_);     \
    const V a_ = (V)(low_.even, high_.even), b_ = (V)(low_.odd, high_.odd);                    \
    const V c_ = get(c + (i), count), s_ = get(s + (i), count);                                \
    const Pair y_ = turned(a_, b_, c_, s_);                                                    \
    V both_;                                                                                   \
    both_.even = y_.a.lo;                                                                      \
    both_.odd = y_.b.lo;                                                                       \
    stream(both_, to + 2 * (i), head_);                                                        \
    both_.even = y_.a.hi;                                                                      \
    both_.odd = y_.b.hi;                                                                       \
    stream(both_, to + 2 * (i) + WIDTH, tail_);                                                \
  }
#else
// The pairs of a row are x[i], x[n / 2 + i].
#define STEP(i, count, u)                                                          \
  {                                                                                \
    const V a_ = get(from + (i), count), b_ = get(from + pairs + (i), count);      \
    const V c_ = get(c + (i), count), s_ = get(s + (i), count);                    \
    const Pair y_ = turned(a_, b_, c_, s_);                                        \
    stream(y_.a, to + (i), count);                                                 \
    stream(y_.b, to + pairs + (i), count);                                         \
  }
#endif
    EACH_VECTOR(0, pairs, STEP)
#undef STEP
  }
  FINISH_STREAMS();
}
