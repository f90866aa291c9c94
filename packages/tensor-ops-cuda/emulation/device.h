// The part of CUDA C++ that kernels are written in, on the host. cuda_runtime.h includes it first,
// and kernel_launch.h after its own types.
//
// The threads of a block are fibers: they run one at a time, in a random order, each until it waits
// at a barrier. A missing barrier shows as wrong numbers, and one that not all threads reach as an
// error that says who waits where. The blocks of a cooperative grid run at once, those of others
// one after another, a cluster at a time. docs/decisions/0050 says how blocks see each other's
// writes.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__  // which the standard library writes within __attribute__(())
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

namespace emulation {

struct Grid {
  dim3 blocks, threads;
  unsigned cluster = 1;  // blocks of a cluster, along x
  std::size_t shared_bytes = 0;
  bool is_cooperative = false;  // all blocks run at once; they are no clusters then
};

// How a grid ended.
struct Outcome {
  std::string failure;  // what was wrong, of which block and wait; empty after a success
  bool has_hung = false;
};

// Runs a kernel's body once for each thread of the grid.
Outcome run_grid(const Grid& grid, const std::function<void()>& body);

// Ends the grid that runs, in which the calling thread has made a mistake.
[[noreturn]] void fail_grid(std::string why);

// Memory of this thread's block, or of another of its cluster.
void* shared_memory();
void* shared_memory_of(const void* own, unsigned rank);
unsigned cluster_rank();
unsigned cluster_size();
unsigned lane();

// Waits have the numbers that kernels give to them; 0 is one that cannot be left out.
bool is_left_out(int wait);

void block_barrier(int wait = 0);
// Waits at one of the 16 barriers of the block until so many threads of the block have come to it.
void named_barrier(unsigned number, unsigned threads, int wait = 0);
void cluster_barrier();
void warp_barrier(int wait = 0);

// Writes of blocks of a cooperative grid for each other, and reads of them.
void publish(void* to, const void* value, std::size_t bytes);
void observe(void* value, const void* from, std::size_t bytes);
unsigned add_release(unsigned* counter, unsigned addend, int wait);
unsigned load_acquire(const unsigned* counter, int wait);

// Copies of 16 bytes into shared memory, which have come when their group was waited for.
void copy_async(void* to, const void* from);
void commit_copies();
void wait_copies(unsigned groups_left, int wait);

// A time in nanoseconds, which passes faster while all threads wait.
std::uint64_t global_timer();

// Every lane of the warp gives an address, or null where there is no lane; the last to come works
// on all of them.
using Collective = void (*)(void* const* given);
// `line` is that of the statement, where lanes in different statements are an error.
void do_together(void* own, Collective work, int wait = 0, int line = 0);

// Every lane of the warp gives 8 bytes and takes those of another lane.
std::uint64_t exchange(std::uint64_t given, unsigned from_lane);

// sums += a b, by a warp, of matrices in the registers of mma.sync.
void mma_s8(int (&sums)[4], uint4 a, uint2 b, int line);
void mma_f16(float (&sums)[4], uint4 a, uint2 b, int line);
void mma_bf16(float (&sums)[4], uint4 a, uint2 b, int line);

template <class T>
T exchanged(T value, unsigned from_lane) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(bits, from_lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace emulation

// Indices and dimensions of the running thread; one grid runs at a time.
inline uint3 threadIdx{}, blockIdx{};
inline dim3 blockDim{}, gridDim{};

inline void __syncthreads() { ::emulation::block_barrier(); }
inline void __barrier_sync_count(unsigned number, unsigned threads) {
  ::emulation::named_barrier(number, threads);
}
inline void __syncwarp(unsigned = 0xffffffffu) { ::emulation::warp_barrier(); }

template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return ::emulation::exchanged(value, ::emulation::lane() ^ static_cast<unsigned>(mask));
}
template <class T>
T __shfl_sync(unsigned, T value, int from) {
  return ::emulation::exchanged(value, static_cast<unsigned>(from));
}
inline int __any_sync(unsigned, int predicate) {
  int any = predicate != 0;
  for (int mask = 16; mask > 0; mask /= 2) any |= __shfl_xor_sync(0xffffffffu, any, mask);
  return any;
}

inline unsigned __clusterRelativeBlockRank() { return ::emulation::cluster_rank(); }
inline unsigned __clusterSizeInBlocks() { return ::emulation::cluster_size(); }
inline void __cluster_barrier_arrive() {}
inline void __cluster_barrier_wait() { ::emulation::cluster_barrier(); }
inline void* __cluster_map_shared_rank(const void* own, unsigned rank) {
  return ::emulation::shared_memory_of(own, rank);
}

inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline double __longlong_as_double(long long bits) {
  double value;
  std::memcpy(&value, &bits, 8);
  return value;
}
inline long long __double_as_longlong(double value) {
  long long bits;
  std::memcpy(&bits, &value, 8);
  return bits;
}
