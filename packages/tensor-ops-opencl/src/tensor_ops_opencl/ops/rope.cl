// rope: rotary position embedding, the rotation of pairs of elements of each row.
#include "op.clh"
#include "rows.clh"

// Where the angles of a row lie: leading axes that an angle array repeats make its rows come round
// again, after `period` rows that each serve `each` rows of x.
typedef struct {
  ulong each, period;
} Angles;

static size_t angles_of(Angles angles, size_t row) { return (row / angles.each) % angles.period; }

static VI is_finite(V x) { return magnitude(x) < (REAL)INFINITY; }

// a * b + c * d to 1.5 ULP, without cancellation (Kahan). Products of half types are exact.
static V sum_of_products(V a, V b, V c, V d) {
  const V product = c * d, sum = fused(a, b, product);
#if IS_HALF && defined(WIDE_PARAMETERS)
  // A sum of -0 would not survive the addition of 0.
  const V lost = product_error(c, d, product);
  return choose(lost == 0, sum, sum + lost);
#elif IS_HALF
  return sum;
#else
  return sum + product_error(c, d, product);
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

// The same, where `value` is not that already, for numbers of which any may be infinite, or overflow in
// a product. What FMA leaves of an infinity is NaN: then the formula itself.
RARE V careful_sum_of_products(V a, V b, V c, V d, V value) {
  const V careful = sum_of_products(a * SMALL, b * SMALL, c * SMALL, d * SMALL);
  const V plain = small_product(a, b) + small_product(c, d);
  const V scaled = choose(is_finite(careful), careful, plain);
  return choose(is_finite(value), value, (scaled * LARGE) * LARGE);
}

static Two turned(V a, V b, V c, V s) {
  const Two y = {sum_of_products(a, c, -b, s), sum_of_products(b, c, a, s)};
  return y;
}

static Two carefully_turned(V a, V b, V c, V s, Two y) {
  const Two result = {careful_sum_of_products(a, c, -b, s, y.first),
                      careful_sum_of_products(b, c, a, s, y.second)};
  return result;
}

// 0, or NaN where one of the numbers is not finite.
static V remainder_of(Two y) { return fused(y.first, ALL(0), y.second * ALL(0)); }

#if defined(ELEMENT_float16) && !defined(WIDE_PARAMETERS)
#define IS_RIGHT(remainder) true  // products do not overflow
#else
#define IS_RIGHT(remainder) all_of((remainder) == ALL(0))
#endif

static Two turned_anyhow(V a, V b, V c, V s) {
  const Two y = turned(a, b, c, s);
  return IS_RIGHT(remainder_of(y)) ? y : carefully_turned(a, b, c, s, y);
}

static void whole_row(global const Element* from, global Element* to, global const Parameter* c,
                      global const Parameter* s, size_t n) {
  const size_t pairs = n / 2;
  size_t at = 0;
#ifdef INTERLEAVED
// The pairs of a row are x[2 i], x[2 i + 1].
#if IS_SPLIT
  for (; IS_ROOM_FOR_TWO(2 * at, n); at += WIDTH) {
    const Two both = load_two(from + 2 * at);
    stream_two(turned_anyhow(both.first, both.second, load_parameter(c + at), load_parameter(s + at)),
               to + 2 * at);
  }
#endif
#define STEP(i, count, u)                                                                   \
  {                                                                                         \
  const size_t whole_ = 2 * (count), head_ = whole_ < WIDTH ? whole_ : WIDTH;             \
  const size_t tail_ = whole_ - head_;                                                    \
  const V low_ = get(from + 2 * (i), head_), high_ = get(from + 2 * (i) + WIDTH, tail_);  \
  const V a_ = (V)(low_.even, high_.even), b_ = (V)(low_.odd, high_.odd);                 \
  const Two y_ =                                                                          \
      turned_anyhow(a_, b_, get_parameter(c + (i), count), get_parameter(s + (i), count));        \
  V both_;                                                                                \
  both_.even = y_.first.lo;                                                               \
  both_.odd = y_.second.lo;                                                               \
  stream(both_, to + 2 * (i), head_);                                                     \
  both_.even = y_.first.hi;                                                               \
  both_.odd = y_.second.hi;                                                               \
  stream(both_, to + 2 * (i) + WIDTH, tail_);                                             \
  }
#else
  // The pairs of a row are x[i], x[n / 2 + i].
  for (; IS_ROOM_FOR_TWO(at, pairs); at += 2 * WIDTH) {
    const Two a = load_two(from + at), b = load_two(from + pairs + at);
    const Two cosines = load_two_parameters(c + at), sines = load_two_parameters(s + at);
    Two y1 = turned(a.first, b.first, cosines.first, sines.first);
    Two y2 = turned(a.second, b.second, cosines.second, sines.second);
    if (!IS_RIGHT(remainder_of(y1) + remainder_of(y2))) {
      y1 = carefully_turned(a.first, b.first, cosines.first, sines.first, y1);
      y2 = carefully_turned(a.second, b.second, cosines.second, sines.second, y2);
    }
    const Two of_a = {y1.first, y2.first}, of_b = {y1.second, y2.second};
    stream_two(of_a, to + at);
    stream_two(of_b, to + pairs + at);
  }
#define STEP(i, count, u)                                                           \
  {                                                                                 \
  const V a_ = get(from + (i), count), b_ = get(from + pairs + (i), count);       \
  const Two y_ =                                                                  \
      turned_anyhow(a_, b_, get_parameter(c + (i), count), get_parameter(s + (i), count)); \
  stream(y_.first, to + (i), count);                                              \
  stream(y_.second, to + pairs + (i), count);                                     \
  }
#endif
  EACH_VECTOR(at, pairs, STEP)
#undef STEP
}

// The rows are those of x from number `first` on.
kernel void rows_of_pairs(global const Element* x, global const Parameter* cos,
                          global const Parameter* sin, global Element* y, ulong cos_each,
                          ulong cos_period, ulong sin_each, ulong sin_period, ulong n, ulong rows,
                          ulong first, uint per) {
  const Angles of_cos = {cos_each, cos_period}, of_sin = {sin_each, sin_period};
  for (uint k = 0; k < per; ++k) {
    const size_t row = row_of(k, per);
    if (row >= rows) break;
    global const Parameter* c = cos + angles_of(of_cos, first + row) * (n / 2);
    global const Parameter* s = sin + angles_of(of_sin, first + row) * (n / 2);
    whole_row(x + row * n, y + row * n, c, s, n);
  }
  FINISH_STREAMS();
}
