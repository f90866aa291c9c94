// The driver of ops that compute whole rows: it launches an op's kernels, and gives every row to a
// group. How many threads share a row follows from its length alone, so that the bits of a row do
// not depend on how many rows there are.
//
// An op is a class derived from RowCall that is passed to the kernels by value. It has
//
//     Element, kArrays               the type of x's elements; how many arrays the op has
//     kMostVectors                   the most vectors of a lane that the registers hold
//     at(row, first, n)              elements first to first + n - 1 of a row
//     row<kVectors>(group, row)       computes a row that the registers of a group hold
//     kSteps                         kernels that compute a longer row in parts, one after another
//     part<kStep>(group, row, parts)  computes a part of a longer row in one of these kernels
//     Measured                       the op whose first step is launched: the op itself, or one
//                                    that shares this step with ops of other types
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/addresses.cuh"
#include "kernels/launch.cuh"
#include "kernels/row.cuh"
#include "kernels/thread_group.cuh"
#include "launch/memory.h"

namespace tensor_ops {

// Vectors of a lane while a block has room for more lanes, and the most that its registers hold.
// More lanes would have fewer registers each.
constexpr int kFewVectors = 4, kManyVectors = 8;
constexpr int kMostLanes = 512;
// Threads of a block that has several groups, each a warp or a part of one.
constexpr int kSharedThreads = 128;
constexpr std::int64_t kMostBlocks = 1 << 30;

// The arguments of every kernel of an op on rows. `whole` says that every row of every array is
// aligned and consists of whole vectors.
template <int kArrays_>
struct RowCall : Arrays<kArrays_> {
  static constexpr int kArrays = kArrays_;
  std::int64_t n;
  bool whole;

  RowCall(const Call& call, bool whole_) : Arrays<kArrays>(call), n(call.n), whole(whole_) {}
};

// The memory that the launch reserved for the group of a block or a cluster.
DEVICE GroupMemory* group_memory() { return static_cast<GroupMemory*>(shared_memory()); }

// A group of more than a warp has a block, or all blocks of a cluster, to itself.
template <bool kCluster>
using RowGroup = std::conditional_t<kCluster, ClusterGroup, BlockGroup>;

template <bool kCluster>
DEVICE unsigned blocks_of_group() {
  if constexpr (kCluster) return ClusterGroup::blocks();
  return 1;
}

// Thread (x, y) of a block is a lane of the group of row y. That computes rows first_row(),
// first_row() + row_step(), ...
template <bool kCluster>
DEVICE std::int64_t first_row() {
  return std::int64_t{blockIdx.x / blocks_of_group<kCluster>()} * blockDim.y + threadIdx.y;
}
template <bool kCluster>
DEVICE std::int64_t row_step() {
  return std::int64_t{gridDim.x / blocks_of_group<kCluster>()} * blockDim.y;
}

template <class Op, int kVectors, bool kCluster>
__global__ void __launch_bounds__(kMostLanes, 1) compute_rows(const __grid_constant__ Op op) {
  if constexpr (!kCluster || HAS_CLUSTERS) {
    RowGroup<kCluster> group({}, group_memory());
    // The groups of a block go on until the last of them has no row left, since the lanes of a warp
    // exchange numbers.
    for (std::int64_t row = first_row<kCluster>(); row - threadIdx.y < op.rows.count;
         row += row_step<kCluster>()) {
      const bool is_live = row < op.rows.count;
      const int n = is_live ? static_cast<int>(op.n) : 0;
      op.template row<kVectors>(group, op.at(is_live ? row : 0, 0, n));
    }
  }
}

// --- Rows in parts, each of which a block computes -----------------------------------------------

// The parts of rows of n elements, and the numbers that they store for later steps.
struct RowParts {
  static constexpr int kNumbers = 3;  // of each part

  std::int64_t n, each, count;  // elements of a row and of a part, parts of a row
  std::int64_t all;             // parts of all rows
  double* numbers;

  DEVICE int size(std::int64_t part) const {
    return static_cast<int>(part + 1 < count ? each : n - part * each);
  }
};

// The parts of one row, and which of them the block computes.
struct PartsOfRow : RowParts {
  std::int64_t row, own;

  DEVICE PartsOfRow(const RowParts& parts, std::int64_t index)
      : RowParts(parts), row(index / parts.count), own(index - row * parts.count) {}

