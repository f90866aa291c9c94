// A kernel that calls the bodies of ops as a persistent one would. The threads of its one block are
// several groups. Each takes tasks of any op and row in turn while the others are at theirs, and
// keeps the result in shared memory before it writes it.
#include <cstdio>

#include "kernels/layer_norm.cuh"
#include "kernels/rms.cuh"
#include "kernels/rope.cuh"
#include "kernels/softmax.cuh"

namespace tensor_ops {
namespace {

constexpr int kVectors = 4;  // of a lane, as in the ops' kernels for rows of these lengths

constexpr unsigned kMeeting = 15;  // the barrier at which all groups meet in the end

// Consecutive threads of a block, and a barrier of theirs; barrier 0 is __syncthreads().
struct PartOfBlock {
  int first, count;
  unsigned barrier;

  DEVICE int lane() const { return static_cast<int>(threadIdx.x) - first; }
  DEVICE int lanes() const { return count; }
  DEVICE void wait() const { __barrier_sync_count(barrier, static_cast<unsigned>(count)); }
};

enum Body { kSoftmax, kLayerNorm, kRmsNorm, kRope };
struct Task {
  int body, row;
};

// Contiguous arrays of rows; weight and bias are one row. Of y there are as many rows as of x for
// each body in turn.
struct Problem {
  const void *x, *weight, *bias, *cos, *sin;
  void* y;
  const Task* tasks;
  int num_tasks, rows, n, groups, lanes;
  double scale, layer_norm_eps, rms_norm_eps;
};

template <int kCount, class X>
DEVICE void rotate_row(const PartOfBlock& threads, const X* x, const X* cos, const X* sin, X* y,
                       int pairs) {
  for (int first = threads.lane() * kCount; first < pairs; first += threads.lanes() * kCount)
    rotate_pairs<false, kCount>(x, cos, sin, y, first, pairs);
}

template <class X>
void compute_tasks(const Problem& problem, const SoftmaxScale<Real<X>>& scale) {
  const int number = static_cast<int>(threadIdx.x) / problem.lanes, n = problem.n;
  auto* const memory = static_cast<GroupMemory*>(shared_memory());
  X* const y = reinterpret_cast<X*>(memory + problem.groups) + number * n;
  const PartOfBlock threads{number * problem.lanes, problem.lanes,
                            static_cast<unsigned>(number) + 1};
  ThreadGroup<PartOfBlock> group(threads, memory + number);

  for (int i = number; i < problem.num_tasks; i += problem.groups) {
    const auto [body, index] = problem.tasks[i];
    const auto* const x = static_cast<const X*>(problem.x) + index * n;
    const auto* const weight = static_cast<const X*>(problem.weight);
    const Row<X> row{x, y, n, n % kWidth<X> == 0};
    if (body == kSoftmax) {
      softmax_row<kVectors>(group, SoftmaxRow<X>{row, scale});
    } else if (body == kLayerNorm) {
      const auto* const bias = static_cast<const X*>(problem.bias);
      layer_norm_row<kVectors>(group, LayerRow<X, X>{row, weight, bias}, problem.layer_norm_eps);
    } else if (body == kRmsNorm) {
      const RmsRow<X, X, NoResidual> rms{row, weight, nullptr, nullptr};
      rms_row<kVectors>(group, rms, problem.rms_norm_eps);
    } else {
      const auto* const cos = static_cast<const X*>(problem.cos) + index * (n / 2);
      const auto* const sin = static_cast<const X*>(problem.sin) + index * (n / 2);
      n / 2 % kWidth<X> == 0 ? rotate_row<kWidth<X>>(threads, x, cos, sin, y, n / 2)
                             : rotate_row<1>(threads, x, cos, sin, y, n / 2);
    }
    group.wait();
    X* const to = static_cast<X*>(problem.y) + (body * problem.rows + index) * n;
    for (int j = group.lane(); j < n; j += group.lanes()) to[j] = y[j];
    group.wait();
  }
  // By a barrier that no group has: one that waited for the whole block before would hang here.
  __barrier_sync_count(kMeeting, blockDim.x);
}

template <class X>
void run(const Problem& problem) {
  emulation::Grid grid;
  grid.threads = dim3(static_cast<unsigned>(problem.groups * problem.lanes));
  grid.shared_bytes = static_cast<std::size_t>(problem.groups) *
                      (sizeof(GroupMemory) + static_cast<std::size_t>(problem.n) * sizeof(X));
  const auto scale = softmax_scale<Real<X>>(problem.scale);
  const auto outcome = emulation::run_grid(grid, [&] { compute_tasks<X>(problem, scale); });
  if (!outcome.failure.empty()) std::fprintf(stderr, "%s\n", outcome.failure.c_str());
}

}  // namespace
}  // namespace tensor_ops

#pragma GCC visibility push(default)
extern "C" {
void run_float32(const tensor_ops::Problem* problem) { tensor_ops::run<float>(*problem); }
void run_float16(const tensor_ops::Problem* problem) {
  tensor_ops::run<tensor_ops::Float16>(*problem);
}
}
#pragma GCC visibility pop
