// Arguments of the kernel of a decode step: phases, between which all blocks meet, as plain values.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "decode/kernels/layout.h"

namespace tensor_ops::decode {

constexpr int kMostTokens = 8;  // that run through a step together
constexpr int kBlockWarps = 8, kBlockThreads = 32 * kBlockWarps;
constexpr int kRound = 8 * kBlockWarps;  // positions that a block attends to at once
constexpr int kMostHeadSize = 256;

// The parameters of an attention node, and where its cache, queries and partial results are.
struct Attention {
  int heads, kv_heads, head_size;
  float scale;
  int window;         // positions that a token sees; 0: all
  int rotated_pairs;  // of a head
  const float *cos, *sin;
  void *keys, *values;  // [page][head][position in the page][element]
  bool is_half;         // float16, else float32
  bool is_paged;        // else a slot is a page
  int page_size;
  float* queries;  // [token][head][element]
  int span;        // positions of a unit of work, a multiple of kRound
  float* parts;    // [token][head][span]: the elements, the largest score, the sum of exponentials
  int most_spans;
};

// The work between two grid barriers. Matrices of numbers have a row for each token, or for each
// selected token.
struct DevicePhase {
  enum Kind : int { kEmbed, kProduct, kAttend, kAdd };
  enum Source : int { kRows, kSelectedRows, kAttended };
  enum Result : int { kStore, kGated, kRotated, kLogits };

  Kind kind;
  int node;                   // of the program: the main one of the phase
  bool is_selected;           // whether it has the rows of the selected tokens
  bool residual_is_selected;  // whether these are looked up in a residual of all tokens
  const Panel* panels;        // of a table or a matrix
  int num_panels, rows, columns;
  // Fields of a product; kAdd has source, x, residual and y, and columns.
  int product;                 // its kind: the index of its file in decode/products/
  std::int64_t attributes[2];  // of the product's node
  Source source;
  Result result;
  const float* x;
  const float* norm;  // null: x is multiplied as it is
  double eps;
  const float* residual;  // null: none
  float* y;
  // Attention of kAttend, and of a product with kAttended or kRotated.
  Attention attention;
};

// The place at which a block gave up waiting for the others.
struct BlockState {
  int gave_up, step, phase, panel;  // panel: that its first warp reads next
};

struct Steps {
  const DevicePhase* phases;
  int num_phases;  // that run in this launch: the last ones need selected tokens
  const Panel* panels;
  int num_panels;
  int num_tokens, num_selected, num_steps;
  int num_chosen;  // tokens that a step chooses; 0: the launch chooses none
  const std::int32_t *tokens, *positions, *slots, *selected, *page_table;
  int pages_per_request, num_words;
  // End tokens of each chosen token: ends[ends_begin[i]] up to ends[ends_begin[i + 1]].
  const std::int32_t *ends_begin, *ends;
  float4* sums;             // [tile][lane], of products of several panels
  unsigned char* prepared;  // [panel of a product], activations
  void* best;               // [block][chosen token]
  std::int32_t* chosen;     // [step][chosen token]; -1 where the logits choose none
  std::int32_t* num_done;   // steps
  unsigned* barrier;
  unsigned long long nanoseconds;  // that a block waits for the others, at most
  BlockState* states;              // [block]
  unsigned long long* times;       // [phase + 1], or null: when block 0 began and ended each
};

}  // namespace tensor_ops::decode
