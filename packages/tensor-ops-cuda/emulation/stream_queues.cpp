// Streams, events and graphs.
#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "host.h"

// The types behind the handles.
struct CUstream_st {
  int device = 0;
  bool waits_for_legacy = true;
  std::deque<emulation::Task> tasks;
  emulation::Ticket last = std::make_shared<bool>(true);
  CUgraph_st* capture = nullptr;
  bool is_capture_invalid = false;
};
struct CUevent_st {
  emulation::Ticket ticket = std::make_shared<bool>(true);
  CUgraph_st* capture = nullptr;  // the capture during which it was recorded
};
struct CUgraph_st : emulation::Graph {};
struct CUgraphExec_st : emulation::Graph {};

namespace emulation {
namespace {

// Never destroyed: a program's own static variables may hold memory and streams to its end.
auto& streams = *new std::list<CUstream_st>;
auto& events = *new std::set<cudaEvent_t>;
// The two default streams of each device, the second of each thread.
auto& legacy = *new std::map<int, CUstream_st*>;
auto& per_thread = *new std::map<std::pair<int, std::thread::id>, CUstream_st*>;

CUstream_st* new_stream(bool waits_for_legacy) {
  CUstream_st& stream = streams.emplace_back();
  stream.device = current_device();
  stream.waits_for_legacy = waits_for_legacy;
  return &stream;
}

// The stream of a handle, null for an unknown one.
CUstream_st* resolve(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy) {
    CUstream_st*& found = legacy[current_device()];
    return found ? found : found = new_stream(false);
  }
  if (stream == cudaStreamPerThread) {
    CUstream_st*& found = per_thread[{current_device(), std::this_thread::get_id()}];
    return found ? found : found = new_stream(true);
  }
  for (CUstream_st& each : streams)
    if (&each == stream) return &each;
  return nullptr;
}

bool is_legacy(const CUstream_st& stream) {
  const auto found = legacy.find(stream.device);
  return found != legacy.end() && found->second == &stream;
}

// The tasks of other streams that a stream's next task has to wait for.
std::vector<Ticket> implied_waits(const CUstream_st& stream) {
  std::vector<Ticket> waits;
  if (is_legacy(stream)) {
    for (const CUstream_st& each : streams)
      if (each.device == stream.device && each.waits_for_legacy) waits.push_back(each.last);
  } else if (stream.waits_for_legacy && legacy.count(stream.device)) {
    waits.push_back(legacy[stream.device]->last);
  }
  return waits;
}

void add_task(CUstream_st& stream, std::function<void()> work, std::vector<Ticket> waits) {
  for (Ticket& each : implied_waits(stream)) waits.push_back(std::move(each));
  stream.last = std::make_shared<bool>(false);
  stream.tasks.push_back({std::move(work), std::move(waits), stream.last});
}

bool can_go_on(const CUstream_st& stream) {
  if (stream.tasks.empty()) return false;
  const auto& waits = stream.tasks.front().waits_for;
  return std::all_of(waits.begin(), waits.end(), [](const Ticket& ticket) { return *ticket; });
}

void do_next_task(CUstream_st& stream) {
  const Task task = std::move(stream.tasks.front());
  stream.tasks.pop_front();
  if (task.work) task.work();
  *task.done = true;
}

CUstream_st* random_stream() {
  static std::mt19937 random(static_cast<unsigned>(setting("TENSOR_OPS_EMULATED_SEED", 1)));
  std::vector<CUstream_st*> ready;
  for (CUstream_st& each : streams)
    if (can_go_on(each)) ready.push_back(&each);
  return ready.empty() ? nullptr : ready[random() % ready.size()];
}

bool is_finished(const CUstream_st& stream) { return stream.tasks.empty(); }

}  // namespace

cudaError_t run_until(const Ticket& ticket) {
  while (!*ticket) {
    CUstream_st* next = random_stream();
    if (!next) return cudaErrorUnknown;  // a deadlock: all streams wait for each other
    do_next_task(*next);
  }
  return sticky_error();
}

Ticket end_of(cudaStream_t stream) { return resolve(stream)->last; }
bool is_known(cudaStream_t stream) { return resolve(stream) != nullptr; }
bool is_capturing(cudaStream_t stream) { return resolve(stream)->capture != nullptr; }
int device_of(cudaStream_t stream) { return resolve(stream)->device; }

