#include "launch/pipeline.h"

#include <map>
#include <mutex>
#include <vector>

#include "launch/cuda.h"

namespace tensor_ops {
namespace {

struct Idle {
  std::mutex mutex;
  std::map<int, std::vector<std::unique_ptr<Pipeline>>> of_device;
};

Idle& idle() {
  static auto* pipelines = new Idle;
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

BorrowedPipeline::BorrowedPipeline(int device) : device_(device), pipeline_(take_idle(device)) {
  if (!pipeline_) pipeline_ = std::make_unique<Pipeline>();
}

BorrowedPipeline::~BorrowedPipeline() {
  constexpr std::size_t kMostIdle = 8;
  const std::lock_guard lock(idle().mutex);
  auto& pipelines = idle().of_device[device_];
  if (pipelines.size() < kMostIdle) pipelines.push_back(std::move(pipeline_));
}

}  // namespace tensor_ops
