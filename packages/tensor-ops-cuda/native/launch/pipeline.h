// The streams that a host call's uploads, kernels and downloads run on, kept for the next call.
#pragma once

#include <memory>

#include "launch/device.h"
#include "launch/streams.h"

namespace tensor_ops {

constexpr int kSlots = 4;  // chunks under way at a time

struct Pipeline {
  Stream upload, compute, download;
  struct Marks {
    Event uploaded, computed, downloaded;
  } marks[kSlots];
  Event prepared;

  // Waits for all that was enqueued, whatever becomes of it.
  void drain() const;
};

// One of the device, which is current, for this thread alone as long as the object lives.
class BorrowedPipeline {
 public:
  explicit BorrowedPipeline(int device);
  ~BorrowedPipeline();
  BorrowedPipeline(const BorrowedPipeline&) = delete;
  BorrowedPipeline& operator=(const BorrowedPipeline&) = delete;

  Pipeline& operator*() const { return *pipeline_; }

 private:
  int device_;
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace tensor_ops
