// Latent attention of a group of heads to a range of positions: products of small matrices, in
// which each number that is kept of a position is read once for all heads of the group.
#pragma once

#include "decode/kernels/attention_together.h"
#include "decode/kernels/latent_scratch.h"

namespace tensor_ops::TENSOR_OPS_LEVEL {
namespace {

constexpr std::size_t kLatentVectors = kPieces * kBlockVectors;  // of a tile
static_assert(decode::kLatentPart % (kLatentVectors * kLanes<float>) == 0);
static_assert(decode::kLatentPadding % kRestHeads == 0 && decode::kAttendedRange % kRestHeads == 0);

// What a position keeps: its latent, then the rotated part of its key. Floats follow one another;
// of int8 the scales come first, those of the latent and those of the other part.
template <class Element>
struct LatentRow {
  using T = typename Element::Storage;
  T* first;

  TENSOR_OPS_INLINE LatentRow(unsigned char* bytes, const decode::LatentSizes&)
      : first(reinterpret_cast<T*>(bytes)) {}

  void store(const float* from, const decode::LatentSizes& sizes) const {
    for (std::size_t i = 0; i < sizes.key; ++i) first[i] = Element::store(from[i]);
  }
  // Widens the row to places `part_stride` floats apart for each part, with zeros up to a whole
  // vector.
  void widen(float* to, std::size_t part_stride, const decode::LatentSizes& sizes) const {
    for (std::size_t begin = 0; begin < sizes.key; begin += decode::kLatentPart) {
      const std::size_t left = sizes.key - begin;
      const std::size_t count = left < decode::kLatentPart ? left : decode::kLatentPart;
      std::size_t i = 0;
      for (; i + kLanes<float> <= count; i += kLanes<float>)
        tensor_ops::TENSOR_OPS_LEVEL::store<Float32>(
            to + i, load<Element>(first + begin + i, Whole<1>{}), Whole<1>{});
      if (i < count)
        tensor_ops::TENSOR_OPS_LEVEL::store<Float32>(
            to + i, load<Element>(first + begin + i, PartialVector{count - i}), Whole<1>{});
      to += part_stride;
    }
  }
};

// A vector of int8 as floats.
TENSOR_OPS_INLINE Floats load_integers(const std::int8_t* from) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_vector<__m128i>(from)));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  Floats made;
  for (std::size_t i = 0; i < kLanes<float>; ++i) made[i] = static_cast<float>(from[i]);
  return made;
#endif
}

template <>
struct LatentRow<Int8> {
  unsigned char* scales;
  std::int8_t* first;

  TENSOR_OPS_INLINE LatentRow(unsigned char* bytes, const decode::LatentSizes& sizes)
      : scales(bytes),
        first(reinterpret_cast<std::int8_t*>(
            bytes + 2 * (decode::scales_of(sizes.latent) + decode::scales_of(sizes.rope)))) {}

  void store(const float* from, const decode::LatentSizes& sizes) const {
    for_groups(sizes, [&](std::size_t begin, std::size_t count, unsigned char* scale) {
      const std::uint16_t kept = Float16::store(largest_magnitude(from + begin, count) / 127.0f);
      __builtin_memcpy(scale, &kept, sizeof(kept));
      const float step = Float16::load(kept);
      const bool is_ordinary = step > 0 && step <= 65504.0f;
      for (std::size_t i = begin; i < begin + count; ++i) {
        const float steps = is_ordinary ? from[i] / step : 0.0f;
        first[i] = static_cast<std::int8_t>(whole(steps < -127.0f  ? -127.0f
                                                  : steps > 127.0f ? 127.0f
                                                                   : steps));
      }
    });
  }
  void widen(float* to, std::size_t part_stride, const decode::LatentSizes& sizes) const {
    const auto place = [&](std::size_t i) {
      return to + i / decode::kLatentPart * part_stride + i % decode::kLatentPart;
    };
    const std::size_t all = decode::scales_of(sizes.latent) + decode::scales_of(sizes.rope);
    float steps[kLanes<float>];
    std::size_t group = 0;
    for_groups(sizes, [&](std::size_t begin, std::size_t count, const unsigned char* scale) {
      const std::size_t lane = group++ % kLanes<float>, left = all + 1 - group;
      if (lane == 0) {
        const auto* const from = reinterpret_cast<const std::uint16_t*>(scale);
        const auto next = left < kLanes<float> ? load<Float16>(from, PartialVector{left})
                                               : load<Float16>(from, Whole<1>{});
        store_vector(steps, next.vector[0]);
      }
      const float step = steps[lane];
      if (count == decode::kScaledElements && begin % count == 0) {
        float* const at = place(begin);
        for (std::size_t i = 0; i < count; i += kLanes<float>)
          store_vector(at + i, load_integers(first + begin + i) * step);
      } else {
        for (std::size_t i = begin; i < begin + count; ++i)
          *place(i) = static_cast<float>(first[i]) * step;
      }
    });
    for (std::size_t i = sizes.key; i % kLanes<float>; ++i) *place(i) = 0;
  }

