#include "decode/serving/draw.h"

#include <algorithm>
#include <cmath>

#include "decode/program/pieces.h"

namespace tensor_ops::decode {
namespace {

// The first word of Philox4x32-10: a random number that only its arguments decide. Salmon, Moraes,
// Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
std::uint32_t philox(std::uint64_t seed, std::uint32_t counter) {
  std::uint32_t key[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  std::uint32_t word[4] = {counter, 0, 0, 0};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53} * word[0];
    const std::uint64_t second = std::uint64_t{0xCD9E8D57} * word[2];
    const std::uint32_t next[4] = {static_cast<std::uint32_t>(second >> 32) ^ word[1] ^ key[0],
                                   static_cast<std::uint32_t>(second),
                                   static_cast<std::uint32_t>(first >> 32) ^ word[3] ^ key[1],
                                   static_cast<std::uint32_t>(first)};
    std::copy_n(next, 4, word);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return word[0];
}

struct Candidate {
  double weight;  // relative to the largest
  std::int32_t index;

  // Makes the likeliest candidate the first of a heap; of equal ones that of the lowest index.
  bool operator<(const Candidate& other) const {
    return weight < other.weight || (weight == other.weight && index > other.index);
  }
};

// The scratch for a row of n logits.
struct SampleScratch {
  Piece<Candidate> heap;
  Piece<float> edited;
  std::size_t bytes;

  explicit SampleScratch(std::size_t n) {
    Pieces own;
    heap = own.add<Candidate>(n);
    edited = own.add<float>(n);
    bytes = own.bytes();
  }
};

// In double and then rounded, as in the reference.
float edited_logit(double logit, double bias, double penalty) {
  if (bias == -INFINITY) return -INFINITY;  // whatever the logit
  logit += bias;
  return static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
}

// The row of logits with the edits of a slot.
const float* edited(const Step& step, const float* x, std::size_t n, std::size_t slot, float* y) {
  std::copy_n(x, n, y);
  const std::size_t first = slot * step.edits_per_request;
  const std::size_t end = first + static_cast<std::size_t>(step.num_edits[slot]);
  for (std::size_t e = first; e < end; ++e) {
    float& logit = y[step.edited_tokens[e]];
    logit = edited_logit(logit, step.edit_biases[e], step.edit_penalties[e]);
  }
  return y;
}

// A token, drawn with the parameters of its slot. No logit is NaN, and the largest is more than
// minus infinity.
//
// Equal logits have equal weights, so the weights order the candidates as the logits do; logits so
// far apart that weights underflow to the same number are never drawn.
std::int32_t draw(const Step& step, const float* x, std::size_t n, std::size_t token, float largest,
                  Candidate* heap) {
  const auto slot = static_cast<std::size_t>(step.slots[token]);
  const auto temperature = static_cast<double>(step.temperature[slot]);
  for (std::size_t i = 0; i < n; ++i) {
    const double distance = static_cast<double>(x[i]) - static_cast<double>(largest);
    heap[i] = {x[i] == largest ? 1.0 : std::exp(distance / temperature),
               static_cast<std::int32_t>(i)};
  }

  // Candidates move from the heap to the end of the array in descending order, as many as needed.
  const std::size_t top_k = static_cast<std::size_t>(step.top_k[slot]);
  const std::size_t most = top_k == 0 ? n : std::min(top_k, n);
  const double u =
      philox(step.seed[slot], static_cast<std::uint32_t>(step.positions[token])) * 0x1p-32;
  std::make_heap(heap, heap + n);
  std::size_t kept = 0;
  double sum = 0;
  const auto pop = [&] {
    std::pop_heap(heap, heap + (n - kept));
    return heap[n - ++kept].weight;
  };
  double total = 0;
  if (most < n) {
    while (kept < most) total += pop();
  } else {
    for (std::size_t i = 0; i < n; ++i) total += heap[i].weight;
  }
  // How many candidates top_p and min_p keep, and their sum.
  const double wanted = static_cast<double>(step.top_p[slot]) * total;
  const auto least = static_cast<double>(step.min_p[slot]);
  std::size_t last = 0;
  for (; last < most; ++last) {
    const double weight = last < kept ? heap[n - 1 - last].weight : pop();
    if (last > 0 && (sum >= wanted || weight < least)) break;
    sum += weight;
    if (step.top_p[slot] == 1 && least == 0 && sum > u * total) {
      return heap[n - 1 - last].index;  // the drawn one, since nothing is cut off
    }
  }
  double below = 0;
  for (std::size_t i = 0; i < last; ++i) {
    below += heap[n - 1 - i].weight;
    if (below > u * sum) return heap[n - 1 - i].index;
  }
  return heap[n - last].index;
}

}  // namespace

std::size_t draw_scratch(std::size_t n) { return SampleScratch(n).bytes; }

std::int32_t argmax(const float* x, std::size_t n) {
  std::size_t index = 0;
  bool has_nan = false;
  for (std::size_t i = 0; i < n; ++i) {
    has_nan |= x[i] != x[i];
    if (x[i] > x[index]) index = i;
  }
  return has_nan || x[index] == -INFINITY ? -1 : static_cast<std::int32_t>(index);
}

std::int32_t sample(const Step& step, const float* x, std::size_t n, std::size_t token,
                    unsigned char* scratch, Argmax largest_of) {
  const SampleScratch pieces(n);
  const auto slot = static_cast<std::size_t>(step.slots[token]);
  if (step.num_edits[slot] > 0) x = edited(step, x, n, slot, pieces.edited.in(scratch));
  const std::int32_t best = largest_of(x, n);
  if (step.temperature[slot] <= 0 || best < 0) return best;
  return draw(step, x, n, token, x[best], pieces.heap.in(scratch));
}

}  // namespace tensor_ops::decode
