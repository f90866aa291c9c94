// Times the parts of a decode step on a GPU, each alone: a barrier of all blocks, copies
// on their way beside it, loads after it, and rings that read without multiplying. Prints a line of
// JSON for each figure; docs/decode_cuda_predictions.md says what they are compared with.
//
//     nvcc -std=c++17 -O3 -arch=sm_90 --expt-relaxed-constexpr -Ipackages/tensor-ops-cuda/native
//         -Inative -Inative/include -o barrier_probe benchmarks/gpu/barrier_probe.cu
//
// Tested by packages/tensor-ops-cuda/tests/test_grid_probe.py.
#include <cstdio>
#include <cstdlib>

#include "kernels/async_copy.cuh"
#include "kernels/grid.cuh"

namespace tensor_ops {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;  // of a block, as of decode steps
constexpr int kStep = 2048;                        // bytes of a slot
constexpr int kRounds = 2000, kLaunches = 5;
constexpr std::size_t kSharedBytes = kWarps * 4 * kStep;
constexpr unsigned long long kNanoseconds = 2'000'000'000;  // until a block gives up
// More than any L2 cache has, and what is overwritten before each launch so that nothing else is
// in it.
constexpr unsigned long long kBytes = 8ull << 30, kFlushedAt = 7ull << 30, kFlushed = 256ull << 20;
// A chain of dependent loads: of lines that were read before, or of lines that are read for the
// first time in a launch.
constexpr unsigned kLoads = 3, kHotStride = 128, kHotLines = 64, kColdStride = 8320,
                   kColdLines = 8000;
constexpr int kRow = 4096;  // floats, as the activations of a token
static_assert(kRounds * kLoads < kColdLines);
static_assert(static_cast<unsigned long long>(kColdStride) * kColdLines < kFlushedAt);

enum class Part { kBarrier, kCopies, kCopiesAcrossBarrier, kHotLoads, kColdLoads, kExchange };

struct Buffers {
  unsigned* counter;
  unsigned char* bytes;  // kBytes, all of them 0
  float* rows;           // two for each thread, and kRow more
  unsigned* sink;
  unsigned long long* elapsed;  // clocks and nanoseconds of a launch
};

template <Part kPart>
__global__ void __launch_bounds__(kThreads, 1) rounds(const __grid_constant__ Buffers buffers) {
  constexpr bool kMeets = kPart != Part::kCopies;
  constexpr bool kReads = kPart == Part::kCopies || kPart == Part::kCopiesAcrossBarrier;
  __shared__ bool gave_up;
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, threads = gridDim.x * kThreads;
  auto* const shared = static_cast<unsigned char*>(shared_memory()) + warp * 3 * kStep;
  const unsigned long long first = (blockIdx.x * kWarps + warp) * 3ull * kStep,
                           stride = gridDim.x * kWarps * 3ull * kStep;
  unsigned long long at = first;
  unsigned sum = 0;
  GridBarrier barrier(buffers.counter);
  if (threadIdx.x == 0) gave_up = false;
  block_sync(0);
  const long long clocks = clock64();
  const unsigned long long began = global_timer();
  for (unsigned r = 0; r < kRounds; ++r) {
    float* const rows = buffers.rows + r % 2 * threads;  // others may read those of the last round
    if (kReads) {
      for (unsigned i = 0; i < 3 * kStep; i += 512)
        copy_async(shared + i + lane * 16, buffers.bytes + at + i + lane * 16);
      commit_copies();
      at += stride;
      if (at + 3 * kStep > kBytes) at = first;
    }
    if (kPart == Part::kExchange)
      publish(rows + blockIdx.x * kThreads + threadIdx.x, static_cast<float>(r));
    if (kMeets) {
      barrier.arrive(0);
      if (!barrier.wait_at_most(0, kNanoseconds, &gave_up)) break;
    }
    if (kReads) {
      wait_copies<0>(0);
      block_sync(0);
    }
    if (kPart == Part::kExchange)
      for (unsigned i = threadIdx.x; i < kRow / 4; i += kThreads)
        sum += static_cast<unsigned>(observe(reinterpret_cast<const float4*>(rows) + i).x);
    if (kPart == Part::kHotLoads || kPart == Part::kColdLoads) {
      constexpr bool kIsHot = kPart == Part::kHotLoads;
      constexpr unsigned kStride = kIsHot ? kHotStride : kColdStride;
      constexpr unsigned kLines = kIsHot ? kHotLines : kColdLines;
      unsigned line = r * kLoads % kLines;
      for (unsigned i = 0; i < kLoads; ++i) {
        const auto* const word = reinterpret_cast<const unsigned*>(
            buffers.bytes + static_cast<std::size_t>(line) * kStride);
        line = (line + 1 + observe(word)) % kLines;
      }
      sum += line;
    }
  }
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    buffers.elapsed[0] = static_cast<unsigned long long>(clock64() - clocks);
    buffers.elapsed[1] = gave_up ? 0 : global_timer() - began;
  }
  if (sum == 0x12345678) *buffers.sink = sum;  // else the loads would be left out
}

