#include "decode/executor/checksum.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "threads/pool.h"

namespace tensor_ops::decode {
namespace {

// Threads take blocks. The result is the checksum of the checksums of all blocks.
constexpr std::size_t kBlockBytes = 1 << 20;
// 32-bit lanes, as many as hide the latency of the multiplication.
constexpr std::size_t kStripe = 256, kLanes = kStripe / sizeof(std::uint32_t);
constexpr std::uint32_t kPrime = 0x9E3779B1;  // both of xxHash
constexpr std::uint64_t kPrime64 = 0x9E3779B185EBCA87;

// The lanes are computed in vectors. Their width does not change the result.
struct Narrow {
  typedef std::uint32_t Vector __attribute__((vector_size(16)));
};
struct Wide {
  typedef std::uint32_t Vector __attribute__((vector_size(32)));
};

// A lane takes a word. For each word this is one-to-one in the lane, and for each lane in the word:
// a difference never disappears by itself. The rotation takes high bits to where the product
// spreads them.
template <class Width, std::size_t vectors>
__attribute__((always_inline)) inline void take_stripe(typename Width::Vector (&lanes)[vectors],
                                                       const unsigned char* from) {
  for (std::size_t v = 0; v < vectors; ++v) {
    typename Width::Vector words;
    std::memcpy(&words, from + v * sizeof words, sizeof words);
    words ^= lanes[v];
    lanes[v] = (words << 13 | words >> 19) * kPrime;
  }
}

template <class Width>
__attribute__((always_inline)) inline std::uint64_t sum_of_block(const unsigned char* from,
                                                                 std::size_t bytes) {
  std::uint32_t start[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i)
    start[i] = static_cast<std::uint32_t>(bytes + i) * kPrime;
  typename Width::Vector lanes[kStripe / sizeof(typename Width::Vector)];
  std::memcpy(lanes, start, kStripe);
  std::size_t done = 0;
  for (; done + kStripe <= bytes; done += kStripe) take_stripe<Width>(lanes, from + done);
  if (done < bytes) {
    unsigned char rest[kStripe] = {};
    std::memcpy(rest, from + done, bytes - done);
    take_stripe<Width>(lanes, rest);
  }
  std::uint64_t words[kStripe / sizeof(std::uint64_t)], all = bytes;
  std::memcpy(words, lanes, kStripe);
  for (const std::uint64_t word : words) {
    all ^= word;
    all = (all << 29 | all >> 35) * kPrime64;
  }
  return all ^ all >> 32;
}

using BlockSum = std::uint64_t (*)(const unsigned char*, std::size_t);

std::uint64_t plain_sum(const unsigned char* from, std::size_t bytes) {
  return sum_of_block<Narrow>(from, bytes);
}

#if defined(__x86_64__)
// The same number, at the speed of the memory.
__attribute__((target("avx2"))) std::uint64_t avx2_sum(const unsigned char* from,
                                                       std::size_t bytes) {
  return sum_of_block<Wide>(from, bytes);
}
BlockSum block_sum() { return __builtin_cpu_supports("avx2") ? avx2_sum : plain_sum; }
#else
BlockSum block_sum() { return plain_sum; }
#endif

struct Job {
  const unsigned char* first;
  std::size_t bytes, pieces;
  BlockSum sum;
  std::vector<std::uint64_t> blocks;

  void run(std::size_t piece) {
    const std::size_t end = blocks.size() * (piece + 1) / pieces;
    for (std::size_t i = blocks.size() * piece / pieces; i < end; ++i)
      blocks[i] = sum(first + i * kBlockBytes, std::min(kBlockBytes, bytes - i * kBlockBytes));
  }
};

}  // namespace

std::uint64_t checksum(const unsigned char* first, std::size_t bytes, std::size_t threads) {
  const std::size_t blocks = (bytes + kBlockBytes - 1) / kBlockBytes;
  Job job{first, bytes, std::min<std::size_t>(blocks, kMostPieces), block_sum(), {}};
  job.blocks.resize(blocks);
  const Work work = [](const void* context, int piece) {
    const_cast<Job*>(static_cast<const Job*>(context))->run(static_cast<std::size_t>(piece));
  };
  if (job.pieces > 0)
    run_pieces(static_cast<int>(job.pieces), static_cast<int>(threads), work, &job);
  return job.sum(reinterpret_cast<const unsigned char*>(job.blocks.data()),
                 blocks * sizeof(std::uint64_t));
}

}  // namespace tensor_ops::decode
