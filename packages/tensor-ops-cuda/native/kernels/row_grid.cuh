// How many threads share a row, by its length alone, so that a row's bits do not depend on how many
// rows there are.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/addresses.cuh"
#include "kernels/launch.cuh"
#include "kernels/row.cuh"
#include "kernels/team.cuh"

namespace tensor_ops {

// Vectors of a lane while a block has room for more lanes, and the most that its registers hold.
// More lanes would have fewer registers each.
constexpr int kFewVectors = 4, kManyVectors = 8;
constexpr int kMostLanes = 512;
// Of a block whose teams are parts of warps or one warp.
constexpr int kTogether = 128;
constexpr std::int64_t kMostBlocks = 1 << 30;

constexpr int power_of_two_from(std::int64_t number, int most) {
  int power = 1;
  while (power < number && power < most) power *= 2;
  return power;
}

// Threads (lanes, rows together) and blocks for rows that `cluster` blocks share each.
inline Grid row_grid(const Call& call, int lanes, int cluster) {
  const int together = lanes <= kWarp ? kTogether / lanes : 1;
  const std::int64_t teams = (call.rows.count + together - 1) / together;
  const std::int64_t blocks = std::min(teams, kMostBlocks / cluster) * cluster;
  return {static_cast<unsigned>(blocks),
          dim3(static_cast<unsigned>(lanes), static_cast<unsigned>(together)), sizeof(TeamRoom),
          static_cast<unsigned>(cluster)};
}

// Launches an op whose x has these elements. Where a row fits the registers of a block or of a
// cluster, it calls K::rows<kVectors, kCluster>(call, grid, whole), with at most kMostVectors, else
// parts(call, whole). `whole` where all of the op's `arrays` can be taken in vectors.
template <class Element, class K>
void launch_rows(const Call& call, int arrays) {
  constexpr int kCount = kWidth<Element>, kMost = K::kMostVectors;
  const bool whole = fits_vectors(call, arrays, kCount);
  const std::int64_t vectors = (call.n + kCount - 1) / kCount;
  const int lanes = power_of_two_from((vectors + kFewVectors - 1) / kFewVectors, kMostLanes);
  const std::int64_t each = (vectors + lanes - 1) / lanes;
  if (each <= kFewVectors)
    return K::template rows<kFewVectors, false>(call, row_grid(call, lanes, 1), whole);
  if (each <= kMost) return K::template rows<kMost, false>(call, row_grid(call, lanes, 1), whole);
  if (call.device.has_clusters && each <= kMost * kMostCluster) {
    const int cluster = power_of_two_from((each + kMost - 1) / kMost, kMostCluster);
    return K::template rows<kMost, true>(call, row_grid(call, lanes, cluster), whole);
  }
  K::parts(call, whole);
}

// --- Rows in parts, each of them a block's -------------------------------------------------------

struct RowParts {
  std::int64_t each, count;  // elements of a part, parts of a row
};

template <class Element>
RowParts parts_of(const Call& call) {
  constexpr std::int64_t kEach = std::int64_t{kMostLanes} * kManyVectors * kWidth<Element>;
  return {kEach, (call.n + kEach - 1) / kEach};
}

inline Grid part_grid(const Call& call, const RowParts& parts) {
  return {static_cast<unsigned>(std::min(call.rows.count * parts.count, kMostBlocks)), kMostLanes,
          sizeof(TeamRoom)};
}

// A block's part in its turn, of as many as there are.
struct PartPlace {
  std::int64_t row, part, first;
  int n;

  __device__ __forceinline__ PartPlace(std::int64_t turn, const RowParts& parts, std::int64_t row_n)
      : row(turn / parts.count),
        part(turn - row * parts.count),
        first(part * parts.each),
        n(static_cast<int>(row_n - first < parts.each ? row_n - first : parts.each)) {}
};

// What function(part) gives for all parts of a row, combined.
template <class Function, class Combine>
__device__ __forceinline__ double combine_parts(Team<false>& team, std::int64_t parts, double start,
                                                Function function, Combine combined) {
  double value = start;
  for (std::int64_t part = team.lane(); part < parts; part += team.lanes())
    value = combined(value, function(part));
  return team.combine(value, combined);
}

template <class Function>
__device__ __forceinline__ double sum_of_parts(Team<false>& team, std::int64_t parts,
                                               Function function) {
  return combine_parts(team, parts, 0, function, Plus());
}

}  // namespace tensor_ops
