// rope: rotary position embedding, the rotation of pairs of elements of each row.
#include "op.clh"
#include "rows.clh"

// The place of a row's angles: leading axes that an angle array repeats make its rows come round
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

// A product of scaled factors. An infinite factor is not scaled.
static V small_product(V a, V b) {
  return choose((magnitude(a) == (REAL)INFINITY) | (magnitude(b) == (REAL)INFINITY), a * b, (a * SMALL) * (b * SMALL));
}

// A sum of products that is right where `value` is not: where a number is infinite, or a product
// overflows. FMA makes NaN of infinities, for which the formula itself is taken.
RARE V careful_sum_of_products(V a, V b, V c, V d, V value) {
  const V careful = sum_of_products(a * SMALL, b * SMALL, c * SMALL, d * SMALL);
  const V plain = small_product(a, b) + small_product(c, d);
  const V scaled = choose(is_finite(careful), careful, plain);
  return choose(is_finite(value), value, (scaled * LARGE) * LARGE);
}

static Two rotate_ordinary(Two x, V c, V s) {
  const Two y = {sum_of_products(x.first, c, -x.second, s), sum_of_products(x.second, c, x.first, s)};
  return y;
}

static Two rotate_carefully(Two x, V c, V s, Two ordinary) {
  const Two y = {careful_sum_of_products(x.first, c, -x.second, s, ordinary.first),
                 careful_sum_of_products(x.second, c, x.first, s, ordinary.second)};
  return y;
}

// 0, or NaN where one of the numbers is not finite.
static V remainder_of(Two y) { return fused(y.first, ALL(0), y.second * ALL(0)); }

#if defined(ELEMENT_float16) && !defined(WIDE_PARAMETERS)
#define IS_RIGHT(remainder) true  // products do not overflow
#else
#define IS_RIGHT(remainder) all_of((remainder) == ALL(0))
#endif

static Two rotate(Two x, V c, V s) {
  const Two y = rotate_ordinary(x, c, s);
  return IS_RIGHT(remainder_of(y)) ? y : rotate_carefully(x, c, s, y);
}

// The pairs of a row: x[2 i] and x[2 i + 1] if they are interleaved, else x[i] and x[pairs + i].
#ifdef INTERLEAVED
static Two get_pairs(global const Element* x, size_t pairs, size_t i, size_t count) {
  const size_t whole = 2 * count, head = whole < WIDTH ? whole : WIDTH;
  const V low = get(x + 2 * i, head), high = get(x + 2 * i + WIDTH, whole - head);
  const Two result = {(V)(low.even, high.even), (V)(low.odd, high.odd)};
  return result;
}

static void stream_pairs(Two value, global Element* y, size_t pairs, size_t i, size_t count) {
  const size_t whole = 2 * count, head = whole < WIDTH ? whole : WIDTH;
  V both;
  both.even = value.first.lo;
  both.odd = value.second.lo;
  stream(both, y + 2 * i, head);
  both.even = value.first.hi;
  both.odd = value.second.hi;
  stream(both, y + 2 * i + WIDTH, whole - head);
}
#else
static Two get_pairs(global const Element* x, size_t pairs, size_t i, size_t count) {
  const Two result = {get(x + i, count), get(x + pairs + i, count)};
  return result;
}

static void stream_pairs(Two value, global Element* y, size_t pairs, size_t i, size_t count) {
  stream(value.first, y + i, count);
  stream(value.second, y + pairs + i, count);
}
#endif

static void whole_row(global const Element* x, global Element* y, global const Parameter* c,
                      global const Parameter* s, size_t n) {
  const size_t pairs = n / 2;
  size_t at = 0;
#if defined(INTERLEAVED) && IS_SPLIT
  for (; IS_ROOM_FOR_TWO(2 * at, n); at += WIDTH)
    stream_two(rotate(load_two(x + 2 * at), load_parameter(c + at), load_parameter(s + at)),
               y + 2 * at);
#elif !defined(INTERLEAVED)
  for (; IS_ROOM_FOR_TWO(at, pairs); at += 2 * WIDTH) {
    const Two a = load_two(x + at), b = load_two(x + pairs + at);
    const Two cosines = load_two_parameters(c + at), sines = load_two_parameters(s + at);
    const Two x1 = {a.first, b.first}, x2 = {a.second, b.second};
    Two y1 = rotate_ordinary(x1, cosines.first, sines.first);
    Two y2 = rotate_ordinary(x2, cosines.second, sines.second);
    if (!IS_RIGHT(remainder_of(y1) + remainder_of(y2))) {
      y1 = rotate_carefully(x1, cosines.first, sines.first, y1);
      y2 = rotate_carefully(x2, cosines.second, sines.second, y2);
    }
    const Two of_a = {y1.first, y2.first}, of_b = {y1.second, y2.second};
    stream_two(of_a, y + at);
    stream_two(of_b, y + pairs + at);
  }
#endif
#define STEP(i, count, u)                                                                  \
  {                                                                                        \
    const V c_ = get_parameter(c + (i), count), s_ = get_parameter(s + (i), count);        \
    stream_pairs(rotate(get_pairs(x, pairs, i, count), c_, s_), y, pairs, i, count);       \
  }
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