cudaError_t refuse_in_capture() {
  cudaError_t error = cudaSuccess;
  for (CUstream_st& each : streams) {
    if (!each.capture) continue;
    each.is_capture_invalid = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

cudaError_t push(cudaStream_t handle, std::function<void()> work) {
  CUstream_st& stream = *resolve(handle);
  if (stream.capture)
    stream.capture->work.push_back(std::move(work));
  else
    add_task(stream, std::move(work), {});
  return cudaSuccess;
}

void finish_device(int device) {
  for (CUstream_st& each : streams)
    if (each.device == device && !is_finished(each)) run_until(each.last);
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = driver_state()) return fail(error);
  if (!is_known(stream)) return fail(cudaErrorInvalidResourceHandle);
  if (device_of(stream) != current_device()) return fail(cudaErrorInvalidResourceHandle);
  return fail(push(stream, std::move(work)));
}

namespace {

cudaError_t check_stream(cudaStream_t stream) {
  if (const cudaError_t error = driver_state()) return error;
  return is_known(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t check_event(cudaEvent_t event) {
  if (const cudaError_t error = driver_state()) return error;
  return events.count(event) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

}  // namespace
}  // namespace emulation

using namespace emulation;

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = driver_state()) return fail(error);
  *stream = new_stream(flags != cudaStreamNonBlocking);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = check_stream(stream)) return fail(error);
  if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
    return fail(cudaErrorInvalidResourceHandle);
  run_until(end_of(stream));
  streams.remove_if([stream](const CUstream_st& each) { return &each == stream; });
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = check_stream(stream)) return fail(error);
  if (is_capturing(stream)) return fail(refuse_in_capture());
  return *end_of(stream) ? sticky_error() : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = check_stream(stream)) return fail(error);
  if (is_capturing(stream)) return fail(refuse_in_capture());
  return fail(run_until(end_of(stream)));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = check_stream(stream)) return fail(error);
  if (const cudaError_t error = check_event(event)) return fail(error);
  CUstream_st& waiting = *resolve(stream);
  // A stream that waits for a captured one becomes part of the capture.
  if (event->capture) waiting.capture = event->capture;
  if (!waiting.capture) add_task(waiting, {}, {event->ticket});
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return enqueue(stream, [function, data] { function(data); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = driver_state()) return fail(error);
  events.insert(*event = new CUevent_st);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = check_event(event)) return fail(error);
  events.erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = check_stream(stream)) return fail(error);
  if (const cudaError_t error = check_event(event)) return fail(error);
  CUstream_st& recorded = *resolve(stream);
  event->capture = recorded.capture;
  if (recorded.capture) return cudaSuccess;
  add_task(recorded, {}, {});
  event->ticket = recorded.last;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = check_event(event)) return fail(error);
  if (const cudaError_t error = refuse_in_capture()) return fail(error);
  return *event->ticket ? sticky_error() : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = check_event(event)) return fail(error);
  if (const cudaError_t error = refuse_in_capture()) return fail(error);
  return fail(run_until(event->ticket));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = check_stream(stream)) return fail(error);
  const CUstream_st& asked = *resolve(stream);
  *status = !asked.capture             ? cudaStreamCaptureStatusNone
            : asked.is_capture_invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = check_stream(stream)) return fail(error);
  CUstream_st& begun = *resolve(stream);
  if (begun.capture || is_legacy(begun)) return fail(cudaErrorStreamCaptureUnsupported);
  begun.capture = new CUgraph_st;
  begun.is_capture_invalid = false;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = check_stream(stream)) return fail(error);
  CUstream_st& ended = *resolve(stream);
  CUgraph_st* captured = ended.capture;
  const bool is_invalid = ended.is_capture_invalid;
  for (CUstream_st& each : streams)
    if (each.capture == captured) each.capture = nullptr;
  *graph = is_invalid ? nullptr : captured;
  return fail(is_invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st;
  (*exec)->work = graph->work;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const std::lock_guard guard(lock());
  if (const cudaError_t error = check_stream(stream)) return fail(error);
  for (const auto& work : exec->work) push(stream, work);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

}  // extern "C"
