/* A backend's library for the tests. Macros say what it is: FAKE_NAME, FAKE_VERSION, FAKE_ABI,
 * FAKE_SAYS (the name in its table), FAKE_UNAVAILABLE (a reason), FAKE_DEVICE_KIND, FAKE_NO_ENTRY,
 * FAKE_STATUS (of each call), FAKE_LOST_BY_FORK, FAKE_INITIALISER and FAKE_ENTRY_ASKS (where it
 * asks the registry). A call copies the first two bytes of its first input to its first output, and
 * what arrived is kept for fake_last_call(). */
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <tensor_ops/abi.h>
#include <unistd.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define JOIN_OF(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN_OF(a, b, c)

#ifndef FAKE_NAME
#define FAKE_NAME cpp
#endif
#ifndef FAKE_SAYS
#define FAKE_SAYS TEXT(FAKE_NAME)
#endif
#ifndef FAKE_VERSION
#define FAKE_VERSION "1.2.3"
#endif
#ifndef FAKE_ABI
#define FAKE_ABI TENSOR_OPS_ABI_VERSION
#endif
#ifndef FAKE_DEVICE_KIND
#define FAKE_DEVICE_KIND TENSOR_OPS_CPU
#endif
#ifndef FAKE_STATUS
#define FAKE_STATUS TENSOR_OPS_OK
#endif

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

static char last_call[4096];

#ifdef FAKE_UNAVAILABLE
static const char* unavailable_reason(void) { return FAKE_UNAVAILABLE; }
static int32_t device_count(void) { return 0; }
#else
static const char* unavailable_reason(void) {
#ifdef FAKE_LOST_BY_FORK
  static pid_t process = 0;
  if (process == 0) process = getpid();
  if (process != getpid()) return "its device does not survive a fork";
#endif
  return NULL;
}
static int32_t device_count(void) { return 1; }
#endif

static tensor_ops_status device(int32_t index, tensor_ops_device* found, tensor_ops_error* error) {
  if (index < 0 || index >= device_count() || found->size < sizeof *found) {
    if (error) snprintf(error->message, sizeof error->message, "no device %d", (int)index);
    return TENSOR_OPS_VALUE_ERROR;
  }
  found->kind = FAKE_DEVICE_KIND;
  found->index = index;
  snprintf(found->name, sizeof found->name, "fake device");
  found->compute_units = 4;
  found->memory = 1 << 20;
  return TENSOR_OPS_OK;
}

static const tensor_ops_parameter kGelu[] = {
    {"x", "", TENSOR_OPS_ROWS, 0, {NULL, NULL}},
    {"approximate", "", TENSOR_OPS_CHOICE, 0, {"tanh", "none"}}};
static const tensor_ops_parameter kLayerNorm[] = {
    {"x", "", TENSOR_OPS_ROWS, 0, {NULL, NULL}},
    {"weight", "", TENSOR_OPS_ROW, 0, {NULL, NULL}},
    {"bias", "", TENSOR_OPS_OPTIONAL_ROW, 0, {NULL, NULL}},
    {"eps", "", TENSOR_OPS_SCALAR, 1e-5, {NULL, NULL}}};
static const tensor_ops_parameter kAddRmsNorm[] = {
    {"x", "", TENSOR_OPS_ROWS, 0, {NULL, NULL}},
    {"residual", "", TENSOR_OPS_ROWS, 0, {NULL, NULL}},
    {"weight", "", TENSOR_OPS_ROW, 0, {NULL, NULL}},
    {"eps", "", TENSOR_OPS_SCALAR, 1e-6, {NULL, NULL}}};
static const tensor_ops_parameter kRmsNorm[] = {{"x", "", TENSOR_OPS_ROWS, 0, {NULL, NULL}},
                                                {"weight", "", TENSOR_OPS_ROW, 0, {NULL, NULL}},
                                                {"eps", "", TENSOR_OPS_SCALAR, 1e-6, {NULL, NULL}}};
static const tensor_ops_parameter kRope[] = {
    {"x", "", TENSOR_OPS_ROWS, 0, {NULL, NULL}},
    {"cos", "", TENSOR_OPS_HALF_ROWS, 0, {NULL, NULL}},
    {"sin", "", TENSOR_OPS_HALF_ROWS, 0, {NULL, NULL}},
    {"interleaved", "", TENSOR_OPS_FLAG, 0, {"False", "True"}}};