 private:
  // visit(first element, their number, the place of their scale)
  template <class Visit>
  TENSOR_OPS_INLINE void for_groups(const decode::LatentSizes& sizes, Visit visit) const {
    unsigned char* scale = scales;
    const std::size_t ends[] = {sizes.latent, sizes.key};
    std::size_t begin = 0;
    for (const std::size_t end : ends)
      for (; begin < end; scale += 2) {
        const std::size_t left = end - begin;
        const std::size_t count = left < decode::kScaledElements ? left : decode::kScaledElements;
        visit(begin, count, scale);
        begin += count;
      }
  }
};

// Sums of a tile: some rows, each of some vectors.
template <std::size_t rows, std::size_t vectors>
struct LatentTile {
  Floats of[rows][vectors] = {};

  // Adds vectors k, each times factor k of every row. Vectors are `stride` floats apart, factors of
  // a row `step`, and the rows' factors `between`.
  template <std::size_t between>
  TENSOR_OPS_INLINE void add(const float* vector, std::size_t stride, const float* factors,
                             std::size_t step, std::size_t count) {
    for (std::size_t k = 0; k < count; ++k, vector += stride, factors += step) {
      Floats loaded[vectors];
      for (std::size_t v = 0; v < vectors; ++v)
        loaded[v] = load_vector<Floats>(vector + v * kLanes<float>);
      for (std::size_t r = 0; r < rows; ++r) {
        const Floats factor = broadcast(factors + r * between);
        for (std::size_t v = 0; v < vectors; ++v) of[r][v] = fma(loaded[v], factor, of[r][v]);
      }
    }
  }
  TENSOR_OPS_INLINE void store(float* to, std::size_t stride) const {
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t v = 0; v < vectors; ++v)
        store_vector(to + r * stride + v * kLanes<float>, of[r][v]);
  }
};

// Where what the positions of a range keep begins.
struct RangeRows {
  std::size_t count = 0;
  unsigned char* row[decode::kAttendedRange];
};

// A range of positions whose keys have been widened, beside a group of heads of one token. The sums
// of a head have one order, whatever is computed beside them.
struct LatentRange {
  const decode::LatentSizes& sizes;
  std::size_t heads;
  const float *query, *rest, *keys;  // those of the heads that rest_of() counts lie one by one
  float* scores;
  Partial to;
  // What is prefetched meanwhile, since it is widened next: so many bytes of each of these rows.
  const RangeRows& next;
  std::size_t row_bytes;

  // The token sees the first `positions` of the range.
  void run(std::size_t positions) const {
    const std::size_t all = rounded_up(heads, kLanes<float>);
    const std::size_t lanes = rest_of(heads) ? all - kLanes<float> : all;
    std::size_t lane = 0;
    for (; lane + kLatentVectors * kLanes<float> <= lanes; lane += kLatentVectors * kLanes<float>)
      score<kLatentVectors>(lane, positions);
    for (; lane < lanes; lane += kLanes<float>) score<1>(lane, positions);
    for (; lane < heads; lane += kRestHeads) score_rest(lane, lane - lanes, positions);
    for (lane = 0; lane < all; lane += kLanes<float>) exponentials(lane, positions);
    for (std::size_t d = 0; d < sizes.latent; d += kLatentVectors * kLanes<float>)
      weigh(d, positions);
  }

  // How many heads are left over by whole vectors, if they are so few that it is better to have the
  // elements of a query in the lanes of a vector than the heads.
  static TENSOR_OPS_INLINE std::size_t rest_of(std::size_t heads) {
    const std::size_t rest = heads % kLanes<float>;
    return rest <= kLanes<float> / 2 ? rest : 0;
  }

 private:
  static TENSOR_OPS_INLINE std::size_t rounded_up(std::size_t x, std::size_t of) {
    return (x + of - 1) / of * of;
  }
  // body(first, their number as a constant) for rows in tiles.
  template <class Body>
  static TENSOR_OPS_INLINE void for_tiles(std::size_t count, Body body) {
    std::size_t first = 0;
    for (; first + kTileHeads <= count; first += kTileHeads)
      body(first, std::integral_constant<std::size_t, kTileHeads>{});
    for (; first < count; first += kRestHeads)
      body(first, std::integral_constant<std::size_t, kRestHeads>{});
  }

