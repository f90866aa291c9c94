/* The decode engine: runs language models that `tensor-ops export MODEL FOLDER` has written.
 *
 * The table of a backend that runs them has it as `decode`; it is that of libtensor_ops_cpp. The
 * rules are those of tensor_ops/abi.h: statuses and messages, checks before any work, structs that
 * say how large they are. What goes in and comes out are token ids; text is the caller's business.
 *
 * A model is driven in one of two ways, that which is used first:
 *
 * - By sequences. append() adds tokens to one, generate() continues several at a time, logits()
 *   gives what the next token would be chosen by. Tokens that were appended wait until they are
 *   needed; run_sequences() takes those of several sequences through the model together.
 * - By steps. step_array() gives the arrays of a step by name, which the caller fills, and
 * run_step() and run_steps() run what is in them. docs/guides/decode_programs.md says what they
 * mean.
 *
 * Functions may be called from any thread: those of one model take turns. Only close() must be the
 * last. A forked child cannot use the models of its parent, which is an error that says so.
 */
#ifndef TENSOR_OPS_DECODE_H
#define TENSOR_OPS_DECODE_H

#include "tensor_ops/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tensor_ops_model tensor_ops_model; /* a model that is open */

typedef struct tensor_ops_model_options {
  size_t size;             /* sizeof(tensor_ops_model_options) */
  const char* activations; /* "int8x2", "int8", "bfloat16" or "float32"; null: as exported */
  int32_t num_threads;     /* 0: as many as num_threads() of the backend says */
} tensor_ops_model_options;

/* The facts of a model. Its pointers are valid until the model is closed. */
typedef struct tensor_ops_model_facts {
  size_t size;               /* sizeof(tensor_ops_model_facts), written by the caller */
  const char* name;          /* of the file or folder that it was exported from */
  const char* activations;   /* what activations are rounded to */
  const int32_t* end_tokens; /* the tokens that end an answer */
  int32_t end_token_count;
  int32_t start_token;     /* the token that begins a text */
  int32_t vocabulary_size; /* tokens are from 0 to this, exclusive */
  int32_t logit_count;     /* logits of a token; a few more than tokens in some models */
  int32_t context_length;  /* the most tokens of a sequence */
  int32_t max_sequences;   /* the most sequences at a time, which is the number of slots */
  int32_t max_step_tokens; /* the most tokens of a step; sequences take as many steps as it needs */
  int32_t page_size;       /* the positions of a page of the caches */
  int32_t page_count;      /* the pages that all sequences share */
  int32_t layer_count;
  int32_t num_threads;
  int64_t memory; /* bytes that the model takes, without the file that is mapped */
} tensor_ops_model_facts;

/* The choice of the tokens of a sequence. */
typedef struct tensor_ops_sampling {
  size_t size;        /* sizeof(tensor_ops_sampling) */
  double temperature; /* up to 1e6; 0: the likeliest token, whatever the rest says */
  double top_p;       /* the likeliest tokens of so much probability: above 0, up to 1 (all) */
  double min_p;       /* tokens at least so likely beside the likeliest: from 0 (all) to 1 */
  uint64_t seed;      /* equal seeds give equal tokens */
  int32_t top_k;      /* so many of the likeliest tokens; 0: all */
} tensor_ops_sampling;

/* Sequences that are to be continued together. */
typedef struct tensor_ops_generation {
  size_t size; /* sizeof(tensor_ops_generation) */
  const int64_t* sequences;
  int32_t sequence_count;
  int32_t max_tokens;        /* of each sequence */
  const int32_t* end_tokens; /* a sequence is done after one of these */
  int32_t end_token_count;   /* -1: end_tokens of the model's facts */
  int32_t* tokens;           /* room for sequence_count rows of max_tokens, which are written */
  int32_t* token_counts;     /* of each sequence: how many tokens it has got, which is written */
} tensor_ops_generation;

typedef int32_t tensor_ops_step_type;
enum { TENSOR_OPS_STEP_INT32 = 0, TENSOR_OPS_STEP_FLOAT32 = 1, TENSOR_OPS_STEP_UINT64 = 2 };

/* An array of a step, contiguous and valid until the model is closed. */
typedef struct tensor_ops_step_array {
  size_t size; /* sizeof(tensor_ops_step_array), written by the caller */
  void* data;
  tensor_ops_step_type type;
  int32_t dims; /* 1 or 2 */
  int64_t shape[2];
} tensor_ops_step_array;

