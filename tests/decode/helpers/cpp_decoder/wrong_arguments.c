/* Calls every function of the decode table with what it must refuse, and prints a line for each
 * call that gives no status of that kind. Arguments: the library, the name of its entry point,
 * and the folder of an exported model. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor_ops/decode.h"

static int checked = 0;

/* What is expected: the status, and words of the message. */
static void expect(int line, tensor_ops_status status, tensor_ops_status expected,
                   const tensor_ops_error* error, const char* words) {
  ++checked;
  if (status != expected || strstr(error->message, words) == NULL)
    printf("line %d: status %d, '%s'; expected %d, '%s'\n", line, (int)status, error->message,
           (int)expected, words);
}

#define REFUSED(call, words) expect(__LINE__, (call), TENSOR_OPS_VALUE_ERROR, &error, (words))
#define DONE(call) expect(__LINE__, (call), TENSOR_OPS_OK, &error, "")

static void sequences(const tensor_ops_decode* decode, const char* folder) {
  tensor_ops_error error;
  tensor_ops_model* model = NULL;
  tensor_ops_model_options options = {sizeof options, NULL, 1};
  tensor_ops_model_facts facts = {sizeof facts};
  tensor_ops_sampling sampling = {sizeof sampling, 0.5, 1, 0, 0, 0};
  int64_t sequence = 0, both[2];
  const int32_t tokens[] = {1, 2, 3}, outside[] = {1, -1};
  int32_t written[8], counts[2];
  float logits[1];
  tensor_ops_generation generation = {sizeof generation};
  tensor_ops_steps steps = {sizeof steps};
  tensor_ops_step_array array = {sizeof array};

  REFUSED(decode->open(NULL, &options, &model, &error), "folder must not be null");
  REFUSED(decode->open(folder, &options, NULL, &error), "model must not be null");
  options.size = 8;
  REFUSED(decode->open(folder, &options, &model, &error), "tensor_ops_model_options.size must be");
  options.size = sizeof options;
  options.num_threads = -1;
  REFUSED(decode->open(folder, &options, &model, &error), "num_threads must be from 0 to");
  options.num_threads = 1;
  options.activations = "int4";
  REFUSED(decode->open(folder, &options, &model, &error), "activations must be 'int8x2'");
  options.activations = NULL;
  DONE(decode->open(folder, NULL, &model, NULL));
  decode->close(model);
  decode->close(NULL);
  DONE(decode->open(folder, &options, &model, &error));

  REFUSED(decode->facts(NULL, &facts, &error), "model must not be null");
  REFUSED(decode->facts(model, NULL, &error), "facts must not be null");
  facts.size = sizeof facts - 8;
  REFUSED(decode->facts(model, &facts, &error), "tensor_ops_model_facts.size must be");
  facts.size = sizeof facts;
  DONE(decode->facts(model, &facts, &error));

  REFUSED(decode->open_sequence(NULL, &sequence, &error), "model must not be null");
  REFUSED(decode->open_sequence(model, NULL, &error), "sequence must not be null");
  DONE(decode->open_sequence(model, &sequence, &error));
  REFUSED(decode->close_sequence(NULL, sequence, &error), "model must not be null");
  REFUSED(decode->close_sequence(model, 99, &error), "no sequence 99; there are 1");
  REFUSED(decode->append(NULL, sequence, tokens, 3, &error), "model must not be null");
  REFUSED(decode->append(model, 0, tokens, 3, &error), "no sequence 0");
  REFUSED(decode->append(model, sequence, NULL, 3, &error), "tokens must not be null");
  REFUSED(decode->append(model, sequence, tokens, -1, &error), "number of tokens");
  REFUSED(decode->append(model, sequence, outside, 2, &error), "got -1");
  REFUSED(decode->truncate(model, sequence, 1, &error), "length must be from 0 to 0");
  REFUSED(decode->truncate(model, sequence, -1, &error), "length must be from 0");
  REFUSED(decode->logits(model, sequence, NULL, facts.logit_count, &error), "must not be null");
  REFUSED(decode->logits(model, sequence, logits, 1, &error), "count must be logit_count");
  REFUSED(decode->run_sequences(model, NULL, 1, &error), "sequences must not be null");
  REFUSED(decode->run_sequences(model, &sequence, 0, &error), "number of sequences");
  both[0] = both[1] = sequence;
  REFUSED(decode->run_sequences(model, both, 2, &error), "sequence 1 is given twice");
  DONE(decode->run_sequences(model, &sequence, 1, &error));

  DONE(decode->set_sampling(model, sequence, NULL, &error));
  DONE(decode->set_sampling(model, sequence, &sampling, &error));
  sampling.size = 0;
  REFUSED(decode->set_sampling(model, sequence, &sampling, &error),
          "tensor_ops_sampling.size must be");
  sampling.size = sizeof sampling;
  sampling.temperature = NAN;
  REFUSED(decode->set_sampling(model, sequence, &sampling, &error), "temperature must be");
  sampling.temperature = 1;
  sampling.top_p = 0;
  REFUSED(decode->set_sampling(model, sequence, &sampling, &error), "top_p must be");
  sampling.top_p = 1;
  sampling.min_p = 2;
  REFUSED(decode->set_sampling(model, sequence, &sampling, &error), "min_p must be");
  sampling.min_p = 0;
  sampling.top_k = -1;
  REFUSED(decode->set_sampling(model, sequence, &sampling, &error), "top_k must be");

  REFUSED(decode->generate(model, NULL, &error), "generation must not be null");
  generation.size = 3;
  REFUSED(decode->generate(model, &generation, &error), "tensor_ops_generation.size must be");
  generation.size = sizeof generation;
  generation.sequences = &sequence;
  REFUSED(decode->generate(model, &generation, &error), "number of sequences");
  generation.sequence_count = 1;
  REFUSED(decode->generate(model, &generation, &error), "max_tokens must be from 1");
  generation.max_tokens = 8;
  REFUSED(decode->generate(model, &generation, &error), "tokens must not be null");
  generation.tokens = written;
  REFUSED(decode->generate(model, &generation, &error), "token_counts must not be null");
  generation.token_counts = counts;
  REFUSED(decode->generate(model, &generation, &error), "sequence 1 is empty");
  DONE(decode->append(model, sequence, tokens, 3, &error));
  generation.end_token_count = -2;
  REFUSED(decode->generate(model, &generation, &error), "number of tokens");
  generation.end_token_count = 1;
  REFUSED(decode->generate(model, &generation, &error), "end_tokens must not be null");
  generation.end_token_count = 0;
  DONE(decode->generate(model, &generation, &error));
  expect(__LINE__, counts[0], 8, &error, "");

  REFUSED(decode->step_array(model, "tokens", &array, &error), "driven by sequences");
  REFUSED(decode->run_step(model, 1, 1, &error), "driven by sequences");
  decode->close(model);

  DONE(decode->open(folder, &options, &model, &error));
  REFUSED(decode->step_array(NULL, "tokens", &array, &error), "model must not be null");
  REFUSED(decode->step_array(model, NULL, &array, &error), "name must not be null");
  REFUSED(decode->step_array(model, "tokens", NULL, &error), "array must not be null");
  REFUSED(decode->step_array(model, "token", &array, &error), "no array 'token'; there are tokens");
  array.size = 1;
  REFUSED(decode->step_array(model, "tokens", &array, &error),
          "tensor_ops_step_array.size must be");
  REFUSED(decode->open_sequence(model, &sequence, &error), "driven by the arrays");
  REFUSED(decode->run_step(model, 0, 0, &error), "num_tokens must be from 1");
  REFUSED(decode->run_step(model, 1, -1, &error), "num_selected must be from 0");
  REFUSED(decode->run_step(model, 1, 2, &error), "num_selected must be from 0 to 1");
  REFUSED(decode->run_steps(model, NULL, &error), "steps must not be null");
  REFUSED(decode->run_steps(model, &steps, &error), "output must not be null");
  steps.output = "logits";
  REFUSED(decode->run_steps(model, &steps, &error), "chosen must not be null");
  steps.chosen = written;
  REFUSED(decode->run_steps(model, &steps, &error), "num_tokens must be from 1");
  steps.num_tokens = 1;
  REFUSED(decode->run_steps(model, &steps, &error), "num_steps must be from 1");
  steps.num_steps = 2;
  steps.max_seconds = NAN;
  REFUSED(decode->run_steps(model, &steps, &error), "max_seconds must be");
  steps.max_seconds = 0;
  REFUSED(decode->run_steps(model, &steps, &error), "'logits' is no output");
  steps.output = "next";
  {
    const int32_t* ends[] = {NULL};
    const int32_t counted[] = {1};
    steps.end_tokens = ends;
    REFUSED(decode->run_steps(model, &steps, &error), "end_token_counts must not be null");
    steps.end_token_counts = counted;
    REFUSED(decode->run_steps(model, &steps, &error), "end_tokens must not be null");
    steps.end_tokens = NULL;
  }
  DONE(decode->run_steps(model, &steps, &error));
  expect(__LINE__, steps.steps_done, 2, &error, "");

  fflush(stdout);
  if (fork() == 0) {
    expect(__LINE__, decode->run_step(model, 1, 0, &error), TENSOR_OPS_RUNTIME_ERROR, &error,
           "the process was forked");
    decode->close(model);
    fflush(stdout);
    _exit(0);
  }
  wait(NULL);
  DONE(decode->run_step(model, 1, 0, &error));
  decode->close(model);
}

int main(int count, char** words) {
  void* const library = count == 4 ? dlopen(words[1], RTLD_NOW) : NULL;
  tensor_ops_get_backend* entry;
  const tensor_ops_backend* backend = NULL;
  if (library == NULL) return 2;
  *(void**)&entry = dlsym(library, words[2]);
  if (entry == NULL || entry(TENSOR_OPS_ABI_VERSION, &backend, NULL) != TENSOR_OPS_OK) return 3;
  if (backend->decode == NULL || backend->decode->size < sizeof(tensor_ops_decode)) return 4;
  sequences(backend->decode, words[3]);
  printf("%d calls\n", checked);
  return 0;
}