static const char* const kY[] = {"y"};
static const char* const kYAndH[] = {"y", "h"};
static const tensor_ops_op kOps[] = {
    {"add_rms_norm", "", "", kAddRmsNorm, 4, 3, 1, kYAndH, 2},
    {"gelu", "", "", kGelu, 2, 1, 0, kY, 1},
    {"layer_norm", "", "", kLayerNorm, 4, 3, 1, kY, 1},
    {"rms_norm", "", "", kRmsNorm, 3, 2, 1, kY, 1},
    {"rope", "", "", kRope, 4, 3, 0, kY, 1},
};
static const tensor_ops_op* const kSorted[] = {&kOps[0], &kOps[1], &kOps[2], &kOps[3], &kOps[4]};

static char* add_array(char* at, const tensor_ops_array* array) {
  if (array->dtype == TENSOR_OPS_NO_ARRAY) return at + sprintf(at, " none");
  at += sprintf(at, " d%d(", (int)array->dtype);
  for (int i = 0; i < array->dims; ++i)
    at += sprintf(at, i ? ",%lld" : "%lld", (long long)array->shape[i]);
  at += sprintf(at, ")");
  if (array->strides) {
    at += sprintf(at, "[");
    for (int i = 0; i < array->dims; ++i)
      at += sprintf(at, i ? ",%lld" : "%lld", (long long)array->strides[i]);
    at += sprintf(at, "]");
  }
  if (array->device_kind != TENSOR_OPS_CPU || array->device_index != 0)
    at += sprintf(at, "@%d:%d", (int)array->device_kind, (int)array->device_index);
  return at;
}

static tensor_ops_status run(const tensor_ops_op* op, const tensor_ops_call* call,
                             tensor_ops_error* error) {
  char* at = last_call;
  at += sprintf(at, "%s in", op->name);
  for (int i = 0; i < call->input_count; ++i) at = add_array(at, &call->inputs[i]);
  at += sprintf(at, " out");
  for (int i = 0; i < call->output_count; ++i) at = add_array(at, &call->outputs[i]);
  at += sprintf(at, " scalars");
  for (int i = 0; i < call->scalar_count; ++i) at += sprintf(at, " %g", call->scalars[i]);
  sprintf(at, " choice %d threads %d stream %d", (int)call->choice, (int)call->num_threads,
          call->stream != NULL);
  if (call->size != sizeof *call) sprintf(last_call, "size %u", (unsigned)call->size);
  if (FAKE_STATUS != TENSOR_OPS_OK) {
    snprintf(error->message, sizeof error->message, "the fake's message");
    return FAKE_STATUS;
  }
  if (call->output_count > 0 && call->outputs[0].data && call->inputs[0].data)
    memcpy(call->outputs[0].data, call->inputs[0].data, 2);
  return TENSOR_OPS_OK;
}

static int32_t threads = 3;
static int32_t num_threads(void) { return threads; }
static tensor_ops_status set_num_threads(int32_t count, tensor_ops_error* error) {
  if (count < 1) {
    snprintf(error->message, sizeof error->message, "threads must be at least 1, got %d",
             (int)count);
    return TENSOR_OPS_VALUE_ERROR;
  }
  threads = count;
  return TENSOR_OPS_OK;
}

static const tensor_ops_backend kBackend = {sizeof(tensor_ops_backend),
                                            FAKE_ABI,
                                            FAKE_SAYS,
                                            "Fake " FAKE_SAYS,
                                            FAKE_VERSION,
                                            "levels=none decode=off",
                                            unavailable_reason,
                                            device_count,
                                            device,
                                            kSorted,
                                            5,
                                            run,
                                            num_threads,
                                            set_num_threads,
                                            NULL};

EXPORT const char* fake_last_call(void);
EXPORT const char* fake_last_call(void) { return last_call; }

/* A function of the program, which asks the registry for this backend. */
void asked_while_loading(void);

#ifdef FAKE_INITIALISER
__attribute__((constructor)) static void initialise(void) { asked_while_loading(); }
#endif

#ifndef FAKE_NO_ENTRY
EXPORT tensor_ops_status JOIN(tensor_ops_, FAKE_NAME, _backend)(uint32_t version,
                                                                const tensor_ops_backend** backend,
                                                                tensor_ops_error* error);
EXPORT tensor_ops_status JOIN(tensor_ops_, FAKE_NAME, _backend)(uint32_t version,
                                                                const tensor_ops_backend** backend,
                                                                tensor_ops_error* error) {
  *backend = NULL;
#ifdef FAKE_ENTRY_ASKS
  asked_while_loading();
#endif
  if (version > FAKE_ABI) {
    snprintf(error->message, sizeof error->message, "this library has version %u of the interface",
             (unsigned)FAKE_ABI);
    return TENSOR_OPS_VALUE_ERROR;
  }
  *backend = &kBackend;
  return TENSOR_OPS_OK;
}
#endif