  // Scores of some vectors of heads. Those of positions behind the last one are never read.
  template <std::size_t vectors>
  void score(std::size_t lane, std::size_t positions) const {
    for_tiles(positions, [&](std::size_t first, auto rows) TENSOR_OPS_INLINE_LAMBDA {
      LatentTile<rows, vectors> tile;
      const float* of_part = keys + first * decode::kLatentPart;
      const std::size_t bytes = row_bytes / sizes.parts() + 1;
      for (std::size_t k = 0; k < sizes.key;
           k += decode::kLatentPart, of_part += decode::kLatentPartFloats) {
        const std::size_t left = sizes.key - k;
        for (std::size_t p = first; lane == 0 && p < first + rows && p < next.count; ++p)
          prefetch(next.row[p] + k / decode::kLatentPart * bytes, bytes);
        tile.template add<decode::kLatentPart>(
            query + k * sizes.padded + lane, sizes.padded, of_part, 1,
            left < decode::kLatentPart ? left : decode::kLatentPart);
      }
      for (auto& row : tile.of)
        for (Floats& sum : row) sum *= sizes.scale;
      tile.store(scores + first * sizes.padded + lane, sizes.padded);
    });
  }

  // Scores of kRestHeads heads of those that are left over, from one of them on.
  void score_rest(std::size_t head, std::size_t first_rest, std::size_t positions) const {
    constexpr std::size_t kPositions = 4;
    static_assert(decode::kAttendedRange % kPositions == 0);
    const std::size_t row = sizes.parts() * decode::kLatentPart;
    const float* const q = rest + first_rest * row;
    for (std::size_t p = 0; p < positions; p += kPositions) {
      Floats sums[kRestHeads][kPositions] = {};
      const float* of_part = keys + p * decode::kLatentPart;
      for (std::size_t k = 0; k < sizes.key; k += kLanes<float>) {
        if (k > 0 && k % decode::kLatentPart == 0) of_part += decode::kLatentPartFloats;
        Floats key[kPositions];
        for (std::size_t i = 0; i < kPositions; ++i)
          key[i] = load_vector<Floats>(of_part + i * decode::kLatentPart + k % decode::kLatentPart);
        for (std::size_t h = 0; h < kRestHeads; ++h) {
          const Floats of_head = load_vector<Floats>(q + h * row + k);
          for (std::size_t i = 0; i < kPositions; ++i)
            sums[h][i] = fma(key[i], of_head, sums[h][i]);
        }
      }
      for (std::size_t h = 0; h < kRestHeads; ++h)
        for (std::size_t i = 0; i < kPositions; ++i)
          scores[(p + i) * sizes.padded + head + h] =
              sizes.scale * halved_lanes(sums[h][i],
                                         [](auto low, auto high)
                                             TENSOR_OPS_INLINE_LAMBDA { return low + high; });
    }
  }

  // Replaces the scores of a vector of heads by exp(score - largest).
  void exponentials(std::size_t lane, std::size_t positions) const {
    float* const first = scores + lane;
    Floats largest = splat<Floats>(-__builtin_inff()), sum{};
    for (std::size_t p = 0; p < positions; ++p)
      largest = larger(load_vector<Floats>(first + p * sizes.padded), largest);
    for (std::size_t p = 0; p < positions; ++p) {
      float* const at = first + p * sizes.padded;
      const Floats share = exp_below(largest - load_vector<Floats>(at));
      store_vector(at, share);
      sum += share;
    }
    store_vector(to.largest + lane, largest);
    store_vector(to.sums + lane, sum);
  }

  // Elements of the results from d on, of all heads: the latents of the positions in order, each
  // times its weight.
  void weigh(std::size_t d, std::size_t positions) const {
    const float* const latents =
        keys + d / decode::kLatentPart * decode::kLatentPartFloats + d % decode::kLatentPart;
    for_tiles(heads, [&](std::size_t head, auto rows) TENSOR_OPS_INLINE_LAMBDA {
      LatentTile<rows, kLatentVectors> tile;
      tile.template add<1>(latents, decode::kLatentPart, scores + head, sizes.padded, positions);
      tile.store(to.values + head * sizes.columns + d, sizes.columns);
    });
  }
};

}  // namespace
}  // namespace tensor_ops::TENSOR_OPS_LEVEL
