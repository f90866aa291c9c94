// The streams that a host call's uploads, kernels and downloads run on, kept for the next call.
#pragma once

#include <memory>

#include "launch/device.h"
#include "launch/streams.h"

namespace tensor_ops {

constexpr int kSlots = 4;  // chunks in flight at a time

struct Pipeline {
  Stream upload, compute, download;
  struct SlotEvents {
    Event uploaded, computed, downloaded;
  } events[kSlots];
  Event allocated;

  // Waits for all that was enqueued; errors are the caller's who enqueued it.
  void drain() const;
};

// Keeps a pipeline for the next call.
struct ReturnPipeline {
  int device;
  void operator()(Pipeline* pipeline) const;
};
using BorrowedPipeline = std::unique_ptr<Pipeline, ReturnPipeline>;

// One of the device, which is current, for this thread alone. Throws CudaError.
BorrowedPipeline borrow_pipeline(int device);

}  // namespace tensor_ops