// Each warp takes its next step from a ring of its own, as decode steps do, and drops it. `steps`
// of `different` ones are read, which are so few that they stay in the L2 cache, or all different.
template <int kSlots>
__global__ void __launch_bounds__(kThreads, 1)
    read_ring(const __grid_constant__ Buffers buffers, unsigned steps, unsigned different) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = gridDim.x * kWarps;
  auto* const ring = static_cast<unsigned char*>(shared_memory()) + warp * kSlots * kStep;
  const unsigned first = blockIdx.x * kWarps + warp;
  unsigned next = first, sum = 0;
  const auto fill = [&](int slot) {
    const std::size_t from = static_cast<std::size_t>(next % different) * kStep;
    if (next < steps)
      for (unsigned i = lane * 16; i < kStep; i += 512)
        copy_async(ring + slot * kStep + i, buffers.bytes + from + i);
    commit_copies();
    next += warps;
  };
  for (int slot = 0; slot < kSlots - 1; ++slot) fill(slot);
  int slot = 0;
  for (unsigned step = first; step < steps; step += warps) {
    wait_copies<kSlots - 2>(0);
    warp_sync(0);
    fill(slot == 0 ? kSlots - 1 : slot - 1);
    sum ^= reinterpret_cast<const unsigned*>(ring + slot * kStep)[lane];
    slot = slot + 1 == kSlots ? 0 : slot + 1;
  }
  wait_copies<0>(0);
  if (sum == 0x12345678) *buffers.sink = sum;
}

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s: %s\n", call, cudaGetErrorName(error), cudaGetErrorString(error));
  std::exit(1);
}
#define CHECK(call) check(call, #call)

// Returns the seconds of the fastest of several launches after the first.
template <class Kernel, class... More>
double seconds_of(Kernel kernel, int blocks, const Buffers& buffers, More... more) {
  CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kSharedBytes)));
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  float least = 1e30f;
  for (int i = 0; i <= kLaunches; ++i) {
    CHECK(cudaMemsetAsync(buffers.bytes + kFlushedAt, 0, kFlushed));
    CHECK(cudaEventRecord(begin));
    CHECK(cudaLaunchKernelEx(&config, kernel, buffers, more...));
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i > 0 && milliseconds < least) least = milliseconds;
  }
  CHECK(cudaEventDestroy(begin));
  CHECK(cudaEventDestroy(end));
  return 1e-3 * least;
}

template <Part kPart>
void print_round(const char* what, int blocks, const Buffers& buffers) {
  const double seconds = seconds_of(rounds<kPart>, blocks, buffers);
  unsigned long long elapsed[2];
  CHECK(cudaMemcpy(elapsed, buffers.elapsed, sizeof elapsed, cudaMemcpyDeviceToHost));
  if (elapsed[1] == 0) {
    std::fprintf(stderr, "%s: a block has waited for others for too long\n", what);
    std::exit(1);
  }
  std::printf("{\"what\": \"%s\", \"blocks\": %d, \"us\": %.3f, \"ghz\": %.3f}\n", what, blocks,
              1e6 * seconds / kRounds,
              static_cast<double>(elapsed[0]) / static_cast<double>(elapsed[1]));
}

template <int kSlots>
void print_ring(int blocks, unsigned megabytes, const Buffers& buffers) {
  constexpr unsigned kSteps = (4ull << 30) / kStep;
  const unsigned different = (megabytes << 20) / kStep;
  const double seconds = seconds_of(read_ring<kSlots>, blocks, buffers, kSteps, different);
  std::printf("{\"what\": \"ring\", \"blocks\": %d, \"slots\": %d, \"mb\": %u, \"gb_s\": %.1f}\n",
              blocks, kSlots, megabytes, 1e-9 * kSteps * kStep / seconds);
}

void print_all() {
  int all = 0;
  CHECK(cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, 0));
  Buffers buffers{};
  const std::size_t row_bytes = (2 * static_cast<std::size_t>(all) * kThreads + kRow) * 4;
  CHECK(cudaMalloc(&buffers.counter, sizeof(unsigned)));
  CHECK(cudaMalloc(&buffers.bytes, kBytes));
  CHECK(cudaMalloc(&buffers.rows, row_bytes));
  CHECK(cudaMalloc(&buffers.sink, sizeof(unsigned)));
  CHECK(cudaMalloc(&buffers.elapsed, 2 * sizeof(unsigned long long)));
  CHECK(cudaMemset(buffers.counter, 0, sizeof(unsigned)));
  CHECK(cudaMemset(buffers.bytes, 0, kBytes));
  CHECK(cudaMemset(buffers.rows, 0, row_bytes));
  for (const int blocks : {all, all / 2, 8}) {
    print_round<Part::kBarrier>("barrier", blocks, buffers);
    print_round<Part::kCopies>("copies", blocks, buffers);
    print_round<Part::kCopiesAcrossBarrier>("copies across a barrier", blocks, buffers);
    print_round<Part::kHotLoads>("barrier and 3 hot loads", blocks, buffers);
    print_round<Part::kColdLoads>("barrier and 3 cold loads", blocks, buffers);
    print_round<Part::kExchange>("barrier and a row of 16 KB", blocks, buffers);
  }
  for (const int blocks : {all, all / 2}) {
    for (const unsigned megabytes : {16u, 4096u}) {
      print_ring<3>(blocks, megabytes, buffers);
      print_ring<4>(blocks, megabytes, buffers);
    }
  }
}

}  // namespace
}  // namespace tensor_ops

int main() { tensor_ops::print_all(); }
