#include "launch/pipeline.h"

#include <map>
#include <mutex>
#include <vector>

#include "launch/cuda.h"

namespace tensor_ops {
namespace {

// Never destroyed: a call may end after static objects are gone.
struct IdlePipelines {
  std::mutex mutex;
  std::map<int, std::vector<std::unique_ptr<Pipeline>>> of_device;
};

IdlePipelines& idle() {
  static auto* pipelines = new IdlePipelines;
  return *pipelines;
}

std::unique_ptr<Pipeline> take_idle(int device) {
  const std::lock_guard lock(idle().mutex);
  auto& pipelines = idle().of_device[device];
  if (pipelines.empty()) return nullptr;
  auto last = std::move(pipelines.back());
  pipelines.pop_back();
  return last;
}

}  // namespace

void Pipeline::drain() const {
  for (const Stream* stream : {&upload, &compute, &download})
    if (cudaStreamSynchronize(stream->get()) != cudaSuccess) cudaGetLastError();
}

BorrowedPipeline borrow_pipeline(int device) {
  std::unique_ptr<Pipeline> pipeline = take_idle(device);
  if (!pipeline) pipeline = std::make_unique<Pipeline>();
  return {pipeline.release(), {device}};
}

void ReturnPipeline::operator()(Pipeline* returned) const {
  constexpr std::size_t kMostIdle = 8;
  std::unique_ptr<Pipeline> pipeline(returned);
  const std::lock_guard lock(idle().mutex);
  auto& pipelines = idle().of_device[device];
  if (pipelines.size() < kMostIdle) pipelines.push_back(std::move(pipeline));
}

}  // namespace tensor_ops
