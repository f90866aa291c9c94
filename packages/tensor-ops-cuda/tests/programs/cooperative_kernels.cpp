// Kernels whose blocks run at once, and functions that launch them; for tests of the emulated
// device and of the headers that it shares with GPUs. Arrays are in the memory of the emulated
// device.
#include "decode/kernels/attention.cuh"
#include "kernels/async_copy.cuh"
#include "kernels/grid.cuh"
#include "kernels/launch.cuh"
#include "kernels/mma.cuh"
#include "programs/layers_by_rings.h"

namespace tensor_ops {
namespace {

// In every round each thread adds up what all threads wrote in the round before.
enum ExchangeWait : int { kExchange = 1 };
__global__ void exchange_sums(unsigned* values, unsigned* counter, int rounds) {
  const unsigned count = gridDim.x * blockDim.x, own = blockIdx.x * blockDim.x + threadIdx.x;
  GridBarrier barrier(counter);
  for (int round = 0; round < rounds; ++round) {
    const unsigned* const from = values + round % 2 * count;
    unsigned sum = own;
    for (unsigned i = 0; i < count; ++i) sum = 3 * sum + observe(from + i);
    publish(values + (1 - round % 2) * count + own, sum);
    barrier.arrive(kExchange);
    barrier.wait(kExchange);
  }
}

// Block 0 writes a word for block 1, which has read it before. What they see: block 0 after it
// wrote, block 1 before and after.
enum HandOverWait : int { kHandOverRelease = 1, kHandOverAcquire };
__global__ void hand_over(unsigned* word, unsigned* counters, unsigned* seen) {
  if (blockIdx.x == 0) {
    while (load_acquire(counters + 1, 0) == 0) continue;
    publish(word, 7u);
    seen[0] = observe(word);
    add_release(counters, 1, kHandOverRelease);
  } else {
    seen[1] = observe(word);
    add_release(counters + 1, 1, 0);
    while (load_acquire(counters, kHandOverAcquire) == 0) continue;
    seen[2] = observe(word);
  }
}

// Each lane copies two groups of 16 bytes, and tells what it sees of both: before it has waited,
// after it has waited for one, and for both. The source changes meanwhile, if that is wanted.
enum CopyWait : int { kFirstCopy = 1, kAllCopies };
__global__ void copy_groups(uint4* from, uint4* seen, int changes) {
  auto* const to = static_cast<uint4*>(shared_memory());
  const unsigned lane = threadIdx.x;
  for (unsigned group = 0; group < 2; ++group) {
    copy_async(to + group * 32 + lane, from + group * 32 + lane);
    commit_copies();
  }
  const auto tell = [&](unsigned time) {
    for (unsigned group = 0; group < 2; ++group)
      seen[(time * 2 + group) * 32 + lane] = to[group * 32 + lane];
  };
  tell(0);
  if (changes) from[lane].x += 1;
  wait_copies<1>(kFirstCopy);
  tell(1);
  wait_copies<0>(kAllCopies);
  tell(2);
}

struct MmaS8 {
  DEVICE static void add(int (&sums)[4], uint4 a, uint2 b) { mma_s8(sums, a, b); }
};
struct MmaF16 {
  DEVICE static void add(float (&sums)[4], uint4 a, uint2 b) { mma_f16(sums, a, b); }
};
struct MmaBf16 {
  DEVICE static void add(float (&sums)[4], uint4 a, uint2 b) { mma_bf16(sums, a, b); }
};

// A row of `a`, or a column of `b`, is 8 words.
template <class Mma, class Sum>
__global__ void multiply(const unsigned* a, const unsigned* b, Sum* sums) {
  const unsigned row = threadIdx.x / 4, word = threadIdx.x % 4;
  const auto of_a = [&](unsigned r, unsigned half) { return a[r * 8 + half * 4 + word]; };
  Sum* const places[2] = {sums + row * 8 + word * 2, sums + (row + 8) * 8 + word * 2};
  Sum own[4] = {places[0][0], places[0][1], places[1][0], places[1][1]};
  Mma::add(own, uint4{of_a(row, 0), of_a(row + 8, 0), of_a(row, 1), of_a(row + 8, 1)},
           uint2{b[row * 8 + word], b[row * 8 + 4 + word]});
  for (int i = 0; i < 4; ++i) places[i / 2][i % 2] = own[i];
}

// The upper lanes do something else while the lower ones multiply.
enum Instead : int { kNothing, kAnotherMma, kMmaOfFloats, kShuffle, kWarpBarrier };
__global__ void multiply_in_part(int instead, int* seen) {
  int sums[4] = {};
  float floats[4] = {};
  const bool is_upper = threadIdx.x >= 16;
  if (!is_upper)
    mma_s8(sums, {}, {});
  else if (instead == kAnotherMma)
    mma_s8(sums, {}, {});
  else if (instead == kMmaOfFloats)
    mma_bf16(floats, {}, {});
  else if (instead == kShuffle)
    sums[0] = __shfl_xor_sync(~0u, sums[0], 1);
  else if (instead == kWarpBarrier)
    warp_sync(0);
  seen[threadIdx.x] = sums[0] + static_cast<int>(floats[0]);
}

// Sums of exponentials that a warp has for all heads of which there is room, after eight positions
// of a key of which there are fewer heads.
__global__ void add_positions(decode::Attention attention, const float* q, int heads, float* sums) {
  decode::WarpAttention own;
  own.add(attention, q, heads, threadIdx.x / 4 * attention.head_size, true, 4);
  if (threadIdx.x == 0)
    for (int h = 0; h < decode::kMostHeads; ++h) sums[h] = own.sum[h];
}

// One block does not come to the grid's barrier, or a part of the threads not to their block's.
enum HangWait : int { kHangBlock = 20, kHangGrid };
__global__ void hang(unsigned* counter, int absent_block, int absent_threads) {
  if (static_cast<int>(blockIdx.x) == absent_block) return;
  if (absent_threads > 0) {
    // These wait where no other thread comes.
    if (static_cast<int>(threadIdx.x) < absent_threads) part_sync(1, blockDim.x, kHangBlock + 100);
    block_sync(kHangBlock);
  }
  GridBarrier barrier(counter);
  barrier.arrive(kHangGrid);
  barrier.wait(kHangGrid);
}

// A block that waits in vain gives up after five seconds.
__global__ void give_up(unsigned* counter, unsigned* seconds) {
  const unsigned long long start = global_timer();
  while (load_acquire(counter, 0) == 0 && global_timer() - start < 5'000'000'000) continue;
  *seconds = static_cast<unsigned>((global_timer() - start) / 1'000'000'000);
}

// One block does not come to a barrier at which the others wait for five seconds. They tell whether
// all have met, each by its first thread and by its last.
enum MeetWait : int { kBegin = 60, kMeet };
__global__ void meet_at_most(unsigned* counter, int absent_block, unsigned* have_met) {
  if (static_cast<int>(blockIdx.x) == absent_block) return;
  auto* const gave_up = static_cast<bool*>(shared_memory());
  if (threadIdx.x == 0) *gave_up = false;
  block_sync(kBegin);
  GridBarrier barrier(counter);
  bool goes_on = true;
  for (int round = 0; round < 2 && goes_on; ++round) {
    barrier.arrive(kMeet);
    goes_on = barrier.wait_at_most(kMeet, 5'000'000'000, gave_up);
  }
  if (threadIdx.x == 0) have_met[2 * blockIdx.x] = goes_on;
  if (threadIdx.x == blockDim.x - 1) have_met[2 * blockIdx.x + 1] = goes_on;
}

__global__ void diverge(unsigned* lanes) {
  lanes[threadIdx.x] = threadIdx.x < 16 ? __shfl_xor_sync(~0u, threadIdx.x, 1) : 0;
  warp_sync(30);
}

__global__ void meet_elsewhere() {
  if (threadIdx.x < 32)
    block_sync(31);
  else
    block_sync(32);
}

// The first and the last word of shared memory as it was, after both were written.
__global__ void touch_shared(unsigned* words, int bytes) {
  auto* const memory = static_cast<unsigned*>(shared_memory());
  unsigned* const ends[2] = {memory, memory + bytes / 4 - 1};
  for (int i = 0; i < 2; ++i) {
    words[2 * blockIdx.x + i] = *ends[i];
    *ends[i] = 0;
  }
}

// An address has an offset to where it should be.
enum Access : int { kPublish, kObserve, kAdd, kAcquire, kCopyFrom, kCopyTo };
__global__ void misaligned(int access, unsigned char* memory, int offset) {
  unsigned char* const at = memory + offset;
  auto* const shared = static_cast<unsigned char*>(shared_memory());
  if (access == kPublish)
    publish(reinterpret_cast<uint4*>(at), uint4{1, 2, 3, 4});
  else if (access == kObserve)
    memory[64] = static_cast<unsigned char>(observe(reinterpret_cast<const uint4*>(at)).x);
  else if (access == kAdd)
    add_release(reinterpret_cast<unsigned*>(at), 1, 0);
  else if (access == kAcquire)
    memory[64] = static_cast<unsigned char>(load_acquire(reinterpret_cast<unsigned*>(at), 0));
  else if (access == kCopyFrom)
    copy_async(shared, at);
  else
    copy_async(shared + offset, memory);
  commit_copies();
  wait_copies<0>(0);
}

// Which thread of the grid ran, in order: once at its start, and after each round. Warps do not
// wait for each other.
__global__ void log_order(unsigned* log, unsigned* next, int rounds) {
  for (int round = 0; round <= rounds; ++round) {
    log[(*next)++] = blockIdx.x * blockDim.x + threadIdx.x;
    if (round < rounds) warp_sync(0);
  }
}

std::string message;

Grid cooperative_grid(unsigned blocks, unsigned threads, int shared_bytes) {
  Grid grid;
  grid.blocks = dim3(blocks);
  grid.threads = dim3(threads);
  grid.shared_bytes = static_cast<std::size_t>(shared_bytes);
  grid.is_cooperative = true;
  return grid;
}

template <class... Parameters, class... Arguments>
int start(const Grid& grid, void (*kernel)(Parameters...), Arguments... arguments) {
  try {
    launch(nullptr, grid, kernel, arguments...);
    CUDA_CHECK(cudaDeviceSynchronize());
  } catch (const std::exception& error) {
    message = error.what();
    return cudaErrorUnknown;
  }
  return cudaSuccess;
}

template <class... Parameters, class... Arguments>
int start(unsigned blocks, unsigned threads, int shared_bytes, void (*kernel)(Parameters...),
          Arguments... arguments) {
  return start(cooperative_grid(blocks, threads, shared_bytes), kernel, arguments...);
}

}  // namespace
}  // namespace tensor_ops

using namespace tensor_ops;

#pragma GCC visibility push(default)
extern "C" {

const char* error_message() { return message.c_str(); }

int run_exchange_sums(unsigned blocks, unsigned threads, unsigned* values, unsigned* counter,
                      int rounds) {
  return start(blocks, threads, 0, exchange_sums, values, counter, rounds);
}
int run_hand_over(unsigned* word, unsigned* counters, unsigned* seen) {
  return start(2, 1, 0, hand_over, word, counters, seen);
}
int run_copy_groups(uint4* from, uint4* seen, int changes) {
  return start(1, 32, 2 * 32 * 16, copy_groups, from, seen, changes);
}
int run_mma_s8(const unsigned* a, const unsigned* b, int* sums) {
  return start(1, 32, 0, multiply<MmaS8, int>, a, b, sums);
}
int run_mma_f16(const unsigned* a, const unsigned* b, float* sums) {
  return start(1, 32, 0, multiply<MmaF16, float>, a, b, sums);
}
int run_mma_bf16(const unsigned* a, const unsigned* b, float* sums) {
  return start(1, 32, 0, multiply<MmaBf16, float>, a, b, sums);
}
int run_mma_of_half_a_warp(const unsigned* a, const unsigned* b, int* sums) {
  return start(1, 16, 0, multiply<MmaS8, int>, a, b, sums);
}
int run_mma_in_part(int instead, int* seen) {
  return start(1, 32, 0, multiply_in_part, instead, seen);
}
int run_add_positions(void* keys, void* values, const float* q, int head_size, int heads,
                      float* sums) {
  decode::Attention attention{};
  attention.head_size = head_size;
  attention.scale = 1;
  attention.keys = keys;
  attention.values = values;
  return start(1, 32, 0, add_positions, attention, q, heads, sums);
}
int run_hang(unsigned blocks, unsigned* counter, int absent_block, int absent_threads) {
  return start(blocks, 64, 0, hang, counter, absent_block, absent_threads);
}
int run_without_attribute(unsigned blocks, unsigned* counter) {
  Grid grid = cooperative_grid(blocks, 64, 0);
  grid.is_cooperative = false;
  return start(grid, hang, counter, -1, 0);
}
int run_meet_at_most(unsigned blocks, unsigned* counter, int absent_block, unsigned* have_met) {
  return start(blocks, 64, 16, meet_at_most, counter, absent_block, have_met);
}
int run_give_up(unsigned* counter, unsigned* seconds) {
  return start(1, 1, 0, give_up, counter, seconds);
}
int run_diverge(unsigned* lanes) { return start(1, 32, 0, diverge, lanes); }
int run_meet_elsewhere() { return start(1, 64, 0, meet_elsewhere); }
int run_misaligned(int access, unsigned char* memory, int offset) {
  return start(1, 1, 64, misaligned, access, memory, offset);
}
int run_touch_shared(unsigned blocks, unsigned* words, int bytes) {
  return start(blocks, 1, bytes, touch_shared, words, bytes);
}
int ask_for_shared(int bytes) {
  return cudaFuncSetAttribute(touch_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}
int blocks_of_multiprocessor(int* blocks, int threads, int bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, touch_shared, threads,
                                                       static_cast<std::size_t>(bytes));
}
int run_log_order(unsigned blocks, unsigned threads, unsigned* log, unsigned* next, int rounds) {
  return start(blocks, threads, 0, log_order, log, next, rounds);
}
int run_layers(unsigned blocks, const Layers* layers) {
  return start(blocks, kLayerThreads, kLayerShared, run_through_layers, *layers);
}
}
#pragma GCC visibility pop