  DEVICE double& number(int k, std::int64_t part) const {
    return numbers[k * all + row * count + part];
  }
  // Stores numbers kFirst, kFirst + 1, ... of the block's own part.
  template <int kFirst = 0, class... Numbers>
  DEVICE void store(const BlockGroup& group, Numbers... given) const {
    int k = kFirst;
    if (group.lane() == 0) ((number(k++, own) = given), ...);
  }

  // Combines function(part) of all parts of the row.
  template <class Function, class Combine>
  DEVICE double combine(BlockGroup& group, double start, Function function,
                        Combine combined) const {
    double value = start;
    for (std::int64_t part = group.lane(); part < count; part += group.lanes())
      value = combined(value, function(part));
    return group.combine(value, combined);
  }
  template <class Function>
  DEVICE double sum(BlockGroup& group, Function function) const {
    return combine(group, 0, function, Plus());
  }
};

template <class Op, int kStep>
__global__ void __launch_bounds__(kMostLanes, 1)
    compute_parts(const __grid_constant__ Op op, const __grid_constant__ RowParts parts) {
  BlockGroup group({}, group_memory());
  for (std::int64_t index = blockIdx.x; index < parts.all; index += gridDim.x) {
    const PartsOfRow of_row(parts, index);
    const auto part = op.at(of_row.row, of_row.own * parts.each, parts.size(of_row.own));
    op.template part<kStep>(group, part, of_row);
  }
}

template <class Op, int kStep = 0>
void launch_parts(const Call& call, const Grid& grid, bool whole, const RowParts& parts) {
  using Launched = std::conditional_t<kStep == 0, typename Op::Measured, Op>;
  launch(call.stream, grid, compute_parts<Launched, kStep>, Launched(call, whole), parts);
  if constexpr (kStep + 1 < Op::kSteps) launch_parts<Op, kStep + 1>(call, grid, whole, parts);
}

// --- Launching -----------------------------------------------------------------------------------

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

constexpr int power_of_two_from(std::int64_t number, int most) {
  int power = 1;
  while (power < number && power < most) power *= 2;
  return power;
}

// A grid of groups of `lanes` threads in each of `cluster` blocks; small groups share a block.
inline Grid row_grid(const Call& call, int lanes, int cluster) {
  const int together = lanes <= kWarp ? kSharedThreads / lanes : 1;
  const std::int64_t groups = ceil_div(call.rows.count, together);
  const std::int64_t blocks = std::min(groups, kMostBlocks / cluster) * cluster;
  return {static_cast<unsigned>(blocks),
          dim3(static_cast<unsigned>(lanes), static_cast<unsigned>(together)), sizeof(GroupMemory),
          static_cast<unsigned>(cluster)};
}

template <class Op>
void launch_rows(const Call& call) {
  constexpr int kCount = kWidth<typename Op::Element>, kMost = Op::kMostVectors;
  const bool whole = fits_vectors(call, Op::kArrays, kCount);
  const std::int64_t vectors = ceil_div(call.n, kCount);
  const int lanes = power_of_two_from(ceil_div(vectors, kFewVectors), kMostLanes);
  const std::int64_t each = ceil_div(vectors, lanes);
  const auto compute = [&](auto* kernel, int cluster) {
    launch(call.stream, row_grid(call, lanes, cluster), kernel, Op(call, whole));
  };
  if (each <= kFewVectors) return compute(compute_rows<Op, kFewVectors, false>, 1);
  if (each <= kMost) return compute(compute_rows<Op, kMost, false>, 1);
  if (call.device.has_clusters && each <= kMost * kMostCluster)
    return compute(compute_rows<Op, kMost, true>,
                   power_of_two_from(ceil_div(each, kMost), kMostCluster));

  constexpr std::int64_t kPart = std::int64_t{kMostLanes} * kManyVectors * kCount;
  RowParts parts{call.n, kPart, ceil_div(call.n, kPart), 0, nullptr};
  parts.all = call.rows.count * parts.count;
  const DeviceMemory memory = new_device_memory(
      static_cast<std::size_t>(parts.all) * RowParts::kNumbers * sizeof(double), call.stream);
  parts.numbers = static_cast<double*>(memory.get());
  const Grid grid{static_cast<unsigned>(std::min(parts.all, kMostBlocks)), kMostLanes,
                  sizeof(GroupMemory)};
  launch_parts<Op>(call, grid, whole, parts);
}

}  // namespace tensor_ops