/* Steps in a row, of which each is fed the tokens that the one before has chosen. */
typedef struct tensor_ops_steps {
  size_t size;        /* sizeof(tensor_ops_steps) */
  const char* output; /* the output of the program that has the chosen tokens */
  int32_t num_tokens; /* of each step: one of each slot, all selected */
  int32_t num_steps;
  const int32_t* const* end_tokens; /* of each token: after which the steps end; null: none */
  const int32_t* end_token_counts;  /* how many each has; null if end_tokens is */
  double max_seconds; /* no step but the first begins that would end later, if it took as long as
                         those before; 0: no limit */
  int32_t* chosen;    /* room for num_steps rows of num_tokens, which are written; -1 where logits
                         are NaN, or all minus infinity */
  int32_t steps_done; /* how many rows there are; written */
} tensor_ops_steps;

struct tensor_ops_decode {
  size_t size; /* bytes of this table */

  /* Opens a folder that tensor-ops export has written, and packs its weights: that takes about as
   * long as to read them. Its files must stay as they are until the model is closed. options may
   * be null. */
  tensor_ops_status (*open)(const char* folder, const tensor_ops_model_options* options,
                            tensor_ops_model** model, tensor_ops_error* error);
  /* Frees the model with all that belongs to it. No other function may be using it. Null: nothing.
   */
  void (*close)(tensor_ops_model* model);
  tensor_ops_status (*facts)(const tensor_ops_model* model, tensor_ops_model_facts* facts,
                             tensor_ops_error* error);

  /* Makes an empty sequence that takes the likeliest tokens. Its number is not used again. */
  tensor_ops_status (*open_sequence)(tensor_ops_model* model, int64_t* sequence,
                                     tensor_ops_error* error);
  /* Forgets a sequence, so that another has its place and its pages. */
  tensor_ops_status (*close_sequence)(tensor_ops_model* model, int64_t sequence,
                                      tensor_ops_error* error);
  /* Sets the choice of tokens from now on. null: the likeliest. Once the next token is known, the
   * last one runs again, and of a model with states all of them. */
  tensor_ops_status (*set_sampling)(tensor_ops_model* model, int64_t sequence,
                                    const tensor_ops_sampling* sampling, tensor_ops_error* error);
  /* Adds tokens to the end of a sequence, where they wait, and takes the pages for them. */
  tensor_ops_status (*append)(tensor_ops_model* model, int64_t sequence, const int32_t* tokens,
                              int64_t count, tensor_ops_error* error);
  /* Forgets all tokens of a sequence from the one of this index on; 0 makes it empty. Of a model
   * with states, those that are left run again. */
  tensor_ops_status (*truncate)(tensor_ops_model* model, int64_t sequence, int64_t length,
                                tensor_ops_error* error);
  /* Takes all tokens that wait in these sequences through the model, in common steps. */
  tensor_ops_status (*run_sequences)(tensor_ops_model* model, const int64_t* sequences,
                                     int32_t count, tensor_ops_error* error);
  /* Writes the logits of the token that would follow a sequence, after it has run what waits. count
   * must be logit_count of the facts. */
  tensor_ops_status (*logits)(tensor_ops_model* model, int64_t sequence, float* logits,
                              int64_t count, tensor_ops_error* error);
  /* Continues sequences by tokens that the model chooses. Each gets max_tokens, or fewer if the
   * last is an end token, or if the sequence is as long as the context and the pages allow: then
   * the next call is an error. The last token waits, for nothing is computed from it yet.
   *
   * A sequence whose logits are NaN, or all minus infinity, gets no more tokens. Once the others
   * have theirs, that is an error which names the sequence and, of a model without states, where
   * NaN came from; the tokens and their counts are written then too. */
  tensor_ops_status (*generate)(tensor_ops_model* model, const tensor_ops_generation* generation,
                                tensor_ops_error* error);

  /* An array of a step by its name, such as "tokens", or an output of the program. */
  tensor_ops_status (*step_array)(tensor_ops_model* model, const char* name,
                                  tensor_ops_step_array* array, tensor_ops_error* error);
  tensor_ops_status (*run_step)(tensor_ops_model* model, int32_t num_tokens, int32_t num_selected,
                                tensor_ops_error* error);
  tensor_ops_status (*run_steps)(tensor_ops_model* model, tensor_ops_steps* steps,
                                 tensor_ops_error* error);
};

#ifdef __cplusplus
}
#endif

#endif
